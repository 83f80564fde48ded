"""One leg: a fresh session on one phase, from its first message to its commit or its baton.

The session works; `relay.run.keeper` keeps what it does, call by call. What it claims is checked when it ends, by
`relay.run.commit_step`.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from relay.prompts.texts import (
    render_gate_report,
    render_phase_message,
    render_reminder,
    render_runner_system,
    render_soft_notice,
)
from relay.run.commit_step import Candidate, PhaseCommit, Refused, commit_phase
from relay.run.keeper import Keeper
from relay.run.start import Handover
from relay.runners.base import Session
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult
from relay.setup.context import RunContext
from relay.setup.session import SessionTask
from relay.state.session_ends import render_end, render_wait
from relay.tools.discretion import refuse_secrets
from relay.tools.notes import LegNotes
from relay.tools.toolbox import build_runner_tools

_SUBJECT = re.compile(r"^[\s*_`>-]*Commit:[\s*_`]*(.+?)[\s*_`]*$", re.MULTILINE | re.IGNORECASE)


class LegKind(StrEnum):
    """How a leg ended."""

    DONE = "done"
    """The phase is committed."""
    HANDOFF = "handoff"
    """Another session can go on."""
    BLOCKED = "blocked"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegResult:
    """How a leg ended, for the loop to decide what comes next."""

    kind: LegKind
    end: SessionEnd
    detail: str
    """One line for the user."""
    new_claims: int
    """Items this session ticked."""
    can_go_on: bool = False
    """A failed session that got somewhere: a fresh one may do the rest."""


class Leg:
    """One session on one phase.

    Args:
        ctx: The collaborators.
        handover: What the session starts from.
    """

    def __init__(self, ctx: RunContext, handover: Handover) -> None:
        self._ctx = ctx
        self._handover = handover
        self._notes = LegNotes(plan=handover.briefing.plan, phase=handover.briefing.phase)
        self._toolbox = build_runner_tools(ctx.workspace, self._notes)
        self._call = refuse_secrets(self._toolbox.run, ctx.secret_values)
        self._keeper = Keeper(ctx, handover, self._notes, is_busy=self._toolbox.is_busy)
        self._gate_words = ""
        self._last_error = ("", "")
        """Where the session's last error came from, and its words; empty once that was overcome."""

    def run(self) -> LegResult:
        """Run the session to its end, then commit or keep its work."""
        handover = self._handover
        task = SessionTask(
            session_id=handover.leg.session_id,
            title=handover.briefing.phase.title,
            phase_id=handover.phase_id,
            number=handover.number,
            reason=handover.reason,
            system=render_runner_system(self._ctx.rules.text),
            tools=self._toolbox.specs,
            run_tool=self._run_tool,
            render_soft_notice=render_soft_notice,
            note_wait=self._keeper.note_wait,
        )
        return self._ctx.sessions.run(task, self._drive)

    def _drive(self, session: Session) -> LegResult:
        self._keeper.show_plan()
        message, reminded, attempts = render_phase_message(self._handover.briefing), False, 0
        while True:
            try:
                outcome = session.advance(message)
            finally:
                self._toolbox.stop()  # nothing may write while the work is checked
            if ended := self._check_ended(outcome, reminded=reminded):
                return ended
            if open_ids := self._notes.open_ids():
                message, reminded = render_reminder(open_ids), True
                continue
            made = self._commit(outcome, "done")
            if isinstance(made, PhaseCommit):
                return self._end_done(outcome)
            attempts += 1
            allowed = self._ctx.settings.max_repairs
            if not made.for_model or attempts > allowed or self._ctx.interrupts.finish_turn:
                return self._keep(self._fail_kind(), outcome, made.for_user)
            message = render_gate_report(made.for_model, attempt=attempts, attempts=allowed)

    def _check_ended(self, outcome: SessionOutcome, *, reminded: bool) -> LegResult | None:
        """Return how the leg ended; None when the session may be asked for more or its work be checked."""
        if outcome.end not in {SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL}:
            return self._end_early(outcome)
        if self._notes.blocked is not None:
            return self._keep(LegKind.BLOCKED, outcome, f"blocked: {self._notes.blocked}")
        if self._notes.hand_off is not None:
            return self._hand_off(outcome, "the session handed over")
        open_ids = self._notes.open_ids()
        if open_ids and reminded:
            ended = self._keep(LegKind.FAILED, outcome, _describe_unfinished(open_ids))
            return replace(ended, can_go_on=bool(self._notes.claims))
        return None

    def _fail_kind(self) -> LegKind:
        return LegKind.INTERRUPTED if self._ctx.interrupts.finish_turn else LegKind.FAILED

    def _end_early(self, outcome: SessionOutcome) -> LegResult:
        """The session did not end by itself: hand over where another can go on, else stop."""
        match outcome.end:
            case SessionEnd.HARD_LINE | SessionEnd.OVERFLOW:
                return self._hand_off(outcome, outcome.detail)
            case SessionEnd.INTERRUPTED if not self._ctx.interrupts.stop_now:
                ended = self._hand_off(outcome, outcome.detail)
                return ended if ended.kind is LegKind.DONE else replace(ended, kind=LegKind.INTERRUPTED)
            case SessionEnd.INTERRUPTED:
                return self._keep(LegKind.INTERRUPTED, outcome, outcome.detail)
            case _:
                return self._keep(LegKind.FAILED, outcome, outcome.detail)

    def _hand_off(self, outcome: SessionOutcome, detail: str) -> LegResult:
        """Commit what passes the gate already; keep everything else in a snapshot with the baton."""
        finished = not self._notes.open_ids()
        if self._notes.claims or finished:
            made = self._commit(outcome, "done" if finished else "handoff")
            if isinstance(made, PhaseCommit) and finished:
                return self._end_done(outcome)
            if isinstance(made, PhaseCommit):
                return self._end(LegKind.HANDOFF, outcome, detail, committed=True)
        return self._keep(LegKind.HANDOFF, outcome, detail)

    def _commit(self, outcome: SessionOutcome, status: str) -> PhaseCommit | Refused:
        made = commit_phase(self._ctx, self._make_candidate(outcome.text, status))
        if isinstance(made, Refused):
            self._gate_words = made.for_user
            if status == "done":  # at a hand-off a red gate is no error: the phase is not finished
                self._last_error = ("gate", made.for_user)
        return made

    def _make_candidate(self, text: str, status: str) -> Candidate:
        subjects = _SUBJECT.findall(text)
        handover = self._handover
        return Candidate(
            phase=handover.briefing.phase,
            leg=self._keeper.leg,
            number=handover.number,
            pending=self._keeper.pending,
            evidence=self._notes.claims,
            touched=frozenset(self._notes.touched_paths),
            commands=handover.commands,
            baseline=handover.baseline,
            subject=subjects[-1] if subjects else "",
            status=status,
            baton=self._keeper.render_baton(self._gate_words) if status == "handoff" else "",
        )

    def _end_done(self, outcome: SessionOutcome) -> LegResult:
        return self._end(LegKind.DONE, outcome, f"phase {self._handover.phase_id} is done", committed=True)

    def _end(self, kind: LegKind, outcome: SessionOutcome, detail: str, *, committed: bool = False) -> LegResult:
        if committed:
            self._keeper.show_plan(committed=True)
        return LegResult(kind=kind, end=outcome.end, detail=detail, new_claims=len(self._notes.claims))

    def _keep(self, kind: LegKind, outcome: SessionOutcome, detail: str) -> LegResult:
        """Leave the work in the tree and store it with a baton; the leg stays open for the next session.

        When relay must stop now, there is time for what was spent, not for looking at the whole tree.
        """
        hurried = self._ctx.interrupts.stop_now
        source, error = self._last_error
        item = next(iter(self._notes.open_ids()), "")
        notes = (
            *render_end(outcome.end, item=item, error=f"{source}: {error}" if source else ""),
            *render_wait(outcome.retry_at, self._ctx.settings.model),
        )
        baton = "" if hurried else self._keeper.render_baton(self._gate_words)
        self._keeper.save(paths=() if hurried else None, baton=baton, trailers=notes)
        return self._end(kind, outcome, detail)

    def _run_tool(self, call: ToolCall) -> ToolResult:
        result = self._call(call)
        if result.is_error:
            self._last_error = (call.name, result.text)
        elif self._last_error[0] == call.name:
            self._last_error = ("", "")
        return self._keeper.take_call(call, result)


def _describe_unfinished(open_ids: tuple[str, ...]) -> str:
    return (
        f"the session said it was finished, but {', '.join(open_ids)} {'are' if len(open_ids) > 1 else 'is'} not ticked"
    )
