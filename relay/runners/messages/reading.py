"""Reads the body of a response as the events of an answer, within limits of time and size.

relay reads on behind the first fault of a stream: its usage stands at the end and is billed either way. An endpoint
that does not stream sends the finished message, which is read as if it had come as events.

The HTTP client's own timeouts are for silence: one byte now and then keeps them from expiring. So progress is measured
in events, an answer has a longest time, and an alarm limits the wait for the first byte.

Server-sent events are split as bytes. The client library's line iterator splits text where Unicode would (U+2028 and
others), and JSON may carry those characters unescaped; the event-stream format knows only CR, LF and CRLF.
Source: WHATWG HTML, "Interpreting an event stream".
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any, TypeAlias

from relay.base.sse import ServerEvent, parse_events
from relay.runners.messages.answers import AnswerBuilder, StreamBrokenError

LEAST_ANSWER_S = 900.0
"""Every answer may take this long. The longest honest one, 32,000 tokens at 40 a second, takes 13 minutes."""
END_S = 0.5
"""How long to wait for the end of a response behind the last event of a complete answer: only a response that was read
to its end leaves the connection for the next request."""
PATIENCE = 10
"""So many times the idle limit an answer may consist of pings only: 15 minutes by default, as `LEAST_ANSWER_S`."""
SLOWEST_TOKENS_PER_S = 20.0
"""An answer with a large output limit may take longer, at this pace; a slower one counts as stalled."""

_EVENTS_BYTES = 1024 * 1024
"""Bytes of an answer besides its tokens: pings, the starts and ends of its blocks."""
_TOKEN_BYTES = 256
"""Most bytes of a token on the wire, on average: a token that comes alone takes an event of 130 to 180 bytes."""


def most_answer_bytes(output_tokens: int) -> int:
    """Return the largest size of an answer's body with this many tokens."""
    return _EVENTS_BYTES + _TOKEN_BYTES * output_tokens


class StalledError(StreamBrokenError):
    """A stream was given up for its slowness, not for its content."""


class OpeningTimeoutError(Exception):
    """Headers, or the body of an error, did not come in time."""


class Watchdog:
    """Watches one stream. Mutable.

    Args:
        clock: Steady seconds.
        idle_s: Longest time without an event.
        output_tokens: The output limit of the request.
    """

    def __init__(self, clock: Callable[[], float], *, idle_s: float, output_tokens: int) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._whole_s = max(LEAST_ANSWER_S, output_tokens / SLOWEST_TOKENS_PER_S)
        self._started = self._alive = self._progress = clock()
        self._begun = False
        self._output_tokens = output_tokens
        self._left_bytes = most_answer_bytes(output_tokens)

    def note_event(self, *, progress: bool) -> None:
        """Note an event.

        Args:
            progress: Whether it brought the answer forward. Other events, pings, count as a sign of life once the
                answer has begun: thinking that is not shown is nothing but pings for minutes.
        """
        now = self._clock()
        self._begun = self._begun or progress
        if self._begun:
            self._alive = now
        if progress:
            self._progress = now

    def watch(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield chunks as long as they are worth waiting for.

        Raises:
            StalledError: No event, or only pings, for too long, or no end in sight.
            StreamBrokenError: The body is longer than the requested answer can be.
        """
        self._alive = self._progress = self._clock()
        for chunk in chunks:
            now = self._clock()
            self._left_bytes -= len(chunk)
            if self._left_bytes < 0:
                raise StreamBrokenError(f"it is longer than the {self._output_tokens:,} tokens that were asked for")
            if now - self._alive > self._idle_s:
                words = "only pings or pieces of an event" if not self._begun else "only pieces of an event"
                raise StalledError(f"no progress for {self._idle_s:g} s, {words}")
            if now - self._progress > PATIENCE * self._idle_s:
                raise StalledError(f"only pings for {PATIENCE * self._idle_s:g} s")
            if now - self._started > self._whole_s:
                raise StalledError(f"no end after {self._whole_s:,.0f} s")
            yield chunk


@contextmanager
def open_within(limit_s: float) -> Iterator[None]:
    """Limit the time of a block that waits inside the HTTP client.

    An alarm signal ends the block, so the limit holds on the main thread only; runs are there.

    Raises:
        OpeningTimeoutError: The block took longer; some clients wrap it in an error of their own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    inside = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if inside:
            raise OpeningTimeoutError(f"no complete response headers for {limit_s:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        try:
            yield
        finally:
            # First, because an alarm during the clean-up would raise outside of the block.
            inside = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)


_BLANK = b" \t\r\n\xef\xbb\xbf"
"""Bytes that may precede a body: white space, and a byte order mark."""

OnBlock = Callable[[Mapping[str, Any]], None]
_Event: TypeAlias = Mapping[str, Any] | StreamBrokenError
"""The data of an event, or why it has none."""


class PageError(StreamBrokenError):
    """A web page came instead of an answer: no model worked on the request."""


def read_answer(
    chunks: Iterator[bytes], watchdog: Watchdog, builder: AnswerBuilder, on_block: OnBlock
) -> Mapping[str, Any] | None:
    """Feed a body to the builder until the answer is complete or the body ends.

    Args:
        chunks: The body; bytes behind the end of the answer stay in it.
        builder: Takes the events; it gets the usage even behind the first fault.
        on_block: Called with each finished block as long as nothing is wrong.

    Returns:
        The ``error`` event that ended the answer, or None.

    Raises:
        StreamBrokenError: The body is no answer; the builder still has the reported usage.
    """
    broken: Exception | None = None
    try:
        for data in _iter_events(watchdog.watch(chunks), watchdog, builder):
            if isinstance(data, Mapping) and data.get("type") == "error":
                return data
            try:
                if isinstance(data, StreamBrokenError):
                    raise data
                if (block := builder.feed(data)) and broken is None:
                    on_block(block)
            except StreamBrokenError as error:
                broken = broken or error
            # relay does not wait for the end of the stream: an endpoint may hold it open, and the answer is whole.
            if builder.complete:
                break
    except Exception:
        if broken is None:
            raise
    if broken is not None:  # later faults are consequences of the first
        raise broken
    return None


def _iter_events(chunks: Iterator[bytes], watchdog: Watchdog, builder: AnswerBuilder) -> Iterator[_Event]:
    """Yield the events; each is a sign of life. Tell the builder if they come all at once."""
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
    # Gateways write errors in their own dialect.
    is_error = event.name == "error" or ("type" not in data and data.get("error"))
    return {**data, "type": "error"} if is_error else data


def _iter_message(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield a finished message, or an error, as events.

    Raises:
        StreamBrokenError: The body is neither.
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
    """Return the first byte that is not blank (empty without one), and all chunks."""
    seen = []
    for chunk in chunks:
        seen.append(chunk)
        if text := chunk.lstrip(_BLANK):
            return text[:1], chain(seen, chunks)
    return b"", iter(seen)
