"""How long claims held, and which of them were of use again: figures of a ledger's entries alone."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction

from relay.base.values import dataclass
from relay.ledger.model import Claim, Confirmation, Entry, Ledger, Retraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long a claim held."""

    seconds: float
    ended: bool
    """It was taken back or replaced; else it has held so far, or nobody has said that it does not."""


def find_lives(ledger: Ledger, now: datetime) -> Mapping[str, Life]:
    """Return how long each claim has held, by id; those whose time is not known, as in older ledgers, are left out.

    A life ends with the first entry that takes the claim back or replaces it. A confirmation after that begins no
    second one. What is stale or in doubt has not ended: only an entry says when.
    """
    ends: dict[str, str] = {}
    for entry in ledger.entries:
        for name in _get_ended(entry):
            if entry.stamp.at:
                ends[name] = min(entry.stamp.at, ends.get(name, entry.stamp.at))
    return {
        claim.id: Life(seconds=_measure(claim.stamp.at, ends.get(claim.id), now), ended=claim.id in ends)
        for claim in ledger.claims.values()
        if claim.stamp.at
    }


def _get_ended(entry: Entry) -> tuple[str, ...]:
    """Return the ids of the claims that an entry ends."""
    if isinstance(entry, Claim):
        return entry.replaces
    return (entry.of,) if isinstance(entry, Retraction) else ()


def _measure(born: str, ended: str | None, now: datetime) -> float:
    """Return the seconds between; 0 where a clock ran backwards."""
    end = datetime.fromisoformat(ended) if ended else now
    return max(0.0, (end - datetime.fromisoformat(born)).total_seconds())


def find_half_life(lives: Iterable[Life]) -> float | None:
    """Return the age in seconds by which half of the claims no longer hold; None while fewer than half have ended.

    Lives that have not ended count for as long as they are known to last. Source: Kaplan and Meier, "Nonparametric
    estimation from incomplete observations", 1958: the median of their estimate.
    """
    ordered = sorted(lives, key=lambda life: (life.seconds, not life.ended))
    surviving = Fraction(1)
    for n, life in enumerate(ordered):
        if life.ended:
            surviving *= Fraction(len(ordered) - n - 1, len(ordered) - n)
        if surviving <= Fraction(1, 2):
            return life.seconds
    return None


def find_uses(ledger: Ledger) -> Mapping[str, tuple[str, ...]]:
    """Return for each claim that later work came back to, who did: claims that rest on it, sessions that confirmed it.

    What the session that said it does with it is no use *again*; a person's entry always is.
    """
    claims = ledger.claims
    found: dict[str, list[str]] = {}
    for entry in ledger.entries:
        names = entry.rests_on if isinstance(entry, Claim) else (entry.of,) if isinstance(entry, Confirmation) else ()
        for name in names:
            if name in claims and not (entry.stamp.session and entry.stamp.session == claims[name].stamp.session):
                found.setdefault(name, []).append(entry.id if isinstance(entry, Claim) else entry.stamp.session)
    return {name: tuple(dict.fromkeys(users)) for name, users in found.items()}
