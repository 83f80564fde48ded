"""A fingerprint of a repository, to prove that a read-only session changed nothing.

relay compares content by hash wherever git itself does not vouch for it: files that git's status lists, and files that
configure git. For tracked files that status calls unchanged, git has compared size, times and inode number, and no
program can set the change time. Ignored files and the insides of nested repositories are compared by size, mode and
modification time. Nothing is written, not even objects.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git.config_guard import Guarded, guard
from relay.git.hooks import get_hooks_dir
from relay.git.repository import Repo
from relay.git.status import Status, read_guarded_status
from relay.git.trees import GITLINK
from relay.store.snapshot import MAX_UNTRACKED_BYTES

_SHOWN = 5
_STATE_FILES = (
    "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply",
    "sequencer",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The state of a repository at one moment; values are opaque and only good for comparing."""

    head: str
    """Branch and commit."""
    refs: Mapping[str, str]
    index: Mapping[str, str]
    """Entries with their flags, without the stat data that git refreshes at will."""
    files: Mapping[str, str]
    """Tracked files that differ from the index, and untracked ones."""
    ignored: Mapping[str, str]
    nested: Mapping[str, str]
    """Files inside submodules and inside repositories that git does not track."""
    settings: Mapping[str, str]
    """Files that configure git: config, hooks, info, and marks of unfinished operations."""


def take_fingerprint(repo: Repo, *, leave_out: Collection[str] = (".relay",)) -> Fingerprint:
    """Return the repository's fingerprint.

    Args:
        leave_out: Repository-relative paths that may change, with everything below them.
    """
    guarded = guard(repo)
    status = read_guarded_status(guarded)
    index = _read_index(guarded)

    def is_left_out(path: str) -> bool:
        return any(f"{path}/".startswith(f"{name}/") for name in leave_out)

    gitlinks = tuple(path for path, entry in index.items() if f" {GITLINK} " in entry)
    flagged = tuple(path for path, entry in index.items() if not entry.startswith("H "))
    ignored = guarded.git.list_files("--others", "--ignored", "--exclude-standard")
    listed = {entry.path for entry in status.entries if entry.mode != GITLINK} | set(flagged)
    return Fingerprint(
        head=f"{repo.branch} {repo.head()}",
        refs=_read_refs(repo),
        index=index,
        files={path: _hash_file(repo.root / path) for path in listed if not is_left_out(path)},
        ignored={path: _describe(_find_lstat(repo.root / path)) for path in ignored if not is_left_out(path)},
        nested=_read_nested(repo, status, gitlinks),
        settings=_read_settings(repo, guarded),
    )


def list_differences(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return one line for each kind of thing that differs; empty if nothing does."""
    words = [f"HEAD moved from {before.head} to {after.head}"] if before.head != after.head else []
    pairs = (
        ("refs", before.refs, after.refs),
        ("index entries", before.index, after.index),
        ("files", before.files, after.files),
        ("ignored files", before.ignored, after.ignored),
        ("files in nested repositories", before.nested, after.nested),
        ("git's own files", before.settings, after.settings),
    )
    return (*words, *(line for name, old, new in pairs for line in _compare(name, old, new)))


def _compare(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if not changed:
        return ()
    return (f"{name} changed: {list_some([repr(key) for key in changed], _SHOWN)}",)


def _read_refs(repo: Repo) -> dict[str, str]:
    out = os.fsdecode(repo.git.run("for-each-ref", "--format=%(refname) %(objectname) %(symref)"))
    pairs = (line.split(" ", 1) for line in out.splitlines())
    return {name: value for name, value in pairs if not name.startswith("refs/relay/")}


def _read_index(guarded: Guarded) -> dict[str, str]:
    records = guarded.git.run("ls-files", "-z", "--stage", "-v").split(b"\0")[:-1]
    entries: dict[str, str] = {}
    for record in records:
        head, _, path = os.fsdecode(record).partition("\t")
        entries[path] = f"{entries[path]}, {head}" if path in entries else head
    return entries


def _describe(found: os.stat_result | None) -> str:
    """Return type and permissions in octal, size and time; ``absent`` if there is nothing."""
    return f"{found.st_mode:o} {found.st_size} {found.st_mtime_ns}" if found else "absent"


def _find_lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _read_nested(repo: Repo, status: Status, gitlinks: Iterable[str]) -> dict[str, str]:
    found = {}
    for directory in (*status.nested, *gitlinks):
        for path in _walk(repo.root / directory):
            found[str(path.relative_to(repo.root))] = _describe(_find_lstat(path))
    return found


def _walk(top: Path) -> Iterator[Path]:
    """Yield what is in a directory and below it; nothing for a link, which may lead to any other, of any size."""
    for place, directories, files in () if top.is_symlink() else os.walk(top):
        for name in (*directories, *files):
            yield Path(place, name)


def _read_settings(repo: Repo, guarded: Guarded) -> dict[str, str]:
    places = [repo.common_dir / "config", repo.git_dir / "config.worktree", repo.common_dir / "info"]
    places += [repo.common_dir / "hooks", repo.common_dir / "objects/info"]
    places += [repo.git_dir / name for name in _STATE_FILES]
    hooks = get_hooks_dir(repo, guarded.config)
    places += [hooks] if hooks.is_relative_to(repo.root) else []  # no session can write elsewhere
    return {str(file): _hash_file(file) for place in places for file in (place, *_walk(place))}


def _hash_file(file: Path) -> str:
    found = _find_lstat(file)
    if found is None:
        return "absent"
    mode = f"{found.st_mode:o}"
    if mode.startswith("12"):
        return f"{mode} {file.readlink()}"
    if not mode.startswith("100"):
        return mode
    # A change of the time alone does not change what the user wrote.
    if found.st_size > MAX_UNTRACKED_BYTES or not os.access(file, os.R_OK):
        return _describe(found)
    return f"{mode} {hashlib.sha256(file.read_bytes()).hexdigest()}"
