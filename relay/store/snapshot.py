"""Snapshots of the work tree as commits under ``refs/relay/``.

A snapshot is HEAD's tree with some paths put in. ``git status`` says which paths; relay stores their bytes and the
directories above them itself (`relay.git.object_database`, `relay.git.trees`). Where the user's index says more than
HEAD does (something staged, a conflict, a hidden file), git makes the tree from a private copy of the index.

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
from pathlib import PurePosixPath
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
HIDDEN = "hidden from sessions"
"""Why a file that may hold secrets is left out."""
NESTED = "a repository of its own"
"""Why a directory is left out."""
ATTEMPTS = 3
"""How often the work tree is scanned at most.

A file may vanish between being listed and being read. The scan is repeated then, since the file may have a new name.
The last scan takes what is there: somebody may make and remove files all the time.
"""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(TreeSnapshot):
    """A snapshot as a commit."""

    commit: str

    @classmethod
    def of(cls, tree: TreeSnapshot, commit: str) -> Self:
        """Return a snapshot with the commit that was made of it."""
        return cls(commit=commit, **{field.name: getattr(tree, field.name) for field in fields(tree)})


def write_snapshot_tree(repo: Repo, *, replace: Mapping[str, bytes] | None = None) -> TreeSnapshot:
    """Store the work tree as a tree that nothing points to yet; the caller holds the work tree's lock.

    Args:
        replace: Bytes to put at paths of the tree in place of the work tree's, which is not touched.

    Raises:
        RepoError: Something cannot be read or stored.
    """
    guarded = guard(repo)
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(GitError):
            return _write_tree(repo, guarded, replace or {})
    return _write_tree(repo, guarded, replace or {}, settled=False)


def _write_tree(repo: Repo, guarded: Guarded, replace: Mapping[str, bytes], *, settled: bool = True) -> TreeSnapshot:
    start, index, status = _read_whole_status(repo, guarded)
    changes = _find_all(repo, guarded, status)
    entries = [*changes.entries, *_store(repo, changes, settled=settled)]
    modes = (find_mode(find_stat(repo.root, path)) for path in replace)
    given = zip(replace, modes, objects.store_blobs(repo, replace.values()), strict=True)
    entries += [(path, EXECUTABLE if mode == EXECUTABLE else FILE, blob) for path, mode, blob in given]
    # Remove entries first: where a directory replaced a file, one tree cannot hold both.
    entries.sort(key=lambda entry: entry[1] != ABSENT)
    if index:
        git = objects.private_git(guarded.git)
        objects.fill_index(git, index, entries)
        tree = objects.write_tree(git, index)
    else:
        tree = objects.write_paths_tree(repo, entries, start=start)
    return TreeSnapshot(tree=tree, skipped=tuple(changes.dropped), replaced=tuple(replace))


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


@dataclass(slots=True, kw_only=True)
class _Changes:
    """The changes to the tree that a snapshot starts from. Mutable: filled path by path."""

    entries: list[tuple[str, str, str]] = field(default_factory=list)
    """Deletions, and blobs of HEAD."""
    files: list[tuple[str, str]] = field(default_factory=list)
    """``(path, mode)`` of regular files to hash."""
    links: list[str] = field(default_factory=list)
    dropped: list[Skipped] = field(default_factory=list)


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
