"""What a gate may see that a commit does not hold, and what sessions changed in it.

The *environment* is what git ignores and was there when an attempt began: dependencies, build caches, local settings.
No commit holds it, yet a gate may see it. It is the user's, also when a session removes a line from ``.gitignore``.
Files that git comes to ignore later do not belong to it: a clean clone has none of them.
"""

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from msgspec import convert

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.base.words import count, list_some, shorten
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.message import Message
from relay.git.names import parse_path, render_path, with_parents
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import FILE
from relay.plan.text import STATE_DIR, find_ledger_path
from relay.sandbox.places import GENERATED, INSTALLED, MOST, TOOL_CACHES, is_cache_of_packages
from relay.store.attempts import OpenAttempt, find_attempt_changes
from relay.store.snapshot import TreeSnapshot
from relay.store.trailers import LEFTOVER

MAX_LISTED = 1_000
"""The most files of one ignored directory that are listed by name; of a larger directory only its own name is known."""
MAX_LISTED_IN_ALL = 20_000
_NAME = "environment"
_ID = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a gate may see beside a commit."""

    roots: frozenset[str] = frozenset()
    """Ignored files, and ignored directories with everything that is in them then or later."""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The files that were there, also those in small directories, each with a mark that survives a rename."""
    unlisted: frozenset[str] = frozenset()
    """Those of the directories that have too many files to list them."""

    def holds(self, path: str) -> bool:
        """Return whether a path belongs to the environment, or is of a kind that always does.

        An attempt may make its dependencies and its tools' caches itself: an installation is not work of a phase.
        """
        parts = path.split("/")
        if parts[0] in {".git", STATE_DIR} or not GENERATED.isdisjoint(parts):
            return True
        return any("/".join(parts[:end]) in self.roots for end in range(1, len(parts) + 1))


def read_environment(repo: Repo) -> Environment:
    """Return what git ignores in the work tree now."""
    names = guard(repo).git.list_files("--others", "--ignored", "--exclude-standard", "--directory")
    roots = frozenset(name.rstrip("/") for name in names)
    files: dict[str, str] = {}
    unlisted = set()
    for root in sorted(roots):
        below = list(_list_files(repo.root, root))
        if len(below) > MAX_LISTED or len(files) + len(below) > MAX_LISTED_IN_ALL:
            unlisted.add(root)
        else:
            files |= below
    return Environment(roots=roots, files=files, unlisted=frozenset(unlisted))


def _list_files(top: Path, root: str) -> Iterator[tuple[str, str]]:
    """Yield the files at or below a path, each with its mark; at most one more than `MAX_LISTED`."""
    pending, left = [root], MAX_LISTED + 1
    while pending:
        path = pending.pop()
        try:
            found = os.lstat(place := f"{top}/{path}")
            if stat.S_ISDIR(found.st_mode):
                pending += [f"{path}/{name}" for name in os.listdir(place)]  # noqa: PTH208  # names are wanted
                continue
            yield path, _mark(found)
            left -= 1
        except OSError:
            continue  # gone, or unreadable for relay and so for its commands
        if not left:
            return


def _mark(found: os.stat_result) -> str:
    """Return a mark of a file that stays the same when it is renamed."""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def save_environment(repo: Repo, environment: Environment) -> str:
    """Store it as a commit that no ref points to yet, and return its id."""
    values = {
        "roots": sorted(environment.roots),
        "files": dict(environment.files),
        "unlisted": sorted(environment.unlisted),
    }
    (blob,) = objects.store_blobs(repo, [json.dumps(values).encode()])
    tree = objects.write_paths_tree(repo, [(_NAME, FILE, blob)])
    return objects.write_commit(repo, tree, (), Message(subject="relay: what git ignores as a phase begins"))


def load_environment(repo: Repo, commit: str) -> Environment | None:
    """Undo `save_environment`; None if there is none, or it is not relay's."""
    data = objects.read_blob(repo, commit, _NAME) if _ID.fullmatch(commit) else None
    try:
        return convert(json.loads(data or b""), Environment)
    except (ValueError, RecursionError):
        return None


def find_earlier_paths(repo: Repo, environment: Environment | None, changes: Sequence[PathChange]) -> frozenset[str]:
    """Return those of an attempt's added paths that git ignored when the attempt began; relay never commits them.

    A session that removes a line from ``.gitignore`` makes them look new, and may have renamed them.

    Args:
        environment: As it was at the attempt's start; None if unknown.
        changes: The changes since that start.
    """
    if environment is None or not (environment.files or environment.unlisted):
        return frozenset()
    marks = frozenset(environment.files.values())
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    return frozenset(path for path in added if _was_there(repo, environment, marks, path))


def _was_there(repo: Repo, environment: Environment, marks: frozenset[str], path: str) -> bool:
    if path in environment.files or not environment.unlisted.isdisjoint(with_parents([path])):
        return True
    try:
        return _mark(os.lstat(repo.root / path)) in marks
    except OSError:
        return False


def find_owned_paths(repo: Repo, plan_path: str, attempt: OpenAttempt, now: TreeSnapshot) -> tuple[str, ...]:
    """Return the paths that an attempt's sessions changed: neither the user's dirt nor files that only relay writes."""
    changes = find_attempt_changes(repo, attempt, now)
    environment = load_environment(repo, attempt.environment)
    user = find_user_paths(repo, attempt) | find_earlier_paths(repo, environment, changes)
    return select_owned(plan_path, attempt, user, changes)


def select_owned(
    plan_path: str, attempt: OpenAttempt, user: frozenset[str], changes: Iterable[PathChange]
) -> tuple[str, ...]:
    """Return the paths of those changes that are neither the user's nor among the files that only relay writes."""
    # A plan that was renamed meanwhile has two names.
    plans = {plan_path, attempt.plan_path or plan_path}
    others = {*user, *plans, *map(find_ledger_path, plans)}
    return tuple(change.path for change in changes if change.path not in others and not change.is_submodule)


def find_user_paths(repo: Repo, attempt: OpenAttempt) -> frozenset[str]:
    """Return the paths that differed from HEAD when the attempt began: the user's, and never committed.

    Files that the verify commands left just before are not among them: a session may change and commit these.
    """
    left = {parse_path(value) for key, value in attempt.trailers if key == LEFTOVER}
    changes = objects.diff_trees(repo, attempt.base_head or repo.empty_tree, attempt.base_tree)
    return frozenset(change.path for change in changes) - left


_NOTE = "spans"
_MOST_SPANS = 2_000
"""More than a plan has sessions; beyond that the oldest spans become one."""
_NAMED = 3
_SHOWN_CHARS = 120
_END = 1 << 63
_PAUSE_S = 0.001
OWN = frozenset({".git", STATE_DIR})
"""Git's and relay's data: no gate depends on them."""
_ENVIRONMENTS = ("/pyvenv.cfg", "/conda-meta")
_TAG = "CACHEDIR.TAG"
"""Marks a directory that can be made again; cargo, mypy and others write it. Source: https://bford.info/cachedir/."""
_Test = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpan:
    """A time in which sessions could change files, in nanoseconds by the clock of the file system."""

    start: int
    end: int | None = None
    """None while it lasts."""


@contextlib.contextmanager
def watch_sessions(repo: Repo) -> Iterator[None]:
    """Note that changes made during the block are a session's."""
    end_span(repo)
    _, start = _read_clock(repo)
    _save_spans(repo, (*read_spans(repo), SessionSpan(start=start)))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, RepoError):  # on a full disk the span lasts until the next run
            end_span(repo)


def end_span(repo: Repo) -> None:
    """End a span that lasts still, as a killed relay leaves it."""
    spans = read_spans(repo)
    if spans and spans[-1].end is None:
        end, _ = _read_clock(repo)
        _save_spans(repo, (*spans[:-1], replace(spans[-1], end=end)))


def _read_clock(repo: Repo) -> tuple[int, int]:
    """Return a time by which the file system dates changes, and the next one, once that has come.

    A file server has a clock of its own. Most clocks advance some hundred times a second, some once or less.
    """
    dates: list[int] = []
    while not dates or dates[0] == dates[-1]:
        with tempfile.TemporaryFile(dir=repo.make_relay_dir()) as file:
            dates.append(os.fstat(file.fileno()).st_ctime_ns)
        time.sleep(_PAUSE_S)
    return dates[0], dates[-1]


def read_spans(repo: Repo) -> tuple[SessionSpan, ...]:
    """Return the spans in which sessions ran in this work tree; empty if the note is gone or not relay's."""
    try:
        rows = convert(json.loads(read_note(repo, _NOTE) or "[]"), tuple[tuple[int, int | None], ...])
    except (ValueError, RecursionError):
        return ()
    return tuple(SessionSpan(start=start, end=end) for start, end in rows)


def _save_spans(repo: Repo, spans: tuple[SessionSpan, ...]) -> None:
    if len(spans) > _MOST_SPANS:
        spans = (SessionSpan(start=spans[0].start, end=spans[1].end), *spans[2:])
    write_note(repo, _NOTE, json.dumps([[span.start, span.end] for span in spans]))


def _make_test(spans: Sequence[SessionSpan]) -> _Test:
    """Return a test for whether a date, in nanoseconds, lies in one of the spans."""
    times: list[tuple[int, int]] = []
    # Somebody may have set the clock back.
    for start, end in sorted(sorted((span.start, span.end or _END)) for span in spans):
        if times and start <= times[-1][1]:
            times[-1] = (times[-1][0], max(end, times[-1][1]))
        else:
            times.append((start, end))
    starts = [start for start, _ in times]

    def is_changed(date: int) -> bool:
        at = bisect_right(starts, date)
        return at > 0 and date <= times[at - 1][1]

    return is_changed


def _is_folder(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode)


@dataclass(slots=True, kw_only=True)
class _Folder:
    """A directory that git ignores. Mutable: counts its entries."""

    path: str
    kept: int = 0
    """Number of entries that no session changed."""
    changed: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SessionChanges:
    """Session changes to files that a gate may see beside its commit. Mutable: grows with each path looked at."""

    root: str
    spans: tuple[SessionSpan, ...]
    hidden: list[str] = field(default_factory=list)
    """Paths that a gate must not see."""
    shown: dict[str, list[str]] = field(default_factory=dict)
    """By directory, changed files that a gate sees all the same.

    Packages, since nothing runs without them, submodules, and files among very many others.
    """

    def look(self, path: str, *, is_module: bool = False) -> None:
        """Note the changes at or below a path that git ignores.

        Args:
            is_module: It is a submodule: a gate sees all of it.
        """
        if not self.spans or path.partition("/")[0] in OWN:
            return
        name, is_changed = path.rpartition("/")[2], _make_test(self.spans)
        try:
            found = os.lstat(f"{self.root}/{path}")
            if not _is_folder(found):
                self.hidden += [path] if is_changed(found.st_ctime_ns) else []
            elif is_module or name in INSTALLED:
                self._look_at_packages(path)
            elif name in TOOL_CACHES:
                self._look_at_cache(path, found, is_changed)
            else:
                self._look_at_files(path, is_changed)
        except FileNotFoundError:
            return  # it was removed meanwhile
        except OSError:  # nested too deeply to name its files
            self.hidden.append(path)

    def render(self) -> str:
        """Return one sentence on the changes that a gate saw all the same; empty for none."""
        shown = {top: [shorten(render_path(path), _SHOWN_CHARS) for path in paths] for top, paths in self.shown.items()}
        parts = [
            f"{shorten(render_path(top), _SHOWN_CHARS)} ({count(len(names), 'change')}: {list_some(names, _NAMED)})"
            for top, names in sorted(shown.items())
        ]
        return f"the gate saw what sessions changed and no commit has: {list_some(parts, joint='; ')}" if parts else ""

    def _list(self, folder: str, top: str) -> list[tuple[str, os.stat_result]]:
        """Return the entries of a directory; hide `top` if commands could use entries that relay cannot list."""
        try:
            with os.scandir(f"{self.root}/{folder}") as entries:
                return [(f"{folder}/{entry.name}", entry.stat(follow_symlinks=False)) for entry in entries]
        except PermissionError:
            self.hidden += [top] if os.access(f"{self.root}/{folder}", os.X_OK) else []
        except FileNotFoundError:
            pass
        return []

    def _look_at_cache(self, top: str, found: os.stat_result, is_changed: _Test) -> None:
        """Hide a cache if anything in it was changed: its tool makes it again."""
        pending = [(top, found)]
        while pending:
            path, found = pending.pop()
            if is_changed(found.st_ctime_ns):
                self.hidden.append(top)
                return
            pending += self._list(path, top) if _is_folder(found) else []

    def _look_at_packages(self, top: str) -> None:
        """Note the changes in a directory that a gate is shown; hide changed caches of packages."""
        is_changed, changed, pending = _make_test(self.spans), list[str](), [(top, False)]
        while pending:
            folder, is_dated = pending.pop()
            below = self._list(folder, top)
            for path, found in below:
                if not _is_folder(found):
                    changed += [path] if is_changed(found.st_ctime_ns) else []
                elif is_cache_of_packages(path):
                    self._look_at_cache(path, found, is_changed)
                else:
                    pending.append((path, is_changed(found.st_ctime_ns)))
            if is_dated and not any(is_changed(found.st_ctime_ns) for _, found in below):
                changed.append(folder)  # a file was removed from it, or it was renamed
        if changed:
            self.shown[top] = sorted(changed)

    def _look_at_files(self, top: str, is_changed: _Test) -> None:
        """Hide a directory's changed files, unless very many others would have to be copied for that."""
        folders = [_Folder(path=top)]
        for folder in folders:
            folders += map(_make_folder, self._look_at_folder(folder, is_changed))
        hidden = [path for folder in folders for path in folder.changed]
        opened = with_parents(folder.path for folder in folders if folder.changed)
        if sum(folder.kept for folder in folders if folder.path in opened) <= MOST:
            self.hidden += hidden
        elif os.path.lexists(f"{self.root}/{top}/{_TAG}"):
            self.hidden.append(top)
        else:
            self.shown[top] = sorted(hidden)

    def _look_at_folder(self, folder: _Folder, is_changed: _Test) -> list[str]:
        """Note the changes in a directory; return its subdirectories that must be looked at."""
        below, inner = self._list(folder.path, folder.path), []
        if any(path.endswith(_ENVIRONMENTS) for path, _ in below):
            self._look_at_packages(folder.path)
            return []
        for path, found in below:
            is_folder = _is_folder(found)
            if _is_other(found, is_changed) if is_folder else is_changed(found.st_ctime_ns):
                folder.changed.append(path)
                continue
            folder.kept += 1
            if is_folder and path.rpartition("/")[2] in GENERATED:
                self.look(path)
            elif is_folder:
                inner.append(path)
        return inner


def _make_folder(path: str) -> _Folder:
    return _Folder(path=path)


def _is_other(found: os.stat_result, is_changed: _Test) -> bool:
    """Return whether a directory was renamed, which changes its own date and no date inside, or cannot be listed."""
    is_dated_inside = is_changed(found.st_mtime_ns) and found.st_mode & stat.S_IRUSR and found.st_mode & stat.S_IXUSR
    return is_changed(found.st_ctime_ns) and not is_dated_inside
