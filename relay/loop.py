"""The loop: resume point → leg → decide. Collaborators are arguments; every outcome of a leg is a value.

Nothing is remembered between two rounds: each begins by asking git where the run stands, so a run that was killed and
one that goes on take the same path.
"""

import time
from dataclasses import dataclass

from relay.endings import find_repeated_error, find_reset
from relay.errors import ExitCode, PlanError
from relay.events import Noticed, RetryScheduled, RunEnded
from relay.facts import read_plan_bytes, read_standing
from relay.handover import Handover, begin_phase, continue_phase, read_phase_spent, restore_saved, save_found
from relay.leg import Leg, LegKind, LegResult
from relay.plan.model import Phase, Plan
from relay.plan_commit import ensure_plan_committed, parse_committed
from relay.repo.finish import finish_commit
from relay.repo.legs import OpenLeg, close_leg, read_leg
from relay.resume import ResumePoint, Row, find_blocked_by, find_resume_point
from relay.run_context import RunContext
from relay.runners.waiting import render_moment, render_span
from relay.session import SessionEnd

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
            return _stop(ctx, ExitCode.INTERRUPTED, "interrupted; everything is kept", "relay run")
        plan, leg, point = _find_point(ctx)
        phase = _choose_phase(plan, point, selection)
        if phase is None:
            return _finish_run(ctx, plan, point)
        if end := _wait_for_reset(ctx, leg):
            return end
        result, handover = _run_leg(ctx, plan, phase, leg, point)
        if end := _decide(ctx, selection, result, handover):
            return end


def _find_point(ctx: RunContext) -> tuple[Plan, OpenLeg | None, ResumePoint]:
    """Ask git where the run stands, and tidy up what a killed run left unfinished."""
    plan = _read_plan(ctx)
    standing = read_standing(ctx.repo, plan, ctx.plan_path, boot_id=ctx.boot_id)
    leg, head = standing.leg, standing.facts.head
    point = find_resume_point(standing.facts)
    if leg is None or point.row not in {Row.AFTER_COMMIT, Row.MOVED_ON}:
        return plan, leg, point
    if point.row is Row.AFTER_COMMIT and head is not None:
        for words in finish_commit(ctx.repo, head, {ctx.plan_path: None, ctx.ledger_path: None}):
            ctx.observe(Noticed(text=words, warning=True))
    else:
        ctx.observe(Noticed(text=f"{point.why} Its snapshots stay under {leg.wip_ref}.", warning=True))
        save_found(ctx, leg)
    close_leg(ctx.repo, leg)
    return _find_point(ctx)


def _read_plan(ctx: RunContext) -> Plan:
    """Return the plan at HEAD; between two legs the user's edits are committed first."""
    leg = read_leg(ctx.repo)
    if leg is None:
        return parse_committed(ensure_plan_committed(ctx), ctx.plan_path)
    data = read_plan_bytes(ctx.repo, ctx.plan_path)
    if data is None:
        raise PlanError(f"{ctx.plan_path} is not in HEAD any more", hint="git log --oneline -- " + ctx.plan_path)
    return parse_committed(data.decode("utf-8", "surrogateescape"), ctx.plan_path)


def _choose_phase(plan: Plan, point: ResumePoint, selection: Selection) -> Phase | None:
    """Return the phase to work on; None when nothing that was asked for is left.

    Raises:
        PlanError: The phase that was asked for does not exist, waits for others, or another one is open.
    """
    if not selection.phase_id:
        return plan.find_phase(point.phase_id)
    phase = plan.find_phase(selection.phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        raise PlanError(f"there is no phase {selection.phase_id!r} in the plan", hint=f"phases: {known}")
    if phase.done:
        return None
    if waits := find_blocked_by(plan, phase):
        raise PlanError(f"phase {phase.id} comes after {', '.join(waits)}, which is not done", hint="relay run")
    if point.row not in {Row.NOTHING_OPEN, Row.AFTER_COMMIT, Row.MOVED_ON} and point.phase_id != phase.id:
        words = f"phase {point.phase_id} is open and has uncommitted work"
        raise PlanError(words, hint=f"relay run --phase {point.phase_id}, or relay status --why")
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
        return _stop(ctx, ExitCode.STOPPED, f"{words}. RELAY_MAX_WAIT_S=0 asks at once", "relay run")
    ctx.observe(RetryScheduled(attempt=1, wait_s=until - now, reason=words))
    if ctx.interrupts.wait(until - now):
        return _stop(ctx, ExitCode.INTERRUPTED, "interrupted while waiting; everything is kept", "relay run")
    return None


def _run_leg(
    ctx: RunContext, plan: Plan, phase: Phase, leg: OpenLeg | None, point: ResumePoint
) -> tuple[LegResult, Handover]:
    if leg is None:
        handover = begin_phase(ctx, plan, phase, reason=point.why)
    else:
        handover = continue_phase(ctx, plan, _secure(ctx, leg, point), reason=point.why)
    ctx.meter.open_phase(read_phase_spent(ctx, phase.id))
    return Leg(ctx, handover).run(), handover


def _secure(ctx: RunContext, leg: OpenLeg, point: ResumePoint) -> OpenLeg:
    """Store what an interrupted session left before anything else touches it."""
    if point.row is Row.UNTOUCHED or leg.baton:
        return leg
    words = "what the request that was cut off has cost is not known; the figures are a lower bound"
    ctx.observe(Noticed(text=words))
    return restore_saved(ctx, leg) if point.row is Row.POWER_LOSS else save_found(ctx, leg)


def _decide(ctx: RunContext, selection: Selection, result: LegResult, handover: Handover) -> RunEnded | None:
    """Return how the run ends; None to go on."""
    again = f"relay run --phase {handover.phase_id}" if selection.phase_id or not selection.all else "relay run"
    match result.kind:
        case LegKind.DONE:
            if selection.all and not selection.phase_id:
                return None
            return RunEnded(
                exit_code=ExitCode.DONE,
                reason=result.detail,
                next_command="relay run",
                spent_usd=ctx.meter.total.cost_usd,
            )
        case LegKind.HANDOFF:
            return _check_stuck(ctx, handover) or _check_size(ctx, result, handover)
        case LegKind.INTERRUPTED:
            return _stop(ctx, ExitCode.INTERRUPTED, f"{result.detail}; everything is kept", again)
        case LegKind.FAILED if result.can_go_on:
            return _check_stuck(ctx, handover) or _check_size(ctx, result, handover)
        case LegKind.FAILED if stuck := _check_stuck(ctx, handover):
            return stuck
        case _:
            code = ExitCode.USER if result.end is SessionEnd.DENIED else ExitCode.STOPPED
            return _stop(ctx, code, f"phase {handover.phase_id}: {result.detail}", again)


def _check_stuck(ctx: RunContext, handover: Handover) -> RunEnded | None:
    """Stop a phase whose sessions fail one after the other at the same place, also when ticks are made elsewhere."""
    leg = read_leg(ctx.repo)
    times, error = find_repeated_error(ctx.repo, leg) if leg else (0, "")
    if times < MAX_SAME_ERRORS:
        return None
    words = f"phase {handover.phase_id} is stuck: {times} sessions in a row ended with the same error at {error}"
    return _stop(ctx, ExitCode.STOPPED, words, 'relay plan --revise "what to do instead"')


def _check_size(ctx: RunContext, result: LegResult, handover: Handover) -> RunEnded | None:
    """Stop a phase that does not fit: too many sessions, or several over the line without a tick."""
    barren = 0 if result.new_claims else handover.barren + 1
    split = f"relay plan --split {handover.phase_id}"
    if barren >= MAX_BARREN_LEGS:
        words = f"{barren} sessions in a row passed the reset line without ticking anything"
        return _stop(ctx, ExitCode.STOPPED, f"phase {handover.phase_id} is too big: {words}", split)
    if handover.number >= ctx.settings.max_legs:
        words = f"{handover.number} sessions and still not done (max_legs)"
        return _stop(ctx, ExitCode.STOPPED, f"phase {handover.phase_id} is too big: {words}", split)
    return None


def _finish_run(ctx: RunContext, plan: Plan, point: ResumePoint) -> RunEnded:
    if plan.done:
        words = f"all {len(plan.phases)} phases are done"
        return RunEnded(exit_code=ExitCode.DONE, reason=words, next_command="", spent_usd=ctx.meter.total.cost_usd)
    if point.phase_id:
        return RunEnded(
            exit_code=ExitCode.DONE,
            reason="the phase was done already",
            next_command="relay run",
            spent_usd=ctx.meter.total.cost_usd,
        )
    return _stop(ctx, ExitCode.USER, point.why, "relay check")


def _stop(ctx: RunContext, code: ExitCode, reason: str, next_command: str) -> RunEnded:
    return RunEnded(exit_code=code, reason=reason, next_command=next_command, spent_usd=ctx.meter.total.cost_usd)
