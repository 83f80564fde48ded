"""What of a ledger fits into a prompt, or onto a page."""

from collections.abc import Collection, Mapping

from relay.base.values import dataclass
from relay.base.words import shorten
from relay.ledger.belief import Belief, ClaimStatus, Judgement
from relay.ledger.entrenchment import rank_claims
from relay.ledger.model import Claim, Kind, Ledger, Nogood
from relay.session.tokens import BYTES_PER_TOKEN

_FOOTER_BYTES = len("(1234567 of 1234567 shown)\n")
_CLAIM_CHARS, _REASON_CHARS, _PLACES_CHARS = 300, 160, 200
_ADVICE = "STALE or in doubt: look again, and `record` what holds now, with the id in `replaces`.\n"
_LOUD = frozenset({Kind.CONSTRAINT, Kind.WARNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What a session is about to work on: claims about it come first."""

    paths: frozenset[str] = frozenset()
    """Files, and directories for all that is below them."""
    phase: str = ""
    """Claims of the phase's earlier sessions belong to it too."""

    def covers(self, claim: Claim) -> bool:
        """Say whether a claim is about it; a constraint or warning without a place is about everything."""
        if self.phase and claim.stamp.phase == self.phase:
            return True
        if claim.kind in _LOUD and not claim.sources:
            return True
        return any(self._names(source.path) for source in claim.sources)

    def _names(self, path: str) -> bool:
        parts = path.split("/")
        return any("/".join(parts[:end]) in self.paths for end in range(1, len(parts) + 1))


def render_snapshot(ledger: Ledger, judgement: Judgement, budget_tokens: int, *, topic: Topic | None = None) -> str:
    """Write what fits a budget; empty when there is nothing to say, or no room for an entry and the last line.

    First what is about the topic. Then, among the rest as among these: constraints and warnings that hold,
    contradictions that nobody has settled, what is stale or in doubt, what is out with the reason, and what is in, the
    best entrenched first. What was replaced comes last, since what replaces it says so. A claim says which of those
    that it rests on are not shown. What is too long is left out; nothing takes room from what is before it.
    """
    ranked = _rank(ledger, judgement, topic or Topic())
    left = budget_tokens * BYTES_PER_TOKEN - _FOOTER_BYTES
    shown: dict[str, Claim | Nogood] = {}
    advice = ""
    for entry in ranked:
        advised = advice or (_ADVICE if _is_doubtful(entry, judgement) else "")
        size_bytes = len(_describe(entry, judgement, shown).encode("utf-8", "replace"))
        if size_bytes + len(advised) <= left:
            left -= size_bytes
            shown[entry.id], advice = entry, advised
    if not shown:
        return ""
    # Once more, now that it is known which are shown: a line can only become shorter.
    lines = "".join(_describe(entry, judgement, shown) for entry in shown.values())
    return f"{lines}{advice}({len(shown)} of {len(ranked)} shown)\n"


def _is_doubtful(entry: Claim | Nogood, judgement: Judgement) -> bool:
    return isinstance(entry, Claim) and judgement[entry.id].status in {ClaimStatus.STALE, ClaimStatus.DOUBTED}


def _describe(entry: Claim | Nogood, judgement: Judgement, shown: Collection[str]) -> str:
    line = describe_nogood(entry) if isinstance(entry, Nogood) else describe_belief(entry, judgement[entry.id], shown)
    return f"{line}\n"


def _rank(ledger: Ledger, judgement: Judgement, topic: Topic) -> list[Claim | Nogood]:
    claims, ranks = ledger.claims, rank_claims(ledger.claims)
    near = {claim.id for claim in claims.values() if topic.covers(claim)}
    ordered: list[Claim | Nogood] = sorted(claims.values(), key=lambda claim: ranks[claim.id].key, reverse=True)
    known: list[Claim | Nogood] = [*judgement.contradictions, *ordered]

    def place(entry: Claim | Nogood) -> tuple[bool, int]:
        if isinstance(entry, Nogood):
            return near.isdisjoint(entry.claims), 1
        return entry.id not in near, _get_section(entry, judgement[entry.id], claims)

    return sorted(known, key=place)  # among equals it keeps the order of entrenchment


def _get_section(claim: Claim, belief: Belief, claims: Mapping[str, Claim]) -> int:
    if belief.status is ClaimStatus.OUT:
        return 5 if any(claim.id in claims[name].replaces for name in belief.by if name in claims) else 3
    if claim.kind in _LOUD:
        return 0
    return 4 if belief.status is ClaimStatus.IN else 2


def describe_nogood(nogood: Nogood) -> str:
    """Write a contradiction as one line."""
    return f"- {nogood.id} CONTRADICTION of {', '.join(nogood.claims)}: {_clip(nogood.because, _REASON_CHARS)}"


def describe_belief(claim: Claim, belief: Belief, shown: Collection[str] | None = None, *, places: bool = True) -> str:
    """Write a claim as one line: id, what it is, where it stands unless it is in, the claim, its reason and places.

    Args:
        shown: The ids that the reader sees; what the claim rests on besides is said to be missing. None: all of them.
        places: Say what it was read from, rests on and replaces.
    """
    state = "" if belief.status is ClaimStatus.IN else f", {_say(belief)}"
    words = f"- {claim.id} {claim.kind}{state}: {_clip(claim.claim, _CLAIM_CHARS)}"
    if belief.status is not ClaimStatus.OUT:
        words += f" — {_clip(claim.because, _REASON_CHARS)}"
    notes = _list_notes(claim, belief, shown) if places else []
    return f"{words} ({'; '.join(notes)})" if notes else words


def _list_notes(claim: Claim, belief: Belief, shown: Collection[str] | None) -> list[str]:
    cited = ", ".join(map(str, claim.sources))
    notes = [_clip(cited, _PLACES_CHARS)] if cited else []
    if belief.status is not ClaimStatus.OUT:
        rests = [name if shown is None or name in shown else f"{name} (not shown)" for name in claim.rests_on]
        notes += [f"rests on {', '.join(rests)}"] if rests else []
        notes += [f"replaces {', '.join(claim.replaces)}"] if claim.replaces else []
    return notes


def _say(belief: Belief) -> str:
    word = {ClaimStatus.STALE: "STALE", ClaimStatus.OUT: "OUT"}.get(belief.status, str(belief.status))
    return f"{word} ({_clip(belief.because, _REASON_CHARS)})"


def _clip(text: str, limit_chars: int) -> str:
    """Make one printable line of at most that length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shorten(line, limit_chars)
