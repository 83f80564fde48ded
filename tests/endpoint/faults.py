"""What a script of this endpoint has beside the player's: faults, dialects of other endpoints, what models accept.

A fault before the answer replaces it; a fault in the stream breaks its delivery; a fault of the answer changes what the
model says. A fault plays `times` times (default 1), then the turn's own answer comes.

The dialects are those of endpoints that speak the Messages API but are not Anthropic's. They were read in the
endpoints' sources, documents and issues by 2026-11-21 (ollama#17130, CodeRouter#39, vllm#40912 and #49456,
sglang#20678, vercel/ai#17326, litellm#31069); no endpoint was run for comparison.
"""

import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from relay.base.values import dataclass
from relay.config.decoding import matching, told
from relay.rehearsal.script import Count, Seconds
from relay.rehearsal.wire import ApiError, ModelCard
from relay.session.prices import list_limits


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
    """Silence."""
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


OPTIONS: Mapping[FaultName, tuple[str, ...]] = {
    FaultName.STATUS: ("status", "type", "message", "error_code", "retry_after", "headers", "after_work"),
    FaultName.RATE_LIMIT: ("retry_after", "resets_in_s", "limit", "message"),
    FaultName.SPEND_LIMIT: ("message",),
    FaultName.OVERLOADED: ("message", "retry_after"),
    FaultName.DROP: ("how",),
    FaultName.CUT: ("after_events", "how"),
    FaultName.ERROR_EVENT: ("after_events", "type", "message"),
    FaultName.STALL: ("after_events", "seconds"),
    FaultName.GARBAGE: ("after_events", "data"),
    FaultName.REFUSAL: ("category", "explanation"),
    FaultName.UNKNOWN_STOP: ("reason",),
    FaultName.UNKNOWN_BLOCK: ("type",),
    FaultName.USAGE: ("report",),
    FaultName.OTHER_MODEL: ("model",),
}
"""The keys of each kind, besides ``times``."""
_Header = Annotated[str, matching("a header's value: printable ASCII", "[ -~]*")]


class FaultSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fault: one thing that goes wrong."""

    kind: FaultName
    times: Annotated[Annotated[int, Meta(ge=1)] | Literal["always"], told("a number ≥ 1, or always")] = 1
    """How often it plays before the answer comes."""
    status: Annotated[int, Meta(ge=300, le=599)] | None = None
    type: str | None = None
    message: str | None = None
    error_code: str | None = None
    retry_after: _Header | int | float | None = None
    headers: dict[Annotated[str, matching("a header's name", "[A-Za-z0-9_-]+")], _Header] | None = None
    after_work: bool | None = None
    resets_in_s: Seconds | None = None
    limit: Literal["requests", "tokens", "input-tokens", "output-tokens"] | None = None
    how: Annotated[Literal["rst", "fin", "end"] | None, told("rst, fin, end")] = None
    after_events: Count | None = None
    seconds: Seconds | None = None
    data: str | None = None
    category: str | None = None
    explanation: str | None = None
    reason: str | None = None
    report: Literal["zero", "missing", "uncached", "falling"] | None = None
    model: str | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """The kind's own keys that are given."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name not in {"kind", "times"}}
        return {name: value for name, value in given.items() if value is not None}

    def __post_init__(self) -> None:
        foreign = [name for name in self.options if name not in OPTIONS.get(self.kind, ())]
        if foreign:
            raise ValueError(f"fault {self.kind} has no key {foreign[0]!r}")
        if self.kind is FaultName.DROP and self.how == "end":
            raise ValueError("a drop is rst or fin: nothing was sent that could end cleanly")


Fault = FaultName | FaultSpec
Faults = Annotated[Fault | tuple[Fault, ...], told("a fault, or a list of faults that play in order")]


def list_faults(given: Faults) -> tuple[FaultSpec, ...]:
    """Return the faults, in order."""
    named = given if isinstance(given, tuple) else (given,)
    return tuple(FaultSpec(kind=fault) if isinstance(fault, str) else fault for fault in named)


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
                headers=_render_retry(options)
                | {name.lower(): text for name, text in options.get("headers", {}).items()},
            )


def _render_retry(options: Mapping[str, Any]) -> dict[str, str]:
    return {"retry-after": str(options["retry_after"])} if "retry_after" in options else {}


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
    report: str = ""
    """How usage is reported. ``bare``: input and output, no cache fields; ``reads``: those and the cache reads;
    ``flat``: the cache fields are always 0; ``late``: all zero at the start, ``bare`` at the end; empty: as
    Anthropic does."""
    signs: bool = True
    """Whether thinking has a signature."""
    refuses: tuple[str, ...] = ()
    """Fields that are refused with a 400; see `tests.endpoint.checks.check_refused`."""


DIALECTS: Mapping[str, ServerDialect] = {
    "anthropic": ServerDialect(),
    "ollama": ServerDialect(lists_limits=False, report="bare", signs=False),
    "vllm": ServerDialect(lists_limits=False, report="reads", signs=False),
    "sglang": ServerDialect(lists_limits=False, report="late", signs=False),
    "vercel": ServerDialect(report="late"),
    "litellm": ServerDialect(lists_limits=False, report="flat"),
    "fireworks": ServerDialect(lists_limits=False, refuses=("ttl",)),
}
"""By the endpoints' usual names."""


EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictCard(ModelCard):
    """One model as the request checks see it."""

    min_cache_tokens: int = 1024
    """Shorter prefixes are silently not cached."""
    thinking: frozenset[str] = frozenset({"adaptive", "disabled"})
    """Accepted values of ``thinking.type``."""
    efforts: tuple[str, ...] = EFFORTS
    default_effort: str = "high"
    binds_thinking: bool = False
    """Whether thinking blocks are only accepted behind the exact prefix they were produced for."""
    forced_tools: bool = True
    """Whether ``tool_choice`` any/tool is accepted."""
    prefill: bool = False
    """Whether a final assistant message is accepted."""
    system_messages: bool = True
    """Whether ``system`` messages in mid-conversation are accepted."""
    aliases: tuple[str, ...] = ()


_KINDS: Mapping[str, Any] = {"thinking": frozenset, "efforts": tuple}


def _list_cards() -> tuple[StrictCard, ...]:
    table = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
    cards = []
    for model, limits in list_limits().items():
        own = {"default_effort": "high", **table.get(model, {})}
        snapshot = own.pop("snapshot", model)
        own |= {name: kind(own[name]) for name, kind in _KINDS.items() if name in own}
        card = StrictCard(
            id=snapshot,
            window_tokens=limits.window_tokens,
            output_tokens=limits.max_output_tokens,
            min_cache_tokens=limits.min_cacheable_tokens,
            system_messages=limits.system_messages,
            aliases=(model,) if snapshot != model else (),
            **own,
        )
        cards.append(card)
    return tuple(cards)


CATALOG = _list_cards()


def find_card(model: str, cards: tuple[ModelCard, ...] = CATALOG) -> StrictCard | None:
    """Find a model by its id or an alias; None if unknown."""
    known = (card for card in cards if isinstance(card, StrictCard))
    return next((card for card in known if model == card.id or model in card.aliases), None)
