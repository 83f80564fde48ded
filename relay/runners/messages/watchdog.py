"""Limits for an endpoint that hold even while it sends bytes: of time, and of how much it sends.

The HTTP client's own timeouts are for silence: one byte every now and then holds them off for ever. So progress is
measured in events, an answer has a longest time, and what comes before its first byte runs under an alarm.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from relay.runners.messages.answers import StreamBrokenError

LEAST_ANSWER_S = 900.0
"""Every answer may take as long as this. The longest honest one, 32,000 tokens at 40 a second, takes 13 minutes."""
END_S = 0.5
"""How long the end of a response is waited for behind its last event, when the answer is complete: only one that was
read to its end leaves a connection for the next request."""
PATIENCE = 10
"""How many times the idle limit an answer may take that is only pings: 15 minutes by default, as `LEAST_ANSWER_S`."""
SLOWEST_TOKENS_PER_S = 20.0
"""An answer with a large output limit may take longer, at this pace; slower is as good as a stall."""

_EVENTS_BYTES = 1024 * 1024
"""What an answer may have besides its tokens: pings, the starts and ends of its blocks."""
_TOKEN_BYTES = 256
"""The most that a token takes on the wire, on average: one that comes alone takes an event of 130 to 180 bytes."""


def most_answer_bytes(output_tokens: int) -> int:
    """Return how large the body of an answer can be for which so many tokens were asked."""
    return _EVENTS_BYTES + _TOKEN_BYTES * output_tokens


class StalledError(StreamBrokenError):
    """A stream was given up because of time, not because of what it said."""


class OpeningTimeoutError(Exception):
    """Headers, or the body of an error, did not come in time."""


class Watchdog:
    """Watches one stream.

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
            progress: It brought the answer forward. Any other, a ping, is a sign of life once the answer has begun:
                thinking that is not shown is nothing but pings for minutes.
        """
        now = self._clock()
        self._begun = self._begun or progress
        if self._begun:
            self._alive = now
        if progress:
            self._progress = now

    def watch(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass bytes on as long as they are worth waiting for.

        Raises:
            StalledError: No event, or only pings, for too long, or no end in sight.
            StreamBrokenError: It is more than the answer can be that was asked for.
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
    """Bound a block that waits inside the HTTP client, where nothing else can be looked at meanwhile.

    An alarm signal ends it, so the bound holds on the main thread only; runs are there.

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
            # First of all: an alarm that rings while the timer is taken down would raise outside of the block.
            inside = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)
