"""A finished message as the events of a stream.

Order: ``message_start`` (input and cache usage), ``ping``, then per block ``content_block_start``, deltas,
``content_block_stop``, then ``message_delta`` (cumulative usage, stop reason) and ``message_stop``.
Source: platform.claude.com build-with-claude/streaming, 2026-08-22.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from relay.rehearsal.answer import AnswerBlock, PlayedAnswer
from relay.rehearsal.wire import dump

MAX_PIECES = 48
"""No block is cut into more deltas than this: clients re-parse a tool's input at each one."""
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
    """Cut a text into the pieces that it is streamed in."""
    size = max(MIN_PIECE_CHARS, math.ceil(len(text) / MAX_PIECES))
    return (text[i : i + size] for i in range(0, len(text), size))
