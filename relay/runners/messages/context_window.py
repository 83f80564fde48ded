"""What the model has been told, how full its window is, and the way to its next answer, accounted for before use."""

import json
from collections.abc import Mapping
from typing import Any

from relay.meters.gauge import Gauge, open_gauge
from relay.meters.prices import cost_usd, find_limits, worst_cost_usd
from relay.runners.base import ModelInfo, SessionSpec
from relay.runners.messages.answers import Answer, make_sendable
from relay.runners.messages.cache import LONG_TTL_S, SHORT_TTL_S, CacheWatch, wants_long
from relay.runners.messages.connection import ApiConnection
from relay.runners.messages.faults import Fault
from relay.runners.messages.history import History
from relay.runners.messages.retry import RetryPolicy
from relay.session.events import RequestStarted, ResponseReceived, TextShown
from relay.session.tokens import estimate_tokens
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome

DEFAULT_OUTPUT_TOKENS = 32_000
"""First output limit of a request; an answer that is cut is asked for again with the model's own limit."""


class ContextWindow:
    """A history, its gauge and the way to the endpoint."""

    def __init__(self, connection: ApiConnection, spec: SessionSpec, model: ModelInfo) -> None:
        self.spec = spec
        self._connection = connection
        self._model = model
        self._ttl = {"ttl": "1h"} if wants_long(spec.cache_ttl, spec.slowest_turn_s) else {}
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
        policy = RetryPolicy(max_wait_s=self._connection.max_wait_s)
        while True:
            self._connection.observe(RequestStarted(turn=self.turn))
            started, request = self._connection.clock(), self._render_request()
            result = self._connection.api.send(request, on_block=self._show)
            duration_s = self._connection.clock() - started
            if isinstance(result, Answer):
                self._account(result, duration_s)
                self._watch_cache(result, request, started)
                return make_sendable(result, self.history.call_ids)
            self._charge(result, duration_s)
            outcome = self._connection.wait_after(result, policy, duration_s=duration_s, note=self.spec.note_wait)
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

    def _charge(self, fault: Fault, duration_s: float) -> None:
        """Account for a request that gave no answer: what it reported, or the most that it can have cost."""
        if fault.usage is not None:
            self._emit(self.spec.model, fault.usage, "cut", duration_s)
        elif fault.may_be_billed:
            self._emit(self.spec.model, self._worst_usage(), "lost", duration_s, estimated=True)

    def _worst_usage(self) -> Usage:
        """Return the most that the request that was just sent can have used."""
        return Usage(input_tokens=self.gauge.least_tokens, output_tokens=self.max_output_tokens)

    def _account(self, answer: Answer, duration_s: float) -> None:
        """Measure and observe an answer before anything of it is used."""
        usage = answer.usage or self._worst_usage()
        self.gauge = self.gauge.measure(answer.usage)
        if answer.usage is None:
            self.gauge = self.gauge.append(estimate_tokens(json.dumps(answer.content, default=str), json=True))
        self._emit(answer.model, usage, answer.stop_reason, duration_s, estimated=answer.usage is None)

    def _watch_cache(self, answer: Answer, request: Mapping[str, Any], started: float) -> None:
        self.history.note_cached()
        broken = self._cache.check(answer.usage, request, model=answer.model, at=started)
        if broken is not None:
            self._connection.observe(broken)

    def _emit(self, model: str, usage: Usage, stop_reason: str, duration_s: float, *, estimated: bool = False) -> None:
        self._connection.observe(
            ResponseReceived(
                turn=self.turn,
                model=model,
                usage=usage,
                cost_usd=self._price(usage, estimated=estimated),
                fill_tokens=self.gauge.fill_tokens,
                soft_tokens=self.gauge.soft_tokens,
                hard_tokens=self.gauge.hard_tokens,
                window_tokens=self.gauge.window_tokens,
                stop_reason=stop_reason,
                duration_s=duration_s,
                estimated=estimated,
            )
        )

    def _price(self, usage: Usage, *, estimated: bool) -> float | None:
        """Return what a response cost, at most where its usage is an estimate; None when the price is unknown."""
        if self.spec.price is None:
            return None
        if estimated:
            return worst_cost_usd(usage.prompt_tokens, usage.output_tokens, self.spec.price)
        return cost_usd(usage, self.spec.price)

    def _show(self, block: Mapping[str, Any]) -> None:
        text = block.get("text") if block.get("type") == "text" else block.get("thinking")
        if isinstance(text, str) and text.strip():
            self._connection.observe(TextShown(text=text, thinking=block["type"] == "thinking"))


def _estimate_prefix(spec: SessionSpec) -> int:
    tools = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in spec.tools], default=str)
    return estimate_tokens(spec.system) + estimate_tokens(tools, json=True)
