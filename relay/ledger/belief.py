"""Whether claims hold, from all entries of a ledger and from which sources have changed: pure functions.

A claim is *out* if it was taken back or replaced, or if a claim that it rests on is out or unknown. It is *stale* if a
source of it has changed, and *in doubt* if it stands in an open contradiction, or rests on a claim that is stale or in
doubt; a person's claim is not in doubt for what a session says against it. Whoever looks again confirms it: the
confirmation, with its own sources, takes the place of the claim's sources and of what it rested on, and ends an earlier
retraction. A claim that was replaced does not come back, whatever becomes of its successor.

A contradiction is open until it, or a claim of it, is out. Neither the order of the entries nor their ids matter.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

from relay.base.values import dataclass
from relay.ledger.model import Claim, Confirmation, Kind, Ledger, Nogood, Retraction, Source


class ClaimStatus(StrEnum):
    """The status of a claim; never written down."""

    IN = "in"
    DOUBTED = "in doubt"
    """It stands in an open contradiction, or a claim that it rests on is stale or in doubt."""
    STALE = "stale"
    """A source of it has changed, and nobody has confirmed it since."""
    OUT = "out"


DOUBTFUL = frozenset({ClaimStatus.STALE, ClaimStatus.DOUBTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The status of a claim, and why."""

    status: ClaimStatus
    because: str = ""
    """Why it is out, stale or in doubt; empty if it is in."""
    by: tuple[str, ...] = ()
    """Ids of the claims and the contradiction behind that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The status of all claims of a ledger."""

    beliefs: Mapping[str, Belief]
    """By claim id."""
    contradictions: tuple[Nogood, ...]
    """Those that nobody has settled."""

    def __getitem__(self, name: str) -> Belief:
        """Return where a claim stands."""
        return self.beliefs[name]


_MOST_NAMED = 5
"""Claims of a contradiction that each of its claims names: else a long list would be written as often as it is long."""


def judge(ledger: Ledger, changed: Mapping[Source, str]) -> Judgement:
    """Find out which claims hold, in time linear in the ledger.

    Args:
        changed: The sources that have changed, and how.
    """
    claims, looks, gone = ledger.claims, _find_last(ledger, Confirmation), _find_gone(ledger)
    needs = {name: () if name in looks else claim.rests_on for name, claim in claims.items()}
    held = _find_supported(needs, claims.keys() - gone.keys())
    broken = tuple(n for n in ledger.nogoods.values() if n.claims and n.id not in gone and held.issuperset(n.claims))
    disputed: dict[str, Nogood] = {}
    for nogood in broken:
        weaker = [name for name in nogood.claims if not claims[name].stamp.is_persons]
        disputed |= {name: nogood for name in weaker or nogood.claims if name not in disputed}
    sources = {name: (looks.get(name) or claims[name]).sources for name in held}
    stale = {name: words for name in held if (words := [changed[one] for one in sources[name] if one in changed])}
    sound = _find_supported(needs, held - stale.keys() - disputed.keys())

    def explain(name: str) -> Belief:
        if name in sound:
            return Belief(status=ClaimStatus.IN)
        if name in gone:
            return gone[name]
        if name in stale:
            return Belief(status=ClaimStatus.STALE, because="; ".join(dict.fromkeys(stale[name])))
        if name in disputed:
            nogood, others = disputed[name], [other for other in disputed[name].claims[:_MOST_NAMED] if other != name]
            words = f"cannot hold together with {', '.join(others) or 'itself'}: {nogood.because}"
            return Belief(status=ClaimStatus.DOUBTED, because=words, by=(nogood.id,))
        status, good = (ClaimStatus.DOUBTED, sound) if name in held else (ClaimStatus.OUT, held)
        weak = tuple(dict.fromkeys(below for below in needs[name] if below not in good))
        return Belief(status=status, because=f"rests on {', '.join(weak)}", by=weak)

    return Judgement(beliefs={name: explain(name) for name in claims}, contradictions=broken)


EntryT = TypeVar("EntryT", Confirmation, Retraction)
_BY_HAND = "9"
"""Behind every time."""


def _find_last(ledger: Ledger, kind: type[EntryT]) -> dict[str, EntryT]:
    """Return the last confirmation or retraction of each claim; of the same second, one that no order decides.

    A line without a time was written by hand: it is the last.
    """
    found = [entry for entry in ledger.entries if isinstance(entry, kind)]
    return {entry.of: entry for entry in sorted(found, key=lambda entry: (entry.stamp.at or _BY_HAND, repr(entry)))}


def _find_gone(ledger: Ledger) -> dict[str, Belief]:
    """Return the claims and contradictions that were taken back and not confirmed since, or replaced."""
    looks, newer = _find_last(ledger, Confirmation), dict[str, list[str]]()
    for claim in ledger.claims.values():
        for name in set(claim.replaces) - {claim.id}:
            newer.setdefault(name, []).append(claim.id)
    gone = {
        name: Belief(status=ClaimStatus.OUT, because=f"replaced by {', '.join(by)}", by=tuple(by))
        for name, by in newer.items()
    }
    for name, end in _find_last(ledger, Retraction).items():
        if name not in looks or (end.stamp.at or _BY_HAND) >= (looks[name].stamp.at or _BY_HAND):
            gone[name] = Belief(status=ClaimStatus.OUT, because=f"taken back: {end.because}")
    return gone


def _find_supported(needs: Mapping[str, Collection[str]], allowed: Collection[str]) -> frozenset[str]:
    """Return the allowed claims whose needs are all supported, from the bottom up: no circle supports itself."""
    waiting, above = dict[str, int](), dict[str, list[str]]()
    for name in allowed:
        below = set(needs[name])
        waiting[name] = len(below)
        for one in below:
            above.setdefault(one, []).append(name)
    supported = [name for name, left in waiting.items() if not left]
    for name in supported:  # grows meanwhile
        for one in above.get(name, ()):
            waiting[one] -= 1
            if not waiting[one]:
                supported.append(one)
    return frozenset(supported)


def find_uses(ledger: Ledger) -> Mapping[str, tuple[str, ...]]:
    """Return for each claim that was used again the claims that rest on it and the sessions that confirmed it.

    Uses by the session that made the claim do not count; a person's entry always does.
    """
    claims = ledger.claims
    found: dict[str, list[str]] = {}
    for entry in ledger.entries:
        names = entry.rests_on if isinstance(entry, Claim) else (entry.of,) if isinstance(entry, Confirmation) else ()
        for name in names:
            if name in claims and not (entry.stamp.session and entry.stamp.session == claims[name].stamp.session):
                found.setdefault(name, []).append(entry.id if isinstance(entry, Claim) else entry.stamp.session)
    return {name: tuple(dict.fromkeys(users)) for name, users in found.items()}


RARE_TEXTS = 3
"""A word is rare in a ledger if no more of its texts than these, or one in `RARE_SHARE`, have it."""
RARE_SHARE = 20
SHARED_WORDS = 2
_STEM_CHARS = 5
"""Words count as the same by their beginning: most endings are grammar."""
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]")
"""Thai, Lao, Burmese, Khmer, Kana, Han and Hangul: a run of letters is no word."""


def find_beside(ledger: Ledger, judgement: Judgement, claim: Claim) -> tuple[Claim, ...]:
    """Return the standing claims that a new one may rest on, replace or contradict, the nearest first.

    They cite a file that it cites, or their claims share `SHARED_WORDS` rare words with its own. Claims that it links
    to are left out. A text of the ledger is a claim or a reason; no list of words, so in any language.
    """
    linked = {claim.id, *claim.rests_on, *claim.replaces}
    paths, words = {source.path for source in claim.sources}, _split_words(claim.claim)
    texts = [_split_words(text) for one in (*ledger.claims.values(), claim) for text in (one.claim, one.because)]
    most = max(RARE_TEXTS, len(texts) // RARE_SHARE)
    rare = {word for word in words if sum(word in text for text in texts) <= most}
    found: list[tuple[int, int, Claim]] = []
    for other, text in zip(ledger.claims.values(), texts[::2], strict=False):
        if other.id in linked or judgement[other.id].status is ClaimStatus.OUT:
            continue
        shared = len(rare & text)
        if shared >= SHARED_WORDS or not paths.isdisjoint(source.path for source in other.sources):
            found.append((-shared, tuple(Kind).index(other.kind), other))
    return tuple(other for *_, other in sorted(found, key=lambda one: one[:2]))


def _split_words(text: str) -> frozenset[str]:
    """Return the words of a text by their beginnings; of a script without spaces the pairs of letters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded)
    words: set[str] = set()
    for word in letters.split():
        pairs = range(max(1, len(word) - 1)) if _WITHOUT_SPACES.search(word) else ()
        words.update([word[at : at + 2] for at in pairs] or [word[:_STEM_CHARS]])
    return frozenset(words)
