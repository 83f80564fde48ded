"""Make a clone with one branch and one work tree of it; finish a clone that a killed relay began."""

from collections.abc import Callable, Mapping
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.lock_journal import clear_stale_locks
from relay.git.names import STORE
from relay.git.refs import move_ref
from relay.git.remote import Remote, make_store
from relay.git.repository import Repo, open_repo
from relay.git.worktrees import add_worktree

WORK = "work"
"""The name of that work tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSource:
    """The commit that a clone begins at."""

    remote: str
    """An address, or the path of a repository."""
    ref: str
    """The only ref that is fetched: the clone has that commit and those below it, no other branch."""
    reason: str = "relay"
    """For the reflog."""


def ensure_work_tree(
    place: Path,
    source: CloneSource,
    branch: str,
    environ: Mapping[str, str],
    tell: Callable[[str], object] = lambda _: None,
) -> Repo:
    """Return the clone's work tree, on a branch of its own.

    Args:
        place: The clone's directory.
        tell: Takes progress messages of a long first fetch.

    Raises:
        RepoError: The remote cannot be reached, or has no such ref.
    """
    place.mkdir(parents=True, exist_ok=True)
    if (place / WORK / ".git").exists():
        return open_repo(place / WORK, environ)
    if not (place / STORE / ".git" / "HEAD").exists():
        make_store(place, STORE, environ)
    store = open_repo(place / STORE, environ)
    # Not to the branch itself: nobody may clear the locks that a killed fetch leaves there.
    ref, seen = f"refs/heads/{branch}", f"refs/remotes/origin/{branch}"
    Remote(repo=store, name=source.remote, environ=environ, tell=tell).fetch(f"+{source.ref}:{seen}")
    if (tip := store.find_commit(seen)) is None:
        what = f"branch {branch}" if source.ref == ref else source.ref
        raise RepoError(f"{source.remote} has no {what}")
    clear_stale_locks(store)
    if store.find_commit(ref) is None:
        move_ref(store, ref, tip, None, reason=source.reason)
    return add_worktree(store, place / WORK, branch)
