"""From the file's text to a ledger, every entry checked."""

import re
from typing import Any

from relay.ledger.model import Claim, ClaimStatus, Conflict, Entry, Ledger, Source, StatusChange
from relay.ledger.stream import fail, read_entries

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINES = re.compile(r"(?:[1-9]\d{0,8}(?:-[1-9]\d{0,8})?)?", re.ASCII)
_BLOB = re.compile(r"(?:[0-9a-f]{7,64})?")


class Reader:
    """Takes entries in order, refuses those that do not fit, and becomes a ledger."""

    def __init__(self, start: Ledger) -> None:
        self.claims = {claim.id: claim for claim in start.claims}
        self.conflicts = {conflict.id: conflict for conflict in start.conflicts}
        self.changes = dict(start.changes)

    def add(self, entry: Entry, line: int) -> None:
        """Take the next entry."""
        match entry:
            case StatusChange():
                self._add_change(entry, line)
            case Claim():
                self._require_ids(entry.id, entry.rests_on, line)
                self.claims[entry.id] = entry
            case Conflict():
                self._require_ids(entry.id, entry.claims, line)
                self.conflicts[entry.id] = entry

    def _add_change(self, change: StatusChange, line: int) -> None:
        if change.id in self.claims:
            allowed: tuple[ClaimStatus, ...] = (ClaimStatus.IN, ClaimStatus.OUT, ClaimStatus.STALE)
        elif change.id in self.conflicts:
            allowed = (ClaimStatus.OPEN, ClaimStatus.RESOLVED)
        else:
            raise fail(line, f"found the id {change.id!r}; allowed: the id of an entry above")
        if change.status not in allowed:
            raise fail(line, f"found the status {change.status!r} for {change.id}; allowed: {', '.join(allowed)}")
        self.changes[change.id] = change

    def _require_ids(self, own: str, others: tuple[str, ...], line: int) -> None:
        if own in self.claims or own in self.conflicts:
            raise fail(line, f"the id {own!r} is taken; allowed: a new one")
        if missing := [name for name in others if name not in self.claims]:
            raise fail(line, f"found the id {missing[0]!r}; allowed: the id of a claim above")

    def finish(self, text: str) -> Ledger:
        """Return what was taken so far, as the ledger that stands in `text`."""
        return Ledger(
            text=text,
            claims=tuple(self.claims.values()),
            conflicts=tuple(self.conflicts.values()),
            changes=dict(self.changes),
        )


def parse_ledger(text: str) -> Ledger:
    """Read a ledger; an empty text is an empty ledger.

    Raises:
        LedgerError: It is not of the form above. The line is known, the path is not: see `errors.within`.
    """
    return extend(Ledger(), text).finish(text)


def extend(ledger: Ledger, block: str) -> Reader:
    """Read the entries of a text as those that follow on a ledger's.

    Raises:
        RelayError: One cannot be read, or does not fit what stands before it.
    """
    reader = Reader(ledger)
    for line, raw in read_entries(block):
        reader.add(build_entry(raw, line), line)
    return reader


def build_entry(raw: Any, line: int) -> Entry:
    """Make an entry of what stands in the file."""
    kind = raw.get("event") if isinstance(raw, dict) else None
    if kind == "claim":
        fields = _require_fields(raw, line, texts=("id", "claim", "because"), lists=("rests_on", "sources"))
        sources = tuple(_build_source(source, line) for source in fields.pop("sources"))
        return Claim(**fields, sources=sources)
    if kind == "conflict":
        return Conflict(**_require_fields(raw, line, texts=("id", "because"), lists=("claims",)))
    if kind == "status":
        fields = _require_fields(raw, line, texts=("id", "status", "because"), lists=())
        if fields["status"] not in set(ClaimStatus):
            raise fail(line, f"found the status {fields['status']!r}; allowed: {', '.join(ClaimStatus)}")
        return StatusChange(**{**fields, "status": ClaimStatus(fields["status"])})
    raise fail(line, "found an entry of no known kind; allowed: a mapping with event: claim, conflict or status")


def _require_fields(
    raw: dict[str, Any], line: int, *, texts: tuple[str, ...], lists: tuple[str, ...]
) -> dict[str, Any]:
    """Return an entry's fields, each of its type, lists as tuples and empty where they are left out."""
    if unknown := sorted(raw.keys() - {"event", *texts, *lists}):
        raise fail(line, f"found the key {unknown[0]!r}; allowed: event, {', '.join((*texts, *lists))}")
    for key in texts:
        if not isinstance(raw.get(key), str) or not raw[key].strip():
            raise fail(line, f"{key} is missing; allowed: a text that is not blank")
    if not _ID.fullmatch(raw["id"]):
        raise fail(line, f"found the id {raw['id']!r}; allowed: letters, digits, - and _, at most 64")
    found: dict[str, Any] = {key: raw[key] for key in texts}
    for key in lists:
        value = raw.get(key, [])
        if not isinstance(value, list) or (key != "sources" and not all(isinstance(item, str) for item in value)):
            raise fail(line, f"{key}: allowed: a list of {'sources' if key == 'sources' else 'ids'}")
        found[key] = tuple(value)
    return found


def _build_source(raw: Any, line: int) -> Source:
    """Make a source of what stands in the file."""
    form = "allowed: {path: text, blob: hex id, lines: 12-40}, the last two optional"
    if not isinstance(raw, dict) or not raw.keys() <= {"path", "blob", "lines"}:
        raise fail(line, f"found another form of source; {form}")
    path, blob, lines = (raw.get(key, "") for key in ("path", "blob", "lines"))
    if not all(isinstance(value, str) for value in (path, blob, lines)) or not path.strip():
        raise fail(line, f"found another form of source; {form}")
    if not _BLOB.fullmatch(blob) or not _LINES.fullmatch(lines):
        raise fail(line, f"found blob {blob!r} and lines {lines!r}; {form}")
    return Source(path=path, blob=blob, lines=lines)
