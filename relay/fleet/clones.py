"""The clones that a fleet's worker keeps: one for each remote and branch, made when a ticket first names them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from relay.errors import RepoError
from relay.fleet.engine import Ticket
from relay.git.remote import Remote, make_store
from relay.git.repository import Repo, open_repo
from relay.git.worktrees import add_worktree

_STORE, _WORK = "store", "work"


def ensure_clone(folder: Path, ticket: Ticket, environ: Mapping[str, str]) -> Repo:
    """Return a work tree on the branch of a ticket; what a kill cut off is gone on with.

    Args:
        folder: Where the worker keeps its clones.
        ticket: Names the remote and the branch.
        environ: For git.

    Raises:
        RepoError: The remote cannot be reached, or has no such branch.
    """
    digest = hashlib.sha256(f"{ticket.remote}\0{ticket.branch}".encode()).hexdigest()[:16]
    place = folder / digest
    place.mkdir(parents=True, exist_ok=True)
    if (place / _WORK / ".git").exists():
        return open_repo(place / _WORK, environ)
    if not (place / _STORE / ".git" / "HEAD").exists():
        make_store(place, _STORE, environ)
    store = open_repo(place / _STORE, environ)
    ref = f"refs/heads/{ticket.branch}"
    Remote(repo=store, name=ticket.remote, environ=environ).fetch(f"+{ref}:{ref}")
    if store.find_commit(ref) is None:
        raise RepoError(f"{ticket.remote} has no branch {ticket.branch}")
    add_worktree(store, place / _WORK, ticket.branch)
    return open_repo(place / _WORK, environ)
