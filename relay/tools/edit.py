"""`edit` and `write`: the tools that change files themselves.

`edit` works on bytes, so the rest of the file keeps its bytes in any encoding. A line feed in `old` matches both line
endings; in `new` it becomes the ending used in the replaced text, or else in the file. `write` keeps the line endings
and the byte order mark of the file it replaces. Neither tool replaces a protected file, or one that changed after the
tool read it.
"""

import os
import re
import stat
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from relay.base.tree import make_look, replace_with_file, take_look
from relay.base.walk import Location, enter_all, open_ignored
from relay.plan.text import OUTPUTS
from relay.session.values import ToolResult
from relay.tools.claims import AttemptNotes
from relay.tools.workspace import RefusedError, Workspace, locate, open_regular, require_writable


def require_target(place: Location) -> None:
    """Refuse any target except a regular file, or a new file with a printable name.

    Raises:
        RefusedError: It names the kind of target.
    """
    if place.name == "." or any(ord(char) < 32 or ord(char) == 127 for char in place.path):  # noqa: PLR2004  # ASCII
        raise RefusedError(f"{place.path!r} is not a file name that can be written.")
    if place.status is None:
        return
    if stat.S_ISDIR(place.status.st_mode):
        raise RefusedError(f"{place.path} is a directory.")
    if not stat.S_ISREG(place.status.st_mode):
        raise RefusedError(f"{place.path} is a device, pipe or socket, not a file.")
    if not place.status.st_mode & 0o222:
        raise RefusedError(f"{place.path} is marked read-only; use chmod in bash if it really must change.")


def replace_target(root: Path, place: Location, data: bytes) -> None:
    """Write `data` to a target that `require_target` accepted.

    An existing file keeps its mode and owner; missing parent directories are made. The data and the directory are on
    disk when this returns.

    Args:
        root: The work tree. The temporary file is in its directory of outputs, which git ignores: after a crash no
            commit can pick it up. Where that cannot be made, or is a link that a repository ships, it is next to the
            target.

    Raises:
        RefusedError: The file changed after it was located.
        OSError: The disk is full, or a directory is not writable; nothing changed then.
    """
    parent_fd = enter_all(place.parent_fd, place.missing, create=True)
    with ExitStack() as stack:
        stack.callback(os.close, parent_fd)
        scratch_fd = None
        with suppress(OSError):
            scratch_fd = stack.enter_context(open_ignored(root, OUTPUTS.split("/")))
        check = partial(_require_unchanged, parent_fd, place)
        replace_with_file(parent_fd, place.name, data, scratch_fd=scratch_fd, check=check)


def _require_unchanged(parent_fd: int, place: Location) -> None:
    try:
        now = os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if (now and make_look(now)) != (place.status and make_look(place.status)):
        raise RefusedError(f"{place.path} was changed by something else just now; read it again.")


MAX_EDIT_BYTES = 16 * 1024 * 1024
MAX_WRITE_BYTES = 4 * 1024 * 1024
"""No model writes more in one call except by mistake."""

_BOM = "\ufeff"
_SHOWN = 5
_COUNTED = 1_000
_COMPARED_LINES = 2_000
_COMPARED_CHARS = 120


def run_edit(workspace: Workspace, notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Replace the only occurrence of `old`."""
    old, new = _to_lf(given["old"]), _to_lf(given["new"])
    if not old or old == new:
        raise RefusedError("old is empty; use write to make a file." if not old else "old and new are the same.")
    with locate(workspace, given["path"], follow=False) as place:
        require_writable(workspace, place.path)
        if place.status is not None:
            require_target(place)
        data = _load(place)
        if b"\0" in data:
            raise RefusedError(f"{place.path} is binary; change it with a command.")
        start, end = _get_only(data, old)
        if old.isascii() and not new.isascii() and not _is_utf8(data):
            raise RefusedError(
                f"{place.path} is not UTF-8, and edit would write new's other letters than ASCII as UTF-8: "
                "change it with a command in bash that writes the file's encoding."
            )
        ending = _pick_ending(data, data[start:end])
        changed = data[:start] + new.encode().replace(b"\n", ending) + data[end:]
        replace_target(workspace.root, place, changed)
    _note_change(workspace, notes, place.path)
    line = data.count(b"\n", 0, start) + 1
    return ToolResult(text=f"Replaced in {place.path}, line {line}.", changed_paths=(place.path,))


def run_write(workspace: Workspace, notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Write `content` to a file."""
    data = given["content"].encode()
    if len(data) > MAX_WRITE_BYTES:
        raise RefusedError(f"{len(data):,} bytes are more than the {MAX_WRITE_BYTES:,} that one call can write.")
    if given["path"].endswith("/"):
        raise RefusedError(f"{given['path']} names a directory; directories are made with the files in them.")
    with locate(workspace, given["path"], follow=False) as place:
        require_writable(workspace, place.path)
        require_target(place)
        before = _load(place) if place.status is not None and place.status.st_size <= MAX_EDIT_BYTES else None
        data = _keep_form(before or b"", data)
        if before == data:
            return ToolResult(text=f"{place.path} already has this content.")
        replace_target(workspace.root, place, data)
    unread = place.path not in notes.seen
    _note_change(workspace, notes, place.path)
    text = f"Created {place.path}." if place.status is None else _say_replaced(place, before, data, unread=unread)
    return ToolResult(text=text, changed_paths=(place.path,))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _keep_form(before: bytes, data: bytes) -> bytes:
    """Give new content the line endings and the byte order mark of the file that it replaces."""
    if b"\r" not in data and before.count(b"\r\n") == before.count(b"\n"):
        data = data.replace(b"\n", _pick_ending(before, b""))
    bom = _BOM.encode()
    return bom + data if before.startswith(bom) and not data.startswith(bom) else data


def _say_replaced(place: Location, before: bytes | None, data: bytes, *, unread: bool) -> str:
    lines = "all" if before is None else f"{len(before.splitlines()):,}"
    form = (
        " Its CRLF line endings are kept; sed in bash changes them."
        if before and b"\r\n" in before and b"\r\n" in data
        else ""
    )
    form += " It was not UTF-8; now it is." if before and not _is_utf8(before) else ""
    warning = " You had not read it in this session: look at git diff for what is gone." if unread else ""
    return f"Replaced {lines} lines of {place.path}.{form}{warning}"


def _note_change(workspace: Workspace, notes: AttemptNotes, path: str) -> None:
    notes.seen[path] = take_look(workspace.root, path)
    notes.touched_paths.setdefault(path)


def _load(place: Location) -> bytes:
    with os.fdopen(open_regular(place), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > MAX_EDIT_BYTES:
            raise RefusedError(f"{place.path} has {size:,} bytes; change it with a command.")
        return stream.read()


def _to_lf(text: str) -> str:
    return text.removeprefix(_BOM).replace("\r\n", "\n")


def _get_only(data: bytes, old: str) -> tuple[int, int]:
    """Return start and end of the only occurrence of `old` in `data`.

    The linear-time search of `bytes` runs over a copy with line feeds only; a regular expression with two line endings
    could be made to take hours.
    """
    folded = [match.start() - before for before, match in enumerate(re.finditer(rb"\r\n", data))]
    text, wanted = data.replace(b"\r\n", b"\n"), old.encode()
    starts: list[int] = []
    at = text.find(wanted)
    while at >= 0 and len(starts) < _COUNTED:
        starts.append(at)
        at = text.find(wanted, at + 1)  # overlapping places are two places
    if not starts:
        raise RefusedError(f"old does not occur.{_say_nearest(data, old)}")
    if len(starts) > 1:
        lines = [str(text.count(b"\n", 0, start) + 1) for start in starts[:_SHOWN]]
        count = f"{_COUNTED:,} times or more" if len(starts) == _COUNTED else f"{len(starts)} times"
        where = ", ".join(lines) + (" …" if len(starts) > _SHOWN else "")
        raise RefusedError(f"old occurs {count}, at lines {where}. Take in lines around the one you mean.")
    start, end = starts[0], starts[0] + len(wanted)
    return start + bisect_left(folded, start), end + bisect_left(folded, end)


def _pick_ending(data: bytes, replaced: bytes) -> bytes:
    for part in (replaced, data):
        at = part.find(b"\n")
        if at >= 0:
            return b"\r\n" if part[at - 1 : at] == b"\r" else b"\n"
    return b"\n"


def _say_nearest(data: bytes, old: str) -> str:
    """Name the lines that most resemble the first line of `old` that is not blank."""
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    lines = data.decode("utf-8", "replace").split("\n")[:_COMPARED_LINES]
    same = [number for number, line in enumerate(lines, 1) if first and line.strip() == first]
    if same:
        where = ", ".join(map(str, same[:_SHOWN]))
        return f" Its first line stands at line {where} but what follows, or the white space, differs; read it again."
    import difflib  # costs start-up time and is needed only here

    near = difflib.get_close_matches(first[:_COMPARED_CHARS], [line.strip()[:_COMPARED_CHARS] for line in lines], n=1)
    at = next((n for n, line in enumerate(lines, 1) if near and line.strip().startswith(near[0])), 0)
    return f" Nearest is line {at}: {lines[at - 1].strip()[:200]}" if at else " Nothing resembles it."
