"""More entries at the end of the file; nothing that is there is touched."""

from collections.abc import Iterable

from relay.base.errors import LedgerError
from relay.ledger.model import Claim, Confirmation, Entry, Ledger, Nogood, Retraction, Source, Stamp, get_sources
from relay.ledger.parse import parse_following, parse_ledger

_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def append_entry(ledger: Ledger, *entries: Entry) -> Ledger:
    """Return the ledger with more entries, a line each: every character that was there stays, and it was read back.

    A lone surrogate, which YAML cannot hold, becomes ``?``.

    Raises:
        LedgerError: The file is not a list that can be appended to, or an entry does not fit it (an id that is taken,
            a reason that is missing).
    """
    text = ledger.text
    newline = "\r\n" if "\r\n" in text else "\n"
    block = "".join(_render_entry(entry) + newline for entry in entries)
    after = text + ("" if not text or text.endswith("\n") else newline) + block
    longer = Ledger(text=after, entries=parse_following(ledger.entries, block))
    # A file whose list has another form (flow style, indented, ended) reads on after the block, or not at all.
    try:
        same = parse_ledger(after) == longer
    except LedgerError:
        same = False
    if not same:
        raise LedgerError(
            "the ledger cannot be appended to: an entry at its end would not be read back as it is",
            hint="the file must be one plain list whose entries start with '- ' in the first column",
        )
    return longer


def merge_entries(ledger: Ledger, entries: Iterable[Entry]) -> Ledger:
    """Return the ledger with those of some entries that it does not have; where an id is known, its own entry stays.

    Raises:
        LedgerError: The file is not a list that can be appended to.
    """
    known = {_identify(entry) for entry in ledger.entries}
    missing = [entry for entry in entries if _identify(entry) not in known]
    return append_entry(ledger, *missing) if missing else ledger


def _identify(entry: Entry) -> str | Entry:
    return entry.id if isinstance(entry, Claim | Nogood) else entry


def _render_entry(entry: Entry) -> str:
    """Write one entry as one line, every text quoted."""
    texts, lists = _list_fields(entry)
    pairs = [_pair(key, value) for key, value in (*texts.items(), ("because", entry.because))]
    pairs += [f"{key}: [{', '.join(map(_quote, names))}]" for key, names in lists.items() if names or key == "claims"]
    return f"- {{{', '.join([*pairs, *_list_sources(get_sources(entry)), *_list_stamp(entry.stamp)])}}}"


def _list_fields(entry: Entry) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the texts that stand before the reason, and the lists of ids behind it."""
    match entry:
        case Claim():
            texts = {"event": "claim", "id": entry.id, "kind": str(entry.kind), "claim": entry.claim}
            return texts, {"rests_on": entry.rests_on, "replaces": entry.replaces}
        case Retraction():
            return {"event": "retract", "of": entry.of}, {}
        case Confirmation():
            return {"event": "confirm", "of": entry.of}, {}
        case Nogood():
            return {"event": "nogood", "id": entry.id}, {"claims": entry.claims}


def _pair(key: str, value: str) -> str:
    return f"{key}: {_quote(value)}"


def _list_sources(sources: tuple[Source, ...]) -> list[str]:
    return [f"sources: [{', '.join(map(_render_source, sources))}]"] if sources else []


def _render_source(source: Source) -> str:
    place = (("path", source.path), ("symbol", source.symbol), ("lines", source.lines))
    fields = (*place, ("blob", source.blob), ("text", source.text), ("copies", source.copies))
    return f"{{{', '.join(_pair(key, value) for key, value in fields if value)}}}"


def _list_stamp(stamp: Stamp) -> list[str]:
    fields = (("phase", stamp.phase), ("session", stamp.session), ("at", stamp.at))
    return [_pair(key, value) for key, value in fields if value]


def _quote(text: str) -> str:
    """Write a text as a double-quoted scalar of one line; what is not printable is escaped."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(_escape(character) for character in clean) + '"'


def _escape(character: str) -> str:
    """Write one character inside double quotes."""
    if character.isprintable() and character not in '"\\':
        return character
    return _ESCAPES.get(character) or f"\\U{ord(character):08x}"
