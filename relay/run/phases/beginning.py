"""What holds before `relay run` opens anything, and which phases have work that has not landed."""

from collections.abc import Mapping
from dataclasses import replace

from relay.base.errors import within
from relay.git.names import render_path
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.plan.check import require_covered
from relay.plan.model import Plan
from relay.run.commit.readiness import require_gates
from relay.run.phases.landing import find_landing, is_open
from relay.run.phases.worktrees import find_lost, look_at_trees, name_job_branch, remove_free
from relay.run.selection import Selection
from relay.setup.context import RunRequest
from relay.store.attempts import read_attempt
from relay.store.refs import has_jobs


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


def find_begun(repo: Repo, plan_path: str, plan: Plan) -> Mapping[str, str]:
    """Return the open phases with work that has not landed, in plan order: id → work tree, or branch where it is gone.

    Args:
        repo: The work tree whose branch is the plan's.
    """
    if not has_jobs(repo):
        return {}
    trees = look_at_trees(repo, plan_path)
    found = {
        job.phase_id: render_path(str(job.repo.root))
        for job in trees.jobs
        if is_open(find_landing(repo, job).case, read_attempt(job.repo))
    }
    found |= {phase_id: name_job_branch(repo, phase_id) for phase_id in find_lost(trees, plan)}
    return {phase.id: found[phase.id] for phase in plan.phases if phase.id in found and not phase.done}


def tidy_jobs(request: RunRequest) -> None:
    """Remove the work trees of a run that was killed after its last landing."""
    if not has_jobs(request.repo):
        return
    with lock_worktree(request.repo):
        tuple(remove_free(request.repo, request.plan_path))  # those that hold something stay
