"""A turn as the message the API would return (content blocks, stop reason, usage), and as the events of a stream.

Order: ``message_start`` (input and cache usage), ``ping``, then per block ``content_block_start``, deltas,
``content_block_stop``, then ``message_delta`` (cumulative usage, stop reason) and ``message_stop``.
Source: platform.claude.com build-with-claude/streaming, 2026-08-22.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.prompt import (
    BLOCK_TOKENS,
    BYTES_PER_TOKEN,
    CacheUse,
    ContentBlock,
    Signature,
    canonical,
    count_block,
    count_text,
    digest,
    digest_text,
    extend_binding,
)
from relay.rehearsal.turns import Call, FaultName, FaultSpec, Part, Raw, Say, ServerDialect, Think, Turn
from relay.rehearsal.wire import ModelCard, dump

IMPLICIT_THINKING_TOKENS = 32
"""Tokens of a thinking block if the script gives none."""

_CUTS = {FaultName.MAX_TOKENS: "max_tokens", FaultName.WINDOW_EXCEEDED: "model_context_window_exceeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBlock:
    """One content block of an answer."""

    body: Mapping[str, Any]
    """As it stands in the finished message."""
    raw_input: str = ""
    """A tool's input as it is streamed; it may be cut, or not JSON at all."""
    tokens: int

    @property
    def opening(self) -> Mapping[str, Any]:
        """The block as ``content_block_start`` shows it."""
        match self.body.get("type"):
            case "text":
                return {**self.body, "text": ""}
            case "thinking":
                return {**self.body, "thinking": "", "signature": ""}
            case "tool_use":
                return {**self.body, "input": {}}
            case _:
                return self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedAnswer:
    """A finished message."""

    id: str
    model: str
    blocks: tuple[AnswerBlock, ...]
    stop_reason: str
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    use: CacheUse
    output_tokens: int
    thinking_tokens: int = 0
    report: str = ""
    """How usage is reported: ``zero``, ``missing``, ``uncached``, ``falling``, or as in `ServerDialect`."""
    answering_model: str = ""
    """The model that the answer names; empty for `model`."""
    dropped: tuple[Mapping[str, str], ...] = ()
    """Thinking blocks of the request that were dropped, as ``input_transformations`` reports them."""
    edits: tuple[Mapping[str, Any], ...] = ()
    """What context editing did to the request."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """Tokens that the next prompt counts on top of the estimate, by binding-chain key."""

    def render_message(self) -> dict[str, Any]:
        """Write the body of a response without streaming."""
        return self._render(
            content=[dict(block.body) for block in self.blocks],
            ending=self._ending,
            usage=self._render_usage(self.output_tokens, final=True),
        )

    def render_start(self) -> dict[str, Any]:
        """Write the message of ``message_start``: no content yet, input usage complete."""
        ending = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
        usage = self._render_usage(min(1, self.output_tokens), falls=False)
        return self._render(content=[], ending=ending, usage=usage)

    def render_end(self) -> dict[str, Any]:
        """Write ``message_delta``."""
        usage = self._render_usage(self.output_tokens, final=True)
        event: dict[str, Any] = {"type": "message_delta", "delta": self._ending}
        if usage is not None:
            event["usage"] = {k: v for k, v in usage.items() if k not in {"cache_creation", "service_tier"}}
        return event | self._editing

    def render_bill(self) -> Mapping[str, Any]:
        """Write the real usage of the message, whatever is reported."""
        return self._render_full(self.output_tokens, final=True)

    @property
    def _ending(self) -> dict[str, Any]:
        ending: dict[str, Any] = {
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "stop_details": self.stop_details,
        }
        return ending | ({"input_transformations": list(self.dropped)} if self.dropped else {})

    @property
    def _editing(self) -> dict[str, Any]:
        return {"context_management": {"applied_edits": list(self.edits)}} if self.edits else {}

    def _render(self, *, content: list[Any], ending: dict[str, Any], usage: Any) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self.answering_model or self.model}
        message = {**head, "content": content, **ending, **(self._editing if ending.get("stop_reason") else {})}
        return message if usage is None else message | {"usage": usage}

    def _render_usage(self, output: int, *, final: bool = False, falls: bool = True) -> dict[str, Any] | None:
        """Write the reported usage; None for nothing."""
        usage = self._render_full(output, final=final)
        match self.report:
            case "missing":
                return None
            case "uncached":
                return {"input_tokens": max(1, usage["input_tokens"]), "output_tokens": usage["output_tokens"]}
            case "late" if not final:
                return {"input_tokens": 0, "output_tokens": 0}
            case "bare" | "late" | "reads" | "flat":
                return self._render_foreign(output)
            case "zero" | "falling" if falls or self.report == "zero":
                return {name: 0 for name, value in usage.items() if isinstance(value, int)}
            case _:
                return usage

    def _render_foreign(self, output: int) -> dict[str, Any]:
        """Write usage without division by the cache, or with reads only, as some endpoints do."""
        use = self.use
        read = use.read_tokens if self.report == "reads" else 0
        whole = use.input_tokens + use.write_5m_tokens + use.write_1h_tokens + use.read_tokens
        usage = {"input_tokens": whole - read, "output_tokens": output}
        if self.report == "flat":
            usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return usage | ({"cache_read_input_tokens": read} if read else {})

    def _render_full(self, output: int, *, final: bool) -> dict[str, Any]:
        use = self.use
        usage: dict[str, Any] = {
            "input_tokens": use.input_tokens,
            "cache_creation_input_tokens": use.write_5m_tokens + use.write_1h_tokens,
            "cache_read_input_tokens": use.read_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": use.write_5m_tokens,
                "ephemeral_1h_input_tokens": use.write_1h_tokens,
            },
            "output_tokens": output,
            "service_tier": "standard",
        }
        if final and self.thinking_tokens:
            usage["output_tokens_details"] = {"thinking_tokens": self.thinking_tokens}
        return usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Everything an answer depends on."""

    message_id: str
    call_prefix: str
    """Prefix of tool call ids, before a number."""
    turn: Turn
    n: int
    """Which repetition of the turn this is, from 1."""
    fault: FaultSpec | None
    body: Mapping[str, Any]
    card: ModelCard
    bound: str
    """Binding chain of the whole request."""
    use: CacheUse
    prompt_tokens: int
    thinks_always: bool
    dialect: ServerDialect
    dropped: tuple[Mapping[str, str], ...] = ()
    edits: tuple[Mapping[str, Any], ...] = ()


def build_answer(show: Performance) -> PlayedAnswer:
    """Perform a turn for one request."""
    parts, stop = _choose(show)
    blocks = tuple(_build_blocks(show, parts))
    stop = stop or ("tool_use" if any(b.body.get("type") == "tool_use" for b in blocks) else "end_turn")
    kind = show.fault.kind if show.fault else None
    if kind in _CUTS and blocks:
        blocks = (*blocks[:-1], _cut_block(blocks[-1], _half(blocks[-1], show.fault)))
    elif kind is FaultName.BAD_JSON:
        blocks = tuple(replace(b, raw_input=_spoil(b.raw_input)) for b in blocks)
    output = sum(block.tokens for block in blocks)
    padding: dict[str, int] = {}
    scripted = show.turn.usage.output_tokens
    if scripted is not None:
        padding = _pad(show.bound, blocks, scripted - output)
        output = scripted
    elif output > (budget := _find_budget(show))[0]:
        blocks, output, stop = tuple(_fit(blocks, budget[0])), *budget
    details = show.turn.stop_details or _default_details(stop, show.fault)
    return PlayedAnswer(
        id=show.message_id,
        model=show.card.id,
        blocks=blocks,
        stop_reason=stop,
        stop_sequence=show.turn.stop_sequence,
        stop_details=details,
        use=show.use,
        output_tokens=output,
        thinking_tokens=sum(b.tokens for b in blocks if b.body.get("type") == "thinking"),
        report=show.fault.options.get("report", "zero")
        if show.fault and kind is FaultName.USAGE
        else show.dialect.report,
        answering_model=show.fault.options.get("model", "") if show.fault and kind is FaultName.OTHER_MODEL else "",
        dropped=show.dropped,
        edits=show.edits,
        padding=padding,
    )


def digest_content(blocks: list[ContentBlock]) -> str:
    """Identify an assistant turn by its content, without thinking."""
    return digest([canonical(block) for block in blocks if block.get("type") != "thinking"])


def _choose(show: Performance) -> tuple[tuple[Part, ...], str]:
    """Choose the parts of the answer and its stop reason; empty for the natural one."""
    turn, fault = show.turn, show.fault
    match fault.kind if fault else None:
        case FaultName.EMPTY:
            return (), "end_turn"
        case FaultName.REFUSAL:
            return (), "refusal"
        case FaultName.PAUSE_TURN:
            parts = tuple(part for part in turn.parts if isinstance(part, Say | Think))
            return parts or (Say(text="Paused."),), "pause_turn"
        case FaultName.UNKNOWN_STOP if fault:
            return turn.parts, fault.options.get("reason", "moonrise")
        case FaultName.UNKNOWN_BLOCK if fault:
            body = {"type": fault.options.get("type", "hologram"), "data": "not known to this client"}
            return (Raw(body=body), *turn.parts), turn.stop
        case FaultName.MAX_TOKENS | FaultName.WINDOW_EXCEEDED as kind:
            return turn.parts, _CUTS[kind]
        case _:
            return turn.parts, turn.stop


def _build_blocks(show: Performance, parts: tuple[Part, ...]) -> Iterator[AnswerBlock]:
    """Turn parts into blocks; thinking is signed for its position."""
    config = show.body.get("thinking") or {}
    if not _thinks(config, show.card):
        parts = tuple(part for part in parts if not isinstance(part, Think))
    elif parts and _must_think(show, config, parts):
        parts = (Think(text="", tokens=IMPLICIT_THINKING_TOKENS), *parts)
    bound, calls = show.bound, 0
    for part in parts:
        block = _build_block(show, part, bound, calls)
        calls += isinstance(part, Call)
        for _, after in extend_binding(bound, [block.body]):
            bound = after
        yield block


def _thinks(config: Mapping[str, Any], card: ModelCard) -> bool:
    off = config.get("type") == "disabled"
    only_on_request = "adaptive" not in card.thinking
    return not off and not (only_on_request and config.get("type") != "enabled")


def _must_think(show: Performance, config: Mapping[str, Any], parts: tuple[Part, ...]) -> bool:
    if any(isinstance(part, Think) for part in parts) or config.get("type") == "between_tools":
        return False
    return show.thinks_always and show.card.binds_thinking


def _build_block(show: Performance, part: Part, bound: str, calls: int) -> AnswerBlock:
    match part:
        case Say():
            text = _number(part.text, show)
            return AnswerBlock(body={"type": "text", "text": text}, tokens=count_text(text))
        case Think():
            return _build_thinking(show, part, bound)
        case Call():
            inputs = _number(dict(part.input), show)
            body = {"type": "tool_use", "id": f"{show.call_prefix}{calls}", "name": part.name, "input": inputs}
            return AnswerBlock(body=body, raw_input=dump(inputs), tokens=count_block(body))
        case Raw():
            return AnswerBlock(body=part.body, tokens=count_block(part.body))


def _build_thinking(show: Performance, part: Think, bound: str) -> AnswerBlock:
    config = show.body.get("thinking") or {}
    shown = config.get("display") or ("summarized" if "enabled" in show.card.thinking else "omitted")
    text = _number(part.text, show)
    tokens = part.tokens if part.tokens is not None else count_text(text)
    text = text if shown != "omitted" or config.get("type") == "between_tools" else ""
    signature = Signature(model=show.card.id, prefix=bound, tokens=tokens, text=digest_text(text)).encode()
    body = {"type": "thinking", "thinking": text, "signature": signature if show.dialect.signs else ""}
    return AnswerBlock(body=body, tokens=tokens)


def _number(value: Any, show: Performance) -> Any:
    """Replace ``${n}`` by the repetition's number, only in a turn that repeats."""
    if show.turn.repeat == 1:
        return value
    if isinstance(value, str):
        return value.replace("${n}", str(show.n))
    if isinstance(value, Mapping):
        return {name: _number(item, show) for name, item in value.items()}
    return [_number(item, show) for item in value] if isinstance(value, list) else value


def _find_budget(show: Performance) -> tuple[int, str]:
    """Return how many tokens the answer may have, and the stop reason at that limit."""
    left = show.card.window_tokens - show.prompt_tokens
    limit = int(show.body.get("max_tokens", 0))
    return (limit, "max_tokens") if limit <= left else (left, "model_context_window_exceeded")


def _fit(blocks: tuple[AnswerBlock, ...], budget: int) -> Iterator[AnswerBlock]:
    """Keep the blocks that fit into a budget of tokens; cut the last one."""
    for block in blocks:
        if block.tokens <= budget:
            budget -= block.tokens
            yield block
            continue
        chars = int((budget - BLOCK_TOKENS) * BYTES_PER_TOKEN)
        if chars > 0 and block.body.get("type") in {"text", "tool_use"}:
            yield _cut_block(block, chars)
        return


def _half(block: AnswerBlock, fault: FaultSpec | None) -> int:
    whole = len(block.raw_input or str(block.body.get("text", "")))
    chars = fault.options.get("after_chars", whole // 2) if fault else whole
    return min(int(chars), whole)


def _cut_block(block: AnswerBlock, chars: int) -> AnswerBlock:
    """Keep the first characters of a block's text or of its input's JSON."""
    if block.body.get("type") == "text":
        text = str(block.body["text"])[:chars]
        return replace(block, body={**block.body, "text": text}, tokens=count_text(text))
    if block.body.get("type") != "tool_use":
        return block
    raw, kept = block.raw_input[:chars], dict[str, Any]()
    for name, value in block.body["input"].items():
        longer = {**kept, name: value}
        if len(dump(longer)) - 1 > len(raw):
            break
        kept = longer
    tokens = count_text(str(block.body["name"]) + raw)
    return replace(block, body={**block.body, "input": kept}, raw_input=raw, tokens=tokens)


def _spoil(raw: str) -> str:
    """Break valid JSON."""
    return raw and raw[:-1] + ',,"}'


def _pad(bound: str, blocks: tuple[AnswerBlock, ...], extra: int) -> dict[str, int]:
    """Return the additional tokens of the next prompt for an answer with a scripted size."""
    keys = [after for _, after in extend_binding(bound, [block.body for block in blocks])]
    return {keys[-1]: extra} if keys else {}


def _default_details(stop: str, fault: FaultSpec | None) -> Mapping[str, Any] | None:
    if stop != "refusal":
        return None
    options = fault.options if fault else {}
    return {"type": "refusal", "category": options.get("category"), "explanation": options.get("explanation")}


MAX_PIECES = 48
"""Most deltas of a block: clients re-parse a tool's input at each one."""
MIN_PIECE_CHARS = 24

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def render_event(data: Mapping[str, Any]) -> bytes:
    """Write one server-sent event; its name is the data's ``type``."""
    return f"event: {data['type']}\ndata: {dump(data)}\n\n".encode(errors="surrogatepass")


def render_events(answer: PlayedAnswer) -> list[bytes]:
    """Write a whole answer as events, one item each."""
    return [PING if event["type"] == "ping" else render_event(event) for event in _list_events(answer)]


def _list_events(answer: PlayedAnswer) -> Iterator[Mapping[str, Any]]:
    yield {"type": "message_start", "message": answer.render_start()}
    yield {"type": "ping"}
    for index, block in enumerate(answer.blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block.opening}
        for delta in _list_deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield answer.render_end()
    yield {"type": "message_stop"}


def _list_deltas(block: AnswerBlock) -> Iterator[Mapping[str, Any]]:
    match block.body.get("type"):
        case "text":
            for piece in cut_text(block.body["text"]):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in cut_text(block.body["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            if block.body["signature"]:
                yield {"type": "signature_delta", "signature": block.body["signature"]}
        case "tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in cut_text(block.raw_input):
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            return


def cut_text(text: str) -> Iterator[str]:
    """Cut a text into the pieces in which it is streamed."""
    size = max(MIN_PIECE_CHARS, math.ceil(len(text) / MAX_PIECES))
    return (text[i : i + size] for i in range(0, len(text), size))
