"""Server-sent events from raw bytes.

The client library's line iterator splits text where Unicode would (U+2028 and friends), and JSON may carry those
characters unescaped; the event-stream format knows only CR, LF and CRLF. So bytes are split here.
Source: WHATWG HTML, "Interpreting an event stream".
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One dispatched event."""

    name: str
    """``message`` when the stream names none."""
    data: str


def parse_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield complete events; an unfinished last one is dropped, as the format says."""
    name, data = b"", list[bytes]()
    for line in _split_lines(chunks):
        if not line:
            if data:
                yield ServerEvent(name=name.decode() or "message", data=b"\n".join(data).decode("utf-8", "replace"))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends; what follows the last line end is not a line."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        # A CR at the very end may be the first half of CRLF: keep it for the next chunk.
        body, tail = (rest[:-1], rest[-1:]) if rest.endswith(b"\r") else (rest, b"")
        *lines, last = _LINE_END.split(body)
        rest = last + tail
        yield from lines
    if rest.endswith(b"\r"):
        yield rest[:-1]
