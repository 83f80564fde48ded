"""One question and its answer: rendering the request, waiting, retrying, and accounting before anything is used."""

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from relay.errors import RunnerError
from relay.interrupts import Interrupted, Interrupts
from relay.meters.gauge import Gauge, open_gauge
from relay.meters.prices import cost_usd, find_limits
from relay.runners.base import ModelInfo, SessionSpec
from relay.runners.messages.answers import Answer
from relay.runners.messages.cache import LONG_TTL_S, SHORT_TTL_S, CacheWatch
from relay.runners.messages.faults import Fault
from relay.runners.messages.history import History
from relay.runners.messages.invariants import make_sendable
from relay.runners.messages.waiting import Patience
from relay.session.events import Observe, RequestStarted, ResponseReceived, RetryScheduled, TextShown
from relay.session.tokens import estimate_tokens
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome

DEFAULT_OUTPUT_TOKENS = 32_000
"""First output limit of a request; an answer that is cut is asked for again with the model's own limit."""

NOTED_WAIT_S = 60.0
"""A wait for a limit that is longer than this is written down first, so that a restart does not ask too early."""


class Api(Protocol):
    """The endpoint as a session needs it; `relay.runners.messages.api.MessagesApi` is the real one."""

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits."""

    def find_model(self, model: str) -> ModelInfo | Fault:
        """Return window and limits, or a fault that may pass by itself."""

    def send(self, request: Mapping[str, Any], *, on_block: Callable[[Mapping[str, Any]], None]) -> Answer | Fault:
        """Send one request. Contract: never raises for what an endpoint or a signal does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How an exchange reaches its endpoint and its observers, and how long it may try."""

    api: Api
    observe: Observe
    interrupts: Interrupts
    max_wait_s: float
    """Longest time to keep trying one request; a reset further away ends the session."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
    """Seconds since the epoch, for limits that reset at a time of day."""

    def wait_after(
        self, fault: Fault, patience: Patience, *, duration_s: float, note: Callable[[float], None] = lambda _: None
    ) -> SessionOutcome | None:
        """Wait before the next try where everybody can see it.

        Args:
            fault: What failed.
            patience: How long it has been tried.
            duration_s: How long the request took to fail.
            note: Told until when (seconds since the epoch) a long wait for a limit lasts, before it begins.

        Returns:
            None to try again; else how the session ends.
        """
        wait = patience.judge(fault, duration_s=duration_s, jitter=self.jitter(), now=self.now())
        if isinstance(wait, SessionOutcome):
            return wait
        if wait.until is not None and wait.wait_s > NOTED_WAIT_S:
            note(wait.until)
        self.observe(RetryScheduled(attempt=wait.attempt, wait_s=wait.wait_s, reason=fault.message))
        if self.interrupts.wait(wait.wait_s):
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped while waiting for the API")
        return None


def get_model(line: Line, model: str) -> ModelInfo:
    """Ask the endpoint for a model, again and again while it is only overloaded.

    Raises:
        RunnerError: Something that the user has to change, or the endpoint stayed unavailable.
        Interrupted: The user asked to stop.
    """
    patience = Patience(max_wait_s=line.max_wait_s)
    while True:
        started = line.clock()
        found = line.api.find_model(model)
        if isinstance(found, ModelInfo):
            return found
        outcome = line.wait_after(found, patience, duration_s=line.clock() - started)
        if outcome is None:
            continue
        if outcome.end is SessionEnd.INTERRUPTED:
            raise Interrupted
        raise RunnerError(f"the endpoint does not say what {model} can do: {outcome.detail}", hint="relay run")


class Exchange:
    """The conversation's history and gauge, and the way to the endpoint."""

    def __init__(self, line: Line, spec: SessionSpec, model: ModelInfo) -> None:
        self.spec = spec
        self._line = line
        self._model = model
        self._ttl = {"ttl": "1h"} if spec.long_cache else {}
        self.turn = 0
        self.max_output_tokens = min(spec.max_output_tokens or DEFAULT_OUTPUT_TOKENS, model.max_output_tokens)
        self.begin(History())

    def begin(self, history: History) -> None:
        """Go on with this history: to the endpoint a new conversation, of which nothing is measured yet."""
        self.history = history
        self._cache = CacheWatch(lifetime_s=LONG_TTL_S if self._ttl else SHORT_TTL_S)
        gauge = open_gauge(
            window_tokens=self._model.window_tokens, reset_at=self.spec.reset_at, room_tokens=self.max_output_tokens
        )
        self.gauge: Gauge = gauge.append(_estimate_prefix(self.spec) + history.estimate_tokens())

    def append(self, *texts: str) -> None:
        """Count text that was appended to the history."""
        for text in texts:
            self.gauge = self.gauge.append(estimate_tokens(text))

    def raise_output_limit(self) -> bool:
        """Allow answers as long as the model can give; False when they were allowed already."""
        raised = self.max_output_tokens < self._model.max_output_tokens
        self.max_output_tokens = self._model.max_output_tokens
        return raised

    def ask(self) -> Answer | SessionOutcome:
        """Send the conversation until there is an answer or no point in trying again."""
        self.turn += 1
        patience = Patience(max_wait_s=self._line.max_wait_s)
        while True:
            self._line.observe(RequestStarted(turn=self.turn))
            started, request = self._line.clock(), self._render_request()
            result = self._line.api.send(request, on_block=self._show)
            duration_s = self._line.clock() - started
            if isinstance(result, Answer):
                self._account(result, duration_s)
                self._watch_cache(result, request, started)
                return make_sendable(result, self.history.call_ids)
            if result.usage is not None:
                self._emit(self.spec.model, result.usage, "cut", duration_s)
            outcome = self._line.wait_after(result, patience, duration_s=duration_s, note=self.spec.note_wait)
            outcome = outcome or self.check_budget()
            if outcome is not None:
                return outcome

    def check_budget(self) -> SessionOutcome | None:
        """Say why the next request must not be sent; None when it may."""
        why = self.spec.check_budget(self.gauge.least_tokens, self.max_output_tokens)
        return SessionOutcome(end=SessionEnd.BUDGET, detail=why) if why else None

    def _render_request(self) -> dict[str, Any]:
        control = {"cache_control": {"type": "ephemeral", **self._ttl}} if self.spec.cached else {}
        request: dict[str, Any] = {
            "model": self.spec.model,
            "max_tokens": self.max_output_tokens,
            "system": [{"type": "text", "text": self.spec.system, **control}],
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
                for tool in self.spec.tools
            ],
            "messages": self.history.render(self._ttl) if control else list(self.history.messages),
            **control,
        }
        limits = find_limits(self.spec.model)
        if limits is not None and limits.adaptive_thinking:
            request["thinking"] = {"type": "adaptive", "display": "summarized"}
        if self.spec.effort is not None:
            request["output_config"] = {"effort": self.spec.effort}
        return request

    def _account(self, answer: Answer, duration_s: float) -> None:
        """Measure and observe an answer before anything of it is used."""
        self.gauge = self.gauge.measure(answer.usage)
        if answer.usage is None:
            self.gauge = self.gauge.append(estimate_tokens(json.dumps(answer.content, default=str), json=True))
        self._emit(answer.model, answer.usage, answer.stop_reason, duration_s)

    def _watch_cache(self, answer: Answer, request: Mapping[str, Any], started: float) -> None:
        self.history.note_cached()
        broken = self._cache.check(answer.usage, request, model=answer.model, at=started)
        if broken is not None:
            self._line.observe(broken)

    def _emit(self, model: str, usage: Usage | None, stop_reason: str, duration_s: float) -> None:
        price = self.spec.price
        self._line.observe(
            ResponseReceived(
                turn=self.turn,
                model=model,
                usage=usage,
                cost_usd=None if usage is None or price is None else cost_usd(usage, price),
                fill_tokens=self.gauge.fill_tokens,
                soft_tokens=self.gauge.soft_tokens,
                hard_tokens=self.gauge.hard_tokens,
                window_tokens=self.gauge.window_tokens,
                stop_reason=stop_reason,
                duration_s=duration_s,
            )
        )

    def _show(self, block: Mapping[str, Any]) -> None:
        text = block.get("text") if block.get("type") == "text" else block.get("thinking")
        if isinstance(text, str) and text.strip():
            self._line.observe(TextShown(text=text, thinking=block["type"] == "thinking"))


def _estimate_prefix(spec: SessionSpec) -> int:
    tools = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in spec.tools], default=str)
    return estimate_tokens(spec.system) + estimate_tokens(tools, json=True)
