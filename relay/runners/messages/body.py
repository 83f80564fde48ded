"""A request as the bytes that are sent: a message that the one before it had is not written again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_CONVERSATION = "messages"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class BodyWriter:
    """Writes the requests of conversations. Mutable: remembers the messages of the last one that was answered.

    A message that was in a request with an answer never changes (`relay.runners.messages.history`); one that was
    refused may yet. So the same object is the same bytes where it was answered, and there only.
    """

    def __init__(self) -> None:
        self._answered: tuple[Sequence[Any], Sequence[bytes]] = ((), ())
        self._last: tuple[Sequence[Any], Sequence[bytes]] = self._answered
        """Messages, and each as it is written."""

    def write(self, request: Mapping[str, Any]) -> bytes:
        """Return a request as JSON, as an HTTP client writes it.

        Raises:
            ValueError: It cannot be written.
        """
        fields = (
            b"%s:%s" % (_dump(name), self._write_messages(value) if name == _CONVERSATION else _dump(value))
            for name, value in request.items()
        )
        return b"{%s}" % b",".join(fields)

    def note_answered(self) -> None:
        """Remember what was written last: it was answered."""
        self._answered = self._last

    def _write_messages(self, messages: Sequence[Any]) -> bytes:
        known, written = self._answered
        pairs = enumerate(zip(known, messages, strict=False))
        same = next((n for n, (one, other) in pairs if one is not other), min(len(known), len(messages)))
        self._last = (tuple(messages), (*written[:same], *map(_dump, messages[same:])))
        return b"[%s]" % b",".join(self._last[1])


def _dump(value: Any) -> bytes:
    return _encode(value).encode()
