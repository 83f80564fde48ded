"""The model and effort of a phase's sessions, and their change in mid-phase: a ladder and fallbacks (`escalate`).

A change stands in the open attempt and in the phase's commits (``Relay-Rung``), so that a killed run goes on with
it. A change that the settings have no more does not count.
"""

from dataclasses import replace

from msgspec import structs

from relay.plan.model import Phase, Plan
from relay.run.attempt.session import AttemptKind, AttemptResult
from relay.run.attempt.start import read_pending
from relay.session.events import Noticed
from relay.session.values import SessionEnd
from relay.setup.context import RunContext, RunEnd
from relay.store.attempts import OpenAttempt, read_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.ref_notes import Carried

_OUT_OF_REACH = frozenset({SessionEnd.LIMIT, SessionEnd.API_FAILED})
_OF_THE_MODEL = frozenset({
    SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL, SessionEnd.HARD_LINE, SessionEnd.OVERFLOW, SessionEnd.STUCK,
    SessionEnd.TRUNCATED,
})  # fmt: skip
"""Ends of a session that another model might not have come to."""


def choose_model(ctx: RunContext, phase: Phase, attempt: OpenAttempt | None) -> RunContext:
    """Return the context with the model and effort of a phase, at the model's price.

    Args:
        attempt: The phase's open attempt; None without one.

    Raises:
        RelayError: The runner, its key or the model is missing.
    """
    settings = ctx.settings
    rungs = [change for change in attempt.carried.rungs if change in settings.escalate] if attempt else []
    sessions = ctx.sessions.choose(phase, rungs)
    return replace(ctx, settings=sessions.settings, sessions=sessions)


def climb(ctx: RunContext, phase: Phase, head: Plan, result: AttemptResult, end: RunEnd) -> bool:
    """Change the model or effort for the rest of a phase in place of ending the run; return False if nothing is left.

    Args:
        ctx: With the phase's model and effort.
        head: HEAD's plan.
        end: How the run would end.
    """
    attempt = read_attempt(ctx.repo)
    rung = find_rung(ctx, result)
    if attempt is None or not rung:
        return False
    why = end.reason if isinstance(end.reason, str) else f"phase {phase.id}: {result.detail}"
    words = f"{why.removesuffix('.')}; a fresh session goes on with {rung.replace('=', ' ')}"
    ctx.observe(Noticed(text=words, warning=True))
    record = WipRecord(
        spend=ctx.meter.unrecorded,
        items=attempt.items,
        handoff_note=attempt.handoff_note,
        replace=read_pending(ctx.files, head, attempt).render_files(ctx.plan_path, ctx.ledger_path),
        carried=Carried(rungs=(rung,)),
        # Without the proposal of a commit: its gate is red, and would be run again for nothing.
        ending=structs.replace(attempt.ending, proposed=None, left=()),
    )
    save_wip(ctx.repo, attempt, record)
    return True


def find_rung(ctx: RunContext, result: AttemptResult) -> str:
    """Return the next change for a phase whose session did not finish it; empty without one."""
    settings, taken = ctx.settings, ctx.sessions.rungs
    if result.kind not in {AttemptKind.FAILED, AttemptKind.HANDOFF}:
        return ""
    is_away, refused = result.end in _OUT_OF_REACH, result.refused
    if not is_away and (result.end not in _OF_THE_MODEL or (refused and not (refused.for_model or refused.once))):
        return ""
    changes = dict.fromkeys(settings.escalate)
    ladder = [change for change in changes if change.startswith("fallback=") == is_away]
    begun = max((ladder.index(change) + 1 for change in taken if change in ladder), default=0)
    now = {f"effort={settings.effort}", f"model={settings.model}", f"fallback={settings.model}"}
    return next((change for change in ladder[begun:] if change not in now), "")
