"""How long to go on trying a request, when the endpoint says that it may be tried, and when it is for later. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from relay.base.values import dataclass
from relay.base.words import count, render_moment, render_span
from relay.runners.messages.faults import Fault, FaultKind, find_wait_s
from relay.session.values import SessionEnd, SessionOutcome

MAX_SAME = 3
"""Tries in a row with a fault that will most likely be the same again: each may be billed."""
_NO_RETRY = {
    FaultKind.OVERFLOW: SessionEnd.OVERFLOW,
    FaultKind.REQUEST: SessionEnd.API_FAILED,
    FaultKind.USER: SessionEnd.DENIED,
    FaultKind.INTERRUPTED: SessionEnd.INTERRUPTED,
}
_RESET = re.compile(r"(anthropic-ratelimit-[a-z0-9-]+)-reset")
_EXHAUSTED = frozenset({"0", "rejected"})
"""What ``-remaining`` and, of the limits of a subscription, ``-status`` say of a limit that is reached."""
_LONGEST_WAIT_S = 366 * 86_400.0


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
    _lasting: int = 0

    def judge(self, fault: Fault, *, duration_s: float, jitter: float, now: float) -> Wait | SessionOutcome:
        """Say how long to wait before the next try, or how the session ends because there is none.

        Args:
            duration_s: How long the request took to fail.
            jitter: Uniform in [0, 1).
        """
        self.attempts += 1
        self.used_s += duration_s
        if fault.kind in _NO_RETRY:
            return SessionOutcome(end=_NO_RETRY[fault.kind], detail=fault.message)
        self._lasting = self._lasting + 1 if fault.lasting else 0
        if self._lasting >= MAX_SAME:
            words = f"{fault.message}; {self._lasting} times in a row, so sending it again will not help"
            return SessionOutcome(end=SessionEnd.API_FAILED, detail=words)
        wait_s = find_wait_s(fault, attempt=self.attempts, jitter=jitter)
        until = None if fault.retry_after_s is None else now + fault.retry_after_s
        self.used_s += wait_s
        if self.used_s <= self.max_wait_s:
            return Wait(attempt=self.attempts, wait_s=wait_s, until=until)
        return self._give_up(fault, until, now)

    def _give_up(self, fault: Fault, until: float | None, now: float) -> SessionOutcome:
        tries = f"{fault.message}; tried {count(self.attempts, 'time')}"
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


def find_retry_after(headers: Mapping[str, str], details: Any = None) -> float | None:
    """Seconds the endpoint asks to wait: retry-after, else the latest reset among exhausted limits; None if nothing.

    Where no limit is called exhausted, the first reset of those of which nothing is said.

    Args:
        details: Of its body, as Google has them: a list in which one names a ``retryDelay``.
    """
    if (wait_s := _find_delay(details)) is not None:
        return wait_s
    if (wait_ms := _parse_seconds(headers.get("retry-after-ms", ""))) is not None:
        return wait_ms / 1000
    if (wait_s := _parse_seconds(headers.get("retry-after", ""))) is not None:
        return wait_s
    exhausted, unsaid = list[float](), list[float]()
    for name, value in headers.items():
        kind = _RESET.fullmatch(name.lower())
        reset = _seconds_until(value) if kind else None
        if kind is None or reset is None:
            continue
        said = headers.get(f"{kind[1]}-remaining") or headers.get(f"{kind[1]}-status")
        if said in _EXHAUSTED:
            exhausted.append(reset)
        elif said is None:
            unsaid.append(reset)
    return max(exhausted) if exhausted else min(unsaid, default=None)


def _find_delay(details: Any) -> float | None:
    found = (
        [detail.get("retryDelay") for detail in details if isinstance(detail, dict)] if type(details) is list else []
    )
    return next((_parse_seconds(delay.removesuffix("s")) for delay in found if isinstance(delay, str)), None)


def _parse_seconds(value: str) -> float | None:
    """Read seconds or an HTTP date; None when it is neither, or no time that anybody can mean."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            return _seconds_from_now(parsedate_to_datetime(value))
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) and seconds <= _LONGEST_WAIT_S else None


def _seconds_until(moment: str) -> float | None:
    """Seconds until an RFC 3339 time, or one in seconds since the epoch; None when it is neither."""
    try:
        if moment.isdecimal():
            return _seconds_from_now(datetime.fromtimestamp(int(moment), UTC))
        return _seconds_from_now(datetime.fromisoformat(moment))
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _seconds_from_now(moment: datetime) -> float:
    """Return how far away a moment is, 0 when it is past; a time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(_LONGEST_WAIT_S, max(0.0, (aware - datetime.now(UTC)).total_seconds()))
