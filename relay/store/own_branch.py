"""A branch for a plan: made where HEAD is, and HEAD put on it; no file is touched."""

import re
from shlex import quote

from relay.errors import RepoError
from relay.git import refs
from relay.git.repository import Repo
from relay.hints import RUN
from relay.store.legs import read_leg
from relay.store.lock import lock_worktree

PREFIX = "relay/"
_LONGEST_CHARS = 48


def name_branch(title: str, plan_path: str) -> str:
    """Return the name of a plan's branch, from its title or, where that has no letters, from its file's name."""
    words = _slug(title) or _slug(plan_path.rpartition("/")[2].rpartition(".")[0]) or "plan"
    return PREFIX + words


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_CHARS].strip("-")


def begin_branch(repo: Repo, name: str) -> bool:
    """Put HEAD on the branch of that name, made at the commit where HEAD is, while nobody else is at work.

    Returns:
        False when HEAD is on a branch of relay's already; nothing has changed then.

    Raises:
        RepoError: The branch exists elsewhere, a phase is open on this one, or another relay is at work.
    """
    with lock_worktree(repo):
        return _begin(repo, name)


def _begin(repo: Repo, name: str) -> bool:
    here, head = repo.branch, repo.head()
    if here is not None and here.startswith(PREFIX):
        return False
    if here is not None and read_leg(repo) is not None:
        raise RepoError(f"a phase is open on {here}: it goes on there", hint=RUN)
    ref = f"refs/heads/{name}"
    if refs.find_ref(repo, ref) is not None or (head is not None and not refs.move_ref(repo, ref, head, None)):
        raise RepoError(f"there is a branch {name} already", hint=f"git switch {quote(name)}")
    repo.git.run("symbolic-ref", "-m", "relay: a branch for the plan", "HEAD", ref)
    return True
