"""From stream events to a complete answer, or to the reason why there is none.

An answer counts only after ``message_stop``, with every block closed and a stop reason. Tool inputs are parsed from
the whole JSON text: a cut input is never handed on as if it were one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relay.session import ToolCall, Usage


class StreamBrokenError(Exception):
    """The stream ended or turned into something else before the answer was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer."""

    model: str
    content: tuple[dict[str, Any], ...]
    """Blocks exactly as received, unknown ones and fields included, ready to be sent back."""
    calls: tuple[ToolCall, ...]
    """Tool calls whose input is a complete JSON object."""
    broken_calls: Mapping[str, str]
    """Call id → why its input cannot be used; in `content` such a call has an empty input."""
    stop_reason: str
    stop_details: Mapping[str, Any]
    """For a refusal: ``category`` and ``explanation``; else empty."""
    usage: Usage | None
    """None when the endpoint reported none or only zeros: unknown."""

    @property
    def text(self) -> str:
        """All text blocks."""
        return "\n".join(b["text"] for b in self.content if b.get("type") == "text" and b.get("text"))


@dataclass(slots=True)
class AnswerBuilder:
    """Collects the events of one stream."""

    message: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _json: dict[int, list[str]] = field(default_factory=dict)
    _closed: set[int] = field(default_factory=set)

    def feed(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take one event; return the block it closed, if any.

        Raises:
            StreamBrokenError: The event cannot belong to a well-formed answer.
        """
        match event.get("type"):
            case "message_start":
                self.message = dict(event["message"])
                self.usage = dict(self.message.get("usage") or {})
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                self._apply(event["index"], event["delta"])
            case "content_block_stop":
                self._closed.add(event["index"])
                return self._finish_block(event["index"])
            case "message_delta":
                self.message |= event.get("delta") or {}
                self.usage |= {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
            case "message_stop":
                self.complete = True
            case _:
                pass  # ping, and event types that do not exist yet
        return None

    def build(self) -> Answer:
        """Return the answer.

        Raises:
            StreamBrokenError: The stream ended before the answer was complete.
        """
        if not self.complete:
            raise StreamBrokenError("the stream ended without message_stop")
        if open_blocks := self._blocks.keys() - self._closed:
            raise StreamBrokenError(f"the stream ended with {len(open_blocks)} open content block(s)")
        reason = self.message.get("stop_reason")
        if not isinstance(reason, str):
            raise StreamBrokenError("the answer has no stop reason")
        blocks = tuple(self._blocks[index] for index in sorted(self._blocks))
        calls, broken = _collect_calls(blocks)
        return Answer(
            model=str(self.message.get("model", "")),
            content=blocks,
            calls=calls,
            broken_calls=broken,
            stop_reason=reason,
            stop_details=self.message.get("stop_details") or {},
            usage=parse_usage(self.usage),
        )

    def _apply(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self._json.setdefault(index, []).append(delta["partial_json"])
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
            case kind:
                # Guessing would send back a block that is not what the model wrote.
                raise StreamBrokenError(f"unknown delta type {kind!r}")

    def _finish_block(self, index: int) -> dict[str, Any]:
        block = self._blocks[index]
        if index in self._json:
            block["input"] = "".join(self._json.pop(index)) or "{}"
        return block


def _collect_calls(blocks: tuple[dict[str, Any], ...]) -> tuple[tuple[ToolCall, ...], dict[str, str]]:
    """Parse tool inputs in place; an unusable one becomes ``{}`` in the block and a reason in the mapping."""
    calls, broken = list[ToolCall](), dict[str, str]()
    for block in blocks:
        if block.get("type") != "tool_use":
            continue
        value = block.get("input", {})
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except ValueError as error:
            broken[block["id"]] = f"the input is not complete JSON ({error})"
            value = {}
        if not isinstance(value, dict):
            broken[block["id"]] = f"the input must be a JSON object, found {type(value).__name__}"
            value = {}
        block["input"] = value
        if block["id"] not in broken:
            calls.append(ToolCall(id=block["id"], name=block["name"], input=value))
    return tuple(calls), broken


def parse_usage(usage: Mapping[str, Any]) -> Usage | None:
    """Read the API's usage object; None when nothing was reported, so that unknown never looks like zero."""

    def count(source: Mapping[str, Any] | None, key: str) -> int:
        value = (source or {}).get(key)
        return value if isinstance(value, int) and value > 0 else 0

    written = count(usage, "cache_creation_input_tokens")
    long = min(written, count(usage.get("cache_creation"), "ephemeral_1h_input_tokens"))
    found = Usage(
        input_tokens=count(usage, "input_tokens"),
        cache_read_tokens=count(usage, "cache_read_input_tokens"),
        cache_write_5m_tokens=written - long,
        cache_write_1h_tokens=long,
        output_tokens=count(usage, "output_tokens"),
        thinking_tokens=count(usage.get("output_tokens_details"), "thinking_tokens"),
    )
    return None if found.prompt_tokens == 0 else found
