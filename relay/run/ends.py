"""How a run ends that has nothing left to do, with a session before it or without one."""

from relay.errors import ExitCode
from relay.git.lock_journal import clear_stale_locks
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.hints import Caller
from relay.plan.model import Plan
from relay.run.plan_commit import parse_committed
from relay.run.selection import Selection, choose_phase, get_phase
from relay.session.events import RunEnded
from relay.session.usage import Spent
from relay.setup.account import read_spent
from relay.setup.context import RunContext
from relay.setup.open import RunRequest
from relay.state.resume import ResumeCase, ResumePoint
from relay.store.completion import finish_pending
from relay.store.legs import read_leg
from relay.store.lock import lock_worktree
from relay.store.texts import find_text


def end_without_session(
    request: RunRequest, plan: Plan, point: ResumePoint, selection: Selection, *, is_open: bool
) -> RunEnded | None:
    """Return how a run ends that needs no session; None when one is needed, or git has to be asked more than here.

    Asks for nothing that only a session needs: no key, no sandbox. What a killed relay left is tidied up.

    Args:
        request: What the command knows.
        plan: As the work tree has it.
        point: Where a run would go on.
        selection: What was asked for.
        is_open: Whether a leg is open.

    Raises:
        PlanError: The phase that was asked for cannot be run.
    """
    repo, path = request.repo, request.plan_path
    if selection.phase_id:
        get_phase(plan, selection.phase_id)
    if _find_committed_plan(repo, path) is None or point.case is not ResumeCase.NOTHING_OPEN:
        return None
    if choose_phase(plan, point, selection, request.caller, is_open=is_open) is not None:
        return None
    with lock_worktree(repo):
        if clear_stale_locks(repo) or finish_pending(repo):
            return None
    return finish_run(plan, point, request.caller, read_spent(repo, path))


def find_done_plan(ctx: RunContext) -> Plan | None:
    """Return the plan when the branch has all of it done, the file says the same, and no leg is open."""
    plan = _find_committed_plan(ctx.repo, ctx.plan_path)
    return plan if plan is not None and plan.done and read_leg(ctx.repo) is None else None


def _find_committed_plan(repo: Repo, path: str) -> Plan | None:
    """Return the plan when HEAD has it as the work tree does; None for one that has yet to be committed."""
    committed = find_text(repo, repo.head(), path)
    if committed is None or path in read_status(repo).changed:
        return None
    return parse_committed(committed, path)


def finish_run(plan: Plan, point: ResumePoint, caller: Caller, spent: Spent) -> RunEnded:
    """Return how a run ends when no phase that was asked for can be worked on: done, or each one waits for another."""
    if plan.done:
        return end_done(plan, spent)
    code, reason, then = ExitCode.USER, point.why, caller.render_check()
    if point.phase_id:
        code, reason, then = ExitCode.DONE, "the phase was done already", caller.render("run")
    return RunEnded(exit_code=code, reason=reason, next_command=then, spent_usd=spent.cost_usd)


def end_done(plan: Plan, spent: Spent) -> RunEnded:
    """Return how a run ends whose plan is done."""
    phases = len(plan.phases)
    words = f"all {phases} phases are done" if phases > 1 else "the only phase is done"
    return RunEnded(exit_code=ExitCode.DONE, reason=words, next_command="", spent_usd=spent.cost_usd)
