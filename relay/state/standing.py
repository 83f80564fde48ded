"""Where a plan stands, from git and the work tree alone: what `relay status` shows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from relay.errors import RepoError, within
from relay.hints import Caller
from relay.plan.model import Plan
from relay.session.usage import Spent, Usage
from relay.state.resume import Facts, ResumeCase, ResumePoint, find_resume_point

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
    """Commit ids, oldest first."""
    claimed: tuple[str, ...] = ()
    """Items that the open leg claims and no commit has."""
    is_open: bool = False
    """Whether it has an open leg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a plan stands."""

    plan_name: str
    caller: Caller
    branch: str | None
    """None when HEAD is detached."""
    plan: Plan
    phases: tuple[PhaseStanding, ...]
    """One for each phase of the plan, in its order."""
    spent: Spent
    """Of everything, planning and what was rewound included."""
    rewound: Spent
    """The part of it that `relay rewind` left on another branch."""
    point: ResumePoint | None
    """None while another relay is at work here, or a run would be refused."""
    leg: "OpenLeg | None" = None
    running: str = ""
    """Who is at work here; empty when nobody is."""
    obstacle: str = ""
    """What has to be ended before a run can start, and how; empty when nothing has."""
    strays: tuple[str, ...] = ()
    """Phases that are open on branches that are gone, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The plan that is asked about, and how to read it as the file has it."""

    plan_name: str
    """Relative to the repository's root."""
    load: Callable[[], Plan]
    caller: Caller


def gather_standing(source: PlanSource, repo: "Repo") -> Standing:
    """Gather where the plan stands.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    from relay.store.history import read_plan_commits, read_rewound_commits
    from relay.store.orphans import describe_strays

    branch = repo.branch
    waiting = branch is not None and _has_refs(repo, branch)
    leg = _read_leg(repo) if waiting else None
    obstacle = _find_obstacle(repo, branch)
    other = leg if leg is not None and _is_of_another_plan(repo, leg, source.plan_name) else None
    leg = _settle(repo, leg) if leg is not None and other is None else None
    undoes = _find_cut_off(repo, source.plan_name) if waiting else ""
    plan, point, running = _find_point(source, repo, is_open=leg is not None and not obstacle, undoes=undoes)
    if other is not None and not plan.done:
        go_on = source.caller.render_for(other.plan_path, "run")
        obstacle = obstacle or f"phase {other.phase_id} of {other.plan_path} is open; `{go_on}` goes on with it"
    commits = read_plan_commits(repo, source.plan_name)
    rewound = read_rewound_commits(repo, source.plan_name, commits) if waiting else ()
    spends = (*map(_count_commit, (*commits, *rewound)), *(_count_rest(source, repo, leg) if waiting else ()))
    return Standing(
        plan_name=source.plan_name,
        caller=source.caller,
        branch=branch,
        plan=plan,
        phases=tuple(_stand(phase.id, commits, leg) for phase in plan.phases),
        spent=sum(spends, start=Spent()),
        rewound=sum(map(_count_commit, rewound), start=Spent()),
        point=None if obstacle else _put_first(point, undoes),
        leg=leg,
        running=running,
        obstacle=obstacle,
        strays=describe_strays(repo),
    )


def _has_refs(repo: "Repo", branch: str) -> bool:
    """Return whether relay keeps anything beside the branch; reading it would load the write path's modules."""
    from relay.git.names import render_ref_part

    part = render_ref_part(branch)
    kept = (f"refs/relay/leg/{part}", f"refs/relay/plan/{part}", "refs/relay/rewound/")
    return bool(repo.git.run("for-each-ref", "--count=1", *kept))


def _find_obstacle(repo: "Repo", branch: str | None) -> str:
    from relay.git.operations import check_state

    return check_state(repo) or ("" if branch else "HEAD is detached; relay commits on a branch: git switch -c <name>")


def _is_of_another_plan(repo: "Repo", leg: "OpenLeg", plan_name: str) -> bool:
    from relay.state.facts import is_of_another_plan

    return is_of_another_plan(repo, leg, plan_name)


def _settle(repo: "Repo", leg: "OpenLeg") -> "OpenLeg":
    """Take what a leg has spent out of it where its commit is on the branch, and records that."""
    from relay.state.facts import find_leg_commit

    return leg if find_leg_commit(repo, leg) is None else replace(leg, spend=Spent())


def _read_leg(repo: "Repo") -> "OpenLeg | None":
    from relay.store.legs import read_leg

    return read_leg(repo)


def _find_cut_off(repo: "Repo", plan_name: str) -> str:
    """Return the phase whose work a revert took off the branch and, cut off, not out of the files; else empty."""
    from relay.git.names import parse_path
    from relay.store.completion import find_pending_revert
    from relay.store.trailers import PHASE, PLAN

    revert = find_pending_revert(repo)
    return revert.get(PHASE) if revert and parse_path(revert.get(PLAN)) == plan_name else ""


def _put_first(point: ResumePoint | None, undoes: str) -> ResumePoint | None:
    """Say that a run finishes the revert before anything else, when there is one."""
    if point is None or not undoes:
        return point
    what = f"rewind to before phase {undoes}"
    return replace(point, why=f"The {what} was cut off. {point.why}", then=f"finishes the {what}, then {point.then}")


def _find_point(
    source: PlanSource, repo: "Repo", *, is_open: bool, undoes: str
) -> tuple[Plan, ResumePoint | None, str]:
    """Ask what a run would do.

    Comparing the work tree with an open leg goes through the private index, which belongs to whoever holds the lock.
    """
    shown = _read_committed(source, repo) if undoes else source.load()
    if not is_open:
        facts = Facts(plan=shown, head=None, boot_id="", leg=None)
        return shown, find_resume_point(facts), ""
    from relay.store.lock import lock_worktree

    with ExitStack() as stack:
        try:
            stack.enter_context(lock_worktree(repo))
        except RepoError as error:
            return shown, None, str(error)
        return _read_point(source, repo, shown)


def _read_point(source: PlanSource, repo: "Repo", shown: Plan) -> tuple[Plan, ResumePoint, str]:
    from relay.state.facts import read_standing
    from relay.store.legs import find_boot_id

    facts = read_standing(repo, shown, source.plan_name, boot_id=find_boot_id()).facts
    point = find_resume_point(facts)
    if point.case is not ResumeCase.AFTER_COMMIT:
        return shown, point, ""
    # The commit's ticks are on the branch and not yet in the file: the branch is right.
    plan = _read_committed(source, repo)
    return plan, find_resume_point(replace(facts, plan=plan)), ""


def _read_committed(source: PlanSource, repo: "Repo") -> Plan:
    from relay.plan.parse import parse_plan
    from relay.store.texts import find_text

    with within(source.plan_name):
        return parse_plan(find_text(repo, repo.head(), source.plan_name) or "")


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
        is_open=is_open,
    )


def _count_rest(source: PlanSource, repo: "Repo", leg: "OpenLeg | None") -> Iterator[Spent]:
    """Yield what no commit records yet: the open leg and a plan that was written and is not committed."""
    from relay.store.planning_cost import read_plan_usage

    if leg is not None:
        yield _count_leg(leg)
    planning = read_plan_usage(repo)
    if planning is not None and planning.plan_path == source.plan_name:
        yield planning.spend


def _count_commit(commit: "RelayCommit") -> Spent:
    """Take a commit's trailers; one that names no cost at all was made without a session."""
    from relay.store.trailers import COST, USAGE

    keys = {key for key, _ in commit.found}
    if not keys & {COST, USAGE}:
        return Spent()
    return Spent(usage=commit.usage or Usage(), cost_usd=commit.cost_usd)


def _count_leg(leg: "OpenLeg") -> Spent:
    """Take what the open leg's snapshots say; without one, nothing that was sent has been answered."""
    return leg.spend if leg.last_wip is not None else Spent()
