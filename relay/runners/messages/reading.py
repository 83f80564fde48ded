"""From the body of a response to the events of an answer, whatever form the endpoint gave it.

A stream is read on behind its first fault: what it has used stands at its end, and is billed either way. A body that is
the finished message, from an endpoint that does not stream, is read as the one event after the other that it would
have been.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from relay.runners.messages.answers import AnswerBuilder, StreamBrokenError
from relay.runners.messages.sse import ServerEvent, parse_events
from relay.runners.messages.watchdog import Watchdog

_BLANK = b" \t\r\n\xef\xbb\xbf"
"""May stand in front of a body: white space, and a byte order mark."""

OnBlock = Callable[[Mapping[str, Any]], None]
_Event: TypeAlias = Mapping[str, Any] | StreamBrokenError
"""The data of an event, or why it has none."""


class PageError(StreamBrokenError):
    """A web page came instead of an answer: nobody has worked on the request."""


def read_answer(
    chunks: Iterator[bytes], watchdog: Watchdog, builder: AnswerBuilder, on_block: OnBlock
) -> Mapping[str, Any] | None:
    """Feed a body to the builder until the answer is complete or nothing more comes.

    Args:
        chunks: The body; what follows the end of the answer is left in it.
        builder: Takes the events, and is told of usage to the end.
        on_block: Called with each finished block as long as nothing is wrong.

    Returns:
        The ``error`` event that ended it; None without one.

    Raises:
        StreamBrokenError: It is no answer; what it has used is in the builder all the same.
    """
    broken: Exception | None = None
    try:
        for data in _iter_events(watchdog.watch(chunks), watchdog, builder):
            if isinstance(data, Mapping) and data.get("type") == "error":
                return data
            block = _feed(builder, data)
            if isinstance(block, StreamBrokenError):
                broken = broken or block
            elif block and broken is None:
                on_block(block)
            # Not waited for the end of the stream: an endpoint may hold it open, and the answer is whole.
            if builder.complete:
                break
    except Exception as error:
        # What broke first is what is wrong; what came of reading on is its consequence.
        _raise_first(broken, error)
        raise
    _raise_first(broken)
    return None


def _raise_first(broken: Exception | None, later: Exception | None = None) -> None:
    if broken is not None:
        raise broken from later


def _feed(builder: AnswerBuilder, data: _Event) -> _Event | None:
    """Return the block that an event closed, or what is wrong with the event."""
    try:
        return data if isinstance(data, StreamBrokenError) else builder.feed(data)
    except StreamBrokenError as error:
        return error


def _iter_events(chunks: Iterator[bytes], watchdog: Watchdog, builder: AnswerBuilder) -> Iterator[_Event]:
    """Yield the events; each is a sign of life. The builder is told when they come all at once."""
    first, chunks = _peek(chunks)
    if first == b"<":
        raise PageError("it is a web page")
    if first == b"{":
        builder.streamed = False
        yield from _iter_message(b"".join(chunks))
        return
    for event in parse_events(chunks):
        watchdog.note_event(progress=event.name != "ping")
        yield _parse_event(event)


def _parse_event(event: ServerEvent) -> _Event:
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        return StreamBrokenError(str(error))
    if not isinstance(data, dict):
        return StreamBrokenError("event data is not an object")
    # Gateways write what they mean by an error as their own dialect has it.
    is_error = event.name == "error" or ("type" not in data and data.get("error"))
    return {**data, "type": "error"} if is_error else data


def _iter_message(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield a finished message, or an error, as events.

    Raises:
        StreamBrokenError: It is neither.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StreamBrokenError(str(error)) from error
    if isinstance(message, dict) and message.get("error"):
        yield {**message, "type": "error"}
        return
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        raise StreamBrokenError("it is JSON, but no message of the Messages API")
    yield {"type": "message_start", "message": {**message, "content": []}}
    for index, block in enumerate(content):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_stop"}


def _peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first byte that is not blank, empty without one, and all chunks."""
    seen = []
    for chunk in chunks:
        seen.append(chunk)
        if text := chunk.lstrip(_BLANK):
            return text[:1], chain(seen, chunks)
    return b"", iter(seen)
