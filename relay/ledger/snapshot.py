"""What of a ledger fits into a prompt."""

from collections.abc import Mapping

from relay.ledger.model import Claim, ClaimStatus, Conflict, Ledger
from relay.session.tokens import BYTES_PER_TOKEN
from relay.words import shorten

_HEADER = "Ledger of earlier sessions' claims:\n"
_FOOTER_BYTES = len("(1234567 of 1234567 shown)\n")
_CLAIM_CHARS, _REASON_CHARS, _PLACES_CHARS = 300, 160, 200


def render_snapshot(ledger: Ledger, budget_tokens: int) -> str:
    """Write what fits a budget, for a prompt; empty when there is nothing or not even the header fits.

    Open conflicts, settled ones, what is out and stale with the reasons, then claims by how many others rest
    on them: so what a claim rests on comes before it, or the claim says that it is not shown.
    """
    ranked: list[Claim | Conflict] = [*_rank_conflicts(ledger), *_rank_claims(ledger)]
    left = budget_tokens * BYTES_PER_TOKEN - _FOOTER_BYTES - len(_HEADER.encode())
    if not ranked or left < 0:
        return ""
    shown: dict[str, str] = {}
    for entry in ranked:
        line = _describe(entry, ledger, shown) + "\n"
        size_bytes = len(line.encode("utf-8", "replace"))
        if size_bytes <= left:
            left -= size_bytes
            shown[entry.id] = line
    return f"{_HEADER}{''.join(shown.values())}({len(shown)} of {len(ranked)} shown)\n"


def _rank_conflicts(ledger: Ledger) -> list[Conflict]:
    """Return the conflicts, unsettled ones first."""
    return sorted(ledger.conflicts, key=lambda conflict: ledger.status_of(conflict) is ClaimStatus.RESOLVED)


def _rank_claims(ledger: Ledger) -> list[Claim]:
    """Put what is out first, then stale, then the claims by how many others rest on them; newer ones first."""
    support = dict.fromkeys((claim.id for claim in ledger.claims), 0)  # bit sets of positions
    for position, claim in reversed(tuple(enumerate(ledger.claims))):
        for name in claim.rests_on:
            support[name] |= 1 << position | support[claim.id]
    order = {ClaimStatus.OUT: 0, ClaimStatus.STALE: 1}
    newest_first = ledger.claims[::-1]  # sorting keeps it among equals
    return sorted(
        newest_first,
        key=lambda claim: (order.get(ledger.status_of(claim), 2), -support[claim.id].bit_count()),
    )


def _describe(entry: Claim | Conflict, ledger: Ledger, shown: Mapping[str, str]) -> str:
    """Write one entry as one line."""
    status = ledger.status_of(entry)
    change = ledger.changes.get(entry.id)
    judged = f"{status}: {_clip(change.because, _REASON_CHARS)}" if change else f"{status}"
    if isinstance(entry, Conflict):
        return f"- {entry.id} [conflict {judged}] {', '.join(entry.claims)}: {_clip(entry.because, _REASON_CHARS)}"
    words = f"- {entry.id} [{judged}] {_clip(entry.claim, _CLAIM_CHARS)}"
    places = ", ".join(f"{source.path}:{source.lines}" if source.lines else source.path for source in entry.sources)
    notes = [_clip(places, _PLACES_CHARS)] if places else []
    if status is ClaimStatus.IN:
        words += f" — {_clip(entry.because, _REASON_CHARS)}"
        rests = ", ".join(name if name in shown else f"{name} (not shown)" for name in entry.rests_on)
        notes += [f"rests on {rests}"] if rests else []
    return f"{words} ({'; '.join(notes)})" if notes else words


def _clip(text: str, limit_chars: int) -> str:
    """Make one printable line of at most that length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shorten(line, limit_chars)
