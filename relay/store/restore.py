"""Putting files back as a snapshot holds them, after what is there has been saved to another snapshot."""

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from relay.base.secrecy import is_covered
from relay.base.tree import find_stat, remove_file, replace_file
from relay.base.values import dataclass
from relay.git import objects
from relay.git.config_guard import Guarded, guard
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import ABSENT, SYMLINK
from relay.store.snapshot import TreeSnapshot, find_unheld


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """What it takes to have a snapshot back in the work tree; nothing is done yet."""

    tree: str
    """The work tree as it will be, to be kept under a ref before a file is written: only then can it be repeated."""
    changes: tuple[PathChange, ...]
    """What is going to be written or removed."""
    left: tuple[str, ...]
    """Paths that differ and stay as they are: they were written after the snapshot, not lost."""
    blocked: tuple[str, ...]
    """Paths that stay as they are because a file that git ignores is in their place, and no snapshot holds it."""


def plan_restoration(repo: Repo, *, found: TreeSnapshot, wanted: TreeSnapshot, base: str) -> Restoration:
    """Find out what has to be put back so that no work of `wanted` is missing.

    It leaves alone submodules, paths that either snapshot left out, and paths whose bytes in a snapshot were not the
    work tree's.

    Args:
        found: A snapshot of the work tree as it is now.
        wanted: What to restore; taken over the same HEAD.
        base: Tree that the session started from: what it has in common with `wanted` is not the session's work.
    """
    between = objects.diff_trees(repo, found.tree, wanted.tree)
    others = {*found.replaced, *wanted.replaced}
    # Git makes no such tree, but may have fetched one: what is written there decides what git runs.
    others |= {change.path for change in between if is_covered(change.path, ("**/.git",))}
    others |= find_unheld(repo, repo.head(), [change.path for change in between], found.skipped, wanted.skipped)
    differing = [change for change in between if not (change.is_submodule or change.path in others)]
    at_base = {change.path: change for change in objects.diff_trees(repo, base, found.tree)}
    lost = [change for change in differing if _is_lost(repo, change, since_base=at_base.get(change.path))]
    removed = {change.path for change in lost if change.kind == ChangeKind.DELETED}
    blocked = {change.path for change in lost if change.path not in removed and _is_blocked(repo, change, removed)}
    changes = tuple(change for change in lost if change.path not in blocked)
    chosen = {change.path for change in lost}
    return Restoration(
        tree=_write_tree(repo, found.tree, changes),
        changes=changes,
        left=tuple(change.path for change in differing if change.path not in chosen),
        blocked=tuple(sorted(blocked)),
    )


def run_restoration(repo: Repo, restoration: Restoration, *commits: str | None) -> None:
    """Write and remove the files; may be repeated.

    Args:
        restoration: What to do; what it was planned from is kept under a ref by the caller.
        commits: What its snapshots were taken over, and what was merged there; None for an unborn branch.
    """
    guarded = guard(repo)
    changes = restoration.changes
    paths = [change.path for change in changes]
    cleaned = {pair for commit in commits if commit for pair in objects.read_entries(repo, commit, paths).items()}
    # Removals first: a directory may have to make room for a file.
    for change in sorted(changes, key=lambda change: change.kind != ChangeKind.DELETED):
        if change.kind == ChangeKind.DELETED:
            remove_file(repo.root, change.path)
        else:
            _write(repo, guarded, change, is_cleaned=(change.path, (change.mode, change.object_id)) in cleaned)


def _is_lost(repo: Repo, change: PathChange, *, since_base: PathChange | None) -> bool:
    """Say whether the snapshot's state of a path was lost, rather than replaced on purpose since.

    Args:
        change: From what was found to what is wanted.
        since_base: From the base to what was found; None when these are equal: then the session's work is missing.
    """
    # Nothing is there, or what was there before the session: the work is put back over nothing new.
    if change.kind == ChangeKind.ADDED or since_base is None:
        return True
    is_work = change.kind != ChangeKind.DELETED and (change.mode, change.object_id) != (
        since_base.old_mode,
        since_base.old_object_id,
    )
    return is_work or _is_torn(repo, change)


def _is_torn(repo: Repo, change: PathChange) -> bool:
    """Say whether a file looks as a power cut leaves it: empty, or zeros from some point to its end."""
    if change.old_mode == SYMLINK:
        return False
    data = objects.load_blob(repo, change.old_object_id)
    rest = data.rstrip(b"\0")
    if not rest or rest == data or change.kind == ChangeKind.DELETED:
        return not rest
    return objects.load_blob(repo, change.object_id).startswith(rest)


def _is_blocked(repo: Repo, change: PathChange, removed: Collection[str]) -> bool:
    """Say whether writing the path would take something away that `found` does not hold."""
    for parent in list(PurePosixPath(change.path).parents)[:-1]:
        above = find_stat(repo.root, str(parent))
        if above is not None and not stat.S_ISDIR(above.st_mode) and str(parent) not in removed:
            return True
    there = find_stat(repo.root, change.path)
    if there is not None and stat.S_ISDIR(there.st_mode):
        return not _will_be_empty(repo, change.path, removed)
    return there is not None and change.kind == ChangeKind.ADDED


def _will_be_empty(repo: Repo, directory: str, removed: Collection[str]) -> bool:
    """Say whether a directory goes with the files that are removed."""
    for place, below, files in os.walk(repo.root / directory):
        here = Path(place)
        names = (*files, *(name for name in below if (here / name).is_symlink()))
        if not (below or files) or any(
            (here / name).relative_to(repo.root).as_posix() not in removed for name in names
        ):
            return False
    return True


def _write_tree(repo: Repo, start: str, changes: Sequence[PathChange]) -> str:
    """Store the tree `start` with the changes made."""
    gone = [(change.path, ABSENT, repo.zero_id) for change in changes if change.kind == ChangeKind.DELETED]
    new = [(change.path, change.mode, change.object_id) for change in changes if change.kind != ChangeKind.DELETED]
    return objects.write_paths_tree(repo, (*gone, *new), start=start)


def _write(repo: Repo, guarded: Guarded, change: PathChange, *, is_cleaned: bool) -> None:
    """Write raw bytes; a blob that is a commit's was cleaned, so it goes through git's own conversion back."""
    if is_cleaned and change.mode != SYMLINK:
        data = guarded.git.run("cat-file", "--filters", f"--path={change.path}", change.object_id)
    else:
        data = objects.load_blob(repo, change.object_id)
    replace_file(repo.root, change.path, data, change.mode)
