"""Cite a file or lines of it, and check whether they still say the same; lines that moved are found again."""

import re
from collections.abc import Callable
from dataclasses import replace

from relay.ledger.model import Source

HASH_CHARS = 12
"""Characters kept of an id: 48 bits tell two contents of one file apart."""
MAX_CITED_BYTES = 16 * 1024 * 1024
"""Larger files are not compared with what was cited of them."""
MAX_COMPARED_LINES = 500_000
"""Lines that are compared to find lines that moved; beyond that they count as changed."""

PLACE = re.compile(r"(?P<path>.+?)(?::(?P<lines>\d{1,9}(?:-\d{1,9})?))?")
"""``path``, ``path:12`` or ``path:12-40``; the path may hold colons."""
_WORD = re.compile(rb"[^\W_]|[\x80-\xff]")
Hash = Callable[[bytes], str]
"""Computes git's id of a blob."""


def cite(source: Source, data: bytes, make_id: Hash) -> Source:
    """Return a source with its present content.

    Lines past the file's end are left out. Lines without a word take in those around them.
    """
    whole = Source(path=source.path, blob=make_id(data)[:HASH_CHARS])
    if not source.lines:
        return whole
    rows = _split(data)
    first, last = parse_lines(source.lines)
    first, last = _widen(rows, first, min(last, len(rows)))
    if first > last:
        return whole
    shown = str(first) if first == last else f"{first}-{last}"
    text = _hash_rows(rows[first - 1 : last], make_id)
    copies = _count(rows, last - first + 1, text, make_id)
    return replace(whole, lines=shown, text=text, copies=str(copies) if copies > 1 else "")


def _widen(rows: list[bytes], first: int, last: int) -> tuple[int, int]:
    """Take in the lines around a range without a word: a lone bracket says nothing, and stands anywhere."""
    says = any(map(_WORD.search, rows[first - 1 : last]))
    while first <= last and not says:
        if (first, last) == (1, len(rows)):
            return 1, 0
        first, last = max(1, first - 1), min(last + 1, len(rows))
        says = any(map(_WORD.search, (rows[first - 1], rows[last - 1])))
    return first, last


def explain_missing(source: Source, data: bytes) -> str:
    """Return why a source's lines cannot be cited; empty if they can.

    Args:
        data: The file, or its first `MAX_CITED_BYTES` and more: then its lines are not counted.
    """
    if source.lines and len(data) <= MAX_CITED_BYTES and (count := len(_split(data))) < parse_lines(source.lines)[0]:
        return f"{source}: the file has {count} line{'s' * (count != 1)}"
    return ""


def find_change(source: Source, data: bytes | None, make_id: Hash) -> str:
    """Return how a source has changed; empty if it still says the same, or its former content is unknown.

    Lines that moved unchanged still say the same; of lines with several copies, as many must be left.

    Args:
        data: The file as it is; None if there is none.
    """
    if not source.blob:
        return ""
    if data is None:
        return f"{source} is gone"
    plain = data.replace(b"\r\n", b"\n")
    if any(make_id(found).startswith(source.blob) for found in (data, plain)):
        return ""
    if source.text and source.lines and _stands_in(source, _split(plain), make_id):
        return ""
    return f"{source} has changed"


def parse_place(text: str) -> Source:
    """Parse a `PLACE` into a source of unknown content; any other text is a path."""
    match = PLACE.fullmatch(text)
    return Source(path=match["path"], lines=match["lines"] or "") if match else Source(path=text)


def parse_lines(lines: str) -> tuple[int, int]:
    """Return the first and the last line of ``12`` or ``12-40``."""
    first, _, last = lines.partition("-")
    return int(first), int(last or first)


def _stands_in(source: Source, rows: list[bytes], make_id: Hash) -> bool:
    """Whether a text stands where it stood, or anywhere as often as it did: one of two copies may have been changed."""
    first, last = parse_lines(source.lines)
    if _hash_rows(rows[first - 1 : last], make_id) == source.text:
        return True
    return _count(rows, last - first + 1, source.text, make_id) >= int(source.copies or 1)


def _count(rows: list[bytes], size: int, text: str, make_id: Hash) -> int:
    """Count the places where these lines stand; 0 if there are too many lines to compare."""
    starts = len(rows) - size + 1
    if starts * size > MAX_COMPARED_LINES:
        return 0
    return sum(_hash_rows(rows[at : at + size], make_id) == text for at in range(starts))


def _split(data: bytes) -> list[bytes]:
    rows = data.replace(b"\r\n", b"\n").split(b"\n")
    return rows if rows[-1] else rows[:-1]


def _hash_rows(rows: list[bytes], make_id: Hash) -> str:
    return make_id(b"\n".join(rows))[:HASH_CHARS]
