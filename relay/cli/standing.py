"""Where a plan stands, from git and the work tree alone: what `relay status` shows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.cli.place import Place
from relay.plan.model import Plan
from relay.resume import ResumePoint, find_resume_point
from relay.session import Spent, Usage

if TYPE_CHECKING:
    from relay.repo.history import RelayCommit
    from relay.repo.legs import OpenLeg
    from relay.repo.open import Repo


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStanding:
    """What the branch says of one phase."""

    phase_id: str
    spent: Spent
    """Of its commits, and of its open leg."""
    commits: tuple[str, ...]
    """Commit ids, oldest first."""
    claimed: tuple[str, ...] = ()
    """Items that the open leg claims and no commit has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a plan stands."""

    plan_name: str
    branch: str | None
    """None when HEAD is detached."""
    plan: Plan
    phases: tuple[PhaseStanding, ...]
    """One for each phase of the plan, in its order."""
    spent: Spent
    """Of everything, planning included."""
    point: ResumePoint


def read_standing(place: Place, repo: "Repo") -> Standing:
    """Gather where the plan stands.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    from relay.facts import read_facts
    from relay.repo.history import read_relay_commits
    from relay.repo.legs import find_boot_id
    from relay.repo.planning import read_plan_usage

    facts, plan, leg = read_facts(repo, place.plan_name, boot_id=find_boot_id())
    commits = read_relay_commits(repo, place.plan_name)
    planning = read_plan_usage(repo)
    spends = [_count_commit(commit) for commit in commits]
    if leg is not None:
        spends.append(_count_leg(leg))
    if planning is not None and planning.plan_path == place.plan_name:
        spends.append(Spent(usage=planning.spend.usage or Usage(), cost_usd=planning.spend.cost_usd))
    return Standing(
        plan_name=place.plan_name,
        branch=repo.branch,
        plan=plan,
        phases=tuple(_stand(phase.id, commits, leg) for phase in plan.phases),
        spent=sum(spends, start=Spent()),
        point=find_resume_point(facts),
    )


def _stand(phase_id: str, commits: "tuple[RelayCommit, ...]", leg: "OpenLeg | None") -> PhaseStanding:
    own = [commit for commit in commits if commit.phase == phase_id]
    spends = [_count_commit(commit) for commit in own]
    is_open = leg is not None and leg.phase_id == phase_id
    if leg is not None and is_open:
        spends.append(_count_leg(leg))
    return PhaseStanding(
        phase_id=phase_id,
        spent=sum(spends, start=Spent()),
        commits=tuple(commit.commit for commit in reversed(own)),
        claimed=leg.items if leg is not None and is_open else (),
    )


def _count_commit(commit: "RelayCommit") -> Spent:
    """Take a commit's trailers; one that names no cost at all was made without a session."""
    from relay.repo.trailers import COST, USAGE

    keys = {key for key, _ in commit.found}
    if not keys & {COST, USAGE}:
        return Spent()
    return Spent(usage=commit.usage or Usage(), cost_usd=commit.cost_usd)


def _count_leg(leg: "OpenLeg") -> Spent:
    """Take what the open leg's snapshots say; one without a snapshot has not sent anything that was answered."""
    if leg.last_wip is None:
        return Spent()
    return Spent(usage=leg.spend.usage or Usage(), cost_usd=leg.spend.cost_usd)
