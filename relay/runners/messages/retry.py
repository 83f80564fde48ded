"""How long to go on trying a request, and when to say that it is for later. Pure."""

from relay.runners.messages.faults import Fault, FaultKind, find_wait_s
from relay.session.values import SessionEnd, SessionOutcome
from relay.values import dataclass
from relay.words import count, render_moment, render_span

MAX_SAME = 3
"""Tries in a row with a fault that will most likely be the same again: each may be billed."""
_NO_RETRY = {
    FaultKind.OVERFLOW: SessionEnd.OVERFLOW,
    FaultKind.REQUEST: SessionEnd.API_FAILED,
    FaultKind.USER: SessionEnd.DENIED,
    FaultKind.INTERRUPTED: SessionEnd.INTERRUPTED,
}


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
            fault: What failed.
            duration_s: How long the request took to fail.
            jitter: Uniform in [0, 1).
            now: Seconds since the epoch.
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
