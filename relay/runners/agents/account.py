"""What an agent's session has used and what failed, as the gateway saw it: the gauge, the caps, the retries.

What the agent itself says of it is not asked.
"""

import random
import time
from dataclasses import replace

from relay.meters.gauge import Gauge, Zone, open_gauge
from relay.meters.prices import Price, answer_cost_usd, normalize_model, worst_cost_usd
from relay.runners.agents.dialects import ModelRequest
from relay.runners.agents.gateway import Passed
from relay.runners.base import ModelInfo, SessionSpec
from relay.runners.messages.faults import Fault, FaultKind
from relay.runners.messages.retry import RetryPolicy, Wait
from relay.runners.turns import end_at_hard_line, end_by_turns, refuse_first_prompt
from relay.session.events import Observe, RequestStarted, ResponseReceived, RetryScheduled
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome

_BYTES_PER_TOKEN = 4
MAX_REFUSED = 3
"""Requests in a row that the endpoint may refuse as malformed: some agents ask in another way then."""


class Account:
    """Counts one session's requests. Mutable.

    Args:
        max_wait_s: How long the endpoint may fail.
    """

    _is_dearest = True
    """Of a guess only the sum is known: it is counted as the dearest class of tokens."""

    def __init__(self, spec: SessionSpec, model: ModelInfo, observe: Observe, *, max_wait_s: float) -> None:
        self.turn = 0
        """Main requests that were let go."""
        self.fault: Fault | None = None
        """Of the last main request; None when it was answered, or none was sent."""
        self.stop_reason = ""
        """Of the last main answer."""
        self.ended: SessionOutcome | None = None
        """Why no further request may be sent."""
        self.wait: Wait | None = None
        """How long to wait before the agent is told to go on, where it gave up by itself."""
        self._spec = spec
        self._model = model
        self._observe = observe
        self._max_wait_s = max_wait_s
        self._policy = RetryPolicy(max_wait_s=max_wait_s)
        self._refused = 0
        self._open: dict[int, tuple[ModelRequest, float]] = {}
        """Requests that are waited for, with when they were sent."""
        self._last_bytes = 0
        room = min(spec.max_output_tokens or model.max_output_tokens, model.max_output_tokens)
        self.gauge: Gauge = open_gauge(window_tokens=model.window_tokens, reset_at=spec.reset_at, room_tokens=room)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._open)

    def look_at(self, request: ModelRequest) -> None:
        """Take in how long the conversation has become, before the request is let go."""
        if request.is_main:
            more = max(0, request.prompt_bytes - self._last_bytes) // _BYTES_PER_TOKEN
            self.gauge = replace(self.gauge, appended_tokens=0).append(more)

    def check(self, request: ModelRequest) -> SessionOutcome | None:
        """Say why a request must not be sent; None when it may."""
        if self.ended is not None:
            return self.ended
        if not self._may_ask(request.model):
            words = f"the agent asked for {request.model}, whose price is not known to be within {self._spec.model}'s"
            return SessionOutcome(end=SessionEnd.DENIED, detail=words)
        waiting = [(self._estimate(one), self._limit(one)) for one, _ in self._open.values()]
        prompt, output = self._estimate(request), self._limit(request)
        prompt, output = prompt + sum(p for p, _ in waiting), output + sum(o for _, o in waiting)
        why = self._spec.check_budget(prompt, output)
        return SessionOutcome(end=SessionEnd.BUDGET, detail=why) if why else None

    def _may_ask(self, model: str) -> bool:
        """Whether the cap, which is checked at the session's own price, holds for this model."""
        if normalize_model(model) == normalize_model(self._spec.model) or self._spec.price is None:
            return True
        other = self._spec.find_price(model)
        own = worst_cost_usd(1_000_000, 1_000_000, self._spec.price)
        return other is not None and worst_cost_usd(1_000_000, 1_000_000, other) <= own

    def _estimate(self, request: ModelRequest) -> int:
        return self.gauge.least_tokens if request.is_main else -(-request.prompt_bytes // 3)

    def _limit(self, request: ModelRequest) -> int:
        return self._model.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens

    def start(self, request: ModelRequest) -> None:
        """Note that a request is sent."""
        if request.is_main:
            again = self.fault is not None
            self.turn += not again
            if self.fault is not None:
                attempt = self._policy.attempts or self._refused
                self._observe(RetryScheduled(attempt=attempt, wait_s=0.0, reason=self.fault.message))
            self._observe(RequestStarted(turn=self.turn))
            self._last_bytes = request.prompt_bytes
        self._open[id(request)] = (request, time.monotonic())

    def finish(self, passed: Passed) -> None:
        """Account for an answer, or for its absence."""
        request = passed.request
        if id(request) not in self._open:
            return
        duration_s = time.monotonic() - self._open.pop(id(request))[1]
        usage = passed.tally.usage if passed.tally else None
        if passed.fault is None and passed.tally is not None:
            self._take_answer(request, usage, passed.tally.stop_reason)
            model = passed.tally.model or request.model
            known = usage or self._worst(request)
            self._emit(model, known, passed.tally.stop_reason, duration_s, estimated=usage is None)
            return
        fault = passed.fault or Fault(kind=FaultKind.INFRA, message="the request was lost", may_be_billed=True)
        self._charge(request, passed, fault, duration_s)
        if request.is_main:
            self._take_fault(fault, duration_s)

    def close(self) -> None:
        """Account for what is still waited for at the most that it can have cost."""
        for request, _ in tuple(self._open.values()):
            lost = Fault(kind=FaultKind.INTERRUPTED, message="the session has ended", may_be_billed=True)
            self.finish(Passed(request=request, tally=None, fault=lost))

    def _take_answer(self, request: ModelRequest, usage: Usage | None, stop_reason: str) -> None:
        if not request.is_main:
            return
        self.fault = self.wait = None
        self.stop_reason = stop_reason
        self._policy, self._refused = RetryPolicy(max_wait_s=self._max_wait_s), 0
        self.gauge = self.gauge.measure(usage)
        # The next request holds this answer, which is in what was measured.
        self._last_bytes += (usage.output_tokens if usage else 0) * _BYTES_PER_TOKEN

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

    def _charge(self, request: ModelRequest, passed: Passed, fault: Fault, duration_s: float) -> None:
        """Account for a request without a usable answer: what it reported, or the most that it can have cost."""
        tally = passed.tally
        if tally is not None and tally.usage is not None:
            said = min(self._limit(request), tally.passed_bytes // _BYTES_PER_TOKEN)
            usage = replace(tally.usage, output_tokens=max(tally.usage.output_tokens, said))
            self._emit(tally.model or request.model, usage, "cut", duration_s, estimated=True)
        elif fault.may_be_billed:
            self._emit(request.model, self._worst(request), "lost", duration_s, estimated=True)

    def _worst(self, request: ModelRequest) -> Usage:
        return Usage(input_tokens=self._estimate(request), output_tokens=self._limit(request))

    def _emit(self, model: str, usage: Usage, stop_reason: str, duration_s: float, *, estimated: bool) -> None:
        self._observe(
            ResponseReceived(
                turn=self.turn,
                model=model,
                usage=usage,
                cost_usd=answer_cost_usd(usage, self._find_price(model), estimated=estimated and self._is_dearest),
                fill_tokens=self.gauge.fill_tokens,
                soft_tokens=self.gauge.soft_tokens,
                hard_tokens=self.gauge.hard_tokens,
                window_tokens=self.gauge.window_tokens,
                stop_reason=stop_reason,
                duration_s=duration_s,
                estimated=estimated,
            )
        )

    def _find_price(self, model: str) -> Price | None:
        if normalize_model(model) == normalize_model(self._spec.model):
            return self._spec.price
        return self._spec.find_price(model) or self._spec.price

    def check_lines(self) -> SessionOutcome | None:
        """Say that the conversation is over its hard line, or has gone on for too long."""
        gauge = self.gauge
        if self.turn >= self._spec.max_turns:
            return end_by_turns(self.turn)
        if gauge.zone is not Zone.HARD:
            return None
        return end_at_hard_line(gauge) if self.turn else refuse_first_prompt(gauge, "or choose a leaner agent")
