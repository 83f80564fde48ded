"""How a run ends that has nothing left to do, with a session before it or without one."""

from relay.base.errors import ExitCode, PlanError
from relay.base.hints import RUN
from relay.base.words import count, list_some
from relay.git.lock_journal import clear_stale_locks
from relay.plan.coverage import list_conditions
from relay.plan.model import Plan
from relay.run.commit.plan_commit import make_source
from relay.run.selection import Selection, choose_phase, get_phase
from relay.session.usage import Spent
from relay.setup.context import PlanFiles, RunEnd, RunRequest
from relay.store.completion import finish_pending
from relay.store.history import list_doubts, read_plan_commits, read_undone
from relay.store.lock import lock_worktree
from relay.store.plan_cost import read_plan_cost
from relay.store.plan_edit import EditKind
from relay.store.resume import ResumeCase
from relay.store.situation import Situation, find_done

_SHOWN_DOUBTS = 3


def needs_session(situation: Situation, selection: Selection, plan_path: str) -> bool:
    """Return whether a run needs a session, or has something to settle first.

    Args:
        plan_path: As errors name it.

    Raises:
        PlanError: The phase that was asked for cannot be run, or none can have its turn.
    """
    if situation.point is None:
        return True
    if selection.phase_id:
        get_phase(situation.plan, selection.phase_id)
    if situation.point.case is not ResumeCase.NOTHING_OPEN:
        return True
    return choose_phase(situation, selection, plan_path) is not None or situation.edit.kind is not EditKind.NONE


def end_without_session(request: RunRequest, situation: Situation, selection: Selection) -> RunEnd | None:
    """Return how a run ends that needs no session; None when one is needed, or something has to be settled first.

    Asks for nothing that only a session needs: no key, no sandbox. What a killed relay left is tidied up.

    Raises:
        PlanError: The phase that was asked for cannot be run, or none can have its turn.
    """
    if needs_session(situation, selection, request.plan_path):
        return None
    with lock_worktree(request.repo):
        if clear_stale_locks(request.repo) or finish_pending(request.repo):
            return None
    spent = read_plan_cost(request.repo, request.plan_path).spent
    return finish_run(request.files, situation, spent)


def find_done_plan(files: PlanFiles) -> Plan | None:
    """Return the plan when another run would find nothing left to be done."""
    try:
        return find_done(make_source(files), files.repo)
    except PlanError:
        return None  # somebody is at it: what was done before stays done, and the next command says what is wrong


def finish_run(files: PlanFiles, situation: Situation, spent: Spent) -> RunEnd:
    """Return how a run ends when nothing that was asked for is left."""
    if situation.plan.done:
        return end_done(files, situation.plan, spent)
    return RunEnd(exit_code=ExitCode.DONE, reason="the phase was done already", next_command=RUN, spent=spent)


def end_done(files: PlanFiles, plan: Plan, spent: Spent) -> RunEnd:
    """Return how a run ends whose plan is done, with what speaks against its boxes and what is left to the user."""
    phases = len(plan.phases)
    words = add_doubts(files, f"{phases} of {count(phases, 'phase')}")
    if left := list_conditions(plan.outline):
        words += f", for you to look at: {list_some([section.title for section in left], _SHOWN_DOUBTS)}"
    return RunEnd(exit_code=ExitCode.DONE, reason=words, next_command=None, spent=spent)


def add_doubts(files: PlanFiles, words: str) -> str:
    """Return words with what the plan's commits say against the boxes that they tick behind them."""
    commits = read_plan_commits(files.repo, files.plan_path)
    doubts = list_doubts(commits, read_undone(files.repo, commits))
    return f"{words}, doubtful: {list_some(doubts, _SHOWN_DOUBTS, joint='; ')}" if doubts else words
