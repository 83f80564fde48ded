"""Why claims hold or not, for a person: the justifications of one down to its sources, and all of them as a graph."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from relay.base.words import shorten
from relay.ledger.belief import ClaimStatus, Judgement
from relay.ledger.model import Claim, Confirmation, Ledger, Nogood, Retraction, Source, Stamp
from relay.ledger.snapshot import describe_belief

MAX_LINES = 500
"""Of one answer; a claim can go back to others by very many ways."""
_LABEL_CHARS = 60


def render_why(ledger: Ledger, judgement: Judgement, changed: Mapping[Source, str], name: str) -> str:
    """Return where a claim stands and why, a fact on each line, what it goes back to below it and indented.

    Args:
        ledger: It has the claim.
        changed: What has become of sources.
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


def render_graph(ledger: Ledger, judgement: Judgement) -> str:
    """Return what rests on what as a Mermaid flowchart, which forges draw; what is out is dashed."""
    lines = ["flowchart BT"]
    place = {name: f"n{number}" for number, name in enumerate(ledger.claims)}
    for name, claim in ledger.claims.items():
        status = judgement[name].status
        words = f"{name} {claim.kind}, {status}: {shorten(' '.join(claim.claim.split()), _LABEL_CHARS)}"
        lines.append(f'  {place[name]}["{_escape(words)}"]:::{_CLASSES[status]}')
    for name, claim in ledger.claims.items():
        lines += [f"  {place[name]} --> {place[other]}" for other in claim.rests_on if other in place]
        lines += [f"  {place[name]} -. replaces .-> {place[other]}" for other in claim.replaces if other in place]
    for nogood in ledger.nogoods:
        known = [place[other] for other in nogood.claims if other in place]
        lines += [f"  {one} x--x {other}" for one, other in pairwise(known)]
    styles = ("classDef sound stroke:#2a2", "classDef doubt stroke:#c80", "classDef out stroke:#aaa,stroke-dasharray:4")
    return "\n".join([*lines, *(f"  {style}" for style in styles)])


_CLASSES = {ClaimStatus.IN: "sound", ClaimStatus.DOUBTED: "doubt", ClaimStatus.STALE: "doubt", ClaimStatus.OUT: "out"}


def _escape(text: str) -> str:
    """Write a text for a quoted label, where Mermaid reads entities and little else."""
    return "".join(c if c.isalnum() or c in " .,:;/_-()" else f"#{ord(c)};" for c in text)
