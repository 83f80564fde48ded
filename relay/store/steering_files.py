"""Files that steer relay, git or another agent later, and who made them.

Rules, settings, ledgers and git directories that exist when a command starts are read-only for it. No sandbox can
protect files that did not exist: a session, a gate or a hook may have made a file that appears while one of them could
run. relay does not obey such a file, and commits nothing beside it, until a person has staged or committed it: git's
index is out of reach of every command. relay notes which files exist before anything runs and looks again when all is
over; no clock decides, and neither does ``.gitignore``, which a session may write.
"""

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import ValidationError, convert, to_builtins

from relay.base.documents import parse_toml
from relay.base.errors import RepoError
from relay.base.hints import Hint, TypedPath
from relay.base.tree import find_stat, read_start
from relay.base.values import dataclass
from relay.git.config_guard import guard, is_armed, is_git_layout
from relay.git.names import list_paths
from relay.git.notes import STEERING, read_note, write_note
from relay.git.repository import Repo
from relay.plan.text import LEDGER_SUFFIX
from relay.sandbox.places import list_folders
from relay.sandbox.policy import PROTECTED_NAMES
from relay.store.worktree_notes import is_own_tree

_SETTINGS = "relay.toml"
_SHARED = "pyproject.toml"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The known steering files of a work tree."""

    strange: frozenset[str]
    """Files that a command may have made or written."""
    known: frozenset[str] | None
    """All files that existed when the present run began; None when no run is on."""


def find_steering(root: Path) -> frozenset[str]:
    """Return the files in a work tree that steer something.

    A path of a git directory, or of a ``.git`` file, ends in ``/``. A file that relay shares with others is
    ``<path>#<digest of relay's part>``.
    """
    found = set(find_settings_files(root))
    for folder, entries in list_folders(root):
        here = os.path.relpath(folder, root)
        below, there = "" if here == "." else f"{here}/", frozenset(entry.name for entry in entries)
        # A ledger's text goes into every session's first message, and the next run would commit it as a person's.
        steering = there.intersection(PROTECTED_NAMES).union(name for name in there if name.endswith(LEDGER_SUFFIX))
        found |= {f"{below}{name}" for name in steering}
        if below and ".git" in there:
            found.add(f"{below}.git/")
        if below and is_git_layout(there):
            found.add(below)
    return frozenset(found)


def name_file(entry: str) -> str:
    """Return the path of an entry of `find_steering`."""
    return _SHARED if entry.startswith(f"{_SHARED}#") else entry


def find_settings_files(root: Path) -> frozenset[str]:
    """Return the same for relay's own settings alone."""
    found = {_SETTINGS} if find_stat(root, _SETTINGS) else set()
    if table := _read_table(root / _SHARED):
        found.add(f"{_SHARED}#{hashlib.sha256(table.encode()).hexdigest()[:16]}")
    return frozenset(found)


def _read_table(file: Path) -> str:
    """Return relay's table of a shared file, in one form for equal values; empty without a readable one."""
    try:
        data = read_start(file, _MOST_BYTES) or b""
        if b"relay" not in data:
            return ""
        tool = parse_toml(data.decode("utf-8-sig")).get("tool", {})
        return json.dumps(tool["relay"], sort_keys=True, default=str)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # the settings' own reader reports what is wrong


def begin_watch(repo: Repo, plan_path: str) -> None:
    """Note the steering files before anything of a run starts; the caller holds the work tree's lock.

    Raises:
        RepoError: There is a file that a command of an earlier run may have made or written.
    """
    require_known(repo, find_all_strange(repo, plan_path))
    _save(repo, _Record(strange=frozenset(), known=find_steering(repo.root) | {plan_path}))


def note_own(repo: Repo, path: str) -> None:
    """Note a file before relay makes it during a run: no command has made it."""
    if (record := _read(repo)) is not None and record.known is not None:
        _save(repo, replace(record, known=record.known | {path}))


def end_watch(repo: Repo, plan_path: str) -> None:
    """Note the files that appeared during a run; files that appear from now on are a person's."""
    _save(repo, _Record(strange=frozenset(find_all_strange(repo, plan_path)), known=None))


def require_known(repo: Repo, strange: tuple[str, ...]) -> None:
    """Stop if relay would obey a file of an unknown maker.

    Raises:
        RepoError: It names the files, and how to say that they are the user's.
    """
    if strange:
        words, ways = describe_strange(repo, strange)
        raise RepoError(words, hint=ways)


def describe_strange(repo: Repo, strange: tuple[str, ...]) -> tuple[str, Hint]:
    """Return what is wrong with files of an unknown maker, and what the user can do; relay's tree is not his."""
    paths = [name_file(entry) for entry in strange]
    words = f"{list_paths(paths)} appeared while a session, a check or a hook could make it; only you write such a file"
    named = [path for path in paths if not path.endswith("/")][:3]
    add, here, note = "git add -f", "", f".git/relay/{STEERING}"
    files: tuple[Hint, ...] = tuple((" ", TypedPath(path=path)) for path in named)
    if is_own_tree(repo):
        root, note = shlex.quote(str(repo.root)), shlex.quote(str(repo.relay_dir / STEERING))
        add, here, files = f"git -C {root} add -f", f" in {root}", (f" {shlex.join(named)}",)
    own: Hint = (add, files) if len(named) == len(strange) else f"rm {note}"
    return words, (f"look at it{here}, and remove what is not yours; if it is yours, say so: ", own)


def find_strange(repo: Repo, present: frozenset[str]) -> tuple[str, ...]:
    """Return those of the present files that a command may have made or written, and no person staged or committed."""
    record = _read(repo)
    if record is None:
        return ()
    new = present - record.known if record.known is not None else frozenset[str]()
    return tuple(sorted(_find_unstaged(repo, new | (record.strange & present))))


def find_all_strange(repo: Repo, plan_path: str) -> tuple[str, ...]:
    """Return all such files of the work tree."""
    record = _read(repo)
    if record is None:  # no run yet, or the user removed it, as `describe_strange` says
        return ()
    new = (find_steering(repo.root) | {plan_path}) - record.known if record.known is not None else frozenset[str]()
    return tuple(sorted(_find_unstaged(repo, new | record.strange)))


def _find_unstaged(repo: Repo, candidates: Iterable[str]) -> Iterator[str]:
    """Yield the files that differ from the index, and the armed git directories, which the index never holds."""
    git_dirs = [path for path in candidates if path.endswith("/") and os.path.lexists(repo.root / path.rstrip("/"))]
    yield from (path for path in git_dirs if is_armed(repo, repo.root / path.rstrip("/")))
    files = {path: name_file(path) for path in candidates if not path.endswith("/")}
    unstaged = _list_unstaged(repo, files.values())
    for path, name in files.items():
        if any(other == name or other.startswith(f"{name}/") for other in unstaged):
            yield path


def _list_unstaged(repo: Repo, paths: Iterable[str]) -> frozenset[str]:
    """Return the files, at or below paths, that differ from the index, ignored ones too."""
    wanted = sorted(paths)
    if not wanted:
        return frozenset()
    found = guard(repo).git.list_files("--others", "--modified", "--", *wanted)
    return frozenset(path.rstrip("/") for path in found)


def find_persons(paths: Iterable[str]) -> frozenset[str]:
    """Return those of an attempt's new paths that only a person writes: relay never commits them.

    `find_strange` tells whether a person made them; nothing is committed beside a file that no person made.
    """
    return frozenset(
        path for path in paths if path == _SETTINGS or any(part in PROTECTED_NAMES for part in path.split("/"))
    )


def _read(repo: Repo) -> _Record | None:
    """Return the record; None if relay has not run here yet, or the note is not relay's."""
    with contextlib.suppress(ValueError, ValidationError, RecursionError):
        return convert(json.loads(read_note(repo, STEERING)), _Record)
    return None


def _save(repo: Repo, record: _Record) -> None:
    write_note(repo, STEERING, json.dumps(to_builtins(record, order="sorted")))
