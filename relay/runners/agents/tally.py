"""Answers of the four dialects while they pass: model, reason, usage, error, end. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field
from typing import Any

from relay.base.values import dataclass
from relay.runners.agents.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, name_usage
from relay.runners.messages.answers import name_stop_reason, parse_api_usage
from relay.sandbox.wire import dig
from relay.session.usage import Usage

_MAX_LINE_BYTES = 64 * 1024 * 1024
"""Of a line of a stream, or of a whole answer; nothing is read of one that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a part of an answer says; nothing of what it does not."""

    model: Any = None
    reason: Any = None
    usage: Any = None
    error: Any = None
    ends: bool = False
    """Nothing of the answer is missing behind it, but for its usage."""


def _hear_messages(part: Mapping[str, Any]) -> Heard:
    match part.get("type"):
        case "message_start":
            return Heard(model=dig(part, "message.model"), usage=dig(part, "message.usage"))
        case "message_delta":
            return Heard(reason=dig(part, "delta.stop_reason"), usage=part.get("usage"))
        case "message_stop":
            return Heard(ends=True)
        case "error":
            return Heard(error=part.get("error") or part)
        case "message":
            return Heard(model=part.get("model"), reason=part.get("stop_reason"), usage=part.get("usage"), ends=True)
        case _:
            return Heard()  # a text that has one of the words in it


def _hear_responses(part: Mapping[str, Any]) -> Heard:
    if part.get("type") == "error":
        return Heard(error=part.get("error") or {"code": part.get("code"), "message": part.get("message")})
    whole = part if part.get("object") == "response" else part.get("response")
    if not isinstance(whole, dict):
        return Heard()
    status = whole.get("status") if isinstance(whole.get("status"), str) else None
    return Heard(
        model=whole.get("model"),
        reason=dig(whole, "incomplete_details.reason") or status,
        usage=whole.get("usage"),
        error=(whole.get("error") or {"code": status}) if status in {"failed", "cancelled"} else None,
        ends=status in {"completed", "incomplete"},
    )


def _hear_chat(part: Mapping[str, Any]) -> Heard:
    choice = _first(part.get("choices"))
    reason = choice.get("finish_reason")
    usage = part.get("usage") or choice.get("usage")
    return Heard(model=part.get("model"), reason=reason, usage=usage, error=part.get("error"), ends=bool(reason))


def _hear_gemini(part: Mapping[str, Any]) -> Heard:
    reason = _first(part.get("candidates")).get("finishReason") or dig(part, "promptFeedback.blockReason")
    return Heard(
        model=part.get("modelVersion"),
        reason=reason,
        usage=part.get("usageMetadata"),
        error=part.get("error"),
        ends=bool(reason),
    )


def _first(found: Any) -> Mapping[str, Any]:
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


_HEAR: Mapping[str, tuple[Callable[[Mapping[str, Any]], Heard], tuple[bytes, ...]]] = {
    MESSAGES.name: (_hear_messages, (b"message_start", b"message_delta", b"message_stop", b'"error"')),
    RESPONSES.name: (_hear_responses, (b'"response"', b'"error"')),
    CHAT.name: (_hear_chat, (b'"finish_reason"', b'"usage"', b'"error"')),
    GEMINI.name: (_hear_gemini, (b'"usageMetadata"', b'"finishReason"', b'"promptFeedback"', b'"error"')),
}
"""By dialect: how a part is read, and the words of which a line of a stream that matters has one; the rest is text."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Reads an answer while it passes. Mutable: it comes in pieces."""

    dialect: Dialect
    streamed: bool
    """As server-sent events; else as JSON."""
    model: str = ""
    stop_reason: str = ""
    """As the Messages API calls it where it knows it."""
    is_complete: bool = False
    error: Mapping[str, Any] | None = None
    """The error that ended a stream."""
    passed_bytes: int = 0
    parts: int = 0
    """Events of a stream."""
    _usage: dict[str, Any] = field(default_factory=dict)
    _held: bytearray = field(default_factory=bytearray)

    @property
    def usage(self) -> Usage | None:
        """What was reported; of the answer only at its end: before that no count of it is final. None for nothing."""
        named = name_usage(self._usage, self.dialect.usage)
        return parse_api_usage(named if self.is_complete else {**named, "output_tokens": 0})

    @property
    def held_bytes(self) -> int:
        """How much is held of what has no end yet."""
        return len(self._held)

    def forget(self) -> None:
        """Hold nothing of what has no end yet: it will count as one that broke off."""
        self._held.clear()

    def feed(self, chunk: bytes) -> None:
        """Take what has passed."""
        self.passed_bytes += len(chunk)
        self._held += chunk
        if len(self._held) > _MAX_LINE_BYTES:
            self.forget()
        if not self.streamed or b"\n" not in chunk:
            return
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest)
        for line in lines:
            self._read_line(line)

    def close(self) -> None:
        """Take the answer's end."""
        if self.streamed:
            self._read_line(bytes(self._held))
        for part in () if self.streamed else _parse(bytes(self._held)):
            self._take(part)

    def _read_line(self, line: bytes) -> None:
        _, words = _HEAR[self.dialect.name]
        self.parts += line.startswith(b"data:")
        if line.startswith(b"data:") and any(word in line for word in words):
            for part in _parse(line[5:]):
                self._take(part)

    def _take(self, part: Mapping[str, Any]) -> None:
        hear, _ = _HEAR[self.dialect.name]
        heard = hear(part)
        if isinstance(heard.model, str):
            self.model = heard.model[:200]
        if isinstance(heard.reason, str):
            self.stop_reason = name_stop_reason(heard.reason)[:100]
        if isinstance(heard.usage, dict):
            self._usage |= {name: value for name, value in heard.usage.items() if value is not None}
        if heard.error:
            self.error = heard.error if isinstance(heard.error, dict) else {"message": str(heard.error)}
        self.is_complete = self.is_complete or heard.ends


def describe_answer(tally: Tally) -> dict[str, Any]:
    """Return what was read of an answer, as a session's history keeps it."""
    return {
        "model": tally.model,
        "stop_reason": tally.stop_reason,
        "usage": asdict(tally.usage) if tally.usage else None,
        "is_complete": tally.is_complete,
    }


def _parse(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a text: one, or those of a list."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, dict):
            yield part
