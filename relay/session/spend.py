"""What a run has used and cost, and how slow it is, counted from its events.

Each sum answers a question: the plan's (does the cap hold?), the open phase's (does its cap hold?), what no commit
records yet (what goes into the next commit's trailers?) and the session's (what did this session cost?). By its pace a
session chooses how long its cache entries live.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from relay.base.values import dataclass
from relay.session.events import Event, GateFinished, ResponseReceived, ToolFinished
from relay.session.prices import Budget, Price, worst_cost_usd
from relay.session.usage import Spent, Usage

USUAL_ANSWER_S = 60.0
"""Assumed length of an answer until one of this run's was slower; long edits and thinking take about that."""


@dataclass(slots=True)
class Pace:
    """The longest answer and the longest pause of a run so far. Mutable: learns from every event."""

    answer_s: float = USUAL_ANSWER_S
    pause_s: float = 0.0
    """The pause behind an answer: all tool calls of a turn, or one run of the gate."""
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
        """Longest time between the starts of two requests."""
        return self.answer_s + self.pause_s


class Meter:
    """Counts every response. Mutable.

    Args:
        budget: The caps, with nothing charged yet.
        price: None if the model's price is unknown; then only a token cap can hold.
        before: What the plan's commits record.
    """

    def __init__(self, budget: Budget, *, price: Price | None, before: Spent) -> None:
        self.budget = budget.charge(before.cost_usd, before.tokens)
        """The caps, and what counts against them by now."""
        self._price = price
        self.unrecorded = Spent()
        """What no commit on the branch records yet."""
        self.session = Spent()
        """What the current or last session used."""
        self._worst = Spent()
        self.total = before
        self.models: dict[str, None] = {}
        """The models that answered since the last commit, in order."""

    @property
    def session_at_most(self) -> Spent:
        """What the session used, with the last allowed request at the most that it can cost."""
        return self.session + self._worst

    def observe(self, event: Event) -> None:
        """Count a response; ignore every other event."""
        if isinstance(event, ResponseReceived):
            spent = Spent(usage=event.usage or Usage(), cost_usd=event.cost_usd, estimated=event.estimated)
            self.session += spent
            if not event.query:
                self.models[event.model] = None
            self.charge(spent)

    def take_up(self, spent: Spent) -> None:
        """Take what an open phase has used for unrecorded; the total has it already."""
        self.unrecorded = spent
        self.models.clear()

    @property
    def cap_usd(self) -> float | None:
        """The cap of the plan; None: no cap."""
        return self.budget.run_cap_usd

    def move_cap(self, cap_usd: float | None) -> None:
        """Set the plan's cap, from the next request on."""
        self.budget = replace(self.budget, run_cap_usd=cap_usd)

    def open_phase(self, before: Spent) -> None:
        """Start the phase's own cap.

        Args:
            before: What the commits of its earlier sessions record. Unrecorded usage belongs to the phase anyway.
        """
        self.budget = self.budget.open_phase((before + self.unrecorded).cost_usd)

    def open_session(self, price: Price | None) -> None:
        """Start counting a session. Its requests are checked at this price: models differ in price."""
        self.session, self._price = Spent(), price

    @contextmanager
    def pricing(self, price: Price | None) -> Iterator[None]:
        """Check requests at another price meanwhile: they belong to the open session, and go to another model."""
        before, self._price = self._price, price
        try:
            yield
        finally:
            self._price = before

    def record(self) -> None:
        """Note that a commit now records the unrecorded usage."""
        self.unrecorded = Spent()
        self.models.clear()

    def check(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Return why a request of at most this size must not be sent; None if every cap holds."""
        worst = None if self._price is None else worst_cost_usd(prompt_tokens, output_tokens, self._price)
        worst_usage = Usage(input_tokens=prompt_tokens, output_tokens=output_tokens)
        self._worst = Spent(usage=worst_usage, cost_usd=worst, estimated=True)
        return self.budget.check(worst, prompt_tokens + output_tokens)

    @property
    def unsent(self) -> Spent | None:
        """The last checked request at the most that it can cost, if a higher cap of the run would allow it; else
        None."""
        usd, own = self._worst.cost_usd, replace(self.budget, phase_cap_usd=None)
        can_help = usd is not None or own.token_cap is not None
        return self._worst if can_help and own.check(usd, self._worst.tokens) else None

    def charge(self, spent: Spent) -> None:
        """Count what no commit records yet: a response, or what an earlier process used for the open phase."""
        self.budget = self.budget.charge(spent.cost_usd, spent.tokens)
        self.unrecorded += spent
        self.total += spent
