"""Server-sent events, from chunks of bytes as they come."""

import re
from collections.abc import Iterable, Iterator

from relay.base.values import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One dispatched event."""

    name: str
    """``message`` if the stream names none."""
    data: str


def parse_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield complete events; an unfinished last event is dropped, as the format says."""
    name, data = b"", list[bytes]()
    for line in _split_lines(chunks):
        if not line:
            if data:
                yield ServerEvent(
                    name=name.decode("utf-8", "replace") or "message",
                    data=b"\n".join(data).decode("utf-8", "replace"),
                )
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends; text behind the last line end is not a line."""
    pieces, after_cr = list[bytes](), False
    for raw in chunks:
        # An LF right behind a CR belongs to it, even if the network cut between them.
        chunk = raw.removeprefix(b"\n") if after_cr else raw
        after_cr = raw.endswith(b"\r") if raw else after_cr
        first, *more = _LINE_END.split(chunk)
        pieces.append(first)
        for piece in more:
            yield b"".join(pieces)
            pieces = [piece]
