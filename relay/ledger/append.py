"""One more entry at the end of the file; nothing that is there is touched."""

from relay.errors import LedgerError
from relay.ledger.model import Claim, Conflict, Entry, Ledger, StatusChange
from relay.ledger.parse import extend, parse_ledger


def append_entry(ledger: Ledger, entry: Entry) -> Ledger:
    """Return the ledger with one more entry: every character that was there stays, and the result was read back.

    A lone surrogate, which YAML cannot hold, becomes ``?``.

    Raises:
        LedgerError: The file is not a list that can be appended to, or the entry does not fit it (an id that is taken
            or unknown, a reason that is missing).
    """
    text = ledger.text
    newline = "\r\n" if "\r\n" in text else "\n"
    block = "".join(line + newline for line in _render_entry(entry))
    after = text + ("" if not text or text.endswith("\n") else newline) + block
    longer = extend(ledger, block).finish(after)
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


def _render_entry(entry: Entry) -> list[str]:
    """Write one entry, every text quoted."""
    match entry:
        case Claim():
            return _render_pairs(
                {"event": "claim", "id": entry.id, "claim": entry.claim, "because": entry.because},
                rests_on=[_quote(name) for name in entry.rests_on],
                sources=[
                    f"{{path: {_quote(s.path)}, blob: {_quote(s.blob)}, lines: {_quote(s.lines)}}}"
                    for s in entry.sources
                ],
            )
        case Conflict():
            return _render_pairs(
                {"event": "conflict", "id": entry.id, "because": entry.because},
                claims=[_quote(name) for name in entry.claims],
            )
        case StatusChange():
            return _render_pairs({"event": "status", "id": entry.id, "status": entry.status, "because": entry.because})


def _render_pairs(pairs: dict[str, str], **lists: list[str]) -> list[str]:
    """Write the lines of one entry; an empty list is left out."""
    lines = [f"{key}: {_quote(value)}" for key, value in pairs.items()]
    lines += [f"{key}: [{', '.join(values)}]" for key, values in lists.items() if values]
    return [("- " if number == 0 else "  ") + line for number, line in enumerate(lines)]


def _quote(text: str) -> str:
    """Write a text as a double-quoted scalar of one line; what is not printable is escaped."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(_escape(character) for character in clean) + '"'


def _escape(character: str) -> str:
    """Write one character inside double quotes."""
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"
