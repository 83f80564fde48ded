"""The loop: resume point → leg → decide. Collaborators are arguments; every outcome of a leg is a value.

Nothing is remembered between two rounds: each begins by asking git where the run stands, so a run that was killed and
one that goes on take the same path.
"""

import time
from dataclasses import dataclass

from relay.errors import ExitCode, PlanError, RepoError
from relay.git.lock_journal import clear_stale_locks
from relay.git.names import list_paths
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.hints import Caller
from relay.plan.files import find_ledger_path
from relay.plan.model import Phase, Plan
from relay.run.commit_step import find_owned_paths
from relay.run.leg import Leg, LegKind, LegResult
from relay.run.plan_commit import ensure_plan_committed, parse_committed
from relay.run.start import (
    Handover,
    begin_phase,
    carry_over,
    continue_phase,
    read_phase_spent,
    restore_saved,
    save_found,
)
from relay.runners.messages.waiting import render_moment, render_span
from relay.session.events import Noticed, RetryScheduled, RunEnded
from relay.session.usage import Spent
from relay.session.values import SessionEnd
from relay.setup.context import RunContext
from relay.setup.open import RunRequest, read_spent
from relay.state.facts import find_landed, is_of_another_plan, read_standing
from relay.state.resume import ResumeCase, ResumePoint, find_blocked_by, find_resume_point
from relay.state.session_ends import find_repeated_error, find_reset
from relay.store.completion import finish_commit, finish_pending
from relay.store.history import RelayCommit
from relay.store.legs import OpenLeg, close_leg, find_leg_ref, read_leg
from relay.store.lock import lock_worktree
from relay.store.snapshot import write_snapshot_tree
from relay.store.texts import find_text

MAX_BARREN_LEGS = 3
"""Sessions in a row over the line without a new tick before the phase is called too big. Source: DESIGN § 6."""
MAX_SAME_ERRORS = 3
"""Sessions in a row that end at the same item with the same error before the phase is called stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user asked to have run."""

    phase_id: str = ""
    """One phase; empty for the next one in turn."""
    all: bool = True
    """Whether to go on after a phase is done."""


def run(ctx: RunContext, selection: Selection) -> RunEnded:
    """Run phases until what was asked for is done or something stops it; the caller holds the lock."""
    while True:
        if ctx.interrupts.finish_turn:
            return _end_interrupted(ctx)
        plan, leg, point = _find_point(ctx)
        phase = choose_phase(plan, point, selection, ctx.caller, is_open=leg is not None)
        if phase is None:
            return _finish_run(plan, point, ctx.caller, ctx.meter.total)
        if end := _wait_for_reset(ctx, leg):
            return end
        handover = _begin(ctx, plan, phase, leg, point)
        if handover is None:
            continue  # a stop was asked for
        ctx.meter.open_phase(read_phase_spent(ctx, phase.id))
        result = Leg(ctx, handover).run()
        if end := _decide(ctx, selection, result, handover):
            return end


def _find_point(ctx: RunContext) -> tuple[Plan, OpenLeg | None, ResumePoint]:
    """Ask git where the run stands, and tidy up what a killed run or a busy user left."""
    _finish_landed(ctx)
    plan = parse_committed(ensure_plan_committed(ctx), ctx.plan_path)
    standing = read_standing(ctx.repo, plan, ctx.plan_path, boot_id=ctx.boot_id)
    point, leg, facts = find_resume_point(standing.facts), standing.leg, standing.facts.leg
    if leg is None or facts is None:
        return plan, None, point
    if point.case is ResumeCase.MOVED_ON and point.phase_id == leg.phase_id:
        ctx.observe(Noticed(text=f"{point.why} Its work is kept."))
        return plan, carry_over(ctx, plan, leg, discarded=facts.discarded), point
    if point.case is ResumeCase.MOVED_ON:
        _give_up(ctx, leg, point)
        return _find_point(ctx)
    if point.case is ResumeCase.POWER_LOSS:
        return plan, restore_saved(ctx, leg), point
    if not facts.saved and point.case is not ResumeCase.UNTOUCHED:
        leg = save_found(ctx, leg, discarded=facts.discarded)
    return plan, leg, point


def _finish_landed(ctx: RunContext) -> None:
    """Do what follows a commit that an earlier process made and did not live to finish."""
    leg = read_leg(ctx.repo)
    if leg is None:
        return
    commit = find_landed(ctx.repo, leg)
    if commit is None:
        _require_own_plan(ctx, leg)
        return
    replaced = {leg.plan_path: None, find_ledger_path(leg.plan_path): None}
    for words in finish_commit(ctx.repo, commit.commit, replaced) if _is_current(ctx.repo, commit) else ():
        ctx.observe(Noticed(text=words, warning=True))
    close_leg(ctx.repo, leg)
    ctx.meter.record()


def _is_current(repo: Repo, commit: RelayCommit) -> bool:
    """Say whether nobody has committed something else since to what a commit changed."""
    head = repo.head() or repo.empty_tree
    since = {change.path for change in diff_trees(repo, commit.commit, head)}
    changed = diff_trees(repo, commit.parents[0] if commit.parents else repo.empty_tree, commit.commit)
    return since.isdisjoint(change.path for change in changed)


def _require_own_plan(ctx: RunContext, leg: OpenLeg) -> None:
    """Keep the work of another plan's phase out of this one's; a leg that was opened and never used is closed.

    Raises:
        RepoError: There is such work.
    """
    if not is_of_another_plan(ctx.repo, leg, ctx.plan_path):
        return
    if leg.last_wip is not None or find_owned_paths(ctx, leg, write_snapshot_tree(ctx.repo)):
        raise RepoError(
            f"phase {leg.phase_id} of {leg.plan_path} is open and has uncommitted work",
            hint=ctx.caller.render_for(leg.plan_path, "run"),
        )
    close_leg(ctx.repo, leg)


def _give_up(ctx: RunContext, leg: OpenLeg, point: ResumePoint) -> None:
    """Close a leg whose phase is done or gone; its work must not become the next phase's by accident.

    Raises:
        RepoError: Its uncommitted work is still in the work tree.
    """
    kept = save_found(ctx, leg)
    if owned := _find_uncommitted(ctx, kept):
        shown = list_paths(owned)
        raise RepoError(
            f"{point.why} Phase {leg.phase_id} cannot go on, and its uncommitted work is in {shown}",
            hint=f"commit it or put it away, then {ctx.caller.render('run')}; all of it is kept under {leg.wip_ref}. "
            f"To leave it where it is: git update-ref -d {find_leg_ref(leg.branch)}",
        )
    ctx.observe(Noticed(text=f"{point.why} What its sessions did is kept under {leg.wip_ref}.", warning=True))
    close_leg(ctx.repo, kept)


def _find_uncommitted(ctx: RunContext, leg: OpenLeg) -> list[str]:
    """Return the leg's own files that are not as HEAD has them; its newest snapshot is of the work tree as it is."""
    if leg.last_wip is None:
        return []
    open_paths = {
        change.path for change in diff_trees(ctx.repo, ctx.repo.head() or ctx.repo.empty_tree, leg.last_wip.tree)
    }
    return [path for path in find_owned_paths(ctx, leg, leg.last_wip) if path in open_paths]


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
    return _finish_run(plan, point, request.caller, read_spent(repo, path))


def get_phase(plan: Plan, phase_id: str) -> Phase:
    """Return a phase of the plan.

    Raises:
        PlanError: There is none with this id.
    """
    phase = plan.find_phase(phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        raise PlanError(f"there is no phase {phase_id!r} in the plan", hint=f"phases: {known}")
    return phase


def choose_phase(
    plan: Plan, point: ResumePoint, selection: Selection, caller: Caller, *, is_open: bool
) -> Phase | None:
    """Return the phase to work on; None when nothing that was asked for is left.

    Args:
        plan: The plan.
        point: Where a run would go on.
        selection: What was asked for.
        caller: Who asked.
        is_open: Whether a leg is open, on whatever phase.

    Raises:
        PlanError: The phase that was asked for does not exist, waits for others, or another one is open.
    """
    if not selection.phase_id:
        return plan.find_phase(point.phase_id)
    phase = get_phase(plan, selection.phase_id)
    if phase.done:
        return None
    if waits := find_blocked_by(plan, phase):
        raise PlanError(
            f"phase {phase.id} comes after {', '.join(waits)}, which is not done", hint=caller.render("run")
        )
    if is_open and point.phase_id != phase.id:
        words = f"phase {point.phase_id} is open and has uncommitted work"
        raise PlanError(
            words, hint=f"{caller.render('run', '--phase', point.phase_id)}, or {caller.render('status', '--why')}"
        )
    return phase


def _wait_for_reset(ctx: RunContext, leg: OpenLeg | None) -> RunEnded | None:
    """Wait for a limit that an earlier run met; how the run ends when that is too far away or a stop is asked for."""
    now, most_s = time.time(), ctx.settings.max_wait_s
    until = find_reset(leg, ctx.settings.model) if leg else None
    if until is None or until <= now or not most_s:
        return None  # with max_wait_s = 0 relay never waits: it asks
    words = f"the usage limit that the last session met resets at {render_moment(until, now=now)}"
    if until - now > most_s:
        words = f"{words}, in {render_span(until - now)}; relay waits {render_span(most_s)} at most (max_wait_s)"
        return _stop(ctx, ExitCode.STOPPED, f"{words}. RELAY_MAX_WAIT_S=0 asks at once", "run")
    ctx.observe(RetryScheduled(attempt=1, wait_s=until - now, reason=words))
    if ctx.interrupts.wait(until - now):
        return _stop(ctx, ExitCode.INTERRUPTED, "interrupted while waiting; everything is kept", "run")
    return None


def _begin(ctx: RunContext, plan: Plan, phase: Phase, leg: OpenLeg | None, point: ResumePoint) -> Handover | None:
    if leg is None:
        return begin_phase(ctx, plan, phase, reason=point.why)
    if not leg.baton and point.case is ResumeCase.MID_LEG:
        ctx.observe(Noticed(text="a request that was cut off is not in the figures: its usage never came"))
    return continue_phase(ctx, plan, leg, reason=point.why)


def _decide(ctx: RunContext, selection: Selection, result: LegResult, handover: Handover) -> RunEnded | None:
    """Return how the run ends; None to go on."""
    again = ("run", "--phase", handover.phase_id) if selection.phase_id or not selection.all else ("run",)
    match result.kind:
        case LegKind.DONE:
            if selection.all and not selection.phase_id:
                return None
            if plan := _find_done_plan(ctx):
                return _end_done(plan, ctx.meter.total)
            return RunEnded(
                exit_code=ExitCode.DONE,
                reason=result.detail,
                next_command=ctx.caller.render("run"),
                spent_usd=ctx.meter.total.cost_usd,
            )
        case LegKind.HANDOFF:
            return _check_stuck(ctx, handover) or _check_size(ctx, result, handover)
        case LegKind.INTERRUPTED:
            return _stop(ctx, ExitCode.INTERRUPTED, f"{result.detail}; everything is kept", *again)
        case LegKind.FAILED if result.can_go_on:
            return _check_stuck(ctx, handover) or _check_size(ctx, result, handover)
        case LegKind.FAILED if stuck := _check_stuck(ctx, handover):
            return stuck
        case _:
            code = ExitCode.USER if result.end is SessionEnd.DENIED else ExitCode.STOPPED
            return _stop(ctx, code, f"phase {handover.phase_id}: {result.detail}", *again)


def _check_stuck(ctx: RunContext, handover: Handover) -> RunEnded | None:
    """Stop a phase whose sessions fail one after the other at the same place, also when ticks are made elsewhere."""
    leg = read_leg(ctx.repo)
    times, error = find_repeated_error(ctx.repo, leg) if leg else (0, "")
    if times < MAX_SAME_ERRORS:
        return None
    words = f"phase {handover.phase_id} is stuck: {times} sessions in a row ended with the same error at {error}"
    return _stop(ctx, ExitCode.STOPPED, words, "plan", "--revise", "what to do instead")


def _check_size(ctx: RunContext, result: LegResult, handover: Handover) -> RunEnded | None:
    """Stop a phase that does not fit: too many sessions, or several over the line without a tick."""
    barren = 0 if result.new_claims else handover.barren + 1
    split = ("plan", "--split", handover.phase_id)
    if barren >= MAX_BARREN_LEGS:
        words = f"{barren} sessions in a row passed the reset line without ticking anything"
        return _stop(ctx, ExitCode.STOPPED, f"phase {handover.phase_id} is too big: {words}", *split)
    if handover.number >= ctx.settings.max_legs:
        words = f"{handover.number} sessions and still not done (max_legs)"
        return _stop(ctx, ExitCode.STOPPED, f"phase {handover.phase_id} is too big: {words}", *split)
    return None


def _end_interrupted(ctx: RunContext) -> RunEnded:
    """Stop between two legs; the last one may have finished the plan before the stop came about."""
    if not ctx.interrupts.stop_now and (plan := _find_done_plan(ctx)):
        return _end_done(plan, ctx.meter.total)
    return _stop(ctx, ExitCode.INTERRUPTED, "interrupted; everything is kept", "run")


def _find_done_plan(ctx: RunContext) -> Plan | None:
    """Return the plan when the branch has all of it done, the file says the same, and no leg is open."""
    plan = _find_committed_plan(ctx.repo, ctx.plan_path)
    return plan if plan is not None and plan.done and read_leg(ctx.repo) is None else None


def _find_committed_plan(repo: Repo, path: str) -> Plan | None:
    """Return the plan when HEAD has it as the work tree does; None for one that has yet to be committed."""
    committed = find_text(repo, repo.head(), path)
    if committed is None or path in read_status(repo).changed:
        return None
    return parse_committed(committed, path)


def _end_done(plan: Plan, spent: Spent) -> RunEnded:
    phases = len(plan.phases)
    words = f"all {phases} phases are done" if phases > 1 else "the only phase is done"
    return RunEnded(exit_code=ExitCode.DONE, reason=words, next_command="", spent_usd=spent.cost_usd)


def _finish_run(plan: Plan, point: ResumePoint, caller: Caller, spent: Spent) -> RunEnded:
    if plan.done:
        return _end_done(plan, spent)
    code, reason, then = ExitCode.USER, point.why, caller.render_check()
    if point.phase_id:
        code, reason, then = ExitCode.DONE, "the phase was done already", caller.render("run")
    return RunEnded(exit_code=code, reason=reason, next_command=then, spent_usd=spent.cost_usd)


def _stop(ctx: RunContext, code: ExitCode, reason: str, *next_words: str) -> RunEnded:
    command = ctx.caller.render(*next_words)
    return RunEnded(exit_code=code, reason=reason, next_command=command, spent_usd=ctx.meter.total.cost_usd)
