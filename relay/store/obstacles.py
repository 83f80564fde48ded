"""What of the user's is in the way of a landing, where the files of his work tree follow the branch."""

import stat
from collections.abc import Sequence
from pathlib import PurePosixPath

from relay.base.tree import find_stat, read_file
from relay.git import objects
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.names import list_paths
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange, find_ignored, read_status
from relay.git.trees import EXECUTABLE, FILE, SYMLINK, find_entries, find_mode


def _find_landed(repo: Repo, changes: Sequence[PathChange]) -> frozenset[str]:
    """Return the paths of changes whose files are as after the change already, with nothing else staged of them."""
    gone = {c.path for c in changes if c.kind is ChangeKind.DELETED and find_stat(repo.root, c.path) is None}
    files = [change for change in changes if change.mode in {FILE, EXECUTABLE} and _has_mode(repo, change)]
    links = {change.path for change in changes if change.mode == SYMLINK and _is_link_to(repo, change)}
    git = guard(repo).git
    try:
        found = dict(zip(files, objects.hash_files(git, [c.path for c in files]), strict=True))
    except GitError:  # one of them cannot be read, so that git will refuse
        found = {}
    as_new = links | {change.path for change, blob in found.items() if blob == change.object_id}
    staged = objects.read_index(git, sorted(as_new))
    known = {c.path: {(c.mode, c.object_id), (c.old_mode, c.old_object_id)} for c in changes if c.path in as_new}
    return frozenset(gone | {path for path in as_new if path not in staged or staged[path] in known[path]})


def _has_mode(repo: Repo, change: PathChange) -> bool:
    found = find_stat(repo.root, change.path)
    return found is not None and stat.S_ISREG(found.st_mode) and find_mode(found) == change.mode


def _is_link_to(repo: Repo, change: PathChange) -> bool:
    is_link = find_mode(find_stat(repo.root, change.path)) == SYMLINK
    return is_link and read_file(repo.root, change.path) == objects.load_blob(repo, change.object_id)


def describe_in_the_way(repo: Repo, paths: tuple[str, ...]) -> str:
    """Return what stands in a landing's way in the user's work tree, and what to do about it."""
    changed = set(read_status(repo).changed)
    dirty, others = [path for path in paths if path in changed], [path for path in paths if path not in changed]
    ignored = set(find_ignored(repo, others))
    untracked = [path for path in others if path not in ignored]
    parts = (
        (dirty, "changed and not committed: commit or undo it"),
        (untracked, "not committed: move it away"),
        (sorted(ignored), "ignored by git: move it away"),
    )
    return f"in the way here: {'; '.join(f'{list_paths(found)} ({words})' for found, words in parts if found)}"


def find_in_the_way(repo: Repo, old: str, new: str, *, at: str = "") -> tuple[str, ...]:
    """Return the user's paths that would have to stay as they are when the files move from `old` to `new`.

    These are files with uncommitted changes, and untracked or ignored paths where new files or their directories would
    go; not those that are as in `new` already.

    Args:
        at: The commit that the work tree is at; empty for `old`.
    """
    changes = objects.diff_trees(repo, old, new)
    changed = set(read_status(repo).changed) if changes else set[str]()
    is_there = changes and at not in {"", old}
    tracked = find_entries(repo, at, [change.path for change in changes]) if is_there else {}
    coming = tuple(change for change in changes if change.kind is ChangeKind.DELETED or change.path not in tracked)
    found = {*(c.path for c in changes if c.path in changed), *_find_untracked(repo, coming)}
    if not found:
        return ()
    return tuple(sorted(found - _find_landed(repo, [change for change in changes if change.path in found])))


def _find_untracked(repo: Repo, changes: tuple[PathChange, ...]) -> tuple[str, ...]:
    """Return the untracked paths where new files or their directories would go; not those that these changes remove."""
    gone = {change.path for change in changes if change.kind is ChangeKind.DELETED}
    emptied = gone.union(*(_find_parents(path) for path in gone))
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    found = {place for path in added for place in _find_parents(path) if _is_there(repo, place, directory=False)}
    found.update(path for path in added if _is_there(repo, path, directory=False))
    for path in added:
        if _is_there(repo, path, directory=True):
            below = (str(place.relative_to(repo.root)) for place in (repo.root / path).rglob("*"))
            found.update([path] if path not in emptied else below)
    return tuple(sorted(found - emptied))


def _find_parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]


def _is_there(repo: Repo, path: str, *, directory: bool) -> bool:
    found = find_stat(repo.root, path)
    return found is not None and stat.S_ISDIR(found.st_mode) is directory
