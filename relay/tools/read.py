"""`read`: shows a picture, or lines of a text, without line numbers.

`edit` goes by text, numbers cost about a tenth more tokens and end up in `old`; the model knows from `git grep` and
from the offset where a line stands. `read` leaves out carriage returns and a byte-order mark; `edit` puts them back.
"""

import mimetypes
import os
import stat
from collections.abc import Mapping
from typing import Any, BinaryIO

from relay.base.secrecy import is_covered
from relay.base.tree import FileState, make_look
from relay.base.values import dataclass
from relay.base.words import render_output
from relay.plan.text import OUTPUTS
from relay.session.pictures import MAX_PICTURE_BYTES, MAX_SIDE_PIXELS, PICTURE_TYPES, find_picture_type, read_picture
from relay.session.usage import MAX_READ_BYTES
from relay.session.values import Shown, ToolResult
from relay.tools.claims import AttemptNotes
from relay.tools.workspace import RefusedError, Workspace, locate, open_regular, require_readable

MAX_READ_LINES = 2_000
MAX_LINE_CHARS = 2_000
"""Source of both: OpenCode's read tool."""

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A larger file takes seconds to count through; a command does that better."""

_SNIFF_BYTES = 8_000
"""A NUL in the first bytes makes a file binary; the number is git's."""

_LINE_BYTES = 4 * MAX_LINE_CHARS + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    lines: tuple[str, ...]
    last: int
    """Number of the last line shown."""
    more: bool
    invalid: bool
    """Some shown bytes were not UTF-8."""


def run_read(workspace: Workspace, notes: AttemptNotes | None, given: Mapping[str, Any]) -> ToolResult:
    """Show a file from line `offset` on."""
    with locate(workspace, given["path"], follow=True) as place:
        require_readable(workspace, place.path)
        stream = os.fdopen(open_regular(place), "rb")
    with stream:
        found = os.fstat(stream.fileno())
        size = found.st_size
        if size > MAX_FILE_BYTES:
            raise RefusedError(f"{place.path} has {size:,} bytes; look at parts of it with sed -n or tail in bash.")
        spilled = is_covered(place.path, (OUTPUTS,))
        if not spilled and (kind := find_binary_kind(place.path, stream)):
            if kind in PICTURE_TYPES:
                return _show_picture(place.path, stream.read(MAX_PICTURE_BYTES + 1), size)
            raise RefusedError(f"{place.path} is binary: {size:,} bytes, {kind}.")
        offset, limit = (max(given.get(name, most), 1) for name, most in (("offset", 1), ("limit", MAX_READ_LINES)))
        window = _read_window(stream, offset, min(limit, MAX_READ_LINES), clean=spilled)
    if notes is not None:
        notes.seen[place.path] = make_look(found)
    if not window.lines:
        if size == 0:
            return ToolResult(text=f"({place.path} is empty)")
        return ToolResult(text=f"{place.path} has {window.last} lines; offset {offset} is past its end.", is_error=True)
    shown = Shown(path=place.path, first_line=offset, last_line=window.last)
    remarks = []
    if window.more:
        remarks.append(f"[lines {offset}-{window.last}. Use offset={window.last + 1} to continue]")
    if window.invalid:
        remarks.append("[not all of this is UTF-8: � stands for other bytes]")
    return ToolResult(text="\n".join([*window.lines, *remarks]), shown=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile:
    """A text file as `read` shows it, from its first line to its last."""

    path: str
    """Without links."""
    text: str
    look: FileState


def read_whole(workspace: Workspace, path: str, most_bytes: int) -> WholeFile | None:
    """Return a file of at most `most_bytes` that `read` would show whole; None for any other, and for an empty one.

    Also None for a file with another name, which may be that of a secret.
    """
    try:
        with locate(workspace, path, follow=True) as place:
            if place.status is None or not stat.S_ISREG(place.status.st_mode):
                return None
            require_readable(workspace, place.path)
            stream = os.fdopen(open_regular(place), "rb")
    except (RefusedError, OSError):
        return None
    with stream:
        found = os.fstat(stream.fileno())
        if not 0 < found.st_size <= most_bytes or found.st_nlink > 1 or find_binary_kind(place.path, stream):
            return None
        window = _read_window(stream, 1, MAX_READ_LINES, clean=False)
    if window.more or window.invalid or any(len(line) > MAX_LINE_CHARS for line in window.lines):
        return None
    return WholeFile(path=place.path, text="\n".join(window.lines), look=make_look(found))


def _show_picture(path: str, data: bytes, size: int) -> ToolResult:
    if len(data) > MAX_PICTURE_BYTES:
        raise RefusedError(f"{path} has {size:,} bytes; a picture may have {MAX_PICTURE_BYTES:,}. Make a smaller copy.")
    picture = read_picture(data)
    if picture is None:
        raise RefusedError(f"{path} is no whole picture: its header or its end is missing.")
    words = f"{path}: {picture.media_type}, {picture.width:,} x {picture.height:,} pixels."
    if max(picture.width, picture.height) > MAX_SIDE_PIXELS:
        raise RefusedError(f"{words} A side may have {MAX_SIDE_PIXELS:,}. Make a smaller copy.")
    return ToolResult(text=words, picture=picture)


def find_binary_kind(path: str, stream: BinaryIO) -> str | None:
    """Return the kind of a binary file, None for text; rewind the stream."""
    start = stream.read(_SNIFF_BYTES)
    stream.seek(0)
    if b"\0" not in start:
        return None
    return find_picture_type(start) or mimetypes.guess_type(path)[0] or "unknown kind"


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
    """Return the start of the next line and the number of omitted bytes; None at the end."""
    start = stream.readline(_LINE_BYTES)
    if not start:
        return None
    left_out, part = 0, start
    while part and not part.endswith(b"\n"):
        part = stream.readline(1 << 20)
        left_out += len(part.removesuffix(b"\n"))
    return start, left_out


def _show_line(start: bytes, left_out: int, *, first: bool, clean: bool) -> tuple[str, bool]:
    """Return the line for the model, and whether it was UTF-8."""
    data = start.removeprefix(b"\xef\xbb\xbf") if first else start
    text = data.decode("utf-8", "replace")
    valid = "�" not in text or left_out > 0 or "�".encode() in data
    text = render_output(data).removesuffix("\n") if clean else text.removesuffix("\n").removesuffix("\r")
    cut = len(text) - MAX_LINE_CHARS
    if cut <= 0 and not left_out:
        return text, valid
    left_out_words = f"+{max(cut, 0) + left_out:,}"
    return f"{text[:MAX_LINE_CHARS]}… [{left_out_words} characters]", valid
