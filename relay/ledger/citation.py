"""Cite a file or lines of it, and check whether they still say the same; lines that moved are found again."""

import re
from collections.abc import Callable

from msgspec.structs import replace

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

    Lines past the file's end are left out. Lines that stand several times in it, or hold no word as a lone bracket
    does, cannot be found again: then any change of the file counts.
    """
    whole = Source(path=source.path, blob=make_id(data)[:HASH_CHARS])
    if not source.lines:
        return whole
    rows = _split(data)
    first, last = parse_lines(source.lines)
    cited = rows[first - 1 : last]
    if not cited:
        return whole
    last = first + len(cited) - 1
    text = _hash_rows(cited, make_id)
    is_alone = any(map(_WORD.search, cited)) and _count(rows, len(cited), text, make_id) <= 1
    return replace(whole, lines=str(first) if first == last else f"{first}-{last}", text=text if is_alone else "")


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

    Lines that moved unchanged still say the same.

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
    if source.text and source.lines:
        rows, (first, last) = _split(plain), parse_lines(source.lines)
        is_there = _hash_rows(rows[first - 1 : last], make_id) == source.text
        if is_there or _count(rows, last - first + 1, source.text, make_id):
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
