"""The state that the live view draws, computed from events."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from relay.base.interrupts import Urgency
from relay.base.values import dataclass
from relay.session import events
from relay.session.events import ShownPhase
from relay.session.usage import Usage

SAID_LINES = 12
"""Lines of the model's words that are kept; more than any screen shows."""
SAID_CHARS = 2_000
"""Only this end of each text is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The present activity of a run."""

    name: str
    """A tool's name, ``gate``, ``model``, ``retry``, ``waits`` or ``paused``."""
    summary: str
    since: float
    """On the board's clock, in seconds."""
    until: float | None = None
    """End of a wait; None for everything else."""
    output: str = ""
    """The last line of its output; empty before the first."""


@dataclass(slots=True, kw_only=True)
class Board:
    """The present state of a run. Mutable: events change it, by `apply`."""

    started_at: float
    """On the clock of every `now`, in seconds."""
    run: events.RunStarted | None = None
    phases: tuple[ShownPhase, ...] = ()
    session: events.SessionStarted | None = None
    response: events.ResponseReceived | None = None
    """The session's last response; None before the first."""
    used: Usage = Usage()
    """Reported usage of the session's answers."""
    focus: str = ""
    """Id of the present phase; empty before the first."""
    activity: Activity | None = None
    said: deque[tuple[bool, str]] = field(default_factory=lambda: deque(maxlen=SAID_LINES))
    """The session's last lines of text, oldest first, each with a flag for thinking."""
    run_usd: float = 0.0
    """Known cost of this run."""
    estimated: bool = False
    """Whether some of the plan's cost was not reported and counts with its upper bound."""
    unseen_usd: float = 0.0
    """Upper bound on the unreported cost of this run's answers."""
    cost_gaps: int = 0
    """Responses of unknown cost."""
    responses: int = 0
    ended: events.RunEnded | None = None
    """None until the run has ended."""
    heard_at: float = 0.0
    """Time of the last event."""
    lost: bool = False
    """Whether the run's relay is gone without an end in the log; set by the view."""
    stopping: Urgency = Urgency.NONE
    """The requested stop, if any; set by the view."""
    jobs: dict[str, "Board"] = field(default_factory=dict)
    """Boards of the working jobs, by phase."""
    job_states: dict[str, tuple[str, str]] = field(default_factory=dict)
    """State and reason of jobs that do not work now, by phase."""

    @property
    def spent_usd(self) -> tuple[float | None, bool]:
        """The plan's known cost and whether it is complete; the cost is None if nothing is known."""
        before = self.run.spent_usd if self.run else 0.0
        complete = before is not None and not self.cost_gaps
        if (before is None and not self.run_usd) or (self.cost_gaps == self.responses > 0 and not before):
            return None, False
        return (before or 0.0) + self.run_usd, complete

    def apply(self, event: events.Event, now: float) -> None:
        """Update the board by an event."""
        self.heard_at = now
        _APPLY[type(event)](self, event, now)

    def apply_job(self, phase_id: str, event: events.Event, now: float) -> None:
        """Update the board by an event of a job."""
        self.heard_at = now
        job = self.jobs.setdefault(phase_id, Board(started_at=now))
        job.apply(event, now)
        if isinstance(event, events.ResponseReceived):  # all jobs share one cap
            self.responses += 1
            self.charge(event)

    def charge(self, event: events.ResponseReceived) -> None:
        """Add the cost of an answer."""
        self.estimated = self.estimated or event.estimated
        self.unseen_usd += (event.cost_usd or 0.0) * event.estimated
        self.cost_gaps += event.cost_usd is None
        self.run_usd += event.cost_usd or 0.0


def _on_job(board: Board, event: events.JobMoved, now: float) -> None:
    board.jobs.pop(event.phase_id, None)
    board.job_states.pop(event.phase_id, None)
    if event.state in {"started", "merging"}:
        board.jobs[event.phase_id] = Board(started_at=now)
    elif event.state != "landed":  # the phase's box shows that
        board.job_states[event.phase_id] = event.state, event.detail


def _on_run(board: Board, event: events.RunStarted, now: float) -> None:
    board.started_at = now
    board.run, board.estimated, board.ended = event, event.estimated, None


def _on_plan(board: Board, event: events.PlanShown, _now: float) -> None:
    board.phases = event.complete(board.phases)


def _on_session(board: Board, event: events.SessionStarted, _now: float) -> None:
    board.session, board.response, board.activity, board.focus = event, None, None, event.phase_id
    board.used = Usage()
    board.said.clear()


def _on_request(board: Board, event: events.RequestStarted, now: float) -> None:
    board.activity = Activity(name="model", summary=f"answering, turn {event.turn}", since=now)


def _on_response(board: Board, event: events.ResponseReceived, _now: float) -> None:
    if event.turn:
        board.response, board.activity = event, None
    board.responses += 1
    board.charge(event)
    if event.usage is not None and not event.estimated:
        board.used += event.usage


def _on_text(board: Board, event: events.TextShown, _now: float) -> None:
    for line in event.text[-SAID_CHARS:].splitlines()[-SAID_LINES:]:
        if line.strip():
            board.said.append((event.thinking, line))


def _on_tool(board: Board, event: events.ToolStarted, now: float) -> None:
    board.activity = Activity(name=event.name, summary=event.summary, since=now)


def _on_output(board: Board, event: events.OutputShown, _now: float) -> None:
    if board.activity is not None:
        board.activity = replace(board.activity, output=event.line)


def _on_transfer(board: Board, event: events.TransferShown, now: float) -> None:
    begun = board.activity.since if board.activity and board.activity.name == "git" else now
    board.activity = Activity(name="git", summary=event.line, since=begun) if event.line else None


def _on_retry(board: Board, event: events.RetryScheduled, now: float) -> None:
    name, words = "waits", event.reason
    if event.attempt:
        name, words = "retry", f"attempt {event.attempt} — {words}"
    board.activity = Activity(name=name, summary=words, since=now, until=now + event.wait_s)


def _on_setup(board: Board, event: events.SetupStarted, now: float) -> None:
    board.activity = Activity(name="setup", summary=event.command, since=now)


def _on_gate(board: Board, event: events.GateStarted, now: float) -> None:
    board.focus = event.phase_id
    kind = "baseline: " if event.baseline else ""
    board.activity = Activity(name="gate", summary=f"{kind}{'; '.join(event.commands)}", since=now)


def _on_session_end(board: Board, _event: events.SessionEnded, _now: float) -> None:
    board.activity = None
    board.said.clear()


def _on_end(board: Board, event: events.RunEnded, _now: float) -> None:
    board.activity, board.ended = None, event
    board.said.clear()


def _on_idle(board: Board, _event: events.Event, _now: float) -> None:
    board.activity = None


def _on_cap(board: Board, event: events.CapMoved, _now: float) -> None:
    board.run = replace(board.run, cap_usd=event.cap_usd) if board.run else None


def _on_nothing(_board: Board, _event: events.Event, _now: float) -> None:
    """Ignore events that change nothing on the board."""


_APPLY: Mapping[type[Any], Callable[[Board, Any, float], None]] = {
    events.RunStarted: _on_run,
    events.PlanShown: _on_plan,
    events.SessionStarted: _on_session,
    events.RequestStarted: _on_request,
    events.ResponseReceived: _on_response,
    events.RelaySpoke: _on_nothing,
    events.TextShown: _on_text,
    events.ToolStarted: _on_tool,
    events.ToolFinished: _on_idle,
    events.OutputShown: _on_output,
    events.TransferShown: _on_transfer,
    events.GaugeCrossed: _on_nothing,
    events.RetryScheduled: _on_retry,
    events.CacheBroken: _on_nothing,
    events.HostAsked: _on_nothing,
    events.SetupStarted: _on_setup,
    events.SetupFinished: _on_idle,
    events.GateStarted: _on_gate,
    events.GateFinished: _on_idle,
    events.PlanRestored: _on_nothing,
    events.Committed: _on_nothing,
    events.SessionEnded: _on_session_end,
    events.Noticed: _on_nothing,
    events.ReviewFinished: _on_nothing,
    events.QuestionAsked: _on_nothing,
    events.WordsHeard: _on_nothing,
    events.CapMoved: _on_cap,
    events.JobMoved: _on_job,
    events.RunEnded: _on_end,
}
_ELSEWHERE = (_on_nothing, _on_run, _on_plan, _on_text, _on_job)
MOMENT_KINDS = frozenset(kind.__name__ for kind, take in _APPLY.items() if take not in _ELSEWHERE)
"""Events about the present activity: `relay status` reads the end of a log for them."""
