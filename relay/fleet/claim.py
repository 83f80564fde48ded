"""What stands in the commits of claims and of the account: who has a phase, until when, and what is reserved."""

import re
import secrets
from enum import StrEnum

from relay.base.values import dataclass
from relay.git.message import CommitText, Message
from relay.store import trailers

_WORKER = "Relay-Worker"
_EXPIRES = "Relay-Expires"
"""Seconds since the epoch, by the holder's clock."""
_LEASE = "Relay-Lease"
"""Seconds that the holder may take to its next sign of life, whatever the clocks say."""
_STATE = "Relay-PhaseClaim"
_RESERVED = "Relay-Reserved"
"""Of a claim: dollars. Of the account, one for each phase: dollars, who reserved them, the attempt, the phase."""
_ENDED = "Relay-Ended"
"""Of the account: how many claims have ended or were taken over, with what they cost in other refs since."""
_BEFORE = "Relay-Seen"
"""What was known to be spent on the phase when it was claimed, in dollars."""
_TOKEN = "Relay-Token"  # noqa: S105  # no secret: two claims that are otherwise the same have to be two commits
_PARTS = 4
_LONGEST_TIME = 12
MOST_LEASE_S = 3_600
"""Without a sign of life for longer, no claim holds, whatever it says: anybody who may push one could forge it."""
_AMOUNT = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


class ClaimState(StrEnum):
    """What a claim says."""

    HELD = "held"
    """Somebody works on the phase."""
    WAITS = "waits"
    """For a person: the phase failed, and no other worker takes it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClaim:
    """What one phase's ref says."""

    phase_id: str
    worker: str
    attempt: int
    """Counts up with each worker that takes the phase."""
    state: ClaimState
    expires_s: int
    """Since the epoch, by the holder's clock."""
    reserved_usd: float | None
    """None without a cap."""
    seen_usd: float
    """What was known to be spent on the phase when it was claimed."""
    lease_s: int = 0
    """How long its holder may show no sign of life; 0 where it does not say."""
    words: str = ""
    """Why it waits."""
    noted: tuple[tuple[str, str], ...] = ()
    """The open session and its cost at the last sign of life, as trailers: its snapshots may not say so yet."""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Money that is set aside."""

    phase_id: str
    worker: str
    attempt: int
    cost_usd: float

    def is_of(self, claim: PhaseClaim) -> bool:
        """Return whether this claim made it."""
        return (self.phase_id, self.worker, self.attempt) == (claim.phase_id, claim.worker, claim.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All that is claimed of a plan."""

    held: tuple[PhaseClaim, ...] = ()
    reserved: tuple[Reservation, ...] = ()
    """Of claims that are held, and of lost ones: what their workers may have spent and nobody can see."""
    account: str | None = None
    """The commit that says so; None before the first claim."""
    ended: int = 0
    """Counts up with each claim that ends: what was reserved for it is spent since, as its refs say."""

    def find(self, phase_id: str) -> PhaseClaim | None:
        """Return the claim on a phase; None when it is free."""
        return next((claim for claim in self.held if claim.phase_id == phase_id), None)

    @property
    def reserved_usd(self) -> float:
        """All that is set aside."""
        return sum(one.cost_usd for one in self.reserved)

    def find_lost(self, now: float) -> tuple[Reservation, ...]:
        """Return what is set aside for workers whose claims ran out, if clocks agree: they may have spent it unseen."""
        held = [claim for claim in self.held if claim.state is ClaimState.HELD and now <= claim.expires_s]
        return tuple(one for one in self.reserved if not any(one.is_of(claim) for claim in held))


NOBODY = PhaseClaim(
    phase_id="", worker="", attempt=0, state=ClaimState.HELD, expires_s=0, reserved_usd=None, seen_usd=0.0
)


def is_at_work(claim: PhaseClaim, *, now: float) -> bool:
    """Return whether somebody works under a claim, if clocks agree; `now` in seconds since the epoch."""
    return claim.state is ClaimState.HELD and now <= claim.expires_s <= now + MOST_LEASE_S


def describe_claim(claim: PhaseClaim, *, now: float) -> str:
    """Say who has a phase: ``claimed by …``, ``waiting for a person: …``."""
    if claim.state is ClaimState.WAITS:
        return f"waiting for a person: {claim.words}"
    left = claim.expires_s - now
    until = f"for {left:.0f} s more" if left > 0 else f"since {-left:.0f} s without a sign of life"
    until = until if left <= MOST_LEASE_S else "for longer than a claim can hold"
    return f"claimed by {claim.worker} (attempt {claim.attempt}), {until}"


def make_reservation(claim: PhaseClaim) -> Reservation:
    """Return what a claim sets aside."""
    return Reservation(
        phase_id=claim.phase_id, worker=claim.worker, attempt=claim.attempt, cost_usd=claim.reserved_usd or 0.0
    )


def render_claim(claim: PhaseClaim) -> Message:
    """Return what a claim's commit says."""
    found = (
        (trailers.PHASE, claim.phase_id),
        (_WORKER, claim.worker),
        (trailers.ATTEMPT, str(claim.attempt)),
        (_STATE, claim.state),
        (_EXPIRES, str(claim.expires_s)),
        (_LEASE, str(claim.lease_s)),
        (_RESERVED, "" if claim.reserved_usd is None else trailers.render_cost(claim.reserved_usd)),
        (_BEFORE, trailers.render_cost(claim.seen_usd)),
        (_TOKEN, secrets.token_hex(8)),
        *claim.noted,
    )
    subject = f"relay: phase {claim.phase_id} is {claim.state}"
    return Message(subject=subject, body=claim.words, trailers=found)


def render_account(reserved: tuple[Reservation, ...], *, ended: int) -> Message:
    """Return what the account's commit says."""
    found = tuple((_RESERVED, f"{one.cost_usd:.6f} {one.worker} {one.attempt} {one.phase_id}") for one in reserved)
    own = (*found, (_ENDED, str(ended)), (_TOKEN, secrets.token_hex(8)))
    return Message(subject="relay: what is reserved", trailers=own)


def parse_claim(text: CommitText) -> PhaseClaim | None:
    """Read a claim; None when the commit is not one."""
    state, phase_id = text.get(_STATE), text.get(trailers.PHASE)
    if state not in set(ClaimState) or not phase_id:
        return None
    return PhaseClaim(
        phase_id=phase_id,
        worker=text.get(_WORKER),
        attempt=trailers.parse_count(text.get(trailers.ATTEMPT), 1),
        state=ClaimState(state),
        expires_s=_parse_time(text.get(_EXPIRES)),
        reserved_usd=trailers.parse_cost(text.get(_RESERVED)),
        seen_usd=trailers.parse_cost(text.get(_BEFORE)) or 0.0,
        lease_s=min(MOST_LEASE_S, _parse_time(text.get(_LEASE))),
        words=text.message.body,
        noted=tuple(pair for pair in text.found if pair[0] in {trailers.SESSION, trailers.USAGE, trailers.COST}),
        commit=text.commit,
    )


def _parse_time(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_TIME else 0


def parse_ended(text: CommitText) -> int:
    """Read how many claims have ended, of the account."""
    return trailers.parse_count(text.get(_ENDED), 0)


def parse_account(text: CommitText) -> tuple[Reservation, ...]:
    """Read what is reserved; what is no reservation is passed over."""
    rows = (value.split(" ", _PARTS - 1) for value in text.get_all(_RESERVED))
    return tuple(
        Reservation(phase_id=phase_id, worker=worker, attempt=trailers.parse_count(attempt, 1), cost_usd=float(cost))
        for cost, worker, attempt, phase_id in (row for row in rows if len(row) == _PARTS)
        if _AMOUNT.fullmatch(cost)
    )
