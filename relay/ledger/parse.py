"""From the file's text to a ledger, every entry checked."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from relay.ledger.citation import SYMBOL
from relay.ledger.model import Claim, Confirmation, Entry, Kind, Ledger, Nogood, Retraction, Source, Stamp
from relay.ledger.stream import fail, read_entries

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINES = re.compile(r"(?:[1-9]\d{0,8}(?:-[1-9]\d{0,8})?)?", re.ASCII)
_HASH = re.compile(r"(?:[0-9a-f]{7,64})?")
_SOURCE = {
    "path": re.compile(".*", re.DOTALL),
    "symbol": re.compile(rf"(?:{SYMBOL})?"),
    "lines": _LINES,
    "blob": _HASH,
    "text": _HASH,
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_STAMP = ("phase", "session", "at")
_EVENTS = {
    "claim": (("id", "claim", "because"), ("kind", "rests_on", "replaces", "sources")),
    "retract": (("of", "because"), ()),
    "confirm": (("of", "because"), ("sources",)),
    "nogood": (("id", "because", "claims"), ()),
}
"""Event to the keys that it must and may have, besides those that say who and when."""
_IDS = frozenset({"rests_on", "replaces", "claims"})


def parse_ledger(text: str) -> Ledger:
    """Read a ledger; an empty text is an empty ledger. What stands there twice, as it may after a merge, counts once.

    Raises:
        LedgerError: It is not of the form above. The line is known, the path is not: see `errors.within`.
    """
    return Ledger(text=text, entries=read_lines((), text))


def read_lines(known: Iterable[Entry], block: str) -> tuple[Entry, ...]:
    """Read entries that follow on known ones; all of them are returned, each once.

    Raises:
        LedgerError: One cannot be read, or two that differ have the same id.
    """
    found = dict.fromkeys(known)
    taken = {entry.id for entry in found if isinstance(entry, Claim | Nogood)}
    for line, raw in read_entries(block):
        entry = build_entry(raw, line)
        if isinstance(entry, Claim | Nogood) and entry not in found:
            if entry.id in taken:
                raise fail(line, f"the id {entry.id!r} is that of another entry; allowed: a new one")
            taken.add(entry.id)
        found.setdefault(entry)
    return tuple(found)


def build_entry(raw: Any, line: int) -> Entry:
    """Make an entry of what stands in the file."""
    event = raw.get("event") if isinstance(raw, dict) else None
    if not isinstance(event, str) or event not in _EVENTS:
        raise fail(line, f"found an entry of no known kind; allowed: a mapping with event: {', '.join(_EVENTS)}")
    needed, optional = _EVENTS[event]
    if unknown := sorted(raw.keys() - {"event", *needed, *optional, *_STAMP}):
        raise fail(line, f"found the key {unknown[0]!r}; allowed: event, {', '.join((*needed, *optional, *_STAMP))}")
    fields = {key: _read_field(raw, key, line) for key in (*needed, *optional) if key in raw or key in needed}
    stamp = _read_stamp(raw, line)
    match event:
        case "claim":
            return Claim(**fields, stamp=stamp)
        case "retract":
            return Retraction(**fields, stamp=stamp)
        case "confirm":
            return Confirmation(**fields, stamp=stamp)
        case _:
            return Nogood(**fields, stamp=stamp)


def _read_field(raw: Mapping[str, Any], key: str, line: int) -> Any:
    """Return one field, of its type; lists as tuples."""
    value = raw.get(key)
    if key == "sources":
        if not isinstance(value, list):
            raise fail(line, "sources: allowed: a list of sources")
        return tuple(_build_source(source, line) for source in value)
    if key in _IDS:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise fail(line, f"{key}: allowed: a list of ids")
        return tuple(value)
    if not isinstance(value, str) or not value.strip():
        raise fail(line, f"{key} is missing; allowed: a text that is not blank")
    return _require_word(key, value, line)


def _require_word(key: str, value: str, line: int) -> str:
    if key in {"id", "of"} and not _ID.fullmatch(value):
        raise fail(line, f"found the id {value!r}; allowed: letters, digits, - and _, at most 64")
    if key != "kind":
        return value
    if value not in set(Kind):
        raise fail(line, f"found the kind {value!r}; allowed: {', '.join(Kind)}")
    return Kind(value)


def _read_stamp(raw: Mapping[str, Any], line: int) -> Stamp:
    found = {key: raw[key] for key in _STAMP if key in raw}
    if bad := [key for key, value in found.items() if not isinstance(value, str)]:
        raise fail(line, f"{bad[0]}: allowed: a text")
    if not _is_time(found.get("at", "")):
        raise fail(line, f"found the time {found['at']!r}; allowed: UTC such as 2026-11-20T10:00:00Z")
    return Stamp(**found)


def _is_time(text: str) -> bool:
    if not text:
        return True
    try:
        return _TIME.fullmatch(text) is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def _build_source(raw: Any, line: int) -> Source:
    """Make a source of what stands in the file."""
    form = (
        "allowed: {path: text, symbol: Name.name, lines: 12-40, blob: hex id, text: hex id}, all but the path optional"
    )
    if not isinstance(raw, dict) or not raw.keys() <= set(_SOURCE):
        raise fail(line, f"found another form of source; {form}")
    found = {key: raw.get(key, "") for key in _SOURCE}
    if not all(isinstance(value, str) for value in found.values()) or "\0" in found["path"] or not found["path"]:
        raise fail(line, f"found another form of source; {form}")
    if bad := [key for key, allowed in _SOURCE.items() if not allowed.fullmatch(found[key])]:
        raise fail(line, f"found the {bad[0]} {found[bad[0]]!r} of a source; {form}")
    return Source(**found)
