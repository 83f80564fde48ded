"""Notes of what goes over the wire, for a session's tape."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from relay.runners.messages.answers import Answer
from relay.runners.messages.endpoint import StatusError
from relay.runners.messages.faults import Fault
from relay.session.tape import Keep, Note

_KEPT = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry", "location")
_KEPT_PREFIX = "anthropic-ratelimit-"


class NotedRequest:
    """One request on the wire. Mutable: it collects the answer.

    Args:
        meanwhile: Called once the request has gone out.
    """

    def __init__(self, keep: Keep, request: Mapping[str, Any], meanwhile: Callable[[], object] = lambda: None) -> None:
        self._keep = keep
        self._meanwhile = meanwhile
        self._heard = bytearray()
        self._head: dict[str, Any] = {}
        keep({"kind": "request", "body": request})

    def trace(self, event: str, _info: Mapping[str, Any]) -> None:
        """Take a step of the connection. Source: the ``trace`` extension of httpcore."""
        if event.endswith("send_request_body.complete"):
            self._meanwhile()

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take status and headers; credentials are not among those that are kept."""
        kept = {name.lower(): value for name, value in headers.items()}
        shown = {name: value for name, value in kept.items() if name in _KEPT or name.startswith(_KEPT_PREFIX)}
        self._head = {"kind": "answer", "status": status, "headers": shown}

    def listen(self, chunks: Iterator[bytes]) -> Generator[bytes, None, None]:
        """Pass a body on, and keep it when it ends, however it ends."""
        cut = True
        try:
            for chunk in chunks:
                self._heard += chunk
                yield chunk
            cut = False
        finally:
            self._keep({**self._head, "body": self._heard.decode("utf-8", "surrogateescape"), "cut": cut})

    def refuse(self, error: StatusError) -> None:
        """Keep an answer that is an error."""
        self.begin(error.status_code, error.headers)
        body = error.body if isinstance(error.body, str) else json.dumps(error.body, ensure_ascii=False)
        self._keep({**self._head, "body": body, "cut": False})


def describe_result(result: Answer | Fault) -> Note:
    """Return the note of what was made of an answer."""
    if isinstance(result, Fault):
        return {"kind": "made", "fault": result.kind.value, "words": result.message}
    return {
        "kind": "made",
        "stop_reason": result.stop_reason,
        "usage": asdict(result.usage) if result.usage else None,
        "content": result.content,
    }
