"""One fresh session of a phase's attempt, from its first message to its commit or its handoff note.

The session works, its keeper saves the work call by call, and relay checks the claims when it ends. Keeper and check
are arguments: nothing here knows git, a sandbox or an endpoint (`relay.run.loop.make_parts` makes the arguments).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from msgspec import structs

from relay.base.hints import Hint
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.ledger.snapshot import list_shown
from relay.prompts.texts import (
    list_phase_parts,
    render_band_notice,
    render_phase_message,
    render_soft_notice,
    render_text,
)
from relay.run.attempt.start import Handover
from relay.run.commit.candidate import PhaseCommit, Proposal, Refused
from relay.runners.base import Callbacks, Session
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult
from relay.setup.session import Sessions, SessionTask
from relay.store.attempts import make_ending, note_wait
from relay.store.ref_notes import Ending
from relay.tools.claims import AttemptNotes
from relay.tools.toolbox import Toolbox

# One line, and no two parts can match the same text: the model's text may have any length.
_SUBJECT = re.compile(r"^[ \t*_`>-]*Commit:(.+)$", re.MULTILINE | re.IGNORECASE)
_MARKS = ("**", "__", "*", "_", "`")


def _strip_marks(text: str) -> str:
    """Remove the emphasis around a line, and the end of an emphasis that began before it."""
    text = text.strip()
    for mark in _MARKS:
        is_around = text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2  # noqa: PLR2004  # a pair
        if is_around or text.count(mark) == 1:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    return text


class AttemptKind(StrEnum):
    """How a session on a phase ended."""

    DONE = "done"
    """The phase is committed."""
    HANDOFF = "handoff"
    """Another session goes on."""
    REVIEW = "review"
    """The phase is finished and waits for its review."""
    BLOCKED = "blocked"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The end of a session on a phase; the loop decides what comes next."""

    kind: AttemptKind
    end: SessionEnd
    detail: str
    """One line for the user."""
    ways: Hint = ""
    """How the user can repair it; shown after ``detail``."""
    refused: Refused | None = None
    """The refusal of the commit, if that ended the session."""
    new_claims: int
    """Number of items that this session claimed."""
    can_go_on: bool = False
    """Whether the failed session made progress: a fresh one may do the rest, or its finished work may be committed."""


class AttemptKeeper(Protocol):
    """Saves a session's work, so that the next session can go on."""

    def show_plan(self) -> None:
        """Show the plan with its claims."""

    def take_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Save the changes and notes of a call; return its result, with a message if relay restored the plan."""

    def hear(self) -> str:
        """Wait while the user pauses the run; return the user's words for the session."""

    def note_repair(self, number: int) -> None:
        """Save that the commit step gives the work back to the session, for the nth time."""

    def note_wait(self, until: float) -> None:
        """Save the end of a limit (seconds since the epoch) before waiting for it."""

    def save_end(self, ending: Ending, gate_words: str, *, hurried: bool) -> None:
        """Save everything with a handoff note, and the end of the session.

        Args:
            gate_words: The last refusal of the commit step; empty without one.
            hurried: The session was stopped in the midst of its work: it leaves no handoff note.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """The collaborators of a session on a phase."""

    system: str
    """The system prompt: role, protocol and rules."""
    notes: AttemptNotes
    """The tools fill them."""
    toolbox: Toolbox
    keeper: AttemptKeeper
    commit: Callable[[Proposal], PhaseCommit | Refused]
    """Checks the work and commits it, or returns why not."""


class Attempt:
    """One session on one phase."""

    def __init__(self, handover: Handover, parts: AttemptParts, sessions: Sessions, interrupts: Interrupts) -> None:
        self._handover = handover
        self._parts = parts
        self._notes = parts.notes
        self._sessions = sessions
        self._interrupts = interrupts
        self._gate_words = ""
        self._last_error = ("", "")
        """The tool and the words of the session's last error; empty once it was overcome."""

    def run(self) -> AttemptResult:
        """Run the session to its end, then commit or save its work."""
        handover = self._handover
        task = SessionTask(
            session_id=handover.attempt.session_id,
            title=handover.briefing.phase.title,
            phase_id=handover.phase_id,
            number=handover.number,
            tries=handover.tries,
            reason=handover.reason,
            system=self._parts.system,
            tools=self._parts.toolbox.specs,
            message_parts=list_phase_parts(handover.briefing),
            preloads=handover.briefing.files,
            limits=handover.briefing.limits,
            claims=list_shown(handover.pending.ledger, handover.briefing.ledger),
            callbacks=Callbacks(
                run_tool=self._run_tool,
                render_soft_notice=render_soft_notice,
                render_band_notice=self._render_band_notice,
                note_wait=self._parts.keeper.note_wait,
                note_boundary=self._note_boundary,
                hear=self._parts.keeper.hear,
            ),
            runner=handover.briefing.phase.runner,
            writes=True,
        )
        return self._sessions.run(task, self._drive)

    def _render_band_notice(self, fill_tokens: int, line_tokens: int) -> str:
        """Return no sentence for a session that has ticked everything, or of a run that compares strategies."""
        settings = self._sessions.settings
        is_off = "consolidate" in settings.ablate or settings.strategy != "reset"
        return "" if is_off or not self._notes.open_ids() else render_band_notice(fill_tokens, line_tokens)

    def _drive(self, session: Session) -> AttemptResult:
        self._parts.keeper.show_plan()
        message, reminded, attempts = render_phase_message(self._handover.briefing), False, 0
        refused = Refused(for_user="")
        if said := self._parts.keeper.hear():
            message = f"{message}\n\n{said}"
        while True:
            try:
                outcome = session.advance(message)
            finally:
                self._parts.toolbox.stop()  # nothing may write while the work is checked
            if ended := self._check_ended(outcome, reminded=reminded):
                return ended
            if message := self._parts.keeper.hear():
                continue
            if open_ids := self._notes.open_ids():
                message, reminded = render_text("reminder", items=", ".join(open_ids)), True
                continue
            made = self._commit(outcome, "done")
            if isinstance(made, PhaseCommit):
                return self._end_done(outcome)
            refused, made = made, made.hold_against(refused)
            attempts += 1
            allowed = self._sessions.settings.max_repairs
            if made.for_review or not made.for_model or attempts > allowed or self._interrupts.finish_turn:
                return self._end_refused(outcome, made)
            self._parts.keeper.note_repair(attempts)
            message = render_text("gate_red", report=made.for_model, attempt=attempts, attempts=allowed)

    def _end_refused(self, outcome: SessionOutcome, made: Refused) -> AttemptResult:
        """End a session without asking it to repair its work."""
        if made.for_review:
            return self._propose(outcome, made.for_user)
        # The work is proposed all the same: the next run first tries to commit it, whoever repaired it.
        ended = self._keep(self._fail_kind(), outcome, made.for_user, proposed=self._find_subject(outcome))
        return replace(ended, ways=made.ways, refused=made, can_go_on=made.again)

    def _check_ended(self, outcome: SessionOutcome, *, reminded: bool) -> AttemptResult | None:
        """Return the session's end; None if it may go on, or its work is to be checked."""
        if outcome.end not in {SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL}:
            return self._end_early(outcome)
        if self._notes.blocked is not None:
            return self._keep(AttemptKind.BLOCKED, outcome, f"blocked: {self._notes.blocked}")
        if self._notes.hand_off is not None:
            return self._hand_off(outcome, "the session handed over")
        open_ids = self._notes.open_ids()
        if open_ids and reminded:
            ended = self._keep(AttemptKind.FAILED, outcome, _describe_unfinished(open_ids))
            return replace(ended, can_go_on=bool(self._notes.claims))
        return None

    def _fail_kind(self) -> AttemptKind:
        return AttemptKind.INTERRUPTED if self._interrupts.finish_turn else AttemptKind.FAILED

    def _end_early(self, outcome: SessionOutcome) -> AttemptResult:
        """Handle a session that did not end by itself: hand over if another can go on, else stop."""
        match outcome.end:
            case SessionEnd.HARD_LINE | SessionEnd.OVERFLOW:
                return self._hand_off(outcome, outcome.detail)
            case SessionEnd.INTERRUPTED if not self._interrupts.stop_now:
                ended = self._hand_off(outcome, outcome.detail)
                return ended if ended.kind is AttemptKind.DONE else replace(ended, kind=AttemptKind.INTERRUPTED)
            case SessionEnd.INTERRUPTED:
                return self._keep(AttemptKind.INTERRUPTED, outcome, outcome.detail)
            case _:
                return self._keep(AttemptKind.FAILED, outcome, outcome.detail)

    def _hand_off(self, outcome: SessionOutcome, detail: str) -> AttemptResult:
        """Commit work that passes the gate already; save everything else with the handoff note."""
        finished = not self._notes.open_ids()
        if self._notes.claims or finished:
            made = self._commit(outcome, "done" if finished else "handoff")
            if isinstance(made, PhaseCommit):
                return self._end_done(outcome) if finished else self._end(AttemptKind.HANDOFF, outcome, detail)
            if made.for_review:
                return self._propose(outcome, made.for_user)
        return self._keep(AttemptKind.HANDOFF, outcome, detail)

    def _propose(self, outcome: SessionOutcome, words: str) -> AttemptResult:
        self._last_error, self._gate_words = ("", ""), ""
        return self._keep(AttemptKind.REVIEW, outcome, words, proposed=self._find_subject(outcome))

    def _commit(self, outcome: SessionOutcome, status: str) -> PhaseCommit | Refused:
        subject = self._find_subject(outcome)
        made = self._parts.commit(Proposal(subject=subject, status=status, gate_words=self._gate_words))
        if isinstance(made, Refused):
            self._gate_words = made.for_user
            if status == "done":  # at a handoff a red gate is no error: the phase is not finished
                self._last_error = ("gate", made.for_user)
        return made

    def _end_done(self, outcome: SessionOutcome) -> AttemptResult:
        return self._end(AttemptKind.DONE, outcome, f"phase {self._handover.phase_id} is done")

    def _end(self, kind: AttemptKind, outcome: SessionOutcome, detail: str) -> AttemptResult:
        return AttemptResult(kind=kind, end=outcome.end, detail=detail, new_claims=len(self._notes.claims))

    def _keep(
        self, kind: AttemptKind, outcome: SessionOutcome, detail: str, proposed: str | None = None
    ) -> AttemptResult:
        """Leave the work in the tree and save it with a handoff note; the attempt stays open for the next session."""
        source, error = self._last_error
        item = next(iter(self._notes.open_ids()), "")
        ending = make_ending(outcome.end, item=item, error=f"{source}: {error}" if source else "")
        wait = note_wait(outcome.retry_at, self._sessions.settings.model)
        ending = structs.replace(ending, proposed=proposed, **wait)
        self._parts.keeper.save_end(ending, self._gate_words, hurried=self._interrupts.stop_now)
        return self._end(kind, outcome, detail)

    def _find_subject(self, outcome: SessionOutcome) -> str:
        """Return the commit subject that the session's last words propose, else that of its last tick."""
        return _read_subject(outcome.text) or _read_subject(f"Commit: {self._notes.subject}")

    def _run_tool(self, call: ToolCall) -> ToolResult:
        result = self._parts.toolbox.run(call)
        # An error counts as overcome once the same tool succeeds.
        if result.is_error:
            self._last_error = (call.name, result.text)
        elif self._last_error[0] == call.name:
            self._last_error = ("", "")
        return self._parts.keeper.take_call(call, result)

    def _note_boundary(self) -> None:
        """Save the changes of an agent's own tools."""
        call = ToolCall(id="", name="agent", input={})
        self._parts.keeper.take_call(call, ToolResult(text="", changed_paths=None))


def _read_subject(text: str) -> str:
    """Return the last commit subject that a session proposes; empty without one."""
    return next(filter(None, (_strip_marks(found) for found in reversed(_SUBJECT.findall(text)))), "")


def _describe_unfinished(open_ids: tuple[str, ...]) -> str:
    return (
        f"the session said it was finished, but {', '.join(open_ids)} {'are' if len(open_ids) > 1 else 'is'} not ticked"
    )
