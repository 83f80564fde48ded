"""The plan and the ledger as the open phase would leave them. Pure.

While a leg runs, PLAN.md in the work tree stays as HEAD has it; claims, amendments and records live in this draft,
which every snapshot carries. The commit makes the draft the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relay.ledger import Claim, Source, append_claim, parse_ledger
from relay.plan.edit import append_items, append_note, tick_items
from relay.plan.encoding import encode_text
from relay.tools.notes import Amendment, LegNotes, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Texts of the two files that only relay writes."""

    plan_text: str
    ledger_text: str
    """Empty when there is no ledger yet."""

    def render_files(self, plan_path: str, ledger_path: str) -> Mapping[str, bytes]:
        """Return the bytes to put at the two paths; no ledger file is made before there is a claim."""
        files = {plan_path: encode_text(self.plan_text)}
        if self.ledger_text:
            files[ledger_path] = encode_text(self.ledger_text)
        return files


def apply_notes(start: Draft, notes: LegNotes, *, blobs: Mapping[str, str]) -> Draft:
    """Return the draft with what the session claimed, amended and recorded on top of `start`.

    Args:
        start: What the session began with.
        notes: What its tools noted.
        blobs: Path → id of the content that a record was read from; a path that is missing stays without one.
    """
    plan = start.plan_text
    for amendment in notes.amendments:
        plan = _amend(plan, amendment)
    ledger = start.ledger_text
    for record in notes.records:
        ledger = _record(ledger, record, blobs)
    return Draft(plan_text=tick_items(plan, tuple(notes.claims)), ledger_text=ledger)


def _amend(plan: str, amendment: Amendment) -> str:
    if amendment.items:
        plan = append_items(plan, amendment.phase_id, amendment.items)
    what = amendment.note or f"added {len(amendment.items)} item(s)"
    return append_note(plan, amendment.phase_id, f"amended: {what} (because {amendment.why})")


def _record(ledger: str, record: Record, blobs: Mapping[str, str]) -> str:
    found = (parse_source(source) for source in record.sources)
    sources = tuple(replace(source, blob=blobs.get(source.path, "")) for source in found)
    claim = Claim(id=parse_ledger(ledger).next_id(), claim=record.claim, because=record.because, sources=sources)
    return append_claim(ledger, claim)


def parse_source(text: str) -> Source:
    """Read ``path``, ``path:12`` or ``path:12-40``."""
    path, _, lines = text.rpartition(":")
    return Source(path=path, lines=lines) if path and lines.replace("-", "").isdecimal() else Source(path=text)
