"""Snapshots of the work tree as commits under ``refs/relay/``.

A snapshot is HEAD's tree, or the snapshot before it, with some paths put in. ``git status`` says which paths; relay
stores their bytes and the directories above them itself (`relay.git.object_database`, `relay.git.trees`). Where the
user's index says more than HEAD does (something staged, a conflict, a hidden file), git makes the tree from a private
copy of the index.

A snapshot's tree holds the raw bytes of every path that differs from HEAD, untracked ones included, and HEAD's blob
for every other path. HEAD's blobs went through clean filters and raw bytes did not, so single blobs of a snapshot are
not comparable with HEAD's; two snapshots over the same HEAD are, exactly.

The user's index, stash, hooks and files are only read. What is too large to keep at every step is left out and named,
and so is what no session may read: every object can be read with git.
"""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Self

from relay.base.tree import find_stat, read_file
from relay.base.values import dataclass
from relay.git import objects
from relay.git.command import GitError
from relay.git.config_guard import Guarded, guard
from relay.git.repository import Repo
from relay.git.status import (
    Status,
    StatusEntry,
    find_hidden,
    read_flagged,
    read_guarded_status,
    show_hidden,
)
from relay.git.trees import (
    ABSENT,
    EXECUTABLE,
    FILE,
    GITLINK,
    SYMLINK,
    find_mode,
    find_tree,
)

MAX_UNTRACKED_BYTES = 10_000_000
"""Larger untracked files are left out. Source: Codex' ghost snapshots, which filled disks before they had a cap."""
MAX_UNTRACKED_FILES = 5_000
"""Directories with more untracked files are left out."""
MAX_KNOWN_PATHS = 50
"""With more known paths than this, relay scans the whole work tree.

Source: ``benchmarks/large_repo.py --known``, medians of five rounds on two busy cores. With 100,000 files a snapshot of
50 known paths took 0.60 of a full scan's time, of 100 0.70, of 200 1.18, and ``benchmarks/results/large_repo.md`` has
100 above a full scan; with 1,000 files it was 0.55 for 50 and 0.62 for 200, where a full scan takes 0.13 s.
"""
HIDDEN = "hidden from sessions"
"""Why a file that may hold secrets is left out."""
NESTED = "a repository of its own"
"""Why a directory is left out."""
ATTEMPTS = 3
"""How often the work tree is scanned at most.

A file may vanish between being listed and being read. The scan is repeated then, since the file may have a new name.
The last scan takes what is there: somebody may make and remove files all the time.
"""
_numbers = count(1)
_newest: dict[Path, int] = {}
"""Number of the last snapshot of each work tree, by git directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A path, or everything below a directory, that a snapshot does not hold."""

    path: str
    reason: str
    """For the user: ``12.3 MB``, ``6,210 untracked files``, ``not a regular file``, `NESTED` or `HIDDEN`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSnapshot:
    """The work tree at one moment, as a tree object that nothing points to yet."""

    tree: str
    skipped: tuple[Skipped, ...] = ()
    replaced: tuple[str, ...] = ()
    """Paths whose bytes in the tree were given by the caller and are not the work tree's."""
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Blob ids of those bytes; empty if the snapshot was read back."""
    number: int = field(default=0, compare=False)
    """Among this process's snapshots, from 1; 0 if it was read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(TreeSnapshot):
    """A snapshot as a commit."""

    commit: str

    @classmethod
    def of(cls, tree: TreeSnapshot, commit: str) -> Self:
        """Return a snapshot with the commit that was made of it."""
        return cls(commit=commit, **{field.name: getattr(tree, field.name) for field in fields(tree)})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPaths:
    """The paths that may have changed since the last snapshot."""

    previous: TreeSnapshot
    paths: tuple[str, ...] | None
    """The only paths that can have changed; None if all can."""


def write_snapshot_tree(
    repo: Repo, *, replace: Mapping[str, bytes] | None = None, known: KnownPaths | None = None
) -> TreeSnapshot:
    """Store the work tree as a tree that nothing points to yet; the caller holds the work tree's lock.

    Args:
        replace: Bytes to put at paths of the tree in place of the work tree's, which is not touched.
        known: Changes since an earlier snapshot. If that is not the last snapshot of this work tree, relay scans the
            whole work tree.

    Raises:
        RepoError: Something cannot be read or stored.
    """
    guarded = guard(repo)
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(GitError):
            return _write_tree(repo, guarded, replace or {}, known)
        known = None  # the known paths may be wrong
    return _write_tree(repo, guarded, replace or {}, None, settled=False)


def _is_current(repo: Repo, known: KnownPaths) -> bool:
    """Return whether the known paths are few, and the previous snapshot is this work tree's last."""
    return len(known.paths or ()) <= MAX_KNOWN_PATHS and is_newest(repo, known.previous)


def is_newest(repo: Repo, snapshot: TreeSnapshot) -> bool:
    """Return whether this process has taken no other snapshot of this work tree since."""
    return snapshot.number == _newest.get(repo.git_dir, -1)


def _write_tree(
    repo: Repo,
    guarded: Guarded,
    replace: Mapping[str, bytes],
    known: KnownPaths | None,
    *,
    settled: bool = True,
) -> TreeSnapshot:
    if (
        known is not None
        and known.paths is not None
        and _is_current(repo, known)
        and not any(entry.path in known.paths for entry in read_flagged(repo))  # git's status does not see those
    ):
        start, index = known.previous.tree, ""
        changes = _find_known(repo, guarded, known, replace)
        skipped = tuple({entry.path: entry for entry in (*known.previous.skipped, *changes.skipped)}.values())
    else:
        start, index, status = _read_whole_status(repo, guarded)
        changes = _find_all(repo, guarded, status)
        skipped = changes.skipped
    given = _store_given(repo, replace, known.previous.given if known else {})
    entries = [*changes.entries, *_store(repo, changes, settled=settled)]
    modes = {path: find_mode(find_stat(repo.root, path)) for path in given}
    entries += [(path, EXECUTABLE if modes[path] == EXECUTABLE else FILE, blob) for path, blob in given.items()]
    # Remove entries first: where a directory replaced a file, one tree cannot hold both.
    entries.sort(key=lambda entry: entry[1] != ABSENT)
    tree = _make_tree(repo, guarded, entries, start=start, index=index)
    number = _newest[repo.git_dir] = next(_numbers)
    return TreeSnapshot(tree=tree, skipped=skipped, replaced=tuple(replace), given=given, number=number)


def _read_whole_status(repo: Repo, guarded: Guarded) -> tuple[str, str, Status]:
    """Return the tree that a snapshot starts from and git's status against it.

    The tree is HEAD's if the index says no more than HEAD; else it is empty, and the second value names a private index
    file.
    """
    if not (hidden := find_hidden(repo, guarded)):
        status = read_guarded_status(guarded)
        if not (status.staged or status.unmerged):
            return (find_tree(repo, status.head) if status.head else repo.empty_tree), "", status
    index = objects.copy_index(repo, "index")
    show_hidden(guarded.git, index, hidden)
    return "", index, read_guarded_status(guarded, index=index)


def _make_tree(repo: Repo, guarded: Guarded, entries: Sequence[tuple[str, str, str]], *, start: str, index: str) -> str:
    """Store the tree `start`, or that of an `index` file, with entries put in."""
    if index:
        git = objects.private_git(guarded.git)
        objects.fill_index(git, index, entries)
        return objects.write_tree(git, index)
    return objects.write_paths_tree(repo, entries, start=start)


def _store_given(repo: Repo, given: Mapping[str, bytes], stored: Mapping[str, str]) -> dict[str, str]:
    """Store bytes that the last snapshot does not have: from one tool call to the next they are mostly the same."""
    blobs = {path: objects.find_blob_id(repo, data) for path, data in given.items()}
    objects.store_blobs(repo, [given[path] for path, blob in blobs.items() if blob not in stored.values()])
    return blobs


@dataclass(slots=True, kw_only=True)
class _Changes:
    """The changes to the tree that a snapshot starts from. Mutable: filled path by path."""

    entries: list[tuple[str, str, str]] = field(default_factory=list)
    """Deletions, and blobs of HEAD."""
    files: list[tuple[str, str]] = field(default_factory=list)
    """``(path, mode)`` of regular files to hash."""
    links: list[str] = field(default_factory=list)
    dropped: list[Skipped] = field(default_factory=list)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return tuple(self.dropped)


def _store(repo: Repo, changes: _Changes, *, settled: bool) -> list[tuple[str, str, str]]:
    ids = objects.store_files(repo, [path for path, _ in changes.files])
    gone = [path for path, _ in changes.files if path not in ids]
    if gone and settled:
        raise GitError(f"{gone[0]!r} was there a moment ago")
    entries = [(path, mode, ids[path]) for path, mode in changes.files if path in ids]
    entries += [(path, ABSENT, repo.zero_id) for path in gone]
    targets = {path: read_file(repo.root, path) for path in changes.links}
    found = {path: target for path, target in targets.items() if target is not None}
    blobs = objects.store_blobs(repo, list(found.values()))
    return entries + [(path, SYMLINK, blob) for path, blob in zip(found, blobs, strict=True)]


def _find_all(repo: Repo, guarded: Guarded, status: Status) -> _Changes:
    changes = _Changes(dropped=[Skipped(path=path, reason=NESTED) for path in status.nested])
    crowded = find_crowded(status.untracked)
    changes.dropped += [Skipped(path=path, reason=f"{count:,} untracked files") for path, count in crowded.items()]
    trust_mode = guarded.flag("core.filemode", default=True)
    hidden = [entry for entry in status.entries if repo.hidden.covers(entry.path)]
    _leave_out(repo, changes, hidden, status.head)
    for entry in status.entries:
        if entry in hidden:
            continue
        if not entry.untracked:
            _add_tracked(repo, changes, entry)
        elif not _is_below(entry.path, crowded):
            _add_untracked(repo, changes, entry.path, trust_mode=trust_mode)
    return changes


def _leave_out(repo: Repo, changes: _Changes, hidden: Sequence[StatusEntry], head: str | None) -> None:
    """Keep bytes that sessions may not see out of the objects, which they can read; tracked files stay as in HEAD."""
    changes.dropped += [Skipped(path=entry.path, reason=HIDDEN) for entry in hidden]
    tracked = [entry.path for entry in hidden if not entry.untracked]
    at_head = objects.read_entries(repo, head, tracked) if head and tracked else {}
    changes.entries += [(path, *at_head.get(path, (ABSENT, repo.zero_id))) for path in tracked]


def _add_tracked(repo: Repo, changes: _Changes, entry: StatusEntry) -> None:
    if entry.mode == GITLINK:
        return
    if entry.unmerged or entry.mode == ABSENT:
        changes.entries.append((entry.path, ABSENT, repo.zero_id))
    if entry.mode == SYMLINK:
        changes.links.append(entry.path)
    elif entry.mode != ABSENT and _is_regular(repo, entry.path):
        changes.files.append((entry.path, entry.mode))
    elif entry.mode != ABSENT:
        changes.dropped.append(Skipped(path=entry.path, reason="not a regular file"))


def _is_regular(repo: Repo, path: str) -> bool:
    """Return whether a file can be read without waiting: git reports a FIFO in a file's place as a changed file."""
    found = find_stat(repo.root, path)
    return found is not None and stat.S_ISREG(found.st_mode)


def _add_untracked(repo: Repo, changes: _Changes, path: str, *, trust_mode: bool) -> None:
    found = find_stat(repo.root, path)
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        changes.links.append(path)
    elif not stat.S_ISREG(found.st_mode):
        changes.dropped.append(Skipped(path=path, reason="not a regular file"))
    elif found.st_size > MAX_UNTRACKED_BYTES:
        changes.dropped.append(Skipped(path=path, reason=f"{found.st_size / 1e6:.1f} MB, too large"))
    elif not os.access(repo.root / path, os.R_OK):
        changes.dropped.append(Skipped(path=path, reason="not readable"))
    else:
        executable = trust_mode and found.st_mode & stat.S_IXUSR
        changes.files.append((path, EXECUTABLE if executable else FILE))


def _find_known(repo: Repo, guarded: Guarded, known: KnownPaths, given: Collection[str]) -> _Changes:
    paths = tuple(dict.fromkeys(p for p in (*(known.paths or ()), *known.previous.replaced) if p not in given))
    if not paths:
        return _Changes()
    status = read_guarded_status(guarded, paths)
    changes = _find_all(repo, guarded, status)
    listed = {entry.path for entry in status.entries}
    unlisted = [path for path in paths if path not in listed]
    head = repo.head() if unlisted else None
    at_head = objects.read_entries(repo, head, unlisted) if head else {}
    is_left_out = make_filter(known.previous.skipped)
    left_out = set(filter(is_left_out, status.untracked))
    changes.files = [(path, mode) for path, mode in changes.files if path not in left_out]
    changes.links = [path for path in changes.links if path not in left_out]
    # A path that git does not list is as in HEAD; if HEAD does not have it, it is ignored or gone.
    changes.entries += [(path, *at_head.get(path, (ABSENT, repo.zero_id))) for path in unlisted]
    return changes


def find_crowded(untracked: Sequence[str], limit: int = MAX_UNTRACKED_FILES) -> dict[str, int]:
    """Return the directories with too many untracked files, deepest ones first, with their number.

    A directory counts the files below it, except those that a crowded directory below it left out already. The root
    counts only its own files: a session may well write many files in many places.
    """
    own: Counter[str] = Counter(str(PurePosixPath(path).parent) for path in untracked)
    total: Counter[str] = Counter(own)
    crowded: dict[str, int] = {}
    every = {str(parent) for name in own for parent in (PurePosixPath(name), *PurePosixPath(name).parents)}
    for name in sorted(every - {"."}, key=lambda name: -len(PurePosixPath(name).parts)):
        if total[name] > limit:
            crowded[name] = total[name]
        else:
            total[str(PurePosixPath(name).parent)] += total[name]
    return crowded | ({".": own["."]} if own["."] > limit else {})


def make_filter(*groups: Sequence[Skipped]) -> Callable[[str], bool]:
    """Return a test for whether snapshots left out a path or a directory above it."""
    names = {entry.path for group in groups for entry in group}

    def is_left_out(path: str) -> bool:
        return path in names or _is_below(path, names)

    return is_left_out


def find_unheld(repo: Repo, head: str | None, paths: Collection[str], *groups: Sequence[Skipped]) -> frozenset[str]:
    """Return those of `paths` that snapshots left out.

    Below a directory with too many untracked files a snapshot does hold the tracked ones.

    Args:
        head: The commit that the snapshots were taken over; None on an unborn branch.
        groups: The left-out paths of each snapshot.
    """
    names = {entry.path for group in groups for entry in group}
    below = [path for path in paths if path not in names and _is_below(path, names)]
    tracked = objects.read_entries(repo, head, below) if head and below else {}
    return frozenset((*names.intersection(paths), *(path for path in below if path not in tracked)))


def _is_below(path: str, directories: Collection[str]) -> bool:
    """Return whether one of `directories` holds `path`; the root, as ``.``, holds its own files only."""
    parents = [str(parent) for parent in PurePosixPath(path).parents]
    return (parents == ["."] and "." in directories) or any(parent in directories for parent in parents[:-1])
