"""What the requests of a session cost and how full its context is: one rule for relay's own loop and for agents.

A request is booked before anything of its answer is used: at what the endpoint reports as far as that is plausible,
else at the most that it can have cost.
"""

from collections.abc import Callable
from typing import Any

from relay.base.values import dataclass
from relay.runners.base import ModelInfo, SessionSpec
from relay.session.events import Noticed, Observe, ResponseReceived
from relay.session.gauge import Gauge, open_gauge
from relay.session.prices import Price, charge_request, normalize_model
from relay.session.usage import Spent, Usage
from relay.session.values import SessionEnd, SessionOutcome

LEAST_OUTPUT_TOKENS = 4_000
"""If the caps leave less for an answer, the request is not sent: it would not be worth it."""


def fit_answer(
    check: Callable[[int, int], str | None], prompt_tokens: int, wanted_tokens: int, *, shortens: bool = True
) -> int | SessionOutcome:
    """Return how long an answer may be, or how the session ends because its request must not be sent.

    Args:
        check: As `SessionSpec.check_budget`.
        wanted_tokens: Length of the answer if the caps allow it; halved until they do.
        shortens: False if the answer may not be shorter.
    """
    most = wanted_tokens
    while (why := check(prompt_tokens, most)) and shortens and most // 2 >= LEAST_OUTPUT_TOKENS:
        most //= 2
    return SessionOutcome(end=SessionEnd.BUDGET, detail=why) if why else most


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request that was sent, as far as it costs."""

    model: str
    """The model that was asked."""
    turn: int
    """0 for a request beside the session's own conversation."""
    worst: Usage
    """The most that it can use: the prompt as input, the answer as output."""
    least: Usage
    """A report of less, of the prompt or the answer, is not believed."""


class Account:
    """Books the requests of one session. Mutable: the gauge moves with each of them.

    Args:
        longest_tokens: Longest answer of a request.
    """

    def __init__(self, spec: SessionSpec, model: ModelInfo, observe: Observe, longest_tokens: int) -> None:
        self.spec = spec
        self.turn = 0
        """Number of requests of the session's own conversation, without those that were sent again."""
        self.max_output_tokens = longest_tokens
        self._model = model
        self._observe = observe
        self._told: set[str] = set()
        self.gauge = self.open_gauge()

    def open_gauge(self) -> Gauge:
        """Return the gauge of an empty context."""
        model, room = self._model, self.max_output_tokens
        return open_gauge(window_tokens=model.window_tokens, reset_at=self.spec.reset_at, room_tokens=room)

    def find_price(self, model: str) -> Price | None:
        """Return the price at which a model's answer counts: its own, else that of the session's model."""
        is_own = not model or normalize_model(model) == normalize_model(self.spec.model)
        return self.spec.price if is_own else self.spec.find_price(model) or self.spec.price

    def book(self, sent: Sent, said: Usage | None, *, model: str, own: Usage | None = None, **shown: Any) -> int | None:
        """Book an answer.

        Args:
            said: What the endpoint reported; None for nothing.
            model: The model that answered; empty if it did not say.
            own: relay's own count of prompt and answer, for the gauge where the report is not plausible; None leaves
                the gauge as it is.
            shown: What else `ResponseReceived` says of the answer.

        Returns:
            The answer's tokens in the gauge; None if the gauge was not measured.
        """
        if model and normalize_model(model) != normalize_model(sent.model):  # its own price counts
            is_known = self.spec.find_price(model) is not None
            words = "its price counts" if is_known else "its price is not known: counted as the one that was asked"
            self._warn_once(model, f"{model} answers, not {sent.model}; {words}")
        most = Usage(input_tokens=self._model.window_tokens, output_tokens=self._model.max_output_tokens)
        spent = charge_request(said, self.find_price(model), worst=sent.worst, least=sent.least, most=most)
        measured = None if own is None else self._measure(said, spent.usage, own)
        self.show(spent, turn=sent.turn, model=model, **shown)
        return measured

    def show(self, spent: Spent, **shown: Any) -> None:
        """Emit ResponseReceived with the gauge's lines and what the response counts as; `shown` is the rest of it."""
        gauge = self.gauge
        self._observe(
            ResponseReceived(
                usage=spent.usage,
                cost_usd=spent.cost_usd,
                estimated=spent.estimated,
                fill_tokens=gauge.fill_tokens,
                soft_tokens=gauge.soft_tokens,
                hard_tokens=gauge.hard_tokens,
                window_tokens=gauge.window_tokens,
                turns_left=gauge.turns_left,
                **shown,
            )
        )

    def book_lost(self, sent: Sent, said: Usage | None, *, may_be_billed: bool, **shown: Any) -> None:
        """Book a request without a complete answer, if the endpoint may have worked on it."""
        if said is not None or may_be_billed:
            self.book(sent, said, stop_reason="lost" if said is None else "cut", **{"model": sent.model, **shown})

    def _measure(self, said: Usage | None, counted: Usage, own: Usage) -> int | None:
        """Update the gauge by the endpoint's numbers as far as they are plausible, else by relay's own."""
        if said is None or not said.prompt_tokens:
            self.gauge = self.gauge.append(own.output_tokens)
            return None
        prompt, output = said.prompt_tokens, said.output_tokens
        if output != counted.output_tokens:
            output = own.output_tokens
        if prompt != counted.prompt_tokens:
            words = (
                f"the endpoint reports {prompt:,} tokens for a prompt of about {own.input_tokens:,}: "
                "relay uses its own count, for the reset line and as an upper bound of the cost"
            )
            self._warn_once("", words)
            prompt = own.input_tokens
        self.gauge = self.gauge.measure(Usage(input_tokens=prompt, output_tokens=output))
        return output

    def _warn_once(self, subject: str, words: str) -> None:
        if subject not in self._told:
            self._told.add(subject)
            self._observe(Noticed(text=words, warning=True))

    def end_cut(self, cut_tokens: int) -> SessionOutcome:
        """Return how a session ends whose answer was cut at a limit that the caps had shortened."""
        # So that the cap knows what would be enough.
        why = self.spec.check_budget(self.gauge.least_tokens, self.max_output_tokens)
        words = f"an answer was cut at {cut_tokens:,} tokens, the most that the caps leave: {why}"
        return SessionOutcome(end=SessionEnd.BUDGET, detail=words)
