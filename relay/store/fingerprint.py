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


Fingerprint = Mapping[str, Mapping[str, str]]
"""The state of a repository at one moment: kind of thing → its name → an opaque value, only good for comparing."""


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
    return {
        "HEAD": {f"{repo.branch} {repo.head()}": ""},
        "refs": _read_refs(repo),
        # Entries with their flags, without the stat data that git refreshes at will.
        "index entries": index,
        # Tracked files that differ from the index, and untracked ones.
        "files": {path: _hash_file(repo.root / path) for path in listed if not is_left_out(path)},
        "ignored files": {path: _describe(_find_lstat(repo.root / path)) for path in ignored if not is_left_out(path)},
        # Of submodules, and of repositories that git does not track.
        "files in nested repositories": _read_nested(repo, status, gitlinks),
        # What configures git (config, hooks, info), and marks of unfinished operations.
        "git's own files": _read_settings(repo, guarded),
    }


def list_differences(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return one line for each kind of thing that differs; empty if nothing does."""
    lines = []
    for kind, old in before.items():
        new = after[kind]
        if changed := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
            lines.append(f"{kind} changed: {list_some([repr(key) for key in changed], _SHOWN)}")
    return tuple(lines)


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
