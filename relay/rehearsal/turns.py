"""A script as values: sessions of turns, the faults that may spoil an answer, and dialects of other endpoints.

`relay.rehearsal.delivery` and `relay.rehearsal.answer` bring each fault onto the wire. Faults before the answer replace
it; faults in the stream spoil its delivery; faults of the answer change what the model says. A fault plays `times`
times (default 1), then the turn's own answer comes.

Dialects are those of endpoints that speak the Messages API and are not its provider's, read in their sources, documents
and threads by 2026-11-21 (ollama#17130, CodeRouter#39, vllm#40912 and #49456, sglang#20678, vercel/ai#17326,
litellm#31069); none was run for comparison.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import yaml

from relay.base.values import dataclass
from relay.base.yaml_events import get_line
from relay.rehearsal.catalog import CATALOG, ModelCard
from relay.rehearsal.conditions import Conditions, NodeReader, pick
from relay.rehearsal.wire import ApiError


class FaultName(StrEnum):
    """Everything that can be made to go wrong."""

    STATUS = "status"
    """An HTTP error of any status."""
    RATE_LIMIT = "rate_limit"
    """429 with the rate-limit headers; `retry-after` only when asked for."""
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
    """Usage that is all zero, missing, only of what was not in the cache, or all zero at the end only."""
    NO_STREAM = "no_stream"
    """The finished message as JSON, although a stream was asked for."""
    OTHER_MODEL = "other_model"
    """Another model answers than the one that was asked."""


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
"""Faults that spoil the delivery of the answer."""

_KEYS: Mapping[FaultName, tuple[str, ...]] = {
    FaultName.STATUS: ("status", "type", "message", "error_code", "retry_after", "headers", "body", "after_work"),
    FaultName.RATE_LIMIT: ("retry_after", "resets_in_s", "limit", "message"),
    FaultName.SPEND_LIMIT: ("message",),
    FaultName.OVERLOADED: ("message", "retry_after"),
    FaultName.DROP: ("how",),
    FaultName.CUT: ("after_events", "after_bytes", "how"),
    FaultName.ERROR_EVENT: ("after_events", "type", "message"),
    FaultName.STALL: ("after_events", "seconds", "ping_s", "before_headers"),
    FaultName.GARBAGE: ("after_events", "data"),
    FaultName.MAX_TOKENS: ("after_chars",),
    FaultName.WINDOW_EXCEEDED: ("after_chars",),
    FaultName.REFUSAL: ("category", "explanation"),
    FaultName.UNKNOWN_STOP: ("reason",),
    FaultName.UNKNOWN_BLOCK: ("type",),
    FaultName.USAGE: ("report",),
    FaultName.OTHER_MODEL: ("model",),
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "how": ("rst", "fin", "end"),
    "body": ("json", "html", "empty"),
    "limit": ("requests", "tokens", "input-tokens", "output-tokens"),
    "report": ("zero", "missing", "uncached", "falling"),
}
_COUNTS = frozenset({"status", "after_events", "after_bytes", "after_chars"})
_SECONDS = frozenset({"seconds", "ping_s", "resets_in_s"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HTTP_ERRORS = range(300, 600)
_FLAGS = frozenset({"before_headers", "after_work"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One thing that goes wrong."""

    kind: FaultName
    line: int = 0
    times: int | None = 1
    """How often it plays before the answer comes; None for always."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The kind's own keys, checked; see the table in `script`."""


def parse_faults(reader: NodeReader, node: yaml.Node) -> tuple[FaultSpec, ...]:
    """Read one fault or a list of faults that play one after the other."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return tuple(_parse_fault(reader, item) for item in nodes)


def _parse_fault(reader: NodeReader, node: yaml.Node) -> FaultSpec:
    if isinstance(node, yaml.ScalarNode):
        return FaultSpec(kind=FaultName(reader.choice(node, "fault", FaultName)), line=get_line(node))
    fields = reader.mapping(node, "fault")
    if "kind" not in fields:
        raise reader.error(node, "fault has no kind")
    kind = FaultName(reader.choice(fields["kind"], "kind", FaultName))
    own = _KEYS.get(kind, ())
    reader.mapping(node, f"fault {kind}", ("kind", "times", *own))
    options = {name: _parse_option(reader, fields[name], name) for name in own if name in fields}
    if options.get("status", 400) not in _HTTP_ERRORS:
        raise reader.error(fields["status"], f"status should be 300–599, found {options['status']}")
    if kind is FaultName.DROP and options.get("how") == "end":
        raise reader.error(fields["how"], "a drop is rst or fin: nothing was sent that could end cleanly")
    times = pick(fields, "times", lambda n, what: _parse_times(reader, n, what), 1)
    return FaultSpec(kind=kind, line=get_line(node), times=times, options=options)


def _parse_times(reader: NodeReader, node: yaml.Node, what: str) -> int | None:
    return None if node.value == "always" else reader.integer(node, what, low=1)


def _parse_option(reader: NodeReader, node: yaml.Node, name: str) -> Any:
    if name in _CHOICES:
        return reader.choice(node, name, _CHOICES[name])
    if name in _COUNTS:
        return reader.integer(node, name)
    if name in _SECONDS:
        return reader.seconds(node, name)
    if name in _FLAGS:
        return reader.flag(node, name)
    if name == "retry_after":
        return _parse_header(reader, node)
    if name == "headers":
        return dict(_parse_headers(reader, node))
    return reader.text(node, name)


def _parse_headers(reader: NodeReader, node: yaml.Node) -> Iterator[tuple[str, str]]:
    for name, value in reader.mapping(node, "headers").items():
        if not _HEADER_NAME.fullmatch(name):
            raise reader.error(value, f"a header name has letters, digits and dashes, found {name!r}")
        yield name.lower(), _parse_header(reader, value)


def _parse_header(reader: NodeReader, node: yaml.Node) -> str:
    value = str(reader.value(node))
    if not value.isprintable() or not value.isascii():
        raise reader.error(node, f"a header value is printable ASCII, found {value!r}")
    return value


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
    """What an endpoint does otherwise than the API."""

    lists_limits: bool = True
    """The Models API says what a model can do; else it is OpenAI's, which has names only."""
    counts_tokens: bool = True
    """There is a ``count_tokens``."""
    report: str = ""
    """How usage is told: ``bare``: input and output, no field of the cache; ``reads``: those and what was read from
    the cache; ``flat``: the cache's fields are always 0; ``late``: all zero at the start, ``bare`` at the end; empty:
    as the API does."""
    signs: bool = True
    """Thinking has a signature."""
    refuses: tuple[str, ...] = ()
    """What of a request is answered with a 400; see `relay.rehearsal.checks.check_refused`."""


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
"""By the names that people have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """A thinking block; its text is shown only to clients that ask for summaries."""

    text: str
    tokens: int | None = None
    """Thinking tokens it stands for; None: estimated from the text."""


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
    """Corrections to what the estimator would report."""

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
    """How many turns this stands for; None: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSession:
    """One conversation."""

    name: str
    line: int = 0
    when: Conditions = field(default_factory=Conditions)
    repeat: bool = False
    """Whether it plays again for every conversation that comes to it."""
    aside: bool = False
    """Whether its one turn answers requests of any conversation without moving it on."""
    then_next: bool = False
    """Whether a conversation that goes on after the last turn continues with the next session."""
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
    """Models that may be asked for; the script's own first."""
    sessions: tuple[ScriptSession, ...] = ()
    endpoint_faults: tuple[EndpointFault, ...] = ()
    dialect: ServerDialect = DIALECTS["anthropic"]
    refuses: tuple[str, ...] = ()
    """What of a request this endpoint does not take; see `relay.rehearsal.checks.check_refused`."""
    thinks_always: bool = True
    """Whether models with preserved thinking think in every turn, as they do in reality."""
    first_byte_s: float = 0.0
    event_s: float = 0.0
    """Time between two events of a stream."""
