"""How deeply claims are rooted: which is shown first, and which is given up where several cannot all hold."""

from collections.abc import Mapping

from relay.base.values import dataclass
from relay.ledger.model import Claim, Kind

_KINDS = {kind: -place for place, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where a claim stands among others."""

    is_persons: bool
    kind: Kind
    support: int
    """How many claims rest on it, directly or in turn."""
    has_source: bool
    words: tuple[str, str, str, str]
    """When it was said, what, why, and its id, which decides only between two that say the very same."""

    @property
    def key(self) -> tuple[bool, int, int, bool, tuple[str, str, str, str]]:
        """Sorts the claims, those that are given up first in front; among equals the older one is."""
        return self.is_persons, _KINDS[self.kind], self.support, self.has_source, self.words


def rank_claims(claims: Mapping[str, Claim]) -> dict[str, Rank]:
    """Return the rank of each claim.

    A person's word counts more than a session's, then the kind, what rests on it, and whether it names a source.
    """
    support = _count_support(claims)
    return {
        name: Rank(
            is_persons=claim.stamp.is_persons,
            kind=claim.kind,
            support=support[name],
            has_source=bool(claim.sources),
            words=(claim.stamp.at, claim.claim, claim.because, name),
        )
        for name, claim in claims.items()
    }


def _count_support(claims: Mapping[str, Claim]) -> dict[str, int]:
    """Count what rests on each claim, from the top down; inside a circle the count may be too small."""
    waiting = dict.fromkeys(claims, 0)
    """Claims that rest on each and were not visited yet."""
    for claim in claims.values():
        for name in set(claim.rests_on) & claims.keys():
            waiting[name] += 1
    above = dict.fromkeys(claims, 0)  # bit sets of positions
    ready = [name for name, left in waiting.items() if not left]
    position = {name: place for place, name in enumerate(claims)}
    while ready:
        top = ready.pop()
        for name in set(claims[top].rests_on) & claims.keys():
            above[name] |= above[top] | 1 << position[top]
            waiting[name] -= 1
            if not waiting[name]:
                ready.append(name)
    return {name: bits.bit_count() for name, bits in above.items()}
