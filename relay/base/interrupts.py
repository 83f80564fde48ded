"""Signals as flags, and the only way relay waits.

Handlers set a flag and wake a pipe. They never raise, except inside `Interrupts.interruptible`, which wraps a blocking
read that has no other way to end. So an interrupt never falls between "a tool ran" and "it was recorded". There is one
more case: some seconds after a request to stop at once, relay may still hang in a pattern or in git. Then an alarm
raises wherever that is, and the next run recovers as after a kill.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

GRACE_S = 10.0
"""Seconds that relay has to stop at once. Source: ``docker stop`` waits as long, other supervisors longer."""


_MOST_MS = 2**31 - 1


def wait_readable(descriptors: Iterable[int], seconds: float) -> bool:
    """Wait until a descriptor can be read; return False if none can in time. A program around relay may hold many.

    `select.select` takes no descriptor above 1,023. A wait of more than 24 days ends early.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(min(1000 * seconds, _MOST_MS)))


class Urgency(IntEnum):
    """How soon the run should stop."""

    NONE = 0
    FINISH_TURN = 1
    """Let the answer and its tools finish, then hand over: handoff note, checks, and a commit if they pass."""
    NOW = 2
    """Kill running commands; the next run recovers."""


class Interrupted(BaseException):
    """Raised inside `Interrupts.interruptible` only; not an error, so not an Exception."""


class Interrupts:
    """Requests of the user or the system to stop the run.

    Args:
        sleep: Replaces the wakeable wait, for tests that must not sleep; takes seconds.
        grace_s: Seconds that relay has to stop at once before the alarm raises.
    """

    def __init__(self, *, sleep: Callable[[float], None] | None = None, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._is_installed = False
        self._urgency = Urgency.NONE
        self._ends_at: Urgency | None = None
        self._sleep = sleep
        self._tell: Callable[[Urgency], None] = lambda _: None
        # Not blocking, since a signal handler writes to it.
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def finish_turn(self) -> bool:
        """Whether no further request should be sent."""
        return self._urgency >= Urgency.FINISH_TURN

    @property
    def stop_now(self) -> bool:
        """Whether running work should be killed."""
        return self._urgency >= Urgency.NOW

    def request(self, urgency: Urgency) -> None:
        """Ask for a stop; a lower urgency than before changes nothing."""
        self._urgency = max(self._urgency, urgency)
        try:
            os.write(self._write_fd, b"!")
        except BlockingIOError:
            return  # the pipe is full of earlier wake-ups: whoever waits will wake

    def wait(self, seconds: float) -> bool:
        """Wait, and return True at once when a stop is asked for."""
        if self._sleep is not None:
            self._sleep(seconds)
            return self.finish_turn
        deadline = time.monotonic() + seconds
        while not self.finish_turn and (left := deadline - time.monotonic()) > 0:
            # A signal between the test and the call left a byte, which ends the wait at once. Bytes are never read,
            # so a requested stop stays requested.
            wait_readable([self._read_fd], left)
        return self.finish_turn

    def wait_for(self, descriptors: Sequence[int], seconds: float) -> None:
        """Wait until a descriptor can be read, a stop is first asked for, or the seconds are over."""
        own = () if self.finish_turn else (self._read_fd,)
        wait_readable([*descriptors, *own], seconds)

    @contextmanager
    def interruptible(self, at: Urgency = Urgency.NOW) -> Iterator[None]:
        """Let a stop of this urgency or a higher one raise `Interrupted` in the body; for blocking reads."""
        self._ends_at = at
        try:
            if self._urgency >= at:
                raise Interrupted
            yield
        finally:
            self._ends_at = None
            # The body may have set an alarm of its own and thereby removed this one.
            if self.stop_now:
                self._set_alarm()

    @contextmanager
    def installed(self, tell: Callable[[Urgency], None] = lambda _: None) -> Iterator[None]:
        """Handle SIGINT (once: finish the turn, twice: now), SIGTERM (now) and SIGHUP (finish the turn).

        Args:
            tell: Called in the signal handler when the urgency rises; must not block or raise.
        """
        self._tell = tell
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: lambda *_: self._ask(Urgency.NOW if self.finish_turn else Urgency.FINISH_TURN),
            signal.SIGTERM: lambda *_: self._ask(Urgency.NOW),
            signal.SIGHUP: lambda *_: self._ask(Urgency.FINISH_TURN),
        }
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            del handlers[signal.SIGHUP]  # started under nohup
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        previous[signal.SIGALRM] = signal.getsignal(signal.SIGALRM) or signal.SIG_DFL
        self._is_installed = True
        try:
            yield
        finally:
            self._is_installed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """Close the wake-up pipe."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _ask(self, urgency: Urgency) -> None:
        is_more = urgency > self._urgency
        self.request(urgency)
        if is_more:
            self._tell(urgency)
        if is_more and urgency is Urgency.NOW:
            self._set_alarm()
        if self._ends_at is not None and urgency >= self._ends_at:
            self._ends_at = None
            raise Interrupted

    def _set_alarm(self) -> None:
        if self._is_installed:
            signal.signal(signal.SIGALRM, self._on_overdue)
            signal.setitimer(signal.ITIMER_REAL, self._grace_s, GRACE_S)

    def _on_overdue(self, _number: int, _frame: FrameType | None) -> None:
        raise Interrupted
