"""What a plan has cost that no commit of its branch records: in phases open on other branches, and in ones given up.

A leg that is closed without a commit of its own, because its phase was finished by hand or is gone, leaves its cost
under ``refs/relay/spent/<branch>/<n>``. Everything is counted by session, so a leg whose commit arrives counts once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.merging import is_ancestor
from relay.git.message import Message, read_text
from relay.git.names import parse_path, parse_ref_part, render_path, render_ref_part
from relay.git.repository import Repo
from relay.git.trees import find_tree
from relay.plan.lineage import has_heirs
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.history import RelayCommit, add_spent, find_origin
from relay.store.legs import OpenLeg, close_leg, next_ref, read_leg
from relay.store.session_cost import drop_spent, find_spent
from relay.store.texts import find_text
from relay.store.trailers import BASE

_LEG = "refs/relay/leg/"
_SPENT = "refs/relay/spent/"
_ID = re.compile(r"[0-9a-f]{40,64}")
_Entry = tuple[str, str, str, Spent]
"""Session, plan, the commit where its leg began, and what it has cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Whose cost is kept."""

    plan_path: str
    phase_id: str
    session_id: str
    base: str | None
    """The commit where it began; None on an unborn branch."""


def give_up_leg(repo: Repo, leg: OpenLeg) -> None:
    """Close a leg that no commit will come from; its snapshots stay, and what it has cost."""
    # Kept before the leg goes; a run that is killed in between does not keep it twice.
    if leg.spend != Spent() and all(entry[0] != leg.session_id for entry in _read_kept(repo)):
        own = Whose(plan_path=leg.plan_path, phase_id=leg.phase_id, session_id=leg.session_id, base=leg.base_head)
        keep_spent(repo, next_ref(repo, "spent", leg.branch), own, leg.spend)
    close_leg(repo, leg)


@contextmanager
def keeping_spent(repo: Repo, plan_path: str, session_id: str, read_spent: Callable[[], Spent]) -> Iterator[None]:
    """Keep what a session costs that no commit will tell of; after a kill, what is noted of it counts.

    Args:
        plan_path: Of the plan that it counts for.
        read_spent: Says in the end what it has cost.
    """
    own = Whose(plan_path=plan_path, phase_id="", session_id=session_id, base=repo.head())
    ref = next_ref(repo, "spent", repo.branch or "HEAD")
    begun = keep_spent(repo, ref, own, Spent())
    try:
        yield
    finally:
        keep_spent(repo, ref, own, read_spent(), before=begun)
        drop_spent(repo, session_id)


def keep_spent(repo: Repo, ref: str, own: Whose, spent: Spent, *, before: str | None = None) -> str:
    """Keep what no commit tells of under a ref, which is at `before` (None: not there yet); return the commit."""
    kept = (
        (trailers.PLAN, render_path(own.plan_path)),
        (trailers.PHASE, own.phase_id),
        (trailers.SESSION, own.session_id),
        (BASE, own.base or ""),
        *trailers.render_spent(spent),
    )
    what = f"phase {own.phase_id}" if own.phase_id else f"session {own.session_id}"
    message = Message(subject=f"relay: what was spent on {what}", trailers=kept)
    tree = find_tree(repo, own.base) if own.base else repo.empty_tree
    commit = objects.write_commit(repo, tree, (own.base,) if own.base else (), message)
    refs.move_ref(repo, ref, commit, before)
    return commit


def read_unrecorded(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> tuple[Spent, ...]:
    """Return what sessions of the plan have cost that is neither in a commit nor in the open leg of HEAD's branch.

    Args:
        own: The plan's commits on the branch, as `relay.store.history.read_plan_commits` says.
        others: Its commits elsewhere.
    """
    listed = repo.list_refs(_LEG, _SPENT)
    here = read_leg(repo)
    if not listed or (here is not None and len(listed) == 1):
        return ()
    origin = find_origin(repo, plan_path, own)
    names = {plan_path, *(commit.plan for commit in (*own, *others))}
    seen = {commit.session for commit in (*own, *others)} | ({here.session_id} if here else set())
    found: list[Spent] = []
    for session, plan, base, spent in (*_read_kept(repo), *_read_legs(repo)):
        if session not in seen and plan in names and _is_of_plan(repo, origin, plan_path, base):
            found.append(spent)
            seen.add(session)
    return tuple(found)


def _read_kept(repo: Repo, place: str = _SPENT) -> Iterator[_Entry]:
    for commit in repo.list_refs(place).values():
        text = read_text(repo, commit)
        noted = find_spent(repo, text.get(trailers.SESSION))  # of a session that was killed
        spent = noted or trailers.parse_spent(text.get(trailers.USAGE), text.get(trailers.COST))
        yield text.get(trailers.SESSION), parse_path(text.get(trailers.PLAN)), text.get(BASE), spent


def add_branch(repo: Repo, branch: str, commits: Iterable[RelayCommit]) -> Spent:
    """Return what sessions of a branch have cost, by commits of it and by its open leg.

    The leg of a run that was killed right behind its commit stands for what the commit says.
    """
    made, leg = tuple(commits), read_leg(repo, branch)
    is_made = leg is None or any(leg.session_id == commit.session for commit in made)
    return add_spent(made) + (Spent() if leg is None or is_made else leg.spend)


def read_given_up(repo: Repo, branch: str) -> Spent:
    """Return what the sessions of a branch have cost whose legs were given up."""
    return sum((spent for _, _, _, spent in _read_kept(repo, f"{_SPENT}{render_ref_part(branch)}/")), start=Spent())


def _read_legs(repo: Repo) -> Iterator[_Entry]:
    for name in repo.list_refs(_LEG):
        if (leg := read_leg(repo, parse_ref_part(name.removeprefix(_LEG)))) is not None:
            yield leg.session_id, leg.plan_path, leg.base_head or "", leg.spend


def _is_of_plan(repo: Repo, origin: str, plan_path: str, base: str) -> bool:
    """Return whether a leg that began at `base` worked on the plan that `origin` brought, or brought when rewritten."""
    if not (origin and _ID.fullmatch(base)):
        return False
    if is_ancestor(repo, origin, base):
        return True
    head, began = find_text(repo, "HEAD", plan_path), find_text(repo, base, plan_path)
    return not is_ancestor(repo, base, origin) and began is not None and has_heirs(began, head or "")
