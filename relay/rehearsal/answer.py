"""A turn as the message the API would return (content blocks, stop reason, usage), and as the events of a stream.

Order: ``message_start`` (input and cache usage), ``ping``, then per block ``content_block_start``, deltas,
``content_block_stop``, then ``message_delta`` (cumulative usage, stop reason) and ``message_stop``.
Source: platform.claude.com build-with-claude/streaming, 2026-08-22.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.script import Call, Part, Think, Turn
from relay.rehearsal.wire import Body, count_block, count_text, dump, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUse:
    """How the tokens of one prompt divide; the four classes add up to the prompt."""

    input_tokens: int
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.input_tokens + self.read_tokens + self.write_5m_tokens + self.write_1h_tokens


_OPENINGS: Mapping[str, Mapping[str, Any]] = {
    "text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}
}  # fmt: skip
"""What a block of each type is without, when it begins."""
_DELTAS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}
"""The field of a delta, by the type of its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBlock:
    """One content block of an answer."""

    body: Mapping[str, Any]
    """As it stands in the finished message."""
    raw_input: str = ""
    """A tool's input as it is streamed."""
    tokens: int

    @property
    def opening(self) -> Mapping[str, Any]:
        """The block as ``content_block_start`` shows it."""
        return {**self.body, **_OPENINGS.get(str(self.body.get("type")), {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedAnswer:
    """A finished message."""

    id: str
    model: str
    blocks: tuple[AnswerBlock, ...]
    stop_reason: str
    use: PromptUse
    output_tokens: int

    @property
    def thinking_tokens(self) -> int:
        """The part of the output that was thought."""
        return sum(block.tokens for block in self.blocks if block.body.get("type") == "thinking")

    def render_message(self) -> dict[str, Any]:
        """Write the body of a response without streaming."""
        return self._render([dict(block.body) for block in self.blocks], self.render_ending(), final=True)

    def render_start(self) -> dict[str, Any]:
        """Write the message of ``message_start``: no content yet, input usage complete."""
        return self._render([], dict.fromkeys(("stop_reason", "stop_sequence", "stop_details")), final=False)

    def render_end(self) -> dict[str, Any]:
        """Write ``message_delta``."""
        usage = self.render_usage(self.output_tokens, final=True) or {}
        shown = {k: v for k, v in usage.items() if k not in {"cache_creation", "service_tier"}}
        return {"type": "message_delta", "delta": self.render_ending()} | ({"usage": shown} if shown else {})

    def render_ending(self) -> dict[str, Any]:
        """Write why the message ended."""
        return {"stop_reason": self.stop_reason, "stop_sequence": None, "stop_details": None}

    def render_head(self) -> dict[str, Any]:
        """Write what a message begins with."""
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model}

    def render_usage(self, output: int, *, final: bool) -> dict[str, Any] | None:
        """Write the reported usage; None for nothing."""
        return self.render_bill(output, final=final)

    def render_bill(self, output: int, *, final: bool) -> dict[str, Any]:
        """Write the real usage of the message, whatever is reported."""
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

    def _render(self, content: list[Any], ending: dict[str, Any], *, final: bool) -> dict[str, Any]:
        usage = self.render_usage(self.output_tokens if final else min(1, self.output_tokens), final=final)
        message = {**self.render_head(), "content": content, **ending}
        return message if usage is None else message | {"usage": usage}


class Performer:
    """Performs a turn for one request.

    Args:
        call_prefix: Prefix of tool call ids, before a number.
        body: The request, in the Messages API's form.
    """

    def __init__(self, turn: Turn, call_prefix: str, body: Body) -> None:
        self.turn = turn
        self.body = body
        self._call_prefix = call_prefix
        self._calls = 0

    def build_answer(self, message_id: str, model: str, use: PromptUse) -> PlayedAnswer:
        """Build the message."""
        blocks = tuple(self.build_blocks(self.turn.parts))
        output = self.turn.usage.output_tokens
        return PlayedAnswer(
            id=message_id,
            model=model,
            blocks=blocks,
            stop_reason=self.turn.stop or find_stop(blocks),
            use=use,
            output_tokens=sum(block.tokens for block in blocks) if output is None else output,
        )

    def build_blocks(self, parts: tuple[Part, ...]) -> Iterator[AnswerBlock]:
        """Turn parts into blocks; a request may switch thinking off."""
        thinks = (self.body.get("thinking") or {}).get("type") != "disabled"
        return (self.build_block(part) for part in parts if thinks or not isinstance(part, Think))

    def build_block(self, part: Part) -> AnswerBlock:
        """Turn a part into a block."""
        match part:
            case str():
                return AnswerBlock(body={"type": "text", "text": part}, tokens=count_text(part))
            case Think():
                return self.build_thinking(part)
            case Call():
                call_id = f"{self._call_prefix}{self._calls}"
                body = {"type": "tool_use", "id": call_id, "name": part.name, "input": part.input}
                self._calls += 1
                return AnswerBlock(body=body, raw_input=dump(part.input), tokens=count_block(body))

    def build_thinking(self, part: Think) -> AnswerBlock:
        """Build a thinking block; its signature is opaque to clients."""
        is_shown = (self.body.get("thinking") or {}).get("display") == "summarized"
        body = {"type": "thinking", "thinking": part.text if is_shown else "", "signature": "rehearsed"}
        return AnswerBlock(body=body, tokens=count_text(part.text))


def find_stop(blocks: tuple[AnswerBlock, ...]) -> str:
    """Return the natural stop reason of an answer."""
    return "tool_use" if any(block.body.get("type") == "tool_use" for block in blocks) else "end_turn"


MAX_PIECES = 48
"""Most deltas of a block: clients re-parse a tool's input at each one."""
MIN_PIECE_CHARS = 24

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def render_event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Write one server-sent event; its name is the data's ``type`` by default, and none if it is empty."""
    named = data["type"] if name is None else name
    return encode(f"event: {named}\ndata: {dump(data)}\n\n" if named else f"data: {dump(data)}\n\n")


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
    kind = str(block.body.get("type"))
    if kind in _DELTAS:
        is_call = kind == "tool_use"
        name, text = "input_json" if is_call else kind, block.raw_input if is_call else block.body[kind]
        size = max(MIN_PIECE_CHARS, math.ceil(len(text) / MAX_PIECES))
        for piece in (*([""] if is_call else []), *(text[i : i + size] for i in range(0, len(text), size))):
            yield {"type": f"{name}_delta", _DELTAS[kind]: piece}
    if block.body.get("signature"):
        yield {"type": "signature_delta", "signature": block.body["signature"]}
