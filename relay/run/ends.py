"""How a run ends that has nothing left to do, with a session before it or without one."""

from relay.errors import ExitCode
from relay.git.lock_journal import clear_stale_locks
from relay.git.status import read_status
from relay.hints import RUN, Command
from relay.plan.model import Plan
from relay.plan.parse import find_plan_in
from relay.run.selection import Selection, choose_phase, get_phase
from relay.session.usage import Spent
from relay.setup.context import PlanFiles, RunEnd, RunRequest
from relay.state.plan_edit import EditKind
from relay.state.resume import ResumeCase
from relay.state.situation import Situation
from relay.store.completion import finish_pending
from relay.store.legs import read_leg
from relay.store.lock import lock_worktree
from relay.store.plan_cost import read_plan_cost
from relay.store.texts import find_text
from relay.words import count


def needs_session(situation: Situation, selection: Selection) -> bool:
    """Return whether a run needs a session, or has something to settle first.

    Raises:
        PlanError: The phase that was asked for cannot be run.
    """
    if situation.point is None:
        return True
    if selection.phase_id:
        get_phase(situation.plan, selection.phase_id)
    if situation.edit.kind is not EditKind.NONE or situation.point.case is not ResumeCase.NOTHING_OPEN:
        return True
    return choose_phase(situation, selection) is not None


def end_without_session(request: RunRequest, situation: Situation, selection: Selection) -> RunEnd | None:
    """Return how a run ends that needs no session; None when one is needed, or something has to be settled first.

    Asks for nothing that only a session needs: no key, no sandbox. What a killed relay left is tidied up.

    Raises:
        PlanError: The phase that was asked for cannot be run.
    """
    if needs_session(situation, selection):
        return None
    with lock_worktree(request.repo):
        if clear_stale_locks(request.repo) or finish_pending(request.repo):
            return None
    spent = read_plan_cost(request.repo, request.plan_path).spent
    return finish_run(situation, spent)


def find_done_plan(files: PlanFiles) -> Plan | None:
    """Return the plan when the branch has all of it done, the file says the same, and no leg is open."""
    committed = find_text(files.repo, "HEAD", files.plan_path)
    plan = None if committed is None else find_plan_in(committed)
    if plan is None or not plan.done or read_leg(files.repo) is not None:
        return None
    return None if files.plan_path in read_status(files.repo, (files.plan_path,)).changed else plan


def finish_run(situation: Situation, spent: Spent) -> RunEnd:
    """Return how a run ends when no phase that was asked for can be worked on: done, or each one waits for another."""
    plan, point = situation.plan, situation.get_point()
    if plan.done:
        return end_done(plan, spent)
    code, reason, then = ExitCode.USER, point.why, Command(words=("check",))
    if point.phase_id:
        code, reason, then = ExitCode.DONE, "the phase was done already", RUN
    return RunEnd(exit_code=code, reason=reason, next_command=then, spent=spent)


def end_done(plan: Plan, spent: Spent) -> RunEnd:
    """Return how a run ends whose plan is done."""
    phases = len(plan.phases)
    words = f"{phases} of {count(phases, 'phase')}"
    return RunEnd(exit_code=ExitCode.DONE, reason=words, next_command=None, spent=spent)
