"""What somebody saved since a snapshot: asked before a tool may write over it, and mostly answered by `stat` alone."""

from relay.files.tree import take_look
from relay.git.config_guard import Guarded, guard
from relay.git.index_flags import read_flagged
from relay.git.repository import Repo
from relay.store.snapshot import TreeSnapshot, find_crowded, make_filter, read_whole_status, take_looks


def find_newer(repo: Repo, since: TreeSnapshot, path: str | None = None) -> tuple[str, ...]:
    """Return what does not look as a snapshot of this process saw it; git status is asked where that is not enough.

    Args:
        repo: The repository; the caller holds the work tree's lock.
        since: The snapshot.
        path: The only one that matters; None for all. With one, it is in the result also when no snapshot holds it:
            git ignores it, or it is too large.

    Raises:
        RepoError: Git cannot tell.
    """
    guarded = guard(repo)
    if path is None:
        return _find_all(repo, guarded, since)
    if path in since.seen and not make_filter(since.skipped)(path):
        return (path,) if take_look(repo.root, path) != since.seen[path] else ()
    return (path,) if take_look(repo.root, path) and not _is_as_in_head(repo, guarded, path) else ()


def _find_all(repo: Repo, guarded: Guarded, since: TreeSnapshot) -> tuple[str, ...]:
    _, _, status = read_whole_status(repo, guarded)
    now = take_looks(repo, status, find_crowded(status.untracked))
    differ = {path for path, _ in now.items() ^ since.seen.items()}
    return tuple(sorted(differ.difference(since.replaced)))


def _is_as_in_head(repo: Repo, guarded: Guarded, path: str) -> bool:
    """Return whether a path that no snapshot had to store still needs none: tracked, and as committed."""
    if any(entry.path == path for entry in read_flagged(repo, guarded.git)):
        return False  # git's status is blind to it
    args = ("--porcelain", "-z", "--untracked-files=all", "--ignored=traditional", "--no-renames")
    return not guarded.git.run("status", *args, "--", path)
