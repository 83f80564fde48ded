"""`read`: a window of a text file.

Lines come without numbers: `edit` goes by text, numbers cost about a tenth more tokens and end up in `old`; where a
line stands is known from `search` and from the offset. Carriage returns and a byte-order mark are not shown; `edit`
puts them back.
"""

import mimetypes
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from relay.base.secrecy import is_covered
from relay.base.tree import make_look
from relay.base.values import dataclass
from relay.sandbox.output import render_output
from relay.session.tokens import MAX_READ_BYTES
from relay.session.values import Shown
from relay.tools.notes import LegNotes
from relay.tools.output import ToolAnswer
from relay.tools.specs import MAX_READ_LINES
from relay.tools.workspace import RefusedError, Workspace, locate, open_regular, require_readable

MAX_LINE_CHARS = 2_000
"""Source of this and of `MAX_READ_LINES`: OpenCode's read tool."""

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A larger file takes seconds to count through; a command does that better."""

_SNIFF_BYTES = 8_000
"""A NUL in the first bytes makes a file binary; the number is git's."""

_LINE_BYTES = 4 * MAX_LINE_CHARS + 4

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    lines: tuple[str, ...]
    last: int
    """Number of the last line shown."""
    more: bool
    invalid: bool
    """Something shown was not UTF-8."""


def run_read(workspace: Workspace, notes: LegNotes | None, given: Mapping[str, Any]) -> ToolAnswer:
    """Show a file from line `offset` on."""
    with locate(workspace.root, given["path"], follow=True) as place:
        require_readable(workspace, place.path)
        stream = os.fdopen(open_regular(place), "rb")
    with stream:
        found = os.fstat(stream.fileno())
        size = found.st_size
        if size > MAX_FILE_BYTES:
            raise RefusedError(f"{place.path} has {size:,} bytes; look at parts of it with sed -n or tail in bash.")
        spilled = is_covered(place.path, (workspace.render_handle(workspace.outputs_dir),))
        if not spilled and (kind := find_binary_kind(place.path, stream)):
            raise RefusedError(f"{place.path} is binary: {size:,} bytes, {kind}.")
        offset = given.get("offset", 1)
        window = _read_window(stream, offset, min(given.get("limit", MAX_READ_LINES), MAX_READ_LINES), clean=spilled)
    if notes is not None:
        notes.seen[place.path] = make_look(found)
    if not window.lines:
        return _answer_empty(place.path, size, offset, window.last)
    shown = Shown(path=place.path, first_line=offset, last_line=window.last)
    return ToolAnswer(text="\n".join([*window.lines, *_remarks(window, offset)]), shown=shown)


def find_binary_kind(path: str, stream: BinaryIO) -> str | None:
    """Return what kind of binary file the stream holds, None for text; the stream is put back to its start."""
    start = stream.read(_SNIFF_BYTES)
    stream.seek(0)
    if b"\0" not in start:
        return None
    kind = next((name for magic, name in _MAGIC if start.startswith(magic)), None)
    return kind or mimetypes.guess_type(path)[0] or "unknown kind"


def _answer_empty(path: str, size: int, offset: int, last: int) -> ToolAnswer:
    if size == 0:
        return ToolAnswer(text=f"({path} is empty)")
    return ToolAnswer(text=f"{path} has {last} lines; offset {offset} is past its end.", is_error=True)


def _remarks(window: _Window, offset: int) -> list[str]:
    remarks = []
    if window.more:
        remarks.append(f"[lines {offset}-{window.last}. Use offset={window.last + 1} to continue]")
    if window.invalid:
        remarks.append("[not all of this is UTF-8: � stands for other bytes]")
    return remarks


def _read_window(stream: BinaryIO, offset: int, limit: int, *, clean: bool) -> _Window:
    number, used, invalid = 0, 0, False
    lines: list[str] = []
    while raw := _next_line(stream):
        number += 1
        if number < offset:
            continue
        line, valid = _show_line(*raw, first=number == 1, clean=clean)
        used += len(line.encode("utf-8")) + 1
        if len(lines) == limit or (lines and used > MAX_READ_BYTES):
            return _Window(lines=tuple(lines), last=number - 1, more=True, invalid=invalid)
        lines.append(line)
        invalid = invalid or not valid
    return _Window(lines=tuple(lines), last=number, more=False, invalid=invalid)


def _next_line(stream: BinaryIO) -> tuple[bytes, int] | None:
    """Return the start of the next line and how many bytes of it were left out; None at the end."""
    start = stream.readline(_LINE_BYTES)
    if not start:
        return None
    left_out, part = 0, start
    while part and not part.endswith(b"\n"):
        part = stream.readline(1 << 20)
        left_out += len(part.removesuffix(b"\n"))
    return start, left_out


def _show_line(start: bytes, left_out: int, *, first: bool, clean: bool) -> tuple[str, bool]:
    """Return the line as the model sees it and whether it was UTF-8."""
    data = start.removeprefix(b"\xef\xbb\xbf") if first else start
    text = data.decode("utf-8", "replace")
    valid = "�" not in text or left_out > 0 or "�".encode() in data
    text = render_output(data).removesuffix("\n") if clean else text.removesuffix("\n").removesuffix("\r")
    cut = len(text) - MAX_LINE_CHARS
    if cut <= 0 and not left_out:
        return text, valid
    left_out_words = f"+{max(cut, 0) + left_out:,}"
    return f"{text[:MAX_LINE_CHARS]}… [{left_out_words} characters]", valid
