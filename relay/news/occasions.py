"""What of a run is worth a call. Pure: events in, news out."""

from relay.base.values import dataclass
from relay.base.words import count_questions, render_duration, render_usd, shorten
from relay.session.events import (
    CacheRefreshed,
    Event,
    GateFinished,
    JobMoved,
    LegEnded,
    QuestionAsked,
    ResponseReceived,
    RetryScheduled,
    RunEnded,
    RunStarted,
)
from relay.session.usage import add_usd
from relay.session.values import SessionEnd

COST_SHARE = 0.8
"""Of the cap."""
LONG_WAIT_S = 300
"""A shorter one is over before anybody has looked."""
DETAIL_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something to tell."""

    occasion: str
    """One of `relay.config.news.OCCASIONS`, or ``test``."""
    text: str
    """One line that says nothing of the repository."""
    details: str
    """One line that does: plan, branch, phase, reason; it may hold anything."""

    @property
    def title(self) -> str:
        """What it is."""
        return f"relay: {_TITLES[self.occasion]}"


class Watcher:
    """Follows a run. Mutable: it remembers what was spent, and what it has told."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._spent: float | None = None
        self._last: dict[str, LegEnded] = {}  # of each phase: several may be at work side by side
        self._waits = False
        self._has_told_cost = False
        self._red: set[str] = set()
        self._has_told_stop = False

    def find_news(self, event: Event) -> News | None:
        """Return what an event is worth telling; None for most."""
        self._note(event)
        match event:
            case JobMoved():
                return self._move(event)
            case ResponseReceived() | CacheRefreshed():
                self._waits = self._has_told_stop = False
                return self._count(event.cost_usd)
            case RetryScheduled():
                return self._wait(event)
            case GateFinished() if self._is_new_red(event):
                self._red.add(event.phase_id)
                words = f"a gate is red after {render_duration(event.duration_s)}"
                return self._make("red", words, f"phase {event.phase_id}: {event.summary}")
            case QuestionAsked():
                return self._ask(event)
            case RunEnded():
                return self._end(event)
            case _:
                pass
        return None

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._started, self._spent = event, event.spent_usd
        elif isinstance(event, LegEnded):
            self._last[event.phase_id] = event

    def _is_new_red(self, event: GateFinished) -> bool:
        """Say whether a gate is red that should be green, for the first time in its phase: repairs come in threes."""
        return not (event.passed or event.baseline or event.expected) and event.phase_id not in self._red

    def _wait(self, event: RetryScheduled) -> News | None:
        if event.wait_s < LONG_WAIT_S or self._waits:
            return None
        self._waits = True  # one limit stops all that are at work
        return self._make("limit", f"it waits for {render_duration(event.wait_s)}", event.reason)

    def _ask(self, event: QuestionAsked) -> News:
        words = "it waits for your answer" if event.waits else "it goes on with what it assumes"
        return self._make("question", words, f"{event.question} (assumed: {event.assumed})")

    def _count(self, cost_usd: float | None) -> News | None:
        self._spent = add_usd(self._spent, cost_usd)
        cap = self._started.cap_usd if self._started else None
        if self._has_told_cost or not cap or self._spent is None or self._spent < COST_SHARE * cap:
            return None
        self._has_told_cost = True
        return self._make("cost", f"{render_usd(self._spent)} of {render_usd(cap)} are spent", "")

    def _move(self, event: JobMoved) -> News | None:
        """Tell of one of several phases that stopped: the others may go on all night. A limit stops all of them."""
        if event.state == "held":
            return None
        self._has_told_stop = False
        last = self._last.get(event.phase_id)
        if event.state != "stopped" or (last is not None and last.end is SessionEnd.LIMIT):
            return None
        self._has_told_stop = True
        self._last.pop(event.phase_id, None)
        occasion = "blocked" if last is not None and last.result == "blocked" else "stopped"
        return self._make(occasion, "one phase stopped", f"phase {event.phase_id}: {event.detail}")

    def _end(self, event: RunEnded) -> News | None:
        if event.exit_code and self._has_told_stop:
            return None
        if event.waits_for:
            return self._make("question", "one phase is done, the next one waits for your yes", event.waits_for)
        occasion = "done" if event.exit_code == 0 else "stopped"
        if event.exit_code:
            last = self._last.values()
            occasion = "blocked" if any(leg.result == "blocked" for leg in last) else occasion
            occasion = "limit" if any(leg.end is SessionEnd.LIMIT for leg in last) else occasion
        spent = render_usd(event.spent_usd, estimated=event.estimated)
        words = f"exit status {event.exit_code}, {spent} spent"
        words += f"; {count_questions(event.questions)}" if event.questions else ""
        return self._make(occasion, words, event.reason)

    def make_failure(self, words: str) -> News:
        """Return the news of a run that could not go on."""
        return self._make("stopped", "it could not go on", words)

    def _make(self, occasion: str, text: str, reason: str) -> News:
        where = f"{self._started.plan_path} on {self._started.branch}" if self._started else ""
        shown = "".join(filter(str.isprintable, " ".join(reason.split())))  # nothing that hides or reorders text
        details = " · ".join(filter(None, (where, shown)))
        return News(occasion=occasion, text=text, details=shorten(details, DETAIL_CHARS))


_TITLES = {
    "done": "done",
    "blocked": "it needs you",
    "stopped": "stopped with work left",
    "limit": "a limit is reached",
    "red": "a gate is red",
    "cost": "most of the budget is spent",
    "question": "a question for you",
    "test": "a test",
}
