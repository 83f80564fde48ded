"""What a plan has cost: the one reader of every place that says so, and the writers of the two that only cost needs.

===================================== ============================================================================
commits' trailers                     what the sessions behind a commit cost: on the branch, on jobs' branches that
                                      have not landed, and in what `relay rewind` left (``refs/relay/rewound/``)
``refs/relay/leg/``, ``…/wip/``       an open leg and its checkpoints (`relay.store.legs`)
``refs/relay/plan/<branch>``          a written plan that no commit has yet; the ``planned`` commit takes it over
``refs/relay/spent/<branch>/<n>``     a leg that was closed without a commit: its phase was finished by hand, or is gone
``.git/relay/spent/<session>``        an open session, request by request (`relay.store.session_spend`)
===================================== ============================================================================

A plan's cost counts each session once, so a leg whose commit arrives later is not counted twice. The planning record is
there from the moment a planning session begins: what a killed one has cost is noted with each of its requests.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from relay.base.values import dataclass
from relay.git.message import CommitText, read_text
from relay.git.names import parse_path, parse_ref_part, render_ref_part
from relay.git.repository import Repo
from relay.plan.lineage import has_heirs
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.history import (
    RelayCommit,
    add_spent,
    find_origin,
    find_text,
    read_plan_commits,
    read_rewound_commits,
    read_unlanded_commits,
)
from relay.store.refs import LEGS, PLANS, SPENT, has_kept_refs
from relay.store.session_spend import find_spent
from relay.store.trailers import BASE

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What the current plan has cost, the open leg of HEAD's branch aside."""

    commits: tuple[RelayCommit, ...]
    """The plan's on this branch, newest first."""
    spent: Spent
    """By all its commits, rewound ones too, by planning that no commit has yet, and by sessions that left none."""
    rewound: Spent = Spent()
    """The part of it that `relay rewind` left on another branch."""


def read_plan_cost(repo: Repo, plan_path: str) -> PlanCost:
    """Read what the plan has cost."""
    own = read_plan_commits(repo, plan_path)
    if not has_kept_refs(repo):
        return PlanCost(commits=own, spent=add_spent(own))
    rewound = read_rewound_commits(repo, plan_path, own)
    others = (*rewound, *read_unlanded_commits(repo, plan_path, own))
    spent = sum(_read_unrecorded(repo, plan_path, own, others), start=add_spent((*own, *others)))
    return PlanCost(commits=own, spent=spent, rewound=add_spent(rewound))


def _read_unrecorded(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> Iterator[Spent]:
    """Yield what legs cost that are open elsewhere or were given up, and a plan that is not committed."""
    yield from read_unrecorded(repo, plan_path, own, others)
    planning = read_plan_usage(repo)
    # A run that was killed right behind the plan's commit has both.
    recorded = {commit.session for commit in (*own, *others)}
    if planning is not None and planning.plan_path == plan_path and planning.session_id not in recorded:
        yield planning.spend


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRecord:
    """One planning session, or several added up."""

    plan_path: str
    session_id: str
    spend: Spent
    is_open: bool = False
    """Whether the session has begun and not ended: `spend` is what was spent before it; when read back, all of it."""
    trailers: tuple[tuple[str, str], ...] = ()
    """Further ones, kept and handed back."""


def read_plan_usage(repo: Repo) -> PlanningRecord | None:
    """Return what is kept for the written plan of HEAD's branch; None when nothing is."""
    found = find_plan_record(repo)
    if found is None:
        return None
    record = parse_planning(read_text(repo, found[1]))
    noted = find_spent(repo, record.session_id) if record.is_open else None
    return replace(record, spend=record.spend + noted) if noted else record


def find_plan_record(repo: Repo) -> tuple[str, str] | None:
    """Return the ref and the commit that keep the branch's written plan; None without one.

    A plan that was written on another branch waits here when HEAD is where it was then: the user took the file along
    with ``git switch -c``.
    """
    branch = repo.branch
    if branch is None:
        return None
    plans, ref = repo.list_refs(PLANS), f"{PLANS}{render_ref_part(branch)}"
    if ref in plans:
        return ref, plans[ref]
    head = repo.head() or UNBORN
    return next(((name, at) for name, at in plans.items() if read_text(repo, at).get(trailers.BASE) == head), None)


_OWN = frozenset({trailers.PLAN, trailers.SESSION, trailers.USAGE, trailers.COST, trailers.OPEN, trailers.BASE})
YES, UNBORN = "yes", "none"
"""Values of trailers: a session that has not ended, and a branch without a commit."""


def parse_planning(text: CommitText) -> PlanningRecord:
    """Read a planning record from the commit that keeps it."""
    return PlanningRecord(
        plan_path=parse_path(text.get(trailers.PLAN)),
        session_id=text.get(trailers.SESSION),
        spend=trailers.parse_spent(text.get(trailers.USAGE), text.get(trailers.COST)),
        is_open=text.get(trailers.OPEN) == YES,
        trailers=tuple(pair for pair in text.found if pair[0] not in _OWN),
    )


_ID = re.compile(r"[0-9a-f]{40,64}")
_Entry = tuple[str, str, str, Spent]
"""Session, plan, the commit where its leg began, and what it has cost."""


def read_unrecorded(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> tuple[Spent, ...]:
    """Return what sessions of the plan have cost that is neither in a commit nor in the open leg of HEAD's branch.

    Args:
        own: The plan's commits on the branch, as `relay.store.history.read_plan_commits` says.
        others: Its commits elsewhere.
    """
    from relay.store.legs import read_leg

    listed = repo.list_refs(LEGS, SPENT)
    here = read_leg(repo)
    if not listed or (here is not None and len(listed) == 1):
        return ()
    origin = find_origin(repo, plan_path, own)
    names = {plan_path, *(commit.plan for commit in (*own, *others))}
    seen = {commit.session for commit in (*own, *others)} | ({here.session_id} if here else set())
    found: list[Spent] = []
    for session, plan, base, spent in (*read_kept_spent(repo), *_read_legs(repo)):
        if session not in seen and plan in names and _is_of_plan(repo, origin, plan_path, base):
            found.append(spent)
            seen.add(session)
    return tuple(found)


def read_kept_spent(repo: Repo, place: str = SPENT) -> Iterator[_Entry]:
    """Yield what is kept of sessions that no commit tells of; of a killed one, what was noted request by request."""
    for commit in repo.list_refs(place).values():
        text = read_text(repo, commit)
        noted = find_spent(repo, text.get(trailers.SESSION))  # of a session that was killed
        spent = noted or trailers.parse_spent(text.get(trailers.USAGE), text.get(trailers.COST))
        yield text.get(trailers.SESSION), parse_path(text.get(trailers.PLAN)), text.get(BASE), spent


def add_branch(repo: Repo, branch: str, commits: Iterable[RelayCommit]) -> Spent:
    """Return what sessions of a branch have cost, by commits of it and by its open leg.

    The leg of a run that was killed right behind its commit stands for what the commit says.
    """
    from relay.store.legs import read_leg

    made, leg = tuple(commits), read_leg(repo, branch)
    is_made = leg is None or any(leg.session_id == commit.session for commit in made)
    return add_spent(made) + (Spent() if leg is None or is_made else leg.spend)


def read_given_up(repo: Repo, branch: str) -> Spent:
    """Return what the sessions of a branch have cost whose legs were given up."""
    return sum((spent for _, _, _, spent in read_kept_spent(repo, f"{SPENT}{render_ref_part(branch)}/")), start=Spent())


def _read_legs(repo: Repo) -> Iterator[_Entry]:
    from relay.store.legs import read_leg

    for name in repo.list_refs(LEGS):
        if (leg := read_leg(repo, parse_ref_part(name.removeprefix(LEGS)))) is not None:
            yield leg.session_id, leg.plan_path, leg.base_head or "", leg.spend


def _is_of_plan(repo: Repo, origin: str, plan_path: str, base: str) -> bool:
    """Return whether a leg that began at `base` worked on the plan that `origin` brought, or brought when rewritten."""
    from relay.git.merging import is_ancestor

    if not (origin and _ID.fullmatch(base)):
        return False
    if is_ancestor(repo, origin, base):
        return True
    head, began = find_text(repo, "HEAD", plan_path), find_text(repo, base, plan_path)
    return not is_ancestor(repo, base, origin) and began is not None and has_heirs(began, head or "")
