"""Decide how `relay run` begins, before anything is opened; ``--dry-run`` shows the same."""

from collections.abc import Mapping
from dataclasses import field, replace

from relay.base.errors import RepoError, within
from relay.base.hints import RUN, Command
from relay.base.values import dataclass
from relay.git.names import list_paths, render_path
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.git.status import list_submodules
from relay.plan.check import require_covered
from relay.plan.model import Phase, Plan
from relay.run.commit.readiness import require_gates
from relay.run.selection import Selection, choose_phase
from relay.setup.context import RunRequest
from relay.store.plan_state import PlanState
from relay.store.refs import has_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first phase of a run, and the open jobs."""

    phase: Phase | None = None
    """The first phase in this work tree; None where there is none, or it cannot be known yet."""
    open_jobs: Mapping[str, str] = field(default_factory=dict)
    """Phases with work that has not landed: id → the work tree, or the branch where the work tree is gone."""
    side_by_side: bool = False
    """Whether phases run in work trees of their own, open jobs first."""


def require_phases(request: RunRequest, plan: Plan, selection: Selection) -> RunRequest:
    """Return the request with its phases.

    Raises:
        PlanError: A phase has no gate, or most of the plan's work has no checkbox.
    """
    with within(request.plan_path):
        require_covered(plan.outline)
        phases = selection.list_phases(plan)
        require_gates(plan, request.settings, phases, unchecked=selection.unchecked)
    return replace(request, phases=phases)


def get_beginning(request: RunRequest, plan_state: PlanState, selection: Selection, *, jobs: int) -> Beginning:
    """Return how a run begins.

    Args:
        jobs: How many phases may be at work at once.

    Raises:
        PlanError: The requested phase cannot be run.
        RepoError: It has work elsewhere that has not landed, or phases side by side would lack files of submodules.
    """
    if jobs > 1 and (inside := list_submodules(request.repo)):
        words = f"{list_paths(inside)} would be empty in the work trees of --jobs: git does not fill submodules there"
        raise RepoError(
            words, hint=(Command(words=("run", "--jobs", "1")), " works on one phase after the other, here")
        )
    open_jobs = _find_open_jobs(request.repo, request.plan_path, plan_state.plan)
    phase = choose_phase(plan_state, selection, request.plan_path) if plan_state.point is not None else None
    side_by_side = jobs > 1 or (bool(open_jobs) and selection.all)
    if phase is not None and not side_by_side and (place := open_jobs.get(phase.id)):
        words = f"phase {phase.id} has work in {place} that has not landed"
        raise RepoError(words, hint=(RUN, ", without --phase and --approve, goes on with it there"))
    return Beginning(phase=phase, open_jobs=open_jobs, side_by_side=side_by_side)


def _find_open_jobs(repo: Repo, plan_path: str, plan: Plan) -> Mapping[str, str]:
    if not has_jobs(repo):
        return {}
    from relay.fleet.landing import find_landing, is_open
    from relay.fleet.worktrees import find_jobs, find_lost, name_job_branch
    from relay.store.attempts import read_attempt

    found = {
        job.phase_id: render_path(str(job.repo.root))
        for job in find_jobs(repo, plan_path)
        if is_open(find_landing(repo, job).case, read_attempt(job.repo))
    }
    found |= {phase_id: name_job_branch(repo, phase_id) for phase_id in find_lost(repo, plan)}
    return dict(sorted(found.items()))


def tidy_jobs(request: RunRequest) -> None:
    """Remove the work trees of a run that was killed after its last landing."""
    if not has_jobs(request.repo):
        return
    from relay.fleet.worktrees import remove_free

    with lock_worktree(request.repo):
        tuple(remove_free(request.repo, request.plan_path))  # those that hold something stay
