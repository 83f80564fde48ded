"""Write the ledger for a prompt or a person: a selection of claims, and the reasons of each."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from relay.base.values import dataclass
from relay.base.words import count, list_some, shorten
from relay.ledger.belief import Belief, ClaimStatus, Judgement
from relay.ledger.model import Claim, Confirmation, Kind, Ledger, Nogood, Retraction, Source, Stamp
from relay.session.events import ShownClaim
from relay.session.usage import BYTES_PER_TOKEN, estimate_tokens

_CLAIM_CHARS, _REASON_CHARS, _PLACES_CHARS = 300, 160, 200
_LOUD = frozenset({Kind.CONSTRAINT, Kind.WARNING})
_WORDS = {ClaimStatus.IN: "IN", ClaimStatus.DOUBTED: "in doubt", ClaimStatus.STALE: "STALE", ClaimStatus.OUT: "OUT"}
MAX_NAMED = 5
"""Most ids that a line on what is to be done names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The next session's work; claims about it come first."""

    paths: frozenset[str] = frozenset()
    """Files, and directories with everything below them."""
    phase: str = ""
    """Claims of the phase's earlier sessions belong to it too."""

    def covers(self, claim: Claim) -> bool:
        """Return whether a claim is about the topic; a constraint or warning without a source is about everything."""
        if self.phase and claim.stamp.phase == self.phase:
            return True
        if claim.kind in _LOUD and not claim.sources:
            return True
        return any(self._names(source.path) for source in claim.sources)

    def _names(self, path: str) -> bool:
        parts = path.split("/")
        return any("/".join(parts[:end]) in self.paths for end in range(1, len(parts) + 1))


def render_snapshot(ledger: Ledger, judgement: Judgement, budget_tokens: int, *, topic: Topic | None = None) -> str:
    """Write the claims that fit a budget, what is to be done, and how many there are of each status.

    Open contradictions come first, then their claims, then the claims about the topic, then the rest. Within each:

    1. constraints and warnings
    2. stale claims, then claims in doubt
    3. claims that were confirmed, or that a person made
    4. claims that cite a source or rest on another claim
    5. claims that are out, with the reason
    6. guesses, which have nothing to show for them
    7. replaced claims, since their successors name them

    Within these by kind, and the newest first. A claim names the claims that it rests on and that are not shown. A line
    that is too long is left out; none takes room from one before it. Empty if there is no claim, or no room for one.
    """
    left, claims_shown, settle, look = budget_tokens * BYTES_PER_TOKEN, 0, list[str](), list[str]()
    counts = count_claims(judgement)
    shown: dict[str, Claim | Nogood] = {}
    ordered: list[Claim | Nogood] = [*judgement.contradictions, *_sort(ledger, judgement, topic or Topic())]
    for entry in ordered:
        is_claim = isinstance(entry, Claim)
        asked = look if is_claim else settle
        if not is_claim or judgement[entry.id].status is ClaimStatus.STALE:
            asked.append(entry.id)
        line_bytes = _measure(_describe(entry, judgement, shown))
        if line_bytes + _measure(_render_end(settle, look, f"{counts}; {claims_shown + is_claim} shown")) <= left:
            left -= line_bytes
            claims_shown += is_claim
            shown[entry.id] = entry
        elif asked[-1:] == [entry.id]:
            asked.pop()
    if not shown:
        return ""
    # Again, now that all shown ids are known: a line can only become shorter.
    lines = "".join(_describe(entry, judgement, shown) for entry in shown.values())
    return lines + _render_end(settle, look, f"{counts}; {claims_shown} shown")


def _measure(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _render_end(settle: Sequence[str], look: Sequence[str], counts: str) -> str:
    todo = "".join(f"To do: {words}.\n" for words in list_work(settle, look))
    return f"{todo}({counts})\n"


def list_work(settle: Sequence[str], look: Sequence[str]) -> list[str]:
    """Return what is to be done about open contradictions and stale claims, given their ids."""
    words = []
    if settle:
        ids = list_some(settle, MAX_NAMED)
        words.append(f"settle {ids}: say what `replaces` one of its claims, or {settle[0]} itself if all of them hold")
    if look:
        words.append(
            f"look at {list_some(look, MAX_NAMED)} again: say that it holds (`confirms`) or what `replaces` it"
        )
    return words


def count_claims(judgement: Judgement) -> str:
    """Write ``9 claims: 6 IN, 1 STALE, 2 OUT``."""
    found = Counter(belief.status for belief in judgement.beliefs.values())
    known = ", ".join(f"{found[status]} {word}" for status, word in _WORDS.items() if found[status])
    return f"{count(len(judgement.beliefs), 'claim')}: {known}" if known else "no claims"


def _sort(ledger: Ledger, judgement: Judgement, topic: Topic) -> list[Claim]:
    """Return all claims in the order of `render_snapshot`."""
    claims, kinds = ledger.claims, tuple(Kind)
    confirmed = {entry.of for entry in ledger.entries if isinstance(entry, Confirmation)}
    torn = {name for nogood in judgement.contradictions for name in nogood.claims}

    def place(claim: Claim) -> tuple[bool, bool, int, int]:
        belief = judgement[claim.id]
        if belief.status is ClaimStatus.OUT:
            is_replaced = any(claim.id in claims[name].replaces for name in belief.by if name in claims)
            section = 7 if is_replaced else 5
        elif claim.kind in _LOUD:
            section = 0
        elif belief.status is not ClaimStatus.IN:
            section = 1 if belief.status is ClaimStatus.STALE else 2
        elif claim.stamp.is_persons or claim.id in confirmed:
            section = 3
        else:
            section = 4 if claim.sources or claim.rests_on else 6
        return claim.id not in torn, not topic.covers(claim), section, kinds.index(claim.kind)

    newest = sorted(claims.values(), key=lambda claim: (claim.stamp.at, claim.id), reverse=True)
    return sorted(newest, key=place)


def list_shown(ledger: Ledger, snapshot: str) -> tuple[ShownClaim, ...]:
    """Return the claims that a snapshot of the ledger shows, in its order."""
    claims = ledger.claims
    lines = ((line, *line.split(" ", 2)[1:2]) for line in snapshot.splitlines() if line.startswith("- "))
    return tuple(
        ShownClaim(
            id=names[0],
            tokens=estimate_tokens(f"{line}\n"),
            paths=sorted({source.path for source in claims[names[0]].sources}),
        )
        for line, *names in lines
        if names and names[0] in claims
    )


def _describe(entry: Claim | Nogood, judgement: Judgement, shown: Collection[str]) -> str:
    line = describe_nogood(entry) if isinstance(entry, Nogood) else describe_belief(entry, judgement[entry.id], shown)
    return f"- {line}\n"


def describe_nogood(nogood: Nogood) -> str:
    """Write a contradiction as one line."""
    return f"{nogood.id} CONTRADICTION of {list_some(nogood.claims, MAX_NAMED)}: {clip(nogood.because, _REASON_CHARS)}"


def describe_belief(claim: Claim, belief: Belief, shown: Collection[str] | None = None, *, places: bool = True) -> str:
    """Write a claim as one line: id, kind, status unless it is in, the claim, its reason and sources.

    Args:
        shown: The ids that the reader sees; other ids that the claim rests on are marked "not shown". None: all.
        places: Write the sources, and the claims that it rests on and replaces.
    """
    is_out = belief.status is ClaimStatus.OUT
    words = f"{_name(claim, belief)}: {clip(claim.claim, _CLAIM_CHARS)}"
    if not is_out:
        words += f" — {clip(claim.because, _REASON_CHARS)}"
    notes = [clip(", ".join(map(str, claim.sources)), _PLACES_CHARS)]
    if not is_out:
        rests = [name if shown is None or name in shown else f"{name} (not shown)" for name in claim.rests_on]
        notes += [f"rests on {', '.join(rests)}" if rests else ""]
        notes += [f"replaces {', '.join(claim.replaces)}" if claim.replaces else ""]
    said = "; ".join(filter(None, notes)) if places else ""
    return f"{words} ({said})" if said else words


def _name(claim: Claim, belief: Belief) -> str:
    why = f" ({clip(belief.because, _REASON_CHARS)})" if belief.because else ""
    return f"{claim.id} {claim.kind}" + ("" if belief.status is ClaimStatus.IN else f", {_WORDS[belief.status]}{why}")


def clip(text: str, most_chars: int) -> str:
    """Return a text as one printable line."""
    return shorten(" ".join("".join(c if c.isprintable() else " " for c in text).split()), most_chars)


def explain_claim(ledger: Ledger, judgement: Judgement, changed: Mapping[Source, str], name: str) -> tuple[str, ...]:
    """Write a claim in full, a line for each fact behind its status, and one for each claim that it is linked to.

    Args:
        ledger: It has the claim.
        changed: How sources have changed.
        name: The claim's id.
    """
    whole = ledger.claims[name]
    lines = [f"{_name(whole, judgement[name])}: {clip(whole.claim, len(whole.claim))}"]
    lines += [f"  because {clip(whole.because, len(whole.because))}"]
    lines += [f"  {fact}" for fact in _iter_facts(ledger, judgement, whole, changed)]
    newer = (other.id for other in ledger.claims.values() if name in other.replaces)
    for relation, names in (("rests on", whole.rests_on), ("replaces", whole.replaces), ("replaced by", newer)):
        for one in names:
            claim, words = ledger.claims.get(one), one if one in ledger.nogoods else f"{one}, which is unknown"
            head = describe_belief(claim, judgement[one], places=False) if claim else words
            lines.append(f"  {relation} {head}")
    return tuple(lines)


def _iter_facts(ledger: Ledger, judgement: Judgement, claim: Claim, changed: Mapping[Source, str]) -> Iterator[str]:
    unsettled = {nogood.id for nogood in judgement.contradictions}
    if claim.stamp != Stamp():
        yield _say_by("said", claim.stamp)
    yield from _list_sources(claim.sources, changed)
    for entry in ledger.entries:
        match entry:
            case Retraction(of=claim.id):
                yield f"{_say_by('taken back', entry.stamp)}: {clip(entry.because, _CLAIM_CHARS)}"
            case Confirmation(of=claim.id):
                yield f"{_say_by('confirmed', entry.stamp)}: {clip(entry.because, _CLAIM_CHARS)}"
                yield from (f"  {words}" for words in _list_sources(entry.sources, changed))
            case Nogood() if claim.id in entry.claims:
                yield describe_nogood(entry) + ("" if entry.id in unsettled else " (settled)")
            case _:
                pass


def _list_sources(sources: Iterable[Source], changed: Mapping[Source, str]) -> list[str]:
    ids = {source: f", as git has it in {source.blob}" if source.blob else "" for source in sources}
    return [f"source {clip(changed.get(source, str(source)), _CLAIM_CHARS)}{ids[source]}" for source in ids]


def _say_by(what: str, stamp: Stamp) -> str:
    who = f"by session {stamp.session}" if stamp.session else "by a person" if stamp.is_persons else ""
    where = f"in phase {stamp.phase}" if stamp.phase else ""
    return clip(f"{what} {who} {where} {stamp.at}", _REASON_CHARS)
