"""How long answers and pauses take, and whether to keep a prompt in the endpoint's cache meanwhile. Pure.

A refresh sends the same prompt with nothing to be generated, and its entry lives for another lifetime. Without it the
next request writes the prompt again. So the n-th refresh of a wait saves, as far as can be expected,

    chance · 1/(n + 1) · tokens · (write - read)

and costs ``tokens · read``. `chance` is that the session is asked again at all; 1/(n + 1) that the wait, which has
lasted n lifetimes, ends within the next one: of how long a thing lasts no more is known than how long it has lasted
(Gott, *Nature* 363, 1993; a Pareto distribution with exponent 1). So the saving falls with each refresh, and all of a
wait cost less than the one miss that they are to avert, as ski rental wants it (Karlin et al., *Algorithmica* 3, 1988).
pi refreshes by the same comparison, once, at 90 % of the lifetime and from $0.05 on.
"""

from collections.abc import Callable

from relay.base.values import dataclass
from relay.session.events import (
    Event,
    GateFinished,
    GateStarted,
    ResponseReceived,
    RunPaused,
    RunResumed,
    ToolFinished,
    ToolStarted,
)
from relay.session.prices import Rates

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


DUE_SHARE = 0.9
"""Of an entry's lifetime, after which it is refreshed."""
LEAST_USD = 0.01
"""A smaller saving is not worth a request."""
_MILLION = 1_000_000


def find_saving_usd(tokens: int, rates: Rates, *, hour: bool, chance: float, nth: int) -> float:
    """Return what a refresh can be expected to save, less what it costs.

    Args:
        tokens: Of the prompt, all in the cache.
        hour: Whether entries live for an hour, and are written at that price.
        chance: That the session is asked again after the wait, 0 to 1.
        nth: 1 for the first refresh of a wait.
    """
    write = rates.write_1h if hour else rates.write_5m
    return tokens * (chance / (nth + 1) * (write - rates.read) - rates.read) / _MILLION


def _idle() -> None:
    """Do nothing."""


@dataclass(slots=True)
class Waits:
    """What the session that is open does while the run waits for something else. Mutable: follows the run."""

    check_budget: Callable[[int, int], str | None] = lambda _prompt, _output: None
    """As `relay.runners.base.SessionSpec` has it, but on no tape: when it is asked follows no order."""
    attend: Callable[[], None] = _idle
    """Called some times a second while a command runs or the user pauses the run. Returns at once."""
    settle: Callable[[], None] = _idle
    """Called when what was spent is about to be written into a commit."""
    chance: float = 0.0
    """That the session is asked again after what runs now; 0 while nothing runs."""
    _gates: int = 0
    _red: int = 0

    def look(self) -> None:
        """Have the session do what it has to."""
        if self.chance:
            self.attend()

    def observe(self, event: Event) -> None:
        """Take an event.

        Behind a tool or a pause the session goes on; behind a gate only where that is red: of n gates of this run r
        were, and the next is with (r + 1)/(n + 2), the rule of succession (Laplace).
        """
        match event:
            case ToolStarted() | RunPaused():
                self.chance = 1.0
            case GateStarted(baseline=False):
                self.chance = (self._red + 1) / (self._gates + 2)
            case ToolFinished() | RunResumed():
                self.chance = 0.0
            case GateFinished(baseline=False):
                self.chance = 0.0
                self._gates += 1
                self._red += not event.passed
                if event.passed:
                    self.settle()
            case _:
                pass
