"""A script as values: conversations of turns, conditions on requests, faults, and dialects of other endpoints.

`relay.rehearsal.exchange` and `relay.rehearsal.answer` play the faults. A fault before the answer replaces it; a fault
in the stream breaks its delivery; a fault of the answer changes what the model says. A fault plays `times` times
(default 1), then the turn's own answer comes.

The dialects are those of endpoints that speak the Messages API but are not Anthropic's. They were read in the
endpoints' sources, documents and issues by 2026-11-21 (ollama#17130, CodeRouter#39, vllm#40912 and #49456,
sglang#20678, vercel/ai#17326, litellm#31069); no endpoint was run for comparison.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.prompt import list_blocks
from relay.rehearsal.wire import CATALOG, ApiError, ModelCard

SUBJECTS = ("model", "system", "first_message", "last_message", "last_result")
"""``last_message`` is everything after the last assistant turn, ``last_result`` the tool results in it."""
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All of them must hold; without any it holds always."""

    contains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts that must all occur in it."""
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts of which none may occur in it."""
    last_result_is_error: bool | None = None
    """Whether any tool result after the last assistant turn is an error; None: not checked."""
    tools: tuple[str, ...] = ()
    """Names that must be among the offered tools."""

    def __bool__(self) -> bool:
        return bool(self.contains or self.lacks or self.tools or self.last_result_is_error is not None)


def check_conditions(conditions: Conditions, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each unmet condition."""
    problems = []
    for subject, texts in conditions.contains.items():
        found = read_subject(body, subject)
        problems += [f"{subject} lacks {t!r}; it is {_show(found)}" for t in texts if t not in found]
    for subject, texts in conditions.lacks.items():
        found = read_subject(body, subject)
        problems += [f"{subject} has {t!r}; it is {_show(found)}" for t in texts if t in found]
    offered = {str(tool.get("name")) for tool in list_blocks(body.get("tools"))}
    problems += [f"no tool {name!r} is offered" for name in conditions.tools if name not in offered]
    wanted = conditions.last_result_is_error
    if wanted is not None and wanted != _has_error(body):
        problems.append(f"the last result {'is not' if wanted else 'is'} an error: {_show_result(body)}")
    return tuple(problems)


def read_subject(body: Mapping[str, Any], subject: str) -> str:
    """Return the text that a condition is about."""
    messages = list_blocks(body.get("messages"))
    match subject:
        case "model":
            return str(body.get("model", ""))
        case "system":
            return _join_text(body.get("system"))
        case "first_message":
            return _join_text(messages[0].get("content")) if messages else ""
        case "last_message":
            return "\n".join(_join_text(message.get("content")) for message in list_news(body))
        case _:
            return "\n".join(_join_text(block.get("content")) for block in _list_results(body))


def list_news(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the messages after the last assistant turn; all messages if there is none."""
    messages = list_blocks(body.get("messages"))
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[turns[-1] + 1 :] if turns else messages


def _join_text(content: Any) -> str:
    """Join all text in a message's content, tool results included."""
    parts = []
    for block in list_blocks(content):
        inner = block.get("content") if block.get("type") == "tool_result" else None
        parts.append(_join_text(inner) if inner is not None else str(block.get("text", "")))
    return "\n".join(parts)


def _list_results(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blocks = [block for message in list_news(body) for block in list_blocks(message.get("content"))]
    return [block for block in blocks if block.get("type") == "tool_result"]


def _has_error(body: Mapping[str, Any]) -> bool:
    return any(block.get("is_error") for block in _list_results(body))


def _show_result(body: Mapping[str, Any]) -> str:
    return _show(read_subject(body, "last_result"))


def _show(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} … {text[-half:]!r} ({len(text)} characters)"


class FaultName(StrEnum):
    """Everything that can go wrong."""

    STATUS = "status"
    """An HTTP error of any status."""
    RATE_LIMIT = "rate_limit"
    """429 with the rate-limit headers; `retry-after` only if the script has it."""
    SPEND_LIMIT = "spend_limit"
    """429 that does not go away: the organization's spend cap."""
    OVERLOADED = "overloaded"
    """529."""
    OVERFLOW = "overflow"
    """400 ``prompt is too long``."""
    DROP = "drop"
    """The connection ends before any byte of the response."""
    CUT = "cut"
    """The stream ends early: by reset, by close, or cleanly without ``message_stop``."""
    ERROR_EVENT = "error_event"
    """An ``error`` event in mid-stream."""
    STALL = "stall"
    """Silence, or nothing but pings."""
    GARBAGE = "garbage"
    """An event whose data is not JSON."""
    MAX_TOKENS = "max_tokens"
    """Cut at the output limit, inside the last block."""
    BAD_JSON = "bad_json"
    """A tool's input that is not JSON, with ``stop_reason: tool_use``."""
    REFUSAL = "refusal"
    UNKNOWN_STOP = "unknown_stop"
    UNKNOWN_BLOCK = "unknown_block"
    """A content block of an unknown type, in front of the answer."""
    EMPTY = "empty"
    """``end_turn`` with no content."""
    PAUSE_TURN = "pause_turn"
    WINDOW_EXCEEDED = "window_exceeded"
    """``model_context_window_exceeded``: cut like `MAX_TOKENS`."""
    USAGE = "usage"
    """Usage that is all zero, missing, without the cached part, or all zero at the end only."""
    NO_STREAM = "no_stream"
    """The finished message as JSON, although a stream was asked for."""
    OTHER_MODEL = "other_model"
    """Another model answers than the one asked."""


BEFORE = frozenset(
    {
        FaultName.STATUS,
        FaultName.RATE_LIMIT,
        FaultName.SPEND_LIMIT,
        FaultName.OVERLOADED,
        FaultName.OVERFLOW,
        FaultName.DROP,
    }
)
"""Faults that replace the answer."""
IN_STREAM = frozenset({FaultName.CUT, FaultName.ERROR_EVENT, FaultName.STALL, FaultName.GARBAGE})
"""Faults that break the delivery of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One thing that goes wrong."""

    kind: FaultName
    line: int = 0
    times: int | None = 1
    """How often it plays before the answer comes; None for always."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The kind's own keys; see the table in `script`."""


def render_fault_error(fault: FaultSpec, *, prompt_tokens: int, window_tokens: int) -> ApiError:
    """Build the error response of a fault that replaces the answer (all but `DROP`)."""
    options = fault.options
    message = options.get("message")
    match fault.kind:
        case FaultName.RATE_LIMIT:
            text = "This request would exceed your organization's rate limit. Please try again later."
            return ApiError(status=429, message=message or text, headers=_render_limits(options))
        case FaultName.SPEND_LIMIT:
            text = "Your organization has reached the monthly API usage threshold of its tier."
            return ApiError(status=429, message=message or text, error_code="enforced_spend_limit_reached")
        case FaultName.OVERLOADED:
            return ApiError(status=529, message=message or "Overloaded", headers=_render_retry(options))
        case FaultName.OVERFLOW:
            tokens = max(prompt_tokens, window_tokens + 1)
            return ApiError(status=400, message=f"prompt is too long: {tokens} tokens > {window_tokens} maximum")
        case _:
            return ApiError(
                status=options.get("status", 500),
                message=message or "Internal server error",
                type=options.get("type", ""),
                error_code=options.get("error_code", ""),
                headers=_render_retry(options) | options.get("headers", {}),
            )


def _render_retry(options: Mapping[str, Any]) -> dict[str, str]:
    return {"retry-after": options["retry_after"]} if "retry_after" in options else {}


def _render_limits(options: Mapping[str, Any]) -> dict[str, str]:
    limit = options.get("limit", "requests")
    reset = datetime.now(UTC) + timedelta(seconds=options.get("resets_in_s", 60.0))
    prefix = f"anthropic-ratelimit-{limit}"
    return _render_retry(options) | {
        f"{prefix}-limit": "50",
        f"{prefix}-remaining": "0",
        f"{prefix}-reset": reset.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDialect:
    """How an endpoint differs from Anthropic's."""

    lists_limits: bool = True
    """Whether the Models API gives limits; else it is OpenAI's, which has names only."""
    counts_tokens: bool = True
    """Whether there is a ``count_tokens``."""
    report: str = ""
    """How usage is reported. ``bare``: input and output, no cache fields; ``reads``: those and the cache reads;
    ``flat``: the cache fields are always 0; ``late``: all zero at the start, ``bare`` at the end; empty: as
    Anthropic does."""
    signs: bool = True
    """Whether thinking has a signature."""
    refuses: tuple[str, ...] = ()
    """Fields that are refused with a 400; see `relay.rehearsal.checks.check_refused`."""


_LOCAL = ServerDialect(lists_limits=False, counts_tokens=False, report="bare", signs=False)

DIALECTS: Mapping[str, ServerDialect] = {
    "anthropic": ServerDialect(),
    "ollama": _LOCAL,
    "lmstudio": _LOCAL,
    "llamacpp": _LOCAL,
    "vllm": ServerDialect(lists_limits=False, report="reads", signs=False),
    "sglang": ServerDialect(lists_limits=False, report="late", signs=False),
    "vercel": ServerDialect(counts_tokens=False, report="late"),
    "litellm": ServerDialect(lists_limits=False, report="flat"),
    "fireworks": ServerDialect(lists_limits=False, counts_tokens=False, refuses=("ttl",)),
}
"""By the endpoints' usual names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """A thinking block; its text is shown only to clients that ask for summaries."""

    text: str
    tokens: int | None = None
    """Thinking tokens of the block; None: estimated from the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call."""

    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A content block exactly as written, of any type."""

    body: Mapping[str, Any]


Part = Say | Think | Call | Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """Corrections of the estimated usage."""

    output_tokens: int | None = None
    """All output of the turn; the next prompt counts it, too. None: estimated."""
    input_padding_tokens: int = 0
    """Added to the prompt from this turn on, as if the last message were longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the model."""

    line: int = 0
    parts: tuple[Part, ...] = ()
    expect: Conditions = field(default_factory=Conditions)
    faults: tuple[FaultSpec, ...] = ()
    stop: str = ""
    """Stop reason; empty: ``tool_use`` after calls, else ``end_turn``."""
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: TurnUsage = field(default_factory=TurnUsage)
    delay_s: float = 0.0
    repeat: int | None = 1
    """How many turns this stands for; None: forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSession:
    """One conversation."""

    name: str
    line: int = 0
    when: Conditions = field(default_factory=Conditions)
    repeat: bool = False
    """Whether every conversation that fits plays it again."""
    aside: bool = False
    """Whether its one turn answers requests of any conversation, without advancing it."""
    then_next: bool = False
    """Whether a conversation continues with the next session after the last turn."""
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFault:
    """A fault of an endpoint other than ``POST /v1/messages``."""

    on: str
    """``models`` or ``count_tokens``."""
    fault: FaultSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything a rehearsal plays."""

    source: str = "script.yaml"
    cards: tuple[ModelCard, ...] = CATALOG
    """Known models; the script's own first."""
    sessions: tuple[ScriptSession, ...] = ()
    endpoint_faults: tuple[EndpointFault, ...] = ()
    dialect: ServerDialect = DIALECTS["anthropic"]
    refuses: tuple[str, ...] = ()
    """Fields that this endpoint refuses; see `relay.rehearsal.checks.check_refused`."""
    thinks_always: bool = True
    """Whether models with preserved thinking think in every turn, as they do in reality."""
    first_byte_s: float = 0.0
    event_s: float = 0.0
    """Time between two events of a stream."""
