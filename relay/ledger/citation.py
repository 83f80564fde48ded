"""What a claim cites of a file, and whether the file still says it."""

import re
from collections.abc import Callable

from relay.ledger.model import Source

HASH_CHARS = 12
"""Kept of an id: 48 bits tell two contents of one file apart."""
MAX_COMPARED_LINES = 500_000
"""Looked at for lines that have moved; beyond that they count as changed."""

PLACE = re.compile(r"(?P<path>.+?)(?::(?P<lines>(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?))?")
"""``path``, ``path:12`` or ``path:12-40``."""
Hash = Callable[[bytes], str]
"""Makes git's id of a blob."""


def cite(path: str, lines: str, data: bytes, make_id: Hash) -> Source:
    """Return a source with what it says now; lines behind the file's end are left out.

    Args:
        path: Of the file.
        lines: ``12`` or ``12-40``; empty for the whole file.
        data: The file.
        make_id: Makes ids.
    """
    source = Source(path=path, blob=make_id(data)[:HASH_CHARS])
    if not lines:
        return source
    rows = _split(data)
    first, last = parse_lines(lines)
    last = min(last, len(rows))
    if first > last:
        return source
    shown = str(first) if first == last else f"{first}-{last}"
    return Source(path=path, lines=shown, blob=source.blob, text=_hash_rows(rows[first - 1 : last], make_id))


def find_change(source: Source, data: bytes | None, make_id: Hash) -> str:
    """Say what has become of a source; empty when it still says the same, or what it said is not known.

    Lines that stand elsewhere in the file by now, just as they were, still say the same.

    Args:
        source: As it was.
        data: The file as it is; None when there is none.
        make_id: Makes ids.
    """
    if not source.blob:
        return ""
    if data is None:
        return f"{source} is gone"
    plain = data.replace(b"\r\n", b"\n")
    if any(make_id(found).startswith(source.blob) for found in (data, plain)):
        return ""
    if source.text and _stands_in(source, _split(plain), make_id):
        return ""
    return f"{source} has changed"


def parse_place(text: str) -> Source:
    """Read ``path``, ``path:12`` or ``path:12-40`` as a source whose content is not known; anything is a path."""
    match = PLACE.fullmatch(text)
    if match is None or not match["lines"]:
        return Source(path=text)
    return Source(path=match["path"], lines=match["lines"])


def parse_lines(lines: str) -> tuple[int, int]:
    """Return the first and the last line of ``12`` or ``12-40``."""
    first, _, last = lines.partition("-")
    return int(first), int(last or first)


def _stands_in(source: Source, rows: list[bytes], make_id: Hash) -> bool:
    first, last = parse_lines(source.lines)
    size = last - first + 1
    starts = len(rows) - size + 1
    if starts * size > MAX_COMPARED_LINES:
        starts = 0
    places = [first - 1, *range(starts)]  # where it was, before anywhere else
    return any(_hash_rows(rows[at : at + size], make_id) == source.text for at in places)


def _split(data: bytes) -> list[bytes]:
    """Return a file's lines, whatever their endings; the last one may have none."""
    rows = data.replace(b"\r\n", b"\n").split(b"\n")
    return rows if rows[-1] else rows[:-1]


def _hash_rows(rows: list[bytes], make_id: Hash) -> str:
    return make_id(b"\n".join(rows))[:HASH_CHARS]
