"""The slowest answer and the longest pause of a run, by which a session chooses how long its cache entries live."""

from relay.base.values import dataclass
from relay.session.events import Event, GateFinished, ResponseReceived, ToolFinished

USUAL_ANSWER_S = 60.0
"""How long an answer is taken to need while none of this run's was slower; long edits and thinking take about that."""


@dataclass(slots=True)
class Pace:
    """The longest answer and the longest pause of a run so far. Mutable: learns from every event."""

    answer_s: float = USUAL_ANSWER_S
    pause_s: float = 0.0
    """Behind an answer: all tool calls of a turn, or one run of the gate."""
    _tools_s: float = 0.0

    def observe(self, event: Event) -> None:
        """Take the duration of an answer, a tool call or a gate."""
        match event:
            case ResponseReceived():
                self.answer_s = max(self.answer_s, event.duration_s)
                self._tools_s = 0.0
            case ToolFinished():
                self._tools_s += event.duration_s
                self.pause_s = max(self.pause_s, self._tools_s)
            case GateFinished():
                self.pause_s = max(self.pause_s, event.duration_s)
            case _:
                pass

    @property
    def turn_s(self) -> float:
        """How far apart the starts of two requests may be."""
        return self.answer_s + self.pause_s
