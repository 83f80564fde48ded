"""Requests and answers of the Messages API as they pass through the gateway: what they ask for, what they used. Pure.

Nothing that passes is changed. An agent's endpoint is always spoken to in this dialect: every agent that relay starts
can speak it.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.runners.messages.answers import parse_usage
from relay.session.usage import Usage
from relay.values import dataclass

REQUEST_PATH = "/v1/messages"
_OTHER_PATHS = ("/v1/messages/count_tokens", "/v1/models")
"""What an agent may ask besides; everything else of an endpoint (files, batches) is out of its reach."""
_MAX_LINE_BYTES = 64 * 1024 * 1024
_TELLING = (b"message_start", b"message_delta", b"message_stop", b'"error"')
"""Only lines that hold one of these words are read: the rest of a stream is text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request that a model is going to answer."""

    model: str
    is_main: bool
    """Of the session's own conversation: it has tools and the session's mark. Titles and the like have not both."""
    prompt_bytes: int
    max_output_tokens: int


def may_pass(method: str, path: str) -> bool:
    """Say whether a request is one that the gateway forwards."""
    bare = path.partition("?")[0]
    if method == "GET":
        return bare == "/v1/models" or (bare.startswith("/v1/models/") and ".." not in bare)
    return method == "POST" and bare in {REQUEST_PATH, *_OTHER_PATHS[:1]}


def read_request(path: str, body: bytes, mark: bytes) -> ModelRequest | None:
    """Return what a request asks of a model; None for one that costs nothing.

    Args:
        path: With its query.
        body: As it came.
        mark: What only the session's own conversation holds.

    Raises:
        ValueError: It is no request that can be accounted for.
    """
    if path.partition("?")[0] != REQUEST_PATH:
        return None
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("the request is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("the request is no JSON object")  # noqa: TRY004  # what it is is the other side's choice
    most = found.get("max_tokens")
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError("the request has no max_tokens")
    return ModelRequest(
        model=str(found.get("model", ""))[:200],
        is_main=bool(found.get("tools")) and mark in body,
        prompt_bytes=len(body),
        max_output_tokens=most,
    )


@dataclass(slots=True, kw_only=True)
class Tally:
    """Reads an answer while it passes. Mutable: it comes in pieces."""

    streamed: bool
    """As server-sent events; else as one JSON object."""
    model: str = ""
    stop_reason: str = ""
    is_complete: bool = False
    error: Mapping[str, Any] | None = None
    """The error that ended a stream."""
    passed_bytes: int = 0
    _usage: dict[str, Any] = field(default_factory=dict)
    _held: bytearray = field(default_factory=bytearray)

    @property
    def usage(self) -> Usage | None:
        """What was used as far as it was reported; None when nothing was."""
        return parse_usage(self._usage)

    def feed(self, chunk: bytes) -> None:
        """Take what has passed."""
        self.passed_bytes += len(chunk)
        self._held += chunk
        if not self.streamed:
            return
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest[:_MAX_LINE_BYTES])
        for line in lines:
            if line.startswith(b"data:") and any(word in line for word in _TELLING):
                self._take(_parse(line[5:]))

    def close(self) -> None:
        """Take the answer's end."""
        if not self.streamed:
            message = _parse(bytes(self._held))
            self._take({"type": "message_start", "message": message})
            self._take({"type": "message_delta", "delta": message})
            self.is_complete = bool(message)

    def _take(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                message = _get(event, "message")
                self.model = str(message.get("model", ""))[:200]
                self._note(message)
            case "message_delta":
                self.stop_reason = str(_get(event, "delta").get("stop_reason") or self.stop_reason)[:100]
                self._note(event)
            case "message_stop":
                self.is_complete = True
            case "error":
                self.error = _get(event, "error")
            case _:
                return  # a text that has one of the words in it

    def _note(self, source: Mapping[str, Any]) -> None:
        self._usage |= {name: value for name, value in _get(source, "usage").items() if value is not None}


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _get(source: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = source.get(name)
    return value if isinstance(value, dict) else {}
