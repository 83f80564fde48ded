"""The hours of a run: when its first session may begin (``--not-before``), and when it stops (``--until``)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from relay.base.errors import ConfigError, ExitCode
from relay.base.hints import RUN
from relay.base.interrupts import Interrupts, Urgency
from relay.base.values import dataclass
from relay.base.words import render_moment
from relay.session.events import Observe, RetryScheduled
from relay.setup.context import RunEnd

_LOOK_S = 30.0
"""Longest time between two looks at the clock, so that a machine that slept past the moment notices soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """When a run works."""

    not_before: float | None = None
    """Seconds since the epoch; None to begin at once."""
    until: float | None = None
    """Seconds since the epoch; None for no end."""


def parse_hours(not_before: str | None, until: str | None, *, now: float) -> Hours:
    """Parse ``22:00`` (the next such time in the local zone) or ``2026-11-23T07:00``; None for no hour.

    Raises:
        ConfigError: The text is no time, has passed, or the end comes before the beginning.
    """
    begins = None if not_before is None else _parse_moment("--not-before", not_before, now)
    ends = None if until is None else _parse_moment("--until", until, begins or now)
    return Hours(not_before=begins, until=ends)


def _parse_moment(name: str, text: str, after: float) -> float:
    base = datetime.fromtimestamp(after).astimezone()
    try:
        if len(text) <= len("07:00"):
            clock = datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007  # a time of day, in the zone of `base`
            found = datetime.combine(base.date(), clock).astimezone()
            if found <= base:
                found = datetime.combine(base.date() + timedelta(days=1), clock).astimezone()
        else:
            found = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ConfigError(f"{name} {text!r} is no time", hint="07:00, or 2026-11-23T07:00") from None
    if found <= base:
        raise ConfigError(f"{name} {text}: {found:%Y-%m-%d %H:%M} has passed by {base:%Y-%m-%d %H:%M}")
    return found.timestamp()


def work_within(hours: Hours, interrupts: Interrupts, observe: Observe, act: Callable[[], RunEnd]) -> RunEnd:
    """Wait for the first hour, act, and hand over at the last hour; return the end of the run."""
    now = time.time()
    if hours.not_before is not None and hours.not_before > now:
        wait_s = hours.not_before - now
        words = f"until {render_moment(hours.not_before, now=now)}, as asked (--not-before)"
        observe(RetryScheduled(attempt=0, wait_s=wait_s, reason=words))
        interrupts.wait(wait_s)  # after an interrupt, `act` sees the requested stop
    with _closing(interrupts, hours.until) as closed:
        end = act()
    if hours.until is None or not closed.is_set() or end.exit_code is not ExitCode.INTERRUPTED:
        return end
    words = f"it is {render_moment(hours.until, now=time.time())} (--until); everything is kept"
    return replace(end, exit_code=ExitCode.STOPPED, reason=words, next_command=RUN)


@contextmanager
def _closing(interrupts: Interrupts, until: float | None) -> Iterator[threading.Event]:
    """Request a stop at `until`, after the current answer and its tools; the yielded event says whether it did."""
    closed, left = threading.Event(), threading.Event()

    def watch(until: float) -> None:
        while (wait_s := until - time.time()) > 0:
            if left.wait(min(wait_s, _LOOK_S)):
                return
        if not interrupts.finish_turn:
            closed.set()
            interrupts.request(Urgency.FINISH_TURN)

    watcher = threading.Thread(target=watch, args=(until,), name="hours", daemon=True) if until is not None else None
    if watcher is not None:
        watcher.start()
    try:
        yield closed
    finally:
        left.set()
        if watcher is not None:
            watcher.join()
