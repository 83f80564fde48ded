"""What somebody saved since a snapshot: asked before a tool may write over it, and mostly answered by `stat` alone."""

from collections.abc import Callable

from relay.base.tree import take_look
from relay.git.config_guard import Guarded, guard
from relay.git.index import read_flagged
from relay.git.repository import Repo
from relay.store.snapshot import TreeSnapshot, begin_whole_status, find_crowded, make_filter, take_looks


def begin_find_newer(repo: Repo, since: TreeSnapshot) -> Callable[[], tuple[str, ...]]:
    """Begin to look for what does not look as a snapshot of this process saw it.

    Returns:
        What has to be called once, waits for git, and returns the paths.

    Raises:
        RepoError: Git cannot tell.
    """
    begun = begin_whole_status(repo, guard(repo))

    def finish() -> tuple[str, ...]:
        _, _, status = begun()
        now = take_looks(repo, status, find_crowded(status.untracked))
        differ = {path for path, _ in now.items() ^ since.seen.items()}
        return tuple(sorted(differ.difference(since.replaced)))

    return finish


def is_newer(repo: Repo, since: TreeSnapshot, path: str) -> bool:
    """Return whether a path does not look as a snapshot saw it; git status is asked where that is not enough.

    Also where no snapshot holds it: git ignores it, or it is too large.

    Raises:
        RepoError: Git cannot tell.
    """
    if path in since.seen and not make_filter(since.skipped)(path):
        return take_look(repo.root, path) != since.seen[path]
    return bool(take_look(repo.root, path)) and not _is_as_in_head(repo, guard(repo), path)


def _is_as_in_head(repo: Repo, guarded: Guarded, path: str) -> bool:
    """Return whether a path that no snapshot had to store still needs none: tracked, and as committed."""
    if any(entry.path == path for entry in read_flagged(repo, guarded.git)):
        return False  # git's status is blind to it
    args = ("--porcelain", "-z", "--untracked-files=all", "--ignored=traditional", "--no-renames")
    return not guarded.git.run("status", *args, "--", path)
