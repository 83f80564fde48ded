"""The clones of a fleet's worker: one for each remote and branch, made when a ticket first names them."""

import hashlib
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from relay.base.errors import RepoError
from relay.fleet.engine import Ticket
from relay.fleet.overview import AS_REMOTE
from relay.git.lock_journal import clear_stale_locks
from relay.git.notes import read_note, write_note
from relay.git.refs import move_ref
from relay.git.remote import Remote, make_store
from relay.git.repository import Repo, open_repo
from relay.git.worktrees import add_worktree
from relay.store.worktrees import STORE

_WORK = "work"
_WORKER_NOTE = "worker"


def ensure_clone(folder: Path, ticket: Ticket, environ: Mapping[str, str], tell: Callable[[str], object]) -> Repo:
    """Return a work tree on a ticket's branch; finish a clone that a killed worker began.

    Args:
        folder: Where the worker keeps its clones.
        ticket: Names the remote and the branch.
        tell: Takes progress messages of a long first fetch.

    Raises:
        RepoError: The remote cannot be reached, or has no such branch.
    """
    digest = hashlib.sha256(f"{ticket.remote}\0{ticket.branch}".encode()).hexdigest()[:16]
    place = folder / digest
    place.mkdir(parents=True, exist_ok=True)
    if (place / _WORK / ".git").exists():
        return open_repo(place / _WORK, environ)
    if not (place / STORE / ".git" / "HEAD").exists():
        make_store(place, STORE, environ)
    store = open_repo(place / STORE, environ)
    # Not to the branch itself: nobody may clear the locks that a killed fetch leaves there.
    ref, seen = f"refs/heads/{ticket.branch}", f"refs/remotes/origin/{ticket.branch}"
    Remote(repo=store, name=ticket.remote, environ=environ, tell=tell).fetch(f"+{ref}:{seen}")
    if (tip := store.find_commit(seen)) is None:
        raise RepoError(f"{ticket.remote} has no branch {ticket.branch}")
    clear_stale_locks(store)
    if store.find_commit(ref) is None:
        move_ref(store, ref, tip, None, reason=AS_REMOTE)
    add_worktree(store, place / _WORK, ticket.branch)
    return open_repo(place / _WORK, environ)


def find_worker(main: Repo) -> str:
    """Return this clone's worker name; empty where it never was a worker."""
    token = read_note(main, _WORKER_NOTE).strip()
    return f"{socket.gethostname()}-{token}" if token.isalnum() else ""


def ensure_worker(main: Repo) -> str:
    """Return this clone's worker name, made at first use."""
    if not (name := find_worker(main)):
        main.make_relay_dir()
        write_note(main, _WORKER_NOTE, secrets.token_hex(4))
        name = find_worker(main)
    return name
