"""Snapshots of the work tree as commits under ``refs/relay/``, made with a private index.

A snapshot's tree holds the raw bytes of every path that differs from HEAD, untracked ones included, and HEAD's blob
for every other path. HEAD's blobs went through clean filters and raw bytes did not, so single blobs of a snapshot are
not comparable with HEAD's; two snapshots over the same HEAD are, exactly.

The user's index, stash, hooks and files are only read. What is too large to keep at every step is left out and named.
"""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Self

from relay.files.tree import find_stat, read_file
from relay.git import objects
from relay.git.command import Git, GitError
from relay.git.config_guard import Guarded, guard
from relay.git.index_flags import find_hidden, read_flagged, read_mark, show_hidden
from relay.git.repository import Repo
from relay.git.status import ABSENT, GITLINK, SYMLINK, Status, StatusEntry, read_guarded_status

MAX_UNTRACKED_BYTES = 10_000_000
"""Larger untracked files are left out. Source: Codex' ghost snapshots, which filled disks before they had a cap."""
MAX_UNTRACKED_FILES = 5_000
"""Directories with more untracked files are left out."""
MAX_KNOWN_PATHS = 50
"""With more known paths than this everything is scanned.

Source: ``benchmarks/large_repo.py --known``, medians of five rounds on two busy cores. With 100,000 files a snapshot of
50 known paths took 0.60 of a full scan's time, of 100 0.70, of 200 1.18, and ``benchmarks/results/large_repo.md`` has
100 above a full scan; with 1,000 files it was 0.55 for 50 and 0.62 for 200, where a full scan takes 0.13 s.
"""
ATTEMPTS = 3
"""A file may vanish between being listed and being read; the scan is repeated then, since it may have a new name. The
last scan takes what is there: a command in the background may make and remove files all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A path, or everything below a directory, that a snapshot does not hold."""

    path: str
    reason: str
    """For the user: ``12.3 MB``, ``6,210 untracked files``, ``a repository of its own``, ``not a regular file``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSnapshot:
    """The work tree at one moment, as a tree object that nothing points to yet."""

    tree: str
    skipped: tuple[Skipped, ...] = ()
    replaced: tuple[str, ...] = ()
    """Paths whose bytes in the tree were given by the caller and are not the work tree's."""
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Blob ids of those bytes; empty when the snapshot was read back."""
    mark: str = field(default="", compare=False)
    """What the private index looked like when it held exactly this; empty when the snapshot was read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(TreeSnapshot):
    """The same as a commit."""

    commit: str

    @classmethod
    def of(cls, tree: TreeSnapshot, commit: str) -> Self:
        """Return a snapshot with the commit that was made of it."""
        return cls(commit=commit, **{field.name: getattr(tree, field.name) for field in fields(tree)})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPaths:
    """What is known to have changed since the last snapshot."""

    previous: TreeSnapshot
    paths: tuple[str, ...] | None
    """The only ones that can have; None when all can."""


def write_snapshot_tree(
    repo: Repo, *, replace: Mapping[str, bytes] | None = None, known: KnownPaths | None = None
) -> TreeSnapshot:
    """Store the work tree as a tree that nothing points to yet; the caller holds the work tree's lock.

    Args:
        repo: The repository.
        replace: Bytes to put at paths of the tree in place of the work tree's, which is not touched.
        known: What changed since an earlier snapshot. Taken as advice: when the private index does not hold that
            one any more, everything is scanned.

    Raises:
        RepoError: Something cannot be read or stored.
    """
    guarded = guard(repo)
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(GitError):
            return _write_tree(repo, guarded, replace or {}, known)
        known = None  # what was known may be what is wrong
    return _write_tree(repo, guarded, replace or {}, None, settled=False)


def _is_current(repo: Repo, known: KnownPaths) -> bool:
    """Return whether the private index still holds the previous snapshot."""
    few = known.paths is not None and len(known.paths) <= MAX_KNOWN_PATHS
    return few and bool(known.previous.mark) and known.previous.mark == read_mark(repo.relay_dir / "index")


def _is_flagged(repo: Repo, guarded: Guarded, paths: Collection[str]) -> bool:
    """Return whether git's status on the user's index is blind to one of `paths`."""
    return any(entry.path in paths for entry in read_flagged(repo, guarded.git))


def _write_tree(
    repo: Repo,
    guarded: Guarded,
    replace: Mapping[str, bytes],
    known: KnownPaths | None,
    *,
    settled: bool = True,
) -> TreeSnapshot:
    git = objects.private_git(guarded.git)
    if known is not None and _is_current(repo, known) and not _is_flagged(repo, guarded, known.paths or ()):
        index = str(repo.relay_dir / "index")
        plan = _plan_known(repo, guarded, known, replace)
        skipped = _join(known.previous.skipped, plan.skipped)
    else:
        index = objects.copy_index(repo, "index")
        show_hidden(guarded.git, index, find_hidden(repo, guarded))
        status = read_guarded_status(guarded, index=index)
        plan = _plan_full(repo, guarded, status)
        skipped = plan.skipped
    given = _store_given(repo, git, replace, known.previous.given if known else {})
    entries = [*plan.entries, *_hash(repo, git, plan, settled=settled)]
    entries += [(path, _find_mode(repo, path), blob) for path, blob in given.items()]
    objects.fill_index(git, index, sorted(entries, key=lambda entry: entry[1] != ABSENT))
    tree = objects.write_tree(git, index)
    return TreeSnapshot(
        tree=tree, skipped=skipped, replaced=tuple(replace), given=given, mark=read_mark(repo.relay_dir / "index")
    )


def _store_given(repo: Repo, git: Git, given: Mapping[str, bytes], stored: Mapping[str, str]) -> dict[str, str]:
    """Store what the last snapshot does not have yet: from one tool call to the next it is mostly the same."""
    blobs = {path: objects.find_blob_id(repo, data) for path, data in given.items()}
    return {
        path: blob if blob in stored.values() else objects.hash_bytes(git, given[path]) for path, blob in blobs.items()
    }


def _join(before: tuple[Skipped, ...], now: tuple[Skipped, ...]) -> tuple[Skipped, ...]:
    return tuple({entry.path: entry for entry in (*before, *now)}.values())


def _find_mode(repo: Repo, path: str) -> str:
    found = find_stat(repo.root, path)
    return "100755" if found and stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IXUSR else "100644"


@dataclass(slots=True, kw_only=True)
class _Plan:
    """What has to be put into the index. Mutable: filled path by path."""

    entries: list[tuple[str, str, str]] = field(default_factory=list)
    """Known already: deletions, and blobs of HEAD."""
    files: list[tuple[str, str]] = field(default_factory=list)
    """``(path, mode)`` of regular files to hash."""
    links: list[str] = field(default_factory=list)
    dropped: list[Skipped] = field(default_factory=list)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return tuple(self.dropped)


def _hash(repo: Repo, git: Git, plan: _Plan, *, settled: bool) -> list[tuple[str, str, str]]:
    ids = objects.store_files(git, [path for path, _ in plan.files])
    gone = [path for path, _ in plan.files if path not in ids]
    if gone and settled:
        raise GitError(f"{gone[0]!r} was there a moment ago")
    entries = [(path, mode, ids[path]) for path, mode in plan.files if path in ids]
    entries += [(path, ABSENT, repo.zero_id) for path in gone]
    targets = {path: read_file(repo.root, path) for path in plan.links}
    found = {path: target for path, target in targets.items() if target is not None}
    blobs = objects.hash_many(repo, list(found.values()))
    return entries + [(path, SYMLINK, blob) for path, blob in zip(found, blobs, strict=True)]


def _plan_full(repo: Repo, guarded: Guarded, status: Status) -> _Plan:
    plan = _Plan(dropped=[Skipped(path=path, reason="a repository of its own") for path in status.nested])
    crowded = find_crowded(status.untracked)
    plan.dropped += [Skipped(path=path, reason=f"{count:,} untracked files") for path, count in crowded.items()]
    trust_mode = guarded.flag("core.filemode", default=True)
    for entry in status.entries:
        if not entry.untracked:
            _plan_tracked(repo, plan, entry)
        elif not _is_below(entry.path, crowded):
            _plan_untracked(repo, plan, entry.path, trust_mode=trust_mode)
    return plan


def _plan_tracked(repo: Repo, plan: _Plan, entry: StatusEntry) -> None:
    if entry.mode == GITLINK:
        return
    if entry.unmerged or entry.mode == ABSENT:
        plan.entries.append((entry.path, ABSENT, repo.zero_id))
    if entry.mode == SYMLINK:
        plan.links.append(entry.path)
    elif entry.mode != ABSENT and _is_regular(repo, entry.path):
        plan.files.append((entry.path, entry.mode))
    elif entry.mode != ABSENT:
        plan.dropped.append(Skipped(path=entry.path, reason="not a regular file"))


def _is_regular(repo: Repo, path: str) -> bool:
    """Return whether a file can be read without waiting: git calls a FIFO in a file's place a changed file."""
    found = find_stat(repo.root, path)
    return found is not None and stat.S_ISREG(found.st_mode)


def _plan_untracked(repo: Repo, plan: _Plan, path: str, *, trust_mode: bool) -> None:
    found = find_stat(repo.root, path)
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        plan.links.append(path)
    elif not stat.S_ISREG(found.st_mode):
        plan.dropped.append(Skipped(path=path, reason="not a regular file"))
    elif found.st_size > MAX_UNTRACKED_BYTES:
        plan.dropped.append(Skipped(path=path, reason=f"{found.st_size / 1e6:.1f} MB"))
    elif not os.access(repo.root / path, os.R_OK):
        plan.dropped.append(Skipped(path=path, reason="not readable"))
    else:
        executable = trust_mode and found.st_mode & stat.S_IXUSR
        plan.files.append((path, "100755" if executable else "100644"))


def _plan_known(repo: Repo, guarded: Guarded, known: KnownPaths, given: Collection[str]) -> _Plan:
    paths = tuple(dict.fromkeys(p for p in (*(known.paths or ()), *known.previous.replaced) if p not in given))
    if not paths:
        return _Plan()
    status = read_guarded_status(guarded, paths)
    plan = _plan_full(repo, guarded, status)
    listed = {entry.path for entry in status.entries}
    unlisted = [path for path in paths if path not in listed]
    head = repo.head() if unlisted else None
    at_head = objects.read_entries(repo, head, unlisted) if head else {}
    is_left_out = make_filter(known.previous.skipped)
    left_out = set(filter(is_left_out, status.untracked))
    plan.files = [(path, mode) for path, mode in plan.files if path not in left_out]
    plan.links = [path for path in plan.links if path not in left_out]
    # A path that git does not list is as in HEAD; one that HEAD does not have either is ignored or gone.
    plan.entries += [(path, *at_head.get(path, (ABSENT, repo.zero_id))) for path in unlisted]
    return plan


def find_crowded(untracked: Sequence[str], limit: int = MAX_UNTRACKED_FILES) -> dict[str, int]:
    """Return the directories whose untracked files are too many, deepest ones first, with their number.

    A directory counts what is below it, except for what a crowded one below it has been left out for already. The
    root counts only its own files: a session may well write many files in many places.
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
    """Return a test for whether a path is among what snapshots left out, or below it."""
    names = {entry.path for group in groups for entry in group}

    def is_left_out(path: str) -> bool:
        return path in names or _is_below(path, names)

    return is_left_out


def find_unheld(repo: Repo, head: str | None, paths: Collection[str], *groups: Sequence[Skipped]) -> frozenset[str]:
    """Return those of `paths` that snapshots left out.

    Below a directory with too many untracked files a snapshot does hold the tracked ones.

    Args:
        repo: The repository.
        head: The commit that the snapshots were taken over; None on an unborn branch.
        paths: Which paths to look at.
        groups: What each of the snapshots names as left out.
    """
    names = {entry.path for group in groups for entry in group}
    below = [path for path in paths if path not in names and _is_below(path, names)]
    tracked = objects.read_entries(repo, head, below) if head and below else {}
    return frozenset((*names.intersection(paths), *(path for path in below if path not in tracked)))


def _is_below(path: str, directories: Collection[str]) -> bool:
    """Return whether one of `directories` holds `path`; the root, as ``.``, holds its own files only."""
    parents = [str(parent) for parent in PurePosixPath(path).parents]
    return (parents == ["."] and "." in directories) or any(parent in directories for parent in parents[:-1])
