"""Taking a branch, and the work tree that is on it, to a commit that was made elsewhere; safe to repeat at any time."""

import stat
from collections.abc import Mapping
from pathlib import PurePosixPath

from relay.base.tree import find_stat
from relay.git import objects, refs
from relay.git.identity import RELAY_IDENTITY
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange, read_status
from relay.store.completion import finish_pending, note_pending, withdraw_pending


def move_branch(
    repo: Repo, branch: str, old: str, new: str, *, reason: str, identity: Mapping[str, str] = RELAY_IDENTITY
) -> tuple[str, ...] | None:
    """Move the branch that HEAD names from one commit to another, by compare-and-swap; index and files go along.

    Noted before: what a kill cuts off is finished by the next run. A file that is not exactly what `old` has is left
    as it is and named, never written over (`find_in_the_way` says so beforehand).

    Args:
        repo: The repository; the caller holds the work tree's lock.
        branch: The branch that HEAD has to name.
        old: The commit that it has to be at.
        new: The commit that it goes to.

    Returns:
        A sentence for each file, or the index, that could not be updated; None where HEAD or the branch was somewhere
        else: nothing has changed then.
    """
    # Before the branch moves: a note without its move is harmless, a move without its note may leave files behind.
    note_pending(repo, new, old, is_whole=True)
    if repo.branch != branch or not refs.move_ref(
        repo, f"refs/heads/{branch}", new, old, identity=identity, reason=reason
    ):
        withdraw_pending(repo, new)
        return None
    return finish_pending(repo)


def find_in_the_way(repo: Repo, old: str, new: str, *, at: str = "") -> tuple[str, ...]:
    """Return what of the user's would have to be left as it is, when what `new` has otherwise than `old` comes.

    Files that are not committed as they are, and what stands untracked where files, or their directories, would come.

    Args:
        at: The commit that the work tree is at; empty for `old`.
    """
    changes = objects.diff_trees(repo, old, new)
    changed = set(read_status(repo).changed) if changes else set[str]()
    is_there = changes and at not in {"", old}
    tracked = objects.find_names(repo, at, [change.path for change in changes]) if is_there else frozenset()
    coming = tuple(change for change in changes if change.kind is ChangeKind.DELETED or change.path not in tracked)
    return tuple(sorted({*(c.path for c in changes if c.path in changed), *find_untracked_in_the_way(repo, coming)}))


def find_untracked_in_the_way(repo: Repo, changes: tuple[PathChange, ...]) -> tuple[str, ...]:
    """Return what stands where files come, or where their directories do, and does not go away by these changes."""
    gone = {change.path for change in changes if change.kind is ChangeKind.DELETED}
    emptied = gone.union(*(_find_parents(path) for path in gone))
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    found = {place for path in added for place in _find_parents(path) if _is_there(repo, place, directory=False)}
    found.update(path for path in added if _is_there(repo, path, directory=False))
    for path in added:
        if _is_there(repo, path, directory=True):
            found.update((path, *(str(place.relative_to(repo.root)) for place in (repo.root / path).rglob("*"))))
    return tuple(sorted(found - emptied))


def _find_parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]


def _is_there(repo: Repo, path: str, *, directory: bool) -> bool:
    found = find_stat(repo.root, path)
    return found is not None and stat.S_ISDIR(found.st_mode) is directory
