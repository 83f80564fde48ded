"""How a session reaches its endpoint: the one place that waits, retries and reports both.

The fields that an endpoint takes are set by the user or learnt from its refusals: a gateway may know an older API.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from relay.base.errors import RunnerError
from relay.base.hints import RUN
from relay.base.interrupts import Interrupted, Interrupts
from relay.base.values import dataclass
from relay.config.model import AS_KNOWN, NOTHING_SET, Compat, ModelSettings
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import Answer
from relay.runners.messages.faults import Fault, FaultKind, RetryPolicy
from relay.session.events import Observe, RetryScheduled
from relay.session.prices import find_limits
from relay.session.tape import Keep
from relay.session.values import SessionEnd, SessionOutcome

LEAST_BUDGET_TOKENS = 1_024
"""Of thinking, where it has a budget."""
_THINKING = "thinking"


class RequestPart(StrEnum):
    """A part of a request that relay can do without."""

    SYSTEM_MESSAGE = "system messages in mid-conversation"
    """The notice is text of the user's then, which every endpoint takes."""
    DISPLAY = "thinking.display"
    THINKING = "thinking"
    UNSIGNED = "thinking without a signature"
    EARLIER = "thinking of earlier answers"
    """It was signed by another, where a gateway changes whom it asks."""
    HOUR = "cache_control.ttl"
    AUTOMATIC_CACHE = "cache_control of the request"
    """The last block is marked instead."""
    MARKS = "cache_control"


_NAMED = (
    ("display", RequestPart.DISPLAY),
    ("thinking", RequestPart.DISPLAY),
    ("thinking", RequestPart.THINKING),
    ("ttl", RequestPart.HOUR),
    ("cache_control", RequestPart.AUTOMATIC_CACHE),
    ("cache_control", RequestPart.MARKS),
)
"""Words of a refusal, and what is left out for them, the least first."""


@dataclass(slots=True)
class EndpointDialect:
    """What an endpoint takes. Mutable: learns from what it refuses."""

    left_out: frozenset[RequestPart] = frozenset()
    answered: bool = False
    """It has taken a request of this process: whatever it refuses now is not the form that all of them have."""
    compat: Compat = AS_KNOWN
    """What the user has set."""

    def takes(self, part: RequestPart) -> bool:
        """Say whether a request may have a part."""
        return part not in self.left_out

    def takes_system(self, model: str) -> bool:
        """Say whether a system message may stand in mid-conversation."""
        limits = find_limits(model)
        known = self.compat.system_messages
        said = known if known is not None else limits is not None and limits.system_messages
        return said and self.takes(RequestPart.SYSTEM_MESSAGE)

    def choose_thinking(self, model: str, max_tokens: int) -> dict[str, Any]:
        """Return the request's ``thinking`` as a field, empty where nothing is to be said of it."""
        limits = find_limits(model)
        known = "adaptive" if limits is not None and limits.adaptive_thinking else "off"
        kind = self.compat.thinking or known
        budget = max_tokens // 2
        if not self.takes(RequestPart.THINKING) or kind == "off" or (kind == "budget" and budget < LEAST_BUDGET_TOKENS):
            return {}
        if kind == "budget":
            return {_THINKING: {"type": "enabled", "budget_tokens": budget}}
        shown = {"display": "summarized"} if self.takes(RequestPart.DISPLAY) else {}
        return {_THINKING: {"type": "adaptive", **shown}}

    def learn(self, fault: Fault, request: Mapping[str, Any]) -> RequestPart | None:
        """Return what is to be left out from here on, because it may be what was refused; None where nothing is."""
        if fault.kind is not FaultKind.REQUEST:
            return None
        part = self._find_part(fault.message.lower(), request)
        if part is not None:
            self.left_out |= {part}
        return part

    def _find_part(self, words: str, request: Mapping[str, Any]) -> RequestPart | None:
        if request["messages"][-1]["role"] == "system":
            return RequestPart.SYSTEM_MESSAGE
        if "signature" in words and self.takes(RequestPart.EARLIER):
            has_unsigned = _drop(_is_unsigned, request["messages"]) != request["messages"]
            has_any = _drop(_is_thinking, request["messages"]) != request["messages"]
            return RequestPart.UNSIGNED if has_unsigned else RequestPart.EARLIER if has_any else None
        if self.answered:
            return None
        sent = _list_parts(request)
        return next((part for word, part in _NAMED if word in words and part in sent), None)

    def render_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return messages as the endpoint takes them."""
        if not self.takes(RequestPart.EARLIER):
            return _drop(_is_thinking, messages)
        return messages if self.takes(RequestPart.UNSIGNED) else _drop(_is_unsigned, messages)

    def say_learnt(self) -> Compat:
        """Return what was set and learnt, as settings."""
        parts = self.left_out
        cache = (
            "off"
            if RequestPart.MARKS in parts
            else "blocks"
            if RequestPart.AUTOMATIC_CACHE in parts
            else self.compat.cache
        )
        refused = {
            "cache_hour": RequestPart.HOUR,
            "thinking_display": RequestPart.DISPLAY,
            "unsigned_thinking": RequestPart.UNSIGNED,
            "system_messages": RequestPart.SYSTEM_MESSAGE,
        }
        said = {name: False if part in parts else getattr(self.compat, name) for name, part in refused.items()}
        return Compat(cache=cache, thinking="off" if RequestPart.THINKING in parts else self.compat.thinking, **said)


def make_dialect(compat: Compat) -> EndpointDialect:
    """Return the dialect that a user has described."""
    said = {
        RequestPart.SYSTEM_MESSAGE: compat.system_messages is False,
        RequestPart.DISPLAY: compat.thinking_display is False,
        RequestPart.THINKING: compat.thinking == "off",
        RequestPart.UNSIGNED: compat.unsigned_thinking is False,
        RequestPart.HOUR: compat.cache_hour is False,
        RequestPart.AUTOMATIC_CACHE: compat.cache in {"blocks", "off"},
        RequestPart.MARKS: compat.cache == "off",
    }
    return EndpointDialect(left_out=_choose(said), compat=compat)


def _choose(said: Mapping[RequestPart, bool]) -> frozenset[RequestPart]:
    return frozenset(part for part, there in said.items() if there)


def _list_parts(request: Mapping[str, Any]) -> frozenset[RequestPart]:
    """Return what a request has of the parts that it could do without."""
    thinking = request.get(_THINKING) or {}
    marks = request["system"][0].get("cache_control") or {}
    return _choose({
        RequestPart.DISPLAY: "display" in thinking,
        RequestPart.THINKING: bool(thinking),
        RequestPart.HOUR: "ttl" in marks,
        RequestPart.AUTOMATIC_CACHE: "cache_control" in request,
        RequestPart.MARKS: bool(marks),
    })  # fmt: skip


def _drop(
    is_dropped: Callable[[Mapping[str, Any]], bool], messages: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return messages without some of their thinking; something always follows it."""
    return [
        {**message, "content": [block for block in message["content"] if not is_dropped(block)]} for message in messages
    ]


def _is_thinking(block: Mapping[str, Any]) -> bool:
    return block.get("type") in {_THINKING, "redacted_thinking"}


def _is_unsigned(block: Mapping[str, Any]) -> bool:
    return block.get("type") == _THINKING and not block.get("signature")


NOTED_WAIT_S = 60.0
"""A wait for a limit that is longer than this is written down first, so that a restart does not ask too early."""


class Api(Protocol):
    """The endpoint as a session needs it; `relay.runners.messages.api.MessagesApi` is the real one."""

    def find_model(self, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo | Fault:
        """Return window and limits, the user's own first, or a fault that may pass by itself."""

    def send(
        self,
        request: Mapping[str, Any],
        *,
        on_block: Callable[[Mapping[str, Any]], None],
        keep: Keep,
        meanwhile: Callable[[], object],
    ) -> Answer | Fault:
        """Send one request, and keep what goes over the wire.

        Contract: never raises for what an endpoint or a signal does. `meanwhile` is called on the caller's thread, at
        most once, when there is nothing to do but to wait for the answer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """How a session reaches its endpoint and its observers, and how long it may try."""

    api: Api
    observe: Observe
    interrupts: Interrupts
    max_wait_s: float
    """Longest time to keep trying one request; a reset further away ends the session."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
    """Seconds since the epoch, for limits that reset at a time of day."""
    dialect: EndpointDialect = field(default_factory=EndpointDialect)
    """What the endpoint has refused; mutable, shared by all sessions of the process."""

    def wait_after(
        self, fault: Fault, policy: RetryPolicy, *, duration_s: float, note: Callable[[float], None] = lambda _: None
    ) -> SessionOutcome | None:
        """Report the wait before the next try, then wait.

        Args:
            duration_s: How long the request took to fail.
            note: Told until when (seconds since the epoch) a long wait for a limit lasts, before it begins.

        Returns:
            None to try again; else how the session ends.
        """
        wait = policy.judge(fault, duration_s=duration_s, jitter=self.jitter(), now=self.now())
        if isinstance(wait, SessionOutcome):
            return wait
        if wait.until is not None and wait.wait_s > NOTED_WAIT_S:
            # Before the wait: whoever kills relay meanwhile leaves the note for the next run.
            note(wait.until)
        self.observe(RetryScheduled(attempt=wait.attempt, wait_s=wait.wait_s, reason=fault.message))
        if self.interrupts.wait(wait.wait_s):
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped while waiting for the API")
        return None


def get_model(connection: ApiConnection, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo:
    """Ask the endpoint for a model, again and again while it is only overloaded.

    Raises:
        RunnerError: Something that the user has to change, or the endpoint stayed unavailable.
        Interrupted: The user asked to stop.
    """
    policy = RetryPolicy(max_wait_s=connection.max_wait_s)
    while True:
        started = connection.clock()
        found = connection.api.find_model(model, own)
        if isinstance(found, ModelInfo):
            return found
        outcome = connection.wait_after(found, policy, duration_s=connection.clock() - started)
        if outcome is None:
            continue
        if outcome.end is SessionEnd.INTERRUPTED:
            raise Interrupted
        raise RunnerError(f"the endpoint gave no answer about {model}: {outcome.detail}", hint=RUN)
