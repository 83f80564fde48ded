"""The state that the live view draws, computed from events."""

from collections import deque
from dataclasses import field, replace
from typing import get_args

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
    """Seconds since the epoch."""
    until: float | None = None
    """End of a wait, if it is one."""
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
        self.activity = self._find_activity(event, now)
        match event:
            case events.RunStarted():
                self.started_at, self.run, self.estimated, self.ended = now, event, event.estimated, None
            case events.PlanShown():
                self.phases = event.complete(self.phases)
            case events.SessionStarted():
                self.session, self.response, self.used, self.focus = event, None, Usage(), event.phase_id
                self.said.clear()
            case events.ResponseReceived():
                self.response = event if event.turn else self.response
                self.used += Usage() if event.usage is None or event.estimated else event.usage
                self._charge(event)
            case events.TextShown():
                lines = event.text[-SAID_CHARS:].splitlines()[-SAID_LINES:]
                self.said.extend((event.thinking, line) for line in lines if line.strip())
            case events.GateStarted():
                self.focus = event.phase_id
            case events.SessionEnded():
                self.said.clear()
            case events.CapMoved() if self.run:
                self.run = replace(self.run, cap_usd=event.cap_usd)
            case events.JobMoved():
                self._move_job(event, now)
            case events.RunEnded():
                self.ended = event
                self.said.clear()
            case _:  # the lines above the board tell it
                pass

    def apply_job(self, phase_id: str, event: events.Event, now: float) -> None:
        """Update the board by an event of a job."""
        self.heard_at = now
        self.jobs.setdefault(phase_id, Board(started_at=now)).apply(event, now)
        if isinstance(event, events.ResponseReceived):  # all jobs share one cap
            self._charge(event)

    def _charge(self, event: events.ResponseReceived) -> None:
        self.responses += 1
        self.estimated = self.estimated or event.estimated
        self.unseen_usd += (event.cost_usd or 0.0) * event.estimated
        self.cost_gaps += event.cost_usd is None
        self.run_usd += event.cost_usd or 0.0

    def _move_job(self, event: events.JobMoved, now: float) -> None:
        self.jobs.pop(event.phase_id, None)
        self.job_states.pop(event.phase_id, None)
        if event.state in {"started", "merging"}:
            self.jobs[event.phase_id] = Board(started_at=now)
        elif event.state != "landed":  # the phase's box shows that
            self.job_states[event.phase_id] = event.state, event.detail

    def _find_activity(self, event: events.Event, now: float) -> Activity | None:
        """Return the activity behind an event."""
        present = self.activity
        match event:
            case events.RequestStarted():
                present = Activity(name="model", summary=f"answering, turn {event.turn}", since=now)
            case events.ResponseReceived():  # an agent begins a tool while the answer still comes
                is_model = present is not None and present.name in _OF_THE_MODEL
                present = None if event.turn and is_model else present
            case events.ToolStarted():
                present = Activity(name=event.name, summary=event.summary, since=now)
            case events.OutputShown() if present:
                present = replace(present, output=event.line)
            case events.TransferShown():
                since = present.since if present and present.name == "git" else now
                present = Activity(name="git", summary=event.line, since=since) if event.line else None
            case events.RetryScheduled():
                name, words = ("retry", f"attempt {event.attempt} — ") if event.attempt else ("waits", "")
                present = Activity(name=name, summary=words + event.reason, since=now, until=now + event.wait_s)
            case events.SetupStarted():
                present = Activity(name="setup", summary=event.command, since=now)
            case events.GateStarted():
                words = f"{'baseline: ' if event.baseline else ''}{'; '.join(event.commands)}"
                present = Activity(name="gate", summary=words, since=now)
            case _ if isinstance(event, _ENDS):
                present = None
            case _:
                pass
        return present


_OF_THE_MODEL = frozenset({"model", "retry", "waits"})
"""Activities that an answer ends."""
_ENDS = (
    events.SessionStarted,
    events.ToolFinished,
    events.SetupFinished,
    events.GateFinished,
    events.SessionEnded,
    events.RunEnded,
)
"""Events after which nothing goes on until the next begins."""
_ELSEWHERE = (events.RunStarted, events.PlanShown, events.TextShown, events.JobMoved, events.RelaySpoke)
MOMENT_KINDS = frozenset(kind.__name__ for kind in get_args(events.Event) if kind not in _ELSEWHERE)
"""Events about the present activity, and small ones: `relay status` reads the end of a log for them."""
