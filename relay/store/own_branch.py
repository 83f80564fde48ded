"""A branch for a plan: made where HEAD is, and HEAD put on it; no file is touched."""

import re
from shlex import quote

from relay.base.errors import RepoError
from relay.base.hints import RUN
from relay.git import refs
from relay.git.names import parse_ref_part
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.plan.files import find_ledger_path
from relay.store.legs import OpenLeg, find_leg_changes, find_leg_ref, find_place_id, read_leg
from relay.store.lock import lock_worktree
from relay.store.presence import LEGS
from relay.store.snapshot import write_snapshot_tree

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

    A phase that is open goes along when the next run takes the repository (`take_along`).

    Returns:
        False when HEAD is on a branch of relay's already; nothing has changed then.

    Raises:
        RepoError: The branch exists elsewhere, a phase is open on this one that cannot go along, or another relay is
            at work.
    """
    with lock_worktree(repo):
        return _begin(repo, name)


def _begin(repo: Repo, name: str) -> bool:
    here, head = repo.branch, repo.head()
    if here is not None and here.startswith(PREFIX):
        return False
    leg = read_leg(repo)
    if leg is not None and not _is_at(repo, leg):
        raise RepoError(f"a phase is open on {here}: it goes on there", hint=RUN)
    ref = f"refs/heads/{name}"
    if refs.find_ref(repo, ref) is not None or (head is not None and not refs.move_ref(repo, ref, head, None)):
        raise RepoError(f"there is a branch {name} already", hint=f"git switch {quote(name)}")
    repo.git.run("symbolic-ref", "-m", "relay: a branch for the plan", "HEAD", ref)
    return True


def take_along(repo: Repo) -> tuple[str, ...]:
    """Open a phase on HEAD's branch that is open on another one, where its work is in the files here.

    Somebody has made this branch where it stands, or renamed that one. The caller holds the work tree's lock.

    Returns:
        A sentence, when there is such a phase.
    """
    for leg in find_along(repo):
        if _is_here(repo, leg) and refs.move_ref(repo, find_leg_ref(repo.branch or ""), leg.commit, None):
            refs.drop_ref(repo, find_leg_ref(leg.branch), leg.commit)
            return (f"phase {leg.phase_id}, open on {leg.branch}, goes on here, on {repo.branch}",)
    return ()


def find_along(repo: Repo) -> tuple[OpenLeg, ...]:
    """Return the phases that are open on other branches, at this commit and in this work tree; none where one is."""
    refs_of_legs = repo.list_refs(LEGS)
    here = find_leg_ref(repo.branch) if repo.branch else None
    if here is None or here in refs_of_legs:
        return ()
    others = (read_leg(repo, parse_ref_part(ref.removeprefix(LEGS))) for ref in refs_of_legs)
    return tuple(leg for leg in others if leg is not None and _is_at(repo, leg))


def _is_at(repo: Repo, leg: OpenLeg) -> bool:
    return leg.base_head == repo.head() and leg.place == find_place_id(repo)


def _is_here(repo: Repo, leg: OpenLeg) -> bool:
    """Return whether some file of the leg's is as its newest snapshot has it, or it has changed none."""
    if leg.last_wip is None:
        return True
    changed = {change.path for change in find_leg_changes(repo, leg, leg.last_wip)}
    since = {change.path for change in diff_trees(repo, leg.last_wip.tree, write_snapshot_tree(repo).tree)}
    own = {leg.plan_path, find_ledger_path(leg.plan_path)}
    return not changed - own or bool(changed - own - since)
