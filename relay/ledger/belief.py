"""Whether claims hold: truth maintenance after Doyle (1979), as pure functions.

A claim is *in* if it was not retracted, nothing that replaces it is in, and one of its grounds holds: its own if all
that it rests on is in, that of a confirmation always. A replaced claim stays out when its successor is replaced in
turn, and comes back when both are retracted. Of claims that cannot all hold, the least entrenched premise is out,
unless another one is out already.

The labels are the well-founded ones, by alternating fixpoints (Van Gelder, "The alternating fixpoint of logic programs
with negation", 1993): there is exactly one labelling, whatever the order of the entries. A claim that is in only if
it is out has no label in Doyle's sense: it is left undecided, and shown as in doubt.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from relay.base.values import dataclass
from relay.ledger.model import Claim, Confirmation, Kind, Ledger, Nogood, Retraction, Source


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


_KINDS = {kind: -place for place, kind in enumerate(Kind)}

Rank = tuple[bool, int, int, int, tuple[str, str, str, str]]
"""Sorts claims by: said by a person, evidence (`_weigh`), kind, number of claims that rest on it (directly or in turn),
and last time, claim, reason and id, so that the id decides only between two that say the very same.
"""
_GATES_EVIDENCE = 3
"""More than that of several sources, which is 2."""


def rank_claims(ledger: Ledger, gates: Collection[str] = ()) -> dict[str, Rank]:
    """Return the rank of each claim: the claim with the least is given up first; of equals the older one.

    A person's word counts more than a session's. Then a gate's evidence counts more than several sources, these more
    than one, and one more than none; then the kind, and the claims that rest on it.

    Args:
        gates: The files and folders that the plan's verify commands name.
    """
    claims = ledger.claims
    support, cited = _count_support(claims), {name: {source.path for source in claims[name].sources} for name in claims}
    for entry in ledger.entries:
        if isinstance(entry, Confirmation) and entry.of in cited:
            cited[entry.of].update(source.path for source in entry.sources)
    return {
        name: (
            claim.stamp.is_persons,
            _weigh(cited[name], gates),
            _KINDS[claim.kind],
            support[name],
            (claim.stamp.at, claim.claim, claim.because, name),
        )
        for name, claim in claims.items()
    }


def _weigh(paths: Collection[str], gates: Collection[str]) -> int:
    """Return `_GATES_EVIDENCE` if a gate looks at one of these files, else 2 for several files, 1 for one."""
    above = {"/".join(parts[:end]) for parts in (path.split("/") for path in paths) for end in range(1, len(parts) + 1)}
    return min(len(paths), _GATES_EVIDENCE - 1) if above.isdisjoint(gates) else _GATES_EVIDENCE


def _count_support(claims: Mapping[str, Claim]) -> dict[str, int]:
    """Count the claims that rest on each claim, from the top down; in a cycle the count may be too small."""
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


MAX_ROUNDS = 100
"""Rounds of labelling. Claims that are not settled by then stay undecided; a ledger that was not made for it needs two
or three.
"""
MAX_CULPRITS = 200
"""Premises that may be taken out; contradictions beyond that stay."""
MAX_PASSES = 5
"""Passes over the culprits: a claim that is let in may replace the one that kept another out."""


class ClaimStatus(StrEnum):
    """The label of a claim; never written down."""

    IN = "in"
    DOUBTED = "in doubt"
    """A claim that it rests on is stale, or it depends on its own absence."""
    STALE = "stale"
    """A source of it has changed, and nobody has confirmed it since."""
    OUT = "out"


DOUBTFUL = frozenset({ClaimStatus.STALE, ClaimStatus.DOUBTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The label of a claim, and why."""

    status: ClaimStatus
    because: str = ""
    """Why it is out or in doubt; empty if it is simply in."""
    by: tuple[str, ...] = ()
    """Ids of the claims and the nogood behind that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The labels of all claims of a ledger."""

    beliefs: Mapping[str, Belief]
    """By claim id."""
    contradictions: tuple[Nogood, ...]
    """Contradictions that nobody has settled: relay takes a claim of each for out, or all of them are in."""
    ranks: Mapping[str, Rank]
    """By claim id, from `rank_claims`."""

    def __getitem__(self, name: str) -> Belief:
        """Return where a claim stands."""
        return self.beliefs[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """One justification of a claim."""

    rests_on: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Network:
    """A ledger as a graph of dependencies."""

    claims: Mapping[str, Claim]
    grounds: Mapping[str, tuple[_Ground, ...]]
    retracted: Mapping[str, Retraction]
    """The last retraction of each claim that was not confirmed since."""
    newer: Mapping[str, tuple[str, ...]]
    """The claims that replace each claim, in or out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """The labels of all claims."""

    inside: frozenset[str]
    possible: frozenset[str]
    """The claims that are in or undecided."""
    culprits: Mapping[str, Nogood]
    """Claims that are out because of a contradiction."""
    whole: Collection[Nogood]
    """Contradictions with no claim out for another reason."""


def judge(ledger: Ledger, changed: Mapping[Source, str], gates: Collection[str] = ()) -> Judgement:
    """Label all claims.

    Args:
        changed: The sources that have changed, and how.
        gates: As in `rank_claims`.
    """
    network, ranks = _connect(ledger), rank_claims(ledger, gates)
    labels = _label_consistently(network, ledger.nogoods, ranks)
    sound = _find_supported(network, labels.inside, changed)
    replaced = _find_replaced(network, labels.possible)
    beliefs = {
        name: _explain_inside(network, labels, name, sound, changed)
        if name in labels.inside
        else _explain_outside(network, labels, name, replaced)
        for name in network.claims
    }
    found = {(frozenset(n.claims), n.because) for n in (*labels.whole, *labels.culprits.values())}
    said = ((n, (frozenset(n.claims), n.because)) for n in ledger.nogoods)  # its twin too: no id decides
    kept = tuple(n for n, words in said if words in found or _is_broken(n, labels.inside))
    return Judgement(beliefs=beliefs, contradictions=kept, ranks=ranks)


def _connect(ledger: Ledger) -> _Network:
    claims = ledger.claims
    looks: dict[str, list[Confirmation]] = {name: [] for name in claims}
    retracted: dict[str, list[Retraction]] = {name: [] for name in claims}
    for entry in ledger.entries:
        if isinstance(entry, Confirmation) and entry.of in claims:
            looks[entry.of].append(entry)
        elif isinstance(entry, Retraction) and entry.of in claims:
            retracted[entry.of].append(entry)
    seen = {name: max((look.stamp.at for look in found), default="") for name, found in looks.items()}
    last = {name: max(found, key=lambda end: (end.stamp.at, end.because)) for name, found in retracted.items() if found}
    grounds = {
        name: (
            _Ground(rests_on=claim.rests_on, sources=claim.sources),
            *(_Ground(rests_on=(), sources=look.sources) for look in looks[name]),
        )
        for name, claim in claims.items()
    }
    kept = {name: end for name, end in last.items() if not looks[name] or end.stamp.at >= seen[name]}
    newer: dict[str, tuple[str, ...]] = {}
    for claim in claims.values():
        newer |= {name: (*newer.get(name, ()), claim.id) for name in claim.replaces}
    return _Network(claims=claims, grounds=grounds, retracted=kept, newer=newer)


def _label_consistently(network: _Network, nogoods: Iterable[Nogood], ranks: Mapping[str, Rank]) -> _Labels:
    """Label all claims, with one of each contradiction out.

    All premises of contradictions are taken out, then let in again one by one, the best entrenched first, unless that
    completes a contradiction. So no claim is out because of a claim that is itself out, and no id decides.
    """
    place = {name: number for number, name in enumerate(sorted(ranks, key=ranks.__getitem__))}
    ordered = sorted(nogoods, key=lambda n: (sorted(-place.get(name, -1) for name in n.claims), n.because, n.id))
    inside, _ = _label(network, ())
    whole = broken = [nogood for nogood in ordered if _is_broken(nogood, inside)]
    out: set[str] = set()
    while broken and len(out) < MAX_CULPRITS:
        premises = {name for nogood in broken for name in _find_premises(network, inside, nogood.claims)}
        out.update(sorted(premises, key=place.__getitem__)[: MAX_CULPRITS - len(out)])
        inside, _ = _label(network, out)
        broken = [nogood for nogood in ordered if _is_broken(nogood, inside)]
    settled = [nogood for nogood in ordered if nogood not in broken]
    culprits: dict[str, Nogood] = {}
    for _ in range(MAX_PASSES if out else 0):
        culprits = _let_in(network, sorted(out, key=place.__getitem__, reverse=True), settled)
        if len(culprits) == len(out):
            break
        out = set(culprits)
    inside, possible = _label(network, culprits)
    return _Labels(inside=inside, possible=possible, culprits=culprits, whole=frozenset(whole))


def _let_in(network: _Network, names: Sequence[str], nogoods: Sequence[Nogood]) -> dict[str, Nogood]:
    """Let claims in again one by one, unless that completes a contradiction.

    Returns:
        The claims that stay out, each with the contradiction that it would complete.
    """
    out, culprits = set(names), dict[str, Nogood]()
    for name in names:
        inside, _ = _label(network, out - {name})
        made = next((nogood for nogood in nogoods if _is_broken(nogood, inside)), None)
        if made is None:
            out.remove(name)
        else:
            culprits[name] = made
    return culprits


def _is_broken(nogood: Nogood, inside: Collection[str]) -> bool:
    return bool(nogood.claims) and all(name in inside for name in nogood.claims)


def _find_premises(network: _Network, inside: frozenset[str], names: Iterable[str]) -> set[str]:
    """Return the premises of these claims: claims that are in without resting on others."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = list(names)
    while pending:
        if (name := pending.pop()) in seen:
            continue
        seen.add(name)
        holding = [ground.rests_on for ground in network.grounds[name] if inside.issuperset(ground.rests_on)]
        if () in holding:
            found.add(name)
        else:
            pending += [below for rests_on in holding for below in rests_on]
    return found


def _label(network: _Network, culprits: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the claims that are in, and these together with the undecided ones.

    Each round brings the two sets closer, so that stopping early leaves claims undecided and none wrong.
    """
    inside: frozenset[str] = frozenset()
    possible = _derive(network, culprits, inside)
    for _ in range(MAX_ROUNDS):
        certain = _derive(network, culprits, possible)
        if certain == inside:
            break
        inside, possible = certain, _derive(network, culprits, certain)
    return inside, possible


def _derive(network: _Network, culprits: Collection[str], against: Collection[str]) -> frozenset[str]:
    """Return the claims that hold if exactly the claims `against` replace others."""
    out = {*culprits, *network.retracted, *_find_replaced(network, against)}
    return _find_supported(network, frozenset(network.claims.keys() - out), {})


def _find_replaced(network: _Network, against: Iterable[str]) -> frozenset[str]:
    """Return the claims that these replace, directly or in turn."""
    replaced: set[str] = set()
    pending = [below for name in against for below in network.claims[name].replaces]
    while pending:
        name = pending.pop()
        if name in network.claims and name not in replaced:
            replaced.add(name)
            pending += network.claims[name].replaces
    return frozenset(replaced)


def _find_supported(network: _Network, allowed: frozenset[str], changed: Mapping[Source, str]) -> frozenset[str]:
    """Return the allowed claims that have a ground, from the bottom up: no claim supports itself.

    A ground counts when none of its sources has changed and all that it rests on is supported.
    """
    grounds = [
        (name, set(ground.rests_on))
        for name in allowed
        for ground in network.grounds[name]
        if changed.keys().isdisjoint(ground.sources)
    ]
    waiting: dict[str, list[tuple[str, set[str]]]] = {}
    """Claim to the grounds that wait for it: whose they are, and all that they wait for."""
    for owner, needed in grounds:
        for below in needed:
            waiting.setdefault(below, []).append((owner, needed))
    pending = [owner for owner, needed in grounds if not needed]
    supported: set[str] = set()
    while pending:
        if (name := pending.pop()) in supported:
            continue
        supported.add(name)
        for owner, needed in waiting.get(name, ()):
            needed.discard(name)
            if not needed:
                pending.append(owner)
    return frozenset(supported)


def _explain_inside(
    network: _Network, labels: _Labels, name: str, sound: Collection[str], changed: Mapping[Source, str]
) -> Belief:
    if name in sound:
        return Belief(status=ClaimStatus.IN)
    holding = [ground for ground in network.grounds[name] if labels.inside.issuperset(ground.rests_on)]
    words = dict.fromkeys(changed[s] for ground in holding for s in ground.sources if s in changed)
    if words:
        return Belief(status=ClaimStatus.STALE, because="; ".join(words))
    weak = dict.fromkeys(below for ground in holding for below in ground.rests_on if below not in sound)
    return Belief(status=ClaimStatus.DOUBTED, because=f"rests on {', '.join(weak)}", by=tuple(weak))


def _explain_outside(network: _Network, labels: _Labels, name: str, replaced: Collection[str]) -> Belief:
    newer = network.newer.get(name, ()) if name in replaced else ()
    missing = tuple(below for below in network.claims[name].rests_on if below not in labels.inside)
    if name in labels.possible:
        by = tuple(dict.fromkeys((*newer, *missing)))
        return Belief(
            status=ClaimStatus.DOUBTED, because=f"whether it holds depends on itself, by {', '.join(by)}", by=by
        )
    if end := network.retracted.get(name):
        return Belief(status=ClaimStatus.OUT, because=f"taken back: {end.because}")
    if nogood := labels.culprits.get(name):
        others = tuple(other for other in nogood.claims if other != name)
        words = f"cannot hold together with {', '.join(others)}: {nogood.because}"
        return Belief(status=ClaimStatus.OUT, because=words, by=(nogood.id, *others))
    if newer:
        return Belief(status=ClaimStatus.OUT, because=f"replaced by {', '.join(newer)}", by=newer)
    return Belief(status=ClaimStatus.OUT, because=f"rests on {', '.join(missing)}", by=missing)


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
            found.append((-shared, -_KINDS[other.kind], other))
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
