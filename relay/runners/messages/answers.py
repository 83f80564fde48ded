"""From stream events to a complete answer, or to the reason why there is none.

An answer counts only after ``message_stop``, with every block closed and a stop reason. Tool inputs are parsed from the
whole JSON text: a cut input is never passed on as a complete one.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from relay.base.values import dataclass
from relay.session.usage import Usage

_REASONS = {
    "max_output_tokens": "max_tokens", "length": "max_tokens", "MAX_TOKENS": "max_tokens",
    "content_filter": "refusal", "SAFETY": "refusal", "PROHIBITED_CONTENT": "refusal", "BLOCKLIST": "refusal",
    "RECITATION": "refusal", "SPII": "refusal", "MODEL_ARMOR": "refusal", "JAILBREAK": "refusal",
    "stop": "end_turn", "STOP": "end_turn", "completed": "end_turn",
    "tool_calls": "tool_use", "function_call": "tool_use",
}  # fmt: skip
"""Reasons to stop in other dialects, and what the Messages API calls them; gateways pass their own names on."""

_T = TypeVar("_T")

THINKING = frozenset({"thinking", "redacted_thinking"})
_NOT_IN_CALL_ID = re.compile(r"[^A-Za-z0-9_-]")

_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
"""Deltas that are pieces of one text, and the field that holds the piece."""


class StreamBrokenError(Exception):
    """The stream ended, or stopped being an answer, before the answer was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer."""

    model: str
    content: tuple[dict[str, Any], ...]
    """Blocks exactly as received, with unknown blocks and fields, ready to be sent back."""
    broken_calls: Mapping[str, str]
    """Call id → why its input cannot be used. Such a call has an empty input in `content`."""
    stop_reason: str
    stop_details: Mapping[str, Any]
    """``category`` and ``explanation`` of a refusal; else empty."""
    usage: Usage | None
    """None if the endpoint reported no usage, or only zeros: it is unknown. A prompt or an answer of 0 tokens is
    too."""
    streamed: bool = True
    """Whether it came piece by piece; False if it came whole."""
    cleared_tokens: int = 0
    """Tokens of the request's history that the endpoint left out, because it was asked to edit the context."""

    @property
    def text(self) -> str:
        """All text blocks."""
        return "\n".join(b["text"] for b in self.content if b.get("type") == "text" and b.get("text"))


@dataclass(slots=True)
class _OpenBlock:
    """A content block and the pieces of its text so far. Mutable: pieces come one by one."""

    body: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def close(self) -> dict[str, Any]:
        """Join the pieces; a tool's input stays JSON text until the answer is complete.

        Raises:
            StreamBrokenError: The input of a tool that the endpoint itself ran is not JSON: it cannot be sent back.
        """
        for name, pieces in self.pieces.items():
            if name == "partial_json":
                text = "".join(pieces) or "{}"
                try:
                    self.body["input"] = text if self.body["type"] == "tool_use" else json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise StreamBrokenError(f"the input of a block is no JSON ({error})") from None
            else:
                self.body[name] = _join(self.body.get(name), pieces)
        return self.body


@dataclass(slots=True)
class AnswerBuilder:
    """Collects the events of one stream. Mutable: events come one by one."""

    complete: bool = False
    streamed: bool = True
    """Whether the events came one by one."""
    _message: dict[str, Any] | None = None
    _usage: dict[str, Any] = field(default_factory=dict)
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _open: dict[int, _OpenBlock] = field(default_factory=dict)

    @property
    def has_begun(self) -> bool:
        """Whether any part of the answer has come."""
        return self._message is not None

    @property
    def usage(self) -> Usage | None:
        """The reported usage; None if nothing was reported. Output counts only at the end of an answer: earlier counts
        are not final."""
        has_ended = self._message is not None and self._message.get("stop_reason")
        return parse_api_usage(self._usage if has_ended else {**self._usage, "output_tokens": 0})

    def feed(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take one event; return the block it closed, if any.

        Raises:
            StreamBrokenError: The event cannot belong to a well-formed answer.
        """
        match event.get("type"):
            case "message_start":
                self._start(_get(event, "message", dict))
            case "content_block_start":
                self._open_block(_get(event, "index", int), _get(event, "content_block", dict))
            case "content_block_delta":
                self._apply(self._get_open(event), _get(event, "delta", dict))
            case "content_block_stop":
                block = self._get_open(event).close()
                self._blocks[event["index"]] = block
                del self._open[event["index"]]
                return block
            case "message_delta":
                self._end(event)
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
        if not self.complete or self._message is None:
            raise StreamBrokenError("the stream ended without message_stop")
        if self._open:
            raise StreamBrokenError(f"the stream ended with {len(self._open)} open content block(s)")
        blocks = tuple(self._blocks[index] for index in sorted(self._blocks))
        broken = _parse_inputs(blocks)
        try:  # a lone surrogate outside of texts, where it was replaced: the block could not be sent back
            json.dumps(blocks, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise StreamBrokenError("a content block holds half a character (a lone surrogate)") from None
        said = self._message.get("context_management")
        edits = said.get("applied_edits") if isinstance(said, Mapping) else None
        cleared = [edit.get("cleared_input_tokens") for edit in edits or () if isinstance(edit, Mapping)]
        return Answer(
            model=str(self._message.get("model") or ""),
            content=blocks,
            broken_calls=broken,
            stop_reason=name_stop_reason(_get(self._message, "stop_reason", str)),
            stop_details=_find(self._message, "stop_details") or {},
            usage=self.usage,
            streamed=self.streamed,
            cleared_tokens=sum(count for count in cleared if isinstance(count, int) and count > 0),
        )

    def _start(self, message: dict[str, Any]) -> None:
        if self._message is not None:
            raise StreamBrokenError("a second answer began in the same stream")
        self._message = dict(message)
        self._usage = dict(_find(message, "usage") or {})
        if self.streamed:
            self._usage.pop("output_tokens", None)  # the count at the start of a stream says nothing about its end

    def _end(self, event: Mapping[str, Any]) -> None:
        if self._message is None:
            raise StreamBrokenError("the answer ends before it began")
        self._message |= _find(event, "delta") or {}
        self._message |= {name: event[name] for name in event.keys() & {"context_management"}}
        self._usage = _merge_usage(self._usage, _find(event, "usage") or {})

    def _open_block(self, index: int, block: dict[str, Any]) -> None:
        if index in self._open or index in self._blocks:
            raise StreamBrokenError(f"content block {index} began twice")
        _get(block, "type", str)
        self._open[index] = _OpenBlock(body=dict(block))

    def _get_open(self, event: Mapping[str, Any]) -> _OpenBlock:
        index = _get(event, "index", int)
        if index not in self._open:
            raise StreamBrokenError(f"content block {index} is not open")
        return self._open[index]

    def _apply(self, block: _OpenBlock, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        if kind in _JOINED:
            name = _JOINED[kind]
            block.pieces.setdefault(name, []).append(_get(delta, name, str))
        elif kind == "signature_delta":
            block.body["signature"] = _get(delta, "signature", str)
        elif kind == "citations_delta":
            block.body["citations"] = [*(block.body.get("citations") or []), _get(delta, "citation", dict)]
        else:
            # A guess would send back a block that the model did not write.
            raise StreamBrokenError(f"unknown delta type {kind!r}")


def _merge_usage(first: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the larger of each count: counts are totals so far, so a smaller or null count says nothing."""
    merged = dict(first)
    for name, value in later.items():
        before = merged.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = _merge_usage(before, value)
        elif not (isinstance(before, int) and not (isinstance(value, int) and value > before)) and value is not None:
            merged[name] = value
    return merged


def _get(source: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = source.get(name)
    # In Python True is an int, and would be index 1.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise StreamBrokenError(
            f"{source.get('type', 'answer')}: {name} is {type(value).__name__}, not {kind.__name__}"
        )
    return value


def _find(source: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return None if source.get(name) is None else _get(source, name, dict)


def _join(start: Any, pieces: list[str]) -> str:
    """Join pieces. A character that was cut inside its escape sequence is restored; a lone surrogate is replaced."""
    text = "".join([start if isinstance(start, str) else "", *pieces])
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _parse_inputs(blocks: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """Parse tool inputs in place. An unusable input becomes ``{}`` in the block and a reason in the result."""
    broken: dict[str, str] = {}
    for block in blocks:
        if block["type"] != "tool_use":
            continue
        call_id, _ = _get(block, "id", str), _get(block, "name", str)
        try:
            block["input"] = _parse_input(block.get("input", {}))
        except ValueError as error:
            broken[call_id] = str(error)
            block["input"] = {}
    return broken


def _parse_input(value: Any) -> dict[str, Any]:
    """Return a tool's input.

    Raises:
        ValueError: The input is not a JSON object that can be sent back; the message is for the model.
    """
    try:
        found = json.loads(value, parse_constant=_refuse_constant) if isinstance(value, str) else value
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("the input holds half a character (a lone surrogate)") from None
    except RecursionError:
        raise ValueError("the input is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the input is not complete JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"the input must be a JSON object, found {type(found).__name__}")  # noqa: TRY004  # one tree
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def name_stop_reason(reason: str) -> str:
    """Return the Messages API's name of a reason to stop; an unknown reason is returned unchanged."""
    return _REASONS.get(reason, reason)


def parse_api_usage(usage: Mapping[str, Any]) -> Usage | None:
    """Read the API's usage object; None if nothing was reported, so that unknown never looks like zero.

    A prompt of 0 tokens counts as not reported; the count of the answer is kept.
    """

    def count(source: Any, key: str) -> int:
        value = source.get(key) if isinstance(source, Mapping) else None
        return value if isinstance(value, int) and value > 0 else 0

    parts = usage.get("cache_creation")
    long, short = (count(parts, f"ephemeral_{life}_input_tokens") for life in ("1h", "5m"))
    # The sum may be missing, and so may the parts.
    written = max(count(usage, "cache_creation_input_tokens"), long + short)
    output = count(usage, "output_tokens")
    found = Usage(
        input_tokens=count(usage, "input_tokens"),
        cache_read_tokens=count(usage, "cache_read_input_tokens"),
        cache_write_5m_tokens=written - long,
        cache_write_1h_tokens=long,
        output_tokens=output,
        thinking_tokens=min(output, count(usage.get("output_tokens_details"), "thinking_tokens")),
    )
    return found if found.context_tokens else None


def make_sendable(answer: Answer, taken: Collection[str]) -> Answer:
    """Return the answer as it may be sent back.

    Empty text blocks are removed, then thinking that nothing follows. A call id that was used before, or has characters
    that the API refuses, is replaced.
    """
    content: list[dict[str, Any]] = []
    broken: dict[str, str] = {}
    used = set(taken)
    for block in answer.content:
        if block["type"] == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
            continue
        kept = block
        if block["type"] == "tool_use":
            call_id = _find_free_id(block["id"], used)
            used.add(call_id)
            kept = block if call_id == block["id"] else {**block, "id": call_id}
            if why := answer.broken_calls.get(block["id"]):
                broken[call_id] = why
        content.append(kept)
    # The API refuses an answer that ends with thinking.
    while content and content[-1]["type"] in THINKING:
        content.pop()
    return replace(answer, content=tuple(content), broken_calls=broken)


def _find_free_id(call_id: str, used: Collection[str]) -> str:
    clean = free = _NOT_IN_CALL_ID.sub("_", call_id) or "call"
    n = 1
    while free in used:
        n += 1
        free = f"{clean}_{n}"
    return free
