"""The user's index, read without git where its form is the usual one.

Worth, at 2 ms a git process: 4 processes in a phase of four tools, and the only one of ``relay status``.
Source: gitformat-index(5), versions 2 and 3. Git replaces the file as a whole, so what is read is of one moment. Of
one that is large, shared with another file or sparse only git says what is in it; so it does of version 4.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from relay.base.tree import Look, make_look, read_start
from relay.base.values import dataclass
from relay.git.repository import Repo

_LARGEST_BYTES = 1 << 18
"""About 2,500 files; for more, starting git takes less time."""
_VERSIONS = frozenset({2, 3})
_STAT_BYTES, _MODE_AT = 40, 24
_VALID, _EXTENDED, _STAGE, _SKIPPED = 0x8000, 0x4000, 0x3000, 0x4000

_known: dict[Path, tuple[Look, "IndexFile | None"]] = {}
"""Per index file: what it looked like, and what was in it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """What an index holds."""

    entries: Mapping[str, tuple[str, str]]
    """``path: (mode, object id)``; without those of a conflict."""
    has_flags: bool
    """Whether git was told not to look at some file."""
    has_conflicts: bool


def read_index_file(repo: Repo) -> IndexFile | None:
    """Return what the user's index holds; None where only git can tell."""
    index = repo.git_dir / "index"
    try:
        look = make_look(index.lstat())
        if _known.get(index, ((), None))[0] != look:
            data = read_start(index, _LARGEST_BYTES)
            found = _parse(data, len(repo.zero_id) // 2) if data and len(data) <= _LARGEST_BYTES else None
            _known[index] = (look, found)
            if make_look(index.lstat()) != look:
                del _known[index]
                return None
    except (OSError, ValueError, struct.error):
        return None
    return _known[index][1]


def _parse(data: bytes, id_bytes: int) -> IndexFile | None:
    """Read an index.

    Raises:
        ValueError: It is cut off, as by `struct.error`.
    """
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in _VERSIONS:
        return None
    entries: dict[str, tuple[str, str]] = {}
    at, flagged, conflicts = 12, False, False
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", data, at + _MODE_AT)
        flags_at = at + _STAT_BYTES + id_bytes
        flags, extended = struct.unpack_from(">HH", data, flags_at)
        is_extended = bool(flags & _EXTENDED)
        name_at = flags_at + (4 if is_extended else 2)
        end = data.index(b"\0", name_at)
        flagged |= bool(flags & _VALID or (is_extended and extended & _SKIPPED))
        if flags & _STAGE:
            conflicts = True
        else:
            entries[os.fsdecode(data[name_at:end])] = (f"{mode:06o}", data[at + _STAT_BYTES : flags_at].hex())
        at += (end - at + 8) & ~7
    while at < len(data) - id_bytes:
        signature, size = struct.unpack_from(">4sI", data, at)
        if not signature[:1].isupper():  # one that changes what the entries mean
            return None
        at += 8 + size
    return (
        IndexFile(entries=entries, has_flags=flagged, has_conflicts=conflicts) if at == len(data) - id_bytes else None
    )
