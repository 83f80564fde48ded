"""What sessions used of the ledger that they were shown, and what it cost."""

from collections.abc import Iterable

from relay.base.values import dataclass
from relay.insight.figures.values import Figures, SessionFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerWorth:
    """What sessions used of the ledger that they were shown (`ClaimUse`), and what it cost."""

    sessions: int
    """Sessions that were shown a claim."""
    shown: int
    """Claims, each session's anew."""
    named: int
    read: int
    changed: int
    used: int
    """Claims that were named, read or changed."""
    shown_tokens: int
    used_tokens: int
    paid_tokens: int
    """Tokens of the ledger in all prompts of these sessions."""
    largest_tokens: int
    """The most that one session was shown."""
    needed_tokens: int
    """The least budget that would have shown each session every claim that it used."""


def measure_ledger(found: Iterable[Figures]) -> LedgerWorth:
    """Return what sessions used of the ledger."""
    sessions = [session for figures in found for session in figures.sessions if session.claims]
    claims = [claim for session in sessions for claim in session.claims]
    largest = max((sum(claim.tokens for claim in session.claims) for session in sessions), default=0)
    needed = max(map(_find_needed, sessions), default=0)
    return LedgerWorth(
        sessions=len(sessions),
        shown=len(claims),
        named=sum(claim.named for claim in claims),
        read=sum(claim.read for claim in claims),
        changed=sum(claim.changed for claim in claims),
        used=sum(claim.used for claim in claims),
        shown_tokens=sum(claim.tokens for claim in claims),
        used_tokens=sum(claim.tokens for claim in claims if claim.used),
        paid_tokens=sum(dict(session.totals.sources).get("ledger", 0) for session in sessions),
        largest_tokens=largest,
        needed_tokens=needed,
    )


def _find_needed(session: SessionFigures) -> int:
    """Return the tokens of a session's claims up to the last one that it used."""
    used = [place for place, claim in enumerate(session.claims) if claim.used]
    return sum(claim.tokens for claim in session.claims[: used[-1] + 1]) if used else 0
