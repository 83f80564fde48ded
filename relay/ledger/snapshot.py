"""Write the ledger for a prompt or a page: a selection of claims, and the reasons of each."""

from collections.abc import Collection, Iterator, Mapping

from relay.base.values import dataclass
from relay.base.words import shorten
from relay.ledger.belief import DOUBTFUL, Belief, ClaimStatus, Judgement
from relay.ledger.model import Claim, Confirmation, Kind, Ledger, Nogood, Retraction, Source, Stamp
from relay.session.events import ShownClaim
from relay.session.usage import BYTES_PER_TOKEN, estimate_tokens

_FOOTER_BYTES = len("(1234567 of 1234567 shown)\n")
_CLAIM_CHARS, _REASON_CHARS, _PLACES_CHARS = 300, 160, 200
_ADVICE = "STALE or in doubt: look again, and `record` that it holds (`confirms`) or what does (`replaces`).\n"
_LOUD = frozenset({Kind.CONSTRAINT, Kind.WARNING})


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
    """Write the claims that fit a budget; empty if there are none, or no room for one and the last line.

    Claims about the topic come first. Within them and within the rest: constraints and warnings that hold,
    contradictions that nobody has settled, stale and doubted claims, claims that are out with the reason, and claims
    that are in, the best entrenched first. Replaced claims come last, since their successors name them. A claim names
    the claims that it rests on and that are not shown. A claim that is too long is left out; none takes room from one
    before it.
    """
    ranked = _rank(ledger, judgement, topic or Topic())
    left = budget_tokens * BYTES_PER_TOKEN - _FOOTER_BYTES
    shown: dict[str, Claim | Nogood] = {}
    advice = ""
    for entry in ranked:
        is_doubtful = isinstance(entry, Claim) and judgement[entry.id].status in DOUBTFUL
        advised = advice or (_ADVICE if is_doubtful else "")
        size_bytes = len(_describe(entry, judgement, shown).encode("utf-8", "replace"))
        if size_bytes + len(advised) <= left:
            left -= size_bytes
            shown[entry.id], advice = entry, advised
    if not shown:
        return ""
    # Again, now that all shown ids are known: a line can only become shorter.
    lines = "".join(_describe(entry, judgement, shown) for entry in shown.values())
    return f"{lines}{advice}({len(shown)} of {len(ranked)} shown)\n"


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
    return f"{line}\n"


def _rank(ledger: Ledger, judgement: Judgement, topic: Topic) -> list[Claim | Nogood]:
    claims, ranks = ledger.claims, judgement.ranks
    near = {claim.id for claim in claims.values() if topic.covers(claim)}
    ordered: list[Claim | Nogood] = sorted(claims.values(), key=lambda claim: ranks[claim.id], reverse=True)
    known: list[Claim | Nogood] = [*judgement.contradictions, *ordered]

    def place(entry: Claim | Nogood) -> tuple[bool, int]:
        if isinstance(entry, Nogood):
            return near.isdisjoint(entry.claims), 1
        return entry.id not in near, _get_section(entry, judgement[entry.id], claims)

    return sorted(known, key=place)  # the sort is stable: equals keep the order of entrenchment


def _get_section(claim: Claim, belief: Belief, claims: Mapping[str, Claim]) -> int:
    if belief.status is ClaimStatus.OUT:
        return 5 if any(claim.id in claims[name].replaces for name in belief.by if name in claims) else 3
    if claim.kind in _LOUD:
        return 0
    return 4 if belief.status is ClaimStatus.IN else 2


def describe_nogood(nogood: Nogood) -> str:
    """Write a contradiction as one line."""
    return f"- {nogood.id} CONTRADICTION of {', '.join(nogood.claims)}: {clip(nogood.because, _REASON_CHARS)}"


def describe_belief(claim: Claim, belief: Belief, shown: Collection[str] | None = None, *, places: bool = True) -> str:
    """Write a claim as one line: id, kind, label unless it is in, the claim, its reason and sources.

    Args:
        shown: The ids that the reader sees; other ids that the claim rests on are marked "not shown". None: all.
        places: Write the sources, and the claims that it rests on and replaces.
    """
    state = "" if belief.status is ClaimStatus.IN else f", {_say(belief)}"
    words = f"- {claim.id} {claim.kind}{state}: {clip(claim.claim, _CLAIM_CHARS)}"
    if belief.status is not ClaimStatus.OUT:
        words += f" — {clip(claim.because, _REASON_CHARS)}"
    notes = _list_notes(claim, belief, shown) if places else []
    return f"{words} ({'; '.join(notes)})" if notes else words


def _list_notes(claim: Claim, belief: Belief, shown: Collection[str] | None) -> list[str]:
    cited = ", ".join(map(str, claim.sources))
    notes = [clip(cited, _PLACES_CHARS)] if cited else []
    if belief.status is not ClaimStatus.OUT:
        rests = [name if shown is None or name in shown else f"{name} (not shown)" for name in claim.rests_on]
        notes += [f"rests on {', '.join(rests)}"] if rests else []
        notes += [f"replaces {', '.join(claim.replaces)}"] if claim.replaces else []
    return notes


def _say(belief: Belief) -> str:
    word = {ClaimStatus.STALE: "STALE", ClaimStatus.OUT: "OUT"}.get(belief.status, str(belief.status))
    return f"{word} ({clip(belief.because, _REASON_CHARS)})"


def clip(text: str, limit_chars: int) -> str:
    """Return a text as one printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shorten(line, limit_chars)


MAX_LINES = 500
"""Lines of one answer; a claim can go back to others in very many ways."""


def render_why(ledger: Ledger, judgement: Judgement, changed: Mapping[Source, str], name: str) -> str:
    """Write where a claim stands and why, one fact per line, with the claims that it goes back to indented below it.

    Args:
        ledger: It has the claim.
        changed: How sources have changed.
        name: The claim's id.
    """
    lines: list[str] = []
    pending, seen = [(0, "", name)], set[str]()
    while pending and len(lines) < MAX_LINES:
        depth, relation, current = pending.pop()
        claim, indent = ledger.claims.get(current), "  " * depth
        if claim is None:
            lines.append(f"{indent}{relation}{current}, which is not in the ledger")
            continue
        head = describe_belief(claim, judgement[current], places=False).removeprefix("- ")
        if current in seen:
            lines.append(f"{indent}{relation}{head} (see above)")
            continue
        seen.add(current)
        lines.append(f"{indent}{relation}{head}")
        lines += [f"{indent}  {fact}" for fact in _iter_facts(ledger, claim, changed)]
        pending += reversed([(depth + 1, word, other) for word, other in _iter_related(ledger, claim)])
    return "\n".join(lines[:MAX_LINES])


def _iter_facts(ledger: Ledger, claim: Claim, changed: Mapping[Source, str]) -> Iterator[str]:
    if by := _say_by(claim.stamp):
        yield f"said {by}"
    yield from (_say_source(source, changed) for source in claim.sources)
    for entry in ledger.entries:
        match entry:
            case Retraction(of=claim.id):
                yield f"taken back {_say_by(entry.stamp)}: {entry.because}"
            case Confirmation(of=claim.id):
                yield f"confirmed {_say_by(entry.stamp)}: {entry.because}"
                yield from (f"  {_say_source(source, changed)}" for source in entry.sources)
            case Nogood() if claim.id in entry.claims:
                others = ", ".join(other for other in entry.claims if other != claim.id)
                yield f"{entry.id}: cannot hold together with {others}: {entry.because}"
            case _:
                pass


def _iter_related(ledger: Ledger, claim: Claim) -> Iterator[tuple[str, str]]:
    yield from (("rests on ", name) for name in claim.rests_on)
    yield from (("replaces ", name) for name in claim.replaces)
    yield from (("replaced by ", other.id) for other in ledger.claims.values() if claim.id in other.replaces)


def _say_source(source: Source, changed: Mapping[Source, str]) -> str:
    known = f", as git has it in {source.blob}" if source.blob else ""
    return f"source {changed[source]}{known}" if source in changed else f"source {source}{known}"


def _say_by(stamp: Stamp) -> str:
    who = f"by session {stamp.session}" if stamp.session else "by a person" if stamp.is_persons else ""
    where = f"in phase {stamp.phase}" if stamp.phase else ""
    return " ".join(filter(None, (who, where, stamp.at)))
