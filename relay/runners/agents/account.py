"""What an agent's requests have used and what failed, as the gateway saw it: the gauge, the caps, the retries.

The agent's own reports of its usage do not count here.
"""

import random
import time
from dataclasses import replace

from relay.runners.account import Account, Sent, fit_answer
from relay.runners.agents.dialects import ModelRequest, Tally
from relay.runners.agents.gateway import Passed
from relay.runners.base import ModelInfo, SessionSpec, end_at_hard_line, end_by_turns, refuse_first_prompt
from relay.runners.messages.connection import Fault, FaultKind, RetryPolicy, Wait
from relay.runners.messages.reading import LEAST_ANSWER_S, SLOWEST_TOKENS_PER_S
from relay.session.events import Observe, RequestStarted, RetryScheduled
from relay.session.gauge import Zone
from relay.session.prices import normalize_model, worst_cost_usd
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome

_BYTES_PER_TOKEN = 4
MAX_REFUSED = 3
"""Requests in a row that the endpoint may refuse as malformed: some agents then ask in another form."""


class AgentAccount(Account):
    """The account of a session whose requests an agent makes. Mutable.

    Args:
        max_wait_s: How long the endpoint may fail.
        sets_limits: Whether relay may set the output limit of a request that has none.
    """

    def __init__(
        self, spec: SessionSpec, model: ModelInfo, observe: Observe, *, max_wait_s: float, sets_limits: bool = True
    ) -> None:
        longest = min(spec.max_output_tokens or model.max_output_tokens, model.max_output_tokens)
        super().__init__(spec, model, observe, longest)
        self.fault: Fault | None = None
        """Fault of the last main request; None if it was answered, or none was sent."""
        self.stop_reason = ""
        """Stop reason of the last main answer."""
        self.ended: SessionOutcome | None = None
        """How the session ends; then no further request may be sent."""
        self.wait: Wait | None = None
        """How long to wait before relay tells the agent to go on, after the agent gave up by itself."""
        self._max_wait_s = max_wait_s
        self._policy = RetryPolicy(max_wait_s=max_wait_s)
        self._refused = 0
        self._sets_limits = sets_limits
        self._open: dict[int, tuple[ModelRequest, float]] = {}
        """Requests without an answer so far, as they were sent, with their times."""
        self._measured_bytes = self._cut_tokens = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._open)

    def look_at(self, request: ModelRequest) -> None:
        """Take in the length of the conversation, before the request is sent."""
        if request.is_main:
            more = max(0, request.prompt_bytes - self._measured_bytes) // _BYTES_PER_TOKEN
            self.gauge = replace(self.gauge, appended_tokens=0).append(more)

    def fit_first(self, prompt_tokens: int) -> int | SessionOutcome:
        """Return how long answers may be, as far as is known before the first request; or why there must be none."""
        fit = fit_answer(self.spec.check_budget, prompt_tokens, self.max_output_tokens)
        if not isinstance(fit, SessionOutcome):
            self.spec.check_budget(0, 0)  # takes back the reservation: nothing is sent yet
        return fit

    def check(self, request: ModelRequest) -> SessionOutcome | int | None:
        """Return how long a request's answer may be, or how the session ends; None: as it is."""
        if self.ended is not None:
            return self.ended
        if not self._may_ask(request.model):
            words = f"the agent asked for {request.model}, whose price is not known to be within {self.spec.model}'s"
            return SessionOutcome(end=SessionEnd.DENIED, detail=words)
        waiting = [sent for sent, _ in self._open.values()]
        prompt = sum(map(self._estimate, (request, *waiting)))
        besides = sum(map(self._limit, waiting))

        def check(prompt_tokens: int, output_tokens: int) -> str | None:
            return self.spec.check_budget(prompt_tokens, besides + output_tokens)

        wanted = self._limit(request)
        is_fixed = request.max_output_tokens is None and not self._sets_limits
        most = wanted if is_fixed else min(wanted, self.max_output_tokens)
        # Tokens reserved for waiting requests become free soon.
        fit = fit_answer(check, prompt, most, shortens=not is_fixed and not waiting)
        return fit if isinstance(fit, SessionOutcome) or fit < wanted else None

    def _may_ask(self, model: str) -> bool:
        """Return whether the cap, which is checked at the session's own price, also holds for this model."""
        if normalize_model(model) == normalize_model(self.spec.model) or self.spec.price is None:
            return True
        other = self.spec.find_price(model)
        own = worst_cost_usd(1_000_000, 1_000_000, self.spec.price)
        return other is not None and worst_cost_usd(1_000_000, 1_000_000, other) <= own

    def _estimate(self, request: ModelRequest) -> int:
        return self.gauge.least_tokens if request.is_main else count_most_tokens(request.prompt_bytes)

    @property
    def is_overdue(self) -> bool:
        """Whether an answer takes longer than any may: one that only drips keeps the connection's own limits away."""
        now = time.monotonic()
        most = ((max(LEAST_ANSWER_S, self._limit(one) / SLOWEST_TOKENS_PER_S), at) for one, at in self._open.values())
        return any(now - at > most_s for most_s, at in most)

    def _limit(self, request: ModelRequest) -> int:
        return self._model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens

    def check_cut(self) -> SessionOutcome | None:
        """Return an outcome if the last main answer was cut because the caps left too little."""
        return self.end_cut(self._cut_tokens) if self._cut_tokens else None

    def start(self, request: ModelRequest, most_tokens: int | None = None) -> None:
        """Note that a request is sent, for an answer of at most `most_tokens`; None: its own limit."""
        if request.is_main:
            self.turn += self.fault is None
            if self.fault is not None:
                attempt = self._policy.attempts or self._refused
                self._observe(RetryScheduled(attempt=attempt, wait_s=0.0, reason=self.fault.message))
            self._observe(RequestStarted(turn=self.turn))
        sent = request if most_tokens is None else replace(request, max_output_tokens=most_tokens)
        self._open[id(request)] = (sent, time.monotonic())

    def finish(self, passed: Passed) -> None:
        """Account for an answer, or for its absence."""
        sent, sent_at = self._open.pop(id(passed.request), (None, 0.0))
        if sent is None:
            return
        self._finish(sent, passed.tally, passed.fault, time.monotonic() - sent_at)
        is_short = self._limit(sent) < min(self._limit(passed.request), self.max_output_tokens)
        self._cut_tokens = self._limit(sent) if is_short and self.stop_reason == "max_tokens" else 0

    def close(self) -> None:
        """Charge unanswered requests at the most that they can have cost."""
        lost = Fault(kind=FaultKind.INTERRUPTED, message="the session has ended", may_be_billed=True)
        for request, sent_at in self._open.values():
            self._finish(request, None, lost, time.monotonic() - sent_at)
        self._open.clear()

    def _finish(self, request: ModelRequest, tally: Tally | None, fault: Fault | None, duration_s: float) -> None:
        is_refusal = tally is not None and tally.stop_reason == "refusal"
        sent = Sent(
            model=request.model,
            turn=self.turn if request.is_main else 0,
            worst=Usage(input_tokens=self._estimate(request), output_tokens=self._limit(request)),
            least=Usage(output_tokens=0 if is_refusal else 1),
        )
        model = (tally and tally.model) or request.model
        if fault is None and tally is not None:
            own = Usage(input_tokens=self.gauge.least_tokens) if request.is_main else None
            shown = {"stop_reason": tally.stop_reason, "duration_s": duration_s}
            measured = self.book(sent, tally.usage, model=model, own=own, **shown)
            if measured is not None:  # the next request holds this answer, which was measured already
                self._measured_bytes = request.prompt_bytes + measured * _BYTES_PER_TOKEN
            if request.is_main:
                self.fault = self.wait = None
                self.stop_reason = tally.stop_reason
                self._policy, self._refused = RetryPolicy(max_wait_s=self._max_wait_s), 0
            return
        fault = fault or Fault(kind=FaultKind.INFRA, message="the request was lost", may_be_billed=True)
        said = tally.usage if tally else None
        self.book_lost(sent, said, may_be_billed=fault.may_be_billed, model=model, duration_s=duration_s)
        if request.is_main:
            self._take_fault(fault, duration_s)

    def _take_fault(self, fault: Fault, duration_s: float) -> None:
        self.fault = fault
        self.wait = None
        if fault.kind is FaultKind.INTERRUPTED:
            return
        if fault.kind is FaultKind.OVERFLOW and self.turn == 1:
            words = f"the first prompt of a session is too long: {fault.message}"
            self.ended = SessionOutcome(end=SessionEnd.DENIED, detail=words)
            return
        if fault.kind is FaultKind.REQUEST:
            self._refused += 1
            if self._refused >= MAX_REFUSED:
                self.ended = SessionOutcome(end=SessionEnd.API_FAILED, detail=fault.message)
            return
        judged = self._policy.judge(fault, duration_s=duration_s, jitter=random.random(), now=time.time())  # noqa: S311  # spreads waits
        if isinstance(judged, SessionOutcome):
            self.ended = judged
        else:
            self.wait = judged

    def check_lines(self) -> SessionOutcome | None:
        """Return an outcome if the conversation is over its hard line or has too many turns."""
        gauge = self.gauge
        if self.turn >= self.spec.max_turns:
            return end_by_turns(self.turn)
        if gauge.zone is not Zone.HARD:
            return None
        return end_at_hard_line(gauge) if self.turn else refuse_first_prompt(gauge, "or choose a leaner agent")


def count_most_tokens(size_bytes: int) -> int:
    """Return how many tokens an ordinary text of so many bytes has at most."""
    return -(-size_bytes // 3)
