"""How a session reaches its endpoint: classes of faults, how long to wait and retry, and what the endpoint accepts.

The class of a fault decides. Its text is only looked at where an endpoint gives nothing else to recognise an overflow
by. The overflow texts and their vetoes are those that Codex, OpenCode, pi and Cline match, as of 2026-11-20.

The fields that an endpoint accepts are set by the user or learnt from its refusals: a gateway may know an older API.
"""

import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Protocol

from msgspec import structs

from relay.base.errors import RunnerError
from relay.base.hints import RUN
from relay.base.interrupts import Interrupted, Interrupts
from relay.base.values import dataclass
from relay.base.words import count, render_moment, render_span
from relay.config.model import AS_KNOWN, NOTHING_SET, Compat, ModelSettings
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import THINKING, Answer
from relay.session.events import Observe, RetryScheduled
from relay.session.prices import find_limits
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome

MAX_BACKOFF_S = 60.0
"""Longest wait between two tries when the endpoint names no time."""


class FaultKind(StrEnum):
    """Who has to act on a fault."""

    INFRA = "infra"
    """Nobody: overload, a dropped connection, a stall. Sent again, and not counted against the phase."""
    LIMIT = "limit"
    """Nobody: a usage limit that resets with time."""
    OVERFLOW = "overflow"
    """The session: the prompt is too long for the model."""
    REQUEST = "request"
    """relay: the endpoint refuses the request as malformed. Sending it again cannot work."""
    USER = "user"
    """The user: key, permission, billing, spending cap, unknown model."""
    INTERRUPTED = "interrupted"
    """Nobody: the user asked relay to stop now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A request that got no usable answer."""

    kind: FaultKind
    message: str
    """One line, with the endpoint's own words and its request id."""
    retry_after_s: float | None = None
    """How long the endpoint asked relay to wait; None if it named no time."""
    usage: Usage | None = None
    """What a broken-off answer had reported; it is billed all the same."""
    may_be_billed: bool = False
    """The endpoint may have worked on the request. Tokens that `usage` does not report then count at their maximum."""
    lasting: bool = False
    """The same fault is likely to come again, so the request is only sent again a few times."""


_OVERFLOW = re.compile(
    r"""
      prompt.is.too.long | prompt.too.long | input.is.too.long                       # Anthropic, gateways, Bedrock
    | request_too_large | request\ too\ large
    | input\ length\ and\ .?max_tokens.?\ exceed | maximum\ tokens\b.*\bexceeds
    | total\ number\ of\ tokens\b.*\bexceeds
    | context_length_exceeded | exceeds?\ the\ context\ window | maximum\ context\ length      # OpenAI and its kin
    | context\ length\ is\ only | input\ length\b.*\bexceeds\b.*\bcontext\ length              # vLLM
    | input\ token\ count\b.*\bexceeds\ the\ maximum                                           # Google
    | maximum\ prompt\ length                                                                  # xAI
    | reduce\ the\ length\ of\ the\ (messages|prompt|input)                                    # Groq, Cerebras
    | tokens?\b.*\bexceeds\ the\ limit\ of\ \d                                                 # Copilot
    | available\ context\ size | greater\ than\ the\ context\ length                           # llama.cpp, LM Studio
    | exceeded\ (max\ )?context\ length                                                        # Ollama
    | context\ window\ exceeds | exceeded\ model\ token\ limit                                 # MiniMax, Kimi
    | too\ large\ for\ model\ with\ \d+\ maximum                                               # Mistral
    | model_context_window_exceeded                                                            # z.ai
    | range\ of\ input\ length                                                                 # DashScope
    | maximum\ allowed\ input\ length | longer\ than\ the\ model's\ context | requested\ input\ length\b.*\bexceeds
    | configured\ context\ size | too\ many\ tokens | token\ limit\ exceeded
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NOT_OVERFLOW = re.compile(
    r"rate.?limit|too many requests|per minute|throttling|service unavailable|usage limits",
    re.IGNORECASE,
)
_BARE_OVERFLOWS = frozenset({400, 413})
"""Statuses that some endpoints (Cerebras, Mistral) send without any body when the prompt is too long."""
_SPEND_LIMIT = re.compile(
    r"\AYou have reached your specified API usage limits|\AYour credit balance is too low|\AAPI key not valid"
)
"""Messages of errors that nothing else identifies, and that only the user can end."""
_REDIRECTS = range(300, 400)
_READ_CHARS = 4_000
"""Length of an error's text that is matched: patterns are tried at each position, so long texts would take minutes."""
_SPEND_CODE = "enforced_spend_limit_reached"

_KIND_BY_TYPE = {
    "authentication_error": FaultKind.USER,
    "permission_error": FaultKind.USER,
    "billing_error": FaultKind.USER,
    "not_found_error": FaultKind.USER,
    "rate_limit_error": FaultKind.LIMIT,
    "overloaded_error": FaultKind.INFRA,
    "api_error": FaultKind.INFRA,
    "timeout_error": FaultKind.INFRA,
    "throttlingException": FaultKind.LIMIT,  # from here on of Bedrock's event stream
    "serviceUnavailableException": FaultKind.INFRA,
    "internalServerException": FaultKind.INFRA,
    "modelStreamErrorException": FaultKind.INFRA,
    "modelTimeoutException": FaultKind.INFRA,
}
_KIND_BY_CODE = {
    _SPEND_CODE: FaultKind.USER,
    "insufficient_quota": FaultKind.USER,
    "rate_limit_exceeded": FaultKind.LIMIT,
    "server_error": FaultKind.INFRA,
    "server_is_overloaded": FaultKind.INFRA,
    "slow_down": FaultKind.INFRA,
}
"""Kinds by ``error.code``. All codes but the first are those of OpenAI's API."""
_KIND_BY_STATUS = {
    401: FaultKind.USER,
    402: FaultKind.USER,
    403: FaultKind.USER,
    404: FaultKind.USER,
    408: FaultKind.INFRA,
    409: FaultKind.INFRA,
    413: FaultKind.OVERFLOW,
    429: FaultKind.LIMIT,
}


def classify_error(*, status: int, error_type: str | None, error_code: str | None, text: str) -> FaultKind:
    """Return who has to act on an error response.

    Args:
        status: HTTP status; 200 for an ``error`` event in a stream.
        error_type: ``error.type`` of the body.
        error_code: ``error.details.error_code`` of the body, or ``error.code``.
        text: The body's message, empty without a body. It only helps to recognise an overflow or a spending cap.
    """
    if _SPEND_LIMIT.match(text) or status in _REDIRECTS:
        return FaultKind.USER
    if error_code in _KIND_BY_CODE:
        return _KIND_BY_CODE[error_code]
    words = " ".join(word[:_READ_CHARS] for word in (error_type, error_code, text) if word)
    if is_overflow(status=status, text=words):
        return FaultKind.OVERFLOW
    if error_type in _KIND_BY_TYPE and not (error_type == "api_error" and status in _KIND_BY_STATUS):
        return _KIND_BY_TYPE[error_type]
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[status]
    return FaultKind.INFRA if status >= 500 else FaultKind.REQUEST  # noqa: PLR2004  # HTTP's own boundary


def is_overflow(*, status: int, text: str) -> bool:
    """Return whether an error means that the prompt does not fit the model.

    Args:
        status: HTTP status; 429 is never an overflow, whatever the text says about tokens.
        text: All text of the body; empty without a body.
    """
    if status == 429 or _NOT_OVERFLOW.search(text):  # noqa: PLR2004  # HTTP's own number
        return False
    return (not text and status in _BARE_OVERFLOWS) or _OVERFLOW.search(text) is not None


def find_wait_s(fault: Fault, *, attempt: int, jitter: float) -> float:
    """Return how long to wait before the next try: at least as long as the endpoint asks, and longer each time.

    Args:
        attempt: 1 after the first failure.
        jitter: Uniform in [0, 1): full jitter keeps many clients from coming back at once.
    """
    backoff_s = max(0.1, jitter * min(MAX_BACKOFF_S, 2.0 ** min(attempt, 10)))
    if fault.retry_after_s is None:
        return backoff_s
    return max(fault.retry_after_s + jitter, backoff_s)


MAX_SAME = 3
"""Tries in a row with a lasting fault: each may be billed."""
_NO_RETRY = {
    FaultKind.OVERFLOW: SessionEnd.OVERFLOW,
    FaultKind.REQUEST: SessionEnd.API_FAILED,
    FaultKind.USER: SessionEnd.DENIED,
    FaultKind.INTERRUPTED: SessionEnd.INTERRUPTED,
}
_RESET = re.compile(r"(anthropic-ratelimit-[a-z0-9-]+)-reset")
_EXHAUSTED = frozenset({"0", "rejected"})
"""Values of ``-remaining``, and of a subscription's ``-status``, that mean the limit is reached."""
_LONGEST_WAIT_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait before the next try."""

    attempt: int
    """1 after the first failure."""
    wait_s: float
    until: float | None
    """When the endpoint said it would be ready, in seconds since the epoch; None if it named no time."""


@dataclass(slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long one request has been tried. Mutable: counts tries and time.

    The time is the sum of what requests took and what relay waited, so the policy reads no clock.
    """

    max_wait_s: float
    attempts: int = 0
    used_s: float = 0.0
    _lasting: int = 0

    def judge(self, fault: Fault, *, duration_s: float, jitter: float, now: float) -> Wait | SessionOutcome:
        """Return how long to wait before the next try, or how the session ends because there is none.

        Args:
            duration_s: How long the request took to fail.
            jitter: Uniform in [0, 1).
        """
        self.attempts += 1
        self.used_s += duration_s
        if fault.kind in _NO_RETRY:
            return SessionOutcome(end=_NO_RETRY[fault.kind], detail=fault.message)
        self._lasting = self._lasting + 1 if fault.lasting else 0
        if self._lasting >= MAX_SAME:
            words = f"{fault.message}; {self._lasting} times in a row, so sending it again will not help"
            return SessionOutcome(end=SessionEnd.API_FAILED, detail=words)
        wait_s = find_wait_s(fault, attempt=self.attempts, jitter=jitter)
        until = None if fault.retry_after_s is None else now + fault.retry_after_s
        self.used_s += wait_s
        if self.used_s <= self.max_wait_s:
            return Wait(attempt=self.attempts, wait_s=wait_s, until=until)
        tries = f"{fault.message}; tried {count(self.attempts, 'time')}"
        end = SessionEnd.API_FAILED if until is None and fault.kind is not FaultKind.LIMIT else SessionEnd.LIMIT
        if until is not None and until - now > self.max_wait_s:
            words = (
                f"{tries}. It resets at {render_moment(until, now=now)}, in {render_span(until - now)}; relay waits "
                f"{render_span(self.max_wait_s)} at most (max_wait_s). Run it again then."
            )
        else:
            words = f"{tries}, and that took as long as relay waits ({render_span(self.max_wait_s)}, max_wait_s)"
        return SessionOutcome(end=end, detail=words, retry_at=until)


def find_retry_after(headers: Mapping[str, str], details: Any = None) -> float | None:
    """Return how many seconds the endpoint asks relay to wait; None if it does not ask.

    That is ``retry-after``, else the latest reset among the exhausted limits. If no limit is called exhausted, it is
    the first reset among the limits without a state.

    Args:
        details: ``error.details`` of the body. Google's is a list in which one entry names a ``retryDelay``.
    """
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (wait_s := _parse_seconds(delay.removesuffix("s"))) is not None:
            return wait_s
    if (wait_ms := _parse_seconds(headers.get("retry-after-ms", ""))) is not None:
        return wait_ms / 1000
    if (wait_s := _parse_seconds(headers.get("retry-after", ""))) is not None:
        return wait_s
    exhausted, unsaid = list[float](), list[float]()
    for name, value in headers.items():
        kind = _RESET.fullmatch(name.lower())
        reset = _seconds_until(value) if kind else None
        if kind is None or reset is None:
            continue
        said = headers.get(f"{kind[1]}-remaining") or headers.get(f"{kind[1]}-status")
        if said in _EXHAUSTED:
            exhausted.append(reset)
        elif said is None:
            unsaid.append(reset)
    return max(exhausted) if exhausted else min(unsaid, default=None)


def _parse_seconds(value: str) -> float | None:
    """Read seconds or an HTTP date; None if the value is neither, or further away than any limit can be."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            return _seconds_from_now(parsedate_to_datetime(value))
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) and seconds <= _LONGEST_WAIT_S else None


def _seconds_until(moment: str) -> float | None:
    """Return the seconds until an RFC 3339 time, or a time in seconds since the epoch; None if the text is neither."""
    try:
        if moment.isdecimal():
            return _seconds_from_now(datetime.fromtimestamp(int(moment), UTC))
        return _seconds_from_now(datetime.fromisoformat(moment))
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _seconds_from_now(moment: datetime) -> float:
    """Return how far away a moment is, 0 if it is past; a time without a zone counts as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(_LONGEST_WAIT_S, max(0.0, (aware - datetime.now(UTC)).total_seconds()))


LEAST_BUDGET_TOKENS = 1_024
"""Smallest budget for thinking, on models where thinking has a budget."""
_THINKING = "thinking"
SYSTEM_MESSAGES = "system messages in mid-conversation"
"""Without them, relay's notices are sent as the user's text, which every endpoint accepts."""


def _get_marks(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return request["system"][0].get("cache_control") or {}


_PARTS: tuple[tuple[str, str, tuple[str, Any], Callable[[Mapping[str, Any]], bool]], ...] = (
    ("thinking.display", "display|thinking", ("thinking_display", False), lambda r: "display" in r.get(_THINKING, {})),
    ("thinking", "thinking", ("thinking", "off"), lambda r: _THINKING in r),
    ("cache_control.ttl", "ttl", ("cache_hour", False), lambda r: "ttl" in _get_marks(r)),
    # relay then marks the last block itself
    ("cache_control of the request", "cache_control", ("cache", "blocks"), lambda r: "cache_control" in r),
    ("cache_control", "cache_control", ("cache", "off"), lambda r: bool(_get_marks(r))),
)
"""Parts that relay can leave out, the least important first: name; words of a refusal that may be about it; the field
and value of `Compat` that leave it out; whether a request has it."""


@dataclass(slots=True)
class EndpointDialect:
    """What an endpoint accepts. Mutable: learns from refusals."""

    compat: Compat = AS_KNOWN
    """What the user has set, and what was learnt."""
    answered: bool = False
    """Whether the endpoint has answered a request of this process. A later refusal is not about the common form."""
    takes_earlier: bool = True
    """Whether it takes thinking of earlier answers: nobody signed it, or another endpoint, where a gateway changes the
    endpoint that it asks."""

    def takes(self, feature: str, model: str) -> bool:
        """Return whether a model is known to accept ``pictures``, or ``system_messages`` in mid-conversation."""
        limits, known = find_limits(model), getattr(self.compat, feature)
        return bool(known if known is not None else limits is not None and getattr(limits, feature))

    def choose_thinking(self, model: str, max_tokens: int) -> dict[str, Any]:
        """Return the ``thinking`` field of a request; empty if the field is left out."""
        limits = find_limits(model)
        kind = self.compat.thinking or ("adaptive" if limits is not None and limits.adaptive_thinking else "off")
        budget = max_tokens // 2
        if kind == "off" or (kind == "budget" and budget < LEAST_BUDGET_TOKENS):
            return {}
        if kind == "budget":
            return {_THINKING: {"type": "enabled", "budget_tokens": budget}}
        shown = {} if self.compat.thinking_display is False else {"display": "summarized"}
        return {_THINKING: {"type": "adaptive", **shown}}

    def learn(self, fault: Fault, request: Mapping[str, Any]) -> str:
        """Name the part to leave out from now on, because the refusal may be about it; empty if there is none."""
        if fault.kind is not FaultKind.REQUEST:
            return ""
        words, messages = fault.message.lower(), request["messages"]
        if messages[-1]["role"] == "system":
            return self._leave_out(SYSTEM_MESSAGES, "system_messages", value=False)
        if "signature" in words and self.takes_earlier:
            self.takes_earlier = drop_thinking(messages) == messages
            return "" if self.takes_earlier else "thinking of earlier answers"
        for name, pattern, setting, is_sent in () if self.answered else _PARTS:
            if re.search(pattern, words) and is_sent(request):
                return self._leave_out(name, setting[0], value=setting[1])
        return ""

    def _leave_out(self, name: str, setting: str, *, value: Any) -> str:
        self.compat = structs.replace(self.compat, **{setting: value})
        return name

    def render_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages without the parts that the endpoint refuses."""
        return messages if self.takes_earlier else drop_thinking(messages)


def drop_thinking(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remove all thinking: a model accepts such a history, whoever thought it and whatever was changed before.

    No message ends up empty: other content always follows thinking.
    """
    return [
        {**message, "content": [block for block in message["content"] if block.get("type") not in THINKING]}
        for message in messages
    ]


NOTED_WAIT_S = 60.0
"""relay notes a longer wait before it begins, so that a restart does not ask too early."""


class Api(Protocol):
    """The endpoint as a session needs it; `relay.runners.messages.api.MessagesApi` is the real one."""

    def find_model(self, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo | Fault:
        """Return window and limits, the user's settings first; or a fault that may pass by itself."""

    def send(self, request: Mapping[str, Any], *, on_block: Callable[[Mapping[str, Any]], None]) -> Answer | Fault:
        """Send one request.

        Contract: never raises for what an endpoint or a signal does.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """How a session reaches its endpoint and its observers, and how long it may try."""

    api: Api
    observe: Observe
    interrupts: Interrupts
    max_wait_s: float
    """Longest time to keep trying one request. A limit that resets later than that ends the session."""
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
            note: Called before a long wait for a limit, with its end (seconds since the epoch).

        Returns:
            None to try again; else how the session ends.
        """
        wait = policy.judge(fault, duration_s=duration_s, jitter=self.jitter(), now=self.now())
        if isinstance(wait, SessionOutcome):
            return wait
        if wait.until is not None and wait.wait_s > NOTED_WAIT_S:
            # Before the wait: if relay is killed meanwhile, the next run finds the note.
            note(wait.until)
        self.observe(RetryScheduled(attempt=wait.attempt, wait_s=wait.wait_s, reason=fault.message))
        if self.interrupts.wait(wait.wait_s):
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped while waiting for the API")
        return None


def get_model(connection: ApiConnection, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo:
    """Ask the endpoint for a model; ask again while it is only overloaded.

    Raises:
        RunnerError: The user has to change something, or the endpoint stayed unavailable.
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
