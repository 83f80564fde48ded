"""How long to go on trying a request, and when to say that it is for later. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from relay.runners.messages.faults import Fault, FaultKind, find_wait_s
from relay.session.values import SessionEnd, SessionOutcome

_NO_RETRY = {
    FaultKind.OVERFLOW: SessionEnd.OVERFLOW,
    FaultKind.REQUEST: SessionEnd.API_FAILED,
    FaultKind.USER: SessionEnd.DENIED,
    FaultKind.INTERRUPTED: SessionEnd.INTERRUPTED,
}
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait before the next try."""

    attempt: int
    """1 after the first failure."""
    wait_s: float
    until: float | None
    """Seconds since the epoch at which the endpoint said that it goes on; None when it named no time."""


@dataclass(slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long one request has been tried.

    Time is added up from what requests took and what was waited, so it runs on no clock but theirs.

    Mutable: counts tries and time.
    """

    max_wait_s: float
    attempts: int = 0
    used_s: float = 0.0

    def judge(self, fault: Fault, *, duration_s: float, jitter: float, now: float) -> Wait | SessionOutcome:
        """Say how long to wait before the next try, or how the session ends because there is none.

        Args:
            fault: What failed.
            duration_s: How long the request took to fail.
            jitter: Uniform in [0, 1).
            now: Seconds since the epoch.
        """
        self.attempts += 1
        self.used_s += duration_s
        if fault.kind in _NO_RETRY:
            return SessionOutcome(end=_NO_RETRY[fault.kind], detail=fault.message)
        wait_s = find_wait_s(fault, attempt=self.attempts, jitter=jitter)
        until = None if fault.retry_after_s is None else now + fault.retry_after_s
        self.used_s += wait_s
        if self.used_s <= self.max_wait_s:
            return Wait(attempt=self.attempts, wait_s=wait_s, until=until)
        return self._give_up(fault, until, now)

    def _give_up(self, fault: Fault, until: float | None, now: float) -> SessionOutcome:
        tries = f"{fault.message}; tried {self.attempts} time{'' if self.attempts == 1 else 's'}"
        end = SessionEnd.API_FAILED if until is None and fault.kind is not FaultKind.LIMIT else SessionEnd.LIMIT
        if until is not None and until - now > self.max_wait_s:
            words = f"{tries}. {describe_reset(until, now=now, max_wait_s=self.max_wait_s)}"
        else:
            words = f"{tries}, and that took as long as relay waits ({render_span(self.max_wait_s)}, max_wait_s)"
        return SessionOutcome(end=end, detail=words, retry_at=until)


def describe_reset(until: float, *, now: float, max_wait_s: float) -> str:
    """Say when a limit resets and why relay does not wait for it."""
    return (
        f"It resets at {render_moment(until, now=now)}, in {render_span(until - now)}; relay waits "
        f"{render_span(max_wait_s)} at most (max_wait_s). Run it again then."
    )


def render_moment(at: float, *, now: float) -> str:
    """Write a time as the clock on the wall shows it, ``05:10``, with the day when it is another one."""
    local, today = _read_clock(at), _read_clock(now)
    day = "" if local.date() == today.date() else f"{local:%a} {local.day} {local:%b} "
    return f"{day}{local:%H:%M}"


def _read_clock(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC).astimezone()


def render_span(seconds: float) -> str:
    """Write a length of time in its two largest units: ``45 s``, ``12 min``, ``3 h 12 min``, ``2 d 5 h``."""
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"
