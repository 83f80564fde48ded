"""Where a plan stands, from git and the work tree alone: what `relay status` shows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from relay.base.errors import PlanError
from relay.base.hints import Hint
from relay.base.values import dataclass
from relay.plan.model import Plan
from relay.session.usage import Spent
from relay.store.obstacle import find_obstacle
from relay.store.situation import PlanSource, Situation, ask

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.store.history import RelayCommit
    from relay.store.legs import OpenLeg


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStanding:
    """What the branch says of one phase."""

    phase_id: str
    spent: Spent
    """Of its commits, and of its open leg."""
    commits: tuple[str, ...]
    """Commit ids, oldest first; not those that a revert has undone, whose cost is spent all the same."""
    claimed: tuple[str, ...] = ()
    """Items that the open leg claims and no commit has."""
    is_open: bool = False
    """Whether it has an open leg."""
    doubts: tuple[str, ...] = ()
    """What its commits say against boxes that they tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a plan stands."""

    plan_name: str
    branch: str | None
    """None when HEAD is detached."""
    situation: Situation
    """What a run would do."""
    phases: tuple[PhaseStanding, ...]
    """One for each phase of the plan, in its order."""
    spent: Spent
    """Of everything, planning and what was rewound included."""
    rewound: Spent
    """The part of it that `relay rewind` left on another branch."""
    questions: tuple[str, ...] = ()
    """What sessions left the user to answer, and what they assumed: a line each."""
    orphans: tuple[str, ...] = ()
    """A sentence for each phase that is open on a branch that is gone."""

    @property
    def plan(self) -> Plan:
        """The plan as a run goes by it."""
        return self.situation.plan

    @property
    def obstacle(self) -> Hint:
        """What has to be ended before a run can go on, and how; empty when nothing has."""
        error = find_obstacle(self.situation, self.plan_name)
        if error is None:
            return ""
        return (str(error), "; ", error.hint) if error.hint else str(error)


def gather_standing(source: PlanSource, repo: "Repo") -> Standing:
    """Gather where the plan stands, and what it has cost.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    from relay.store.orphans import describe_orphans
    from relay.store.plan_cost import read_plan_cost
    from relay.store.plan_lineage import find_questions

    branch = repo.branch
    situation = ask(source, repo)
    kept = situation.kept
    leg = None if kept.leg_commit else kept.leg  # a commit records what its leg has spent
    cost = read_plan_cost(repo, source.plan_name)
    return Standing(
        plan_name=source.plan_name,
        branch=branch,
        situation=situation,
        phases=tuple(_stand_phases(source, repo, situation, cost.commits, leg)),
        spent=cost.spent + leg.spend if leg else cost.spent,
        rewound=cost.rewound,
        questions=find_questions(repo, leg, source.plan_name, situation.plan),
        orphans=describe_orphans(repo, branch),
    )


def read_questions(source: PlanSource, repo: "Repo") -> tuple[str, ...]:
    """Return what sessions left the user to answer, at the end of a run; nothing where the plan cannot be read."""
    from relay.store.legs import read_leg
    from relay.store.plan_lineage import find_questions

    try:
        return find_questions(repo, read_leg(repo), source.plan_name, source.load())
    except PlanError:  # the next command says what is wrong with it
        return ()


def _stand_phases(
    source: PlanSource, repo: "Repo", situation: Situation, commits: "tuple[RelayCommit, ...]", leg: "OpenLeg | None"
) -> Iterator[PhaseStanding]:
    """Say of each phase what was done and spent for it, whatever its number was then."""
    from relay.store.history import add_spent, list_doubts, read_undone
    from relay.store.plan_lineage import find_claims, find_leg_phase, find_phases
    from relay.store.trailers import REWOUND

    plan, plan_path = situation.plan, source.plan_name
    phases = find_phases(repo, plan_path, plan, commits, before=situation.edit.before)
    gone = read_undone(repo, commits).union(commit.commit for commit in commits if commit.status == REWOUND)
    open_id = find_leg_phase(repo, leg, plan) if leg else ""
    for phase in plan.phases:
        own = [commit for commit in commits if phases.get(commit.commit) == phase.id]
        spent, is_open = add_spent(own), phase.id == open_id
        yield PhaseStanding(
            phase_id=phase.id,
            spent=spent + leg.spend if leg is not None and is_open else spent,
            commits=tuple(commit.commit for commit in reversed(own) if commit.commit not in gone),
            claimed=find_claims(repo, leg, plan_path, plan) if leg is not None and is_open else (),
            is_open=is_open,
            doubts=list_doubts(own, gone),
        )
