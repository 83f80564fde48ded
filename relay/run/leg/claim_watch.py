"""The ledger while a session works: what it records, and which claims its edits put in doubt."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from relay.base.words import list_some
from relay.ledger import Claim, ClaimStatus, Judgement, Ledger, Stamp, append_entry, judge
from relay.ledger.snapshot import describe_belief
from relay.setup.context import PlanFiles
from relay.store.staleness import cite_sources, find_changed_sources
from relay.tools.notes import LegNotes, Record

MAX_TOLD = 5
"""Claims named at once; more say that the file is cited as a whole."""
MAX_BESIDE = 3
"""Claims about the same place that are shown beside a new one."""


class ClaimWatch:
    """Puts records into the notes' ledger and says what they and the session's edits mean for other claims.

    Mutable: it remembers what it has told.

    Args:
        notes: Whose ledger grows.
        read_time: Says when it is, as `Stamp.at` has it.
    """

    def __init__(self, files: PlanFiles, notes: LegNotes, stamp: Stamp, *, read_time: Callable[[], str]) -> None:
        self._repo = files.repo
        self._own = (files.plan_path, files.ledger_path)
        self._notes = notes
        self._stamp = stamp
        self._read_time = read_time
        self._recorded = 0
        # What was stale before is not this session's doing; the first message has said it.
        self._told = set(find_changed_sources(files.repo, notes.ledger.sources))

    def take_records(self) -> str:
        """Put new findings into the ledger, with the content that each was read from: later it may be another.

        Returns:
            Their ids, and which claims about the same places they stand beside; empty without any.
        """
        words = [self._take(record) for record in self._notes.records[self._recorded :]]
        self._recorded = len(self._notes.records)
        return "\n".join(words)

    def find_doubts(self, paths: Iterable[str] | None) -> str:
        """Say which claims the session has put in doubt since this was last asked, each once.

        Args:
            paths: What may have changed; None for anything.
        """
        ledger, known = self._notes.ledger, None if paths is None else set(paths)
        cited = [s for s in ledger.sources if s not in self._told and (known is None or s.path in known)]
        changed = find_changed_sources(self._repo, cited)
        if not changed:
            return ""
        self._told |= changed.keys()
        judgement = judge(ledger, changed)
        lines = [line for claim in ledger.claims.values() if (line := _describe_doubt(claim, judgement))]
        if not lines:
            return ""
        shown = list_some(lines, MAX_TOLD, joint="\n")
        return f"relay: this changed what claims rest on. Before you tick, `record` what replaces them:\n{shown}"

    def _take(self, record: Record) -> str:
        ledger, session = self._notes.ledger, self._stamp.session
        stamp = replace(self._stamp, at=ledger.make_time(self._read_time(), record.replaces))
        claim = Claim(
            id=ledger.make_id("c", (session, stamp.at, record.claim, record.because)),
            claim=record.claim,
            because=record.because,
            kind=record.kind,
            replaces=record.replaces,
            sources=cite_sources(self._repo, record.sources, self._own),
            stamp=stamp,
        )
        beside = _find_beside(ledger, claim)
        self._notes.ledger = append_entry(ledger, claim)
        shown = "".join(f"\n{describe_belief(other, judge(ledger, {})[other.id])}" for other in beside)
        advice = "; one that cannot hold with it belongs into `replaces`" if beside else ""
        return f"Recorded as {claim.id}." + (f" On the same place{advice}:{shown}" if beside else "")


def _find_beside(ledger: Ledger, claim: Claim) -> list[Claim]:
    """Return what holds already about a place that a new claim cites, the best entrenched kinds first."""
    paths = {source.path for source in claim.sources}
    judgement = judge(ledger, {})
    beside = [
        other
        for other in ledger.claims.values()
        if judgement[other.id].status is not ClaimStatus.OUT
        and other.id not in claim.replaces
        and not paths.isdisjoint(source.path for source in other.sources)
    ]
    order = list(type(claim.kind))
    return sorted(beside, key=lambda other: order.index(other.kind))[:MAX_BESIDE]


def _describe_doubt(claim: Claim, judgement: Judgement) -> str:
    belief = judgement[claim.id]
    return describe_belief(claim, belief) if belief.status in {ClaimStatus.STALE, ClaimStatus.DOUBTED} else ""
