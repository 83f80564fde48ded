"""The files that a gate leaves in ``$RELAY_EVIDENCE``: screenshots, reports. They are kept by digest for a week.

A test may give them any names, link them anywhere and make a million: each step is by descriptor, follows no link, and
ends at a limit.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from relay.base.tree import replace_unsynced
from relay.base.walk import open_ignored, open_regular, read_bytes
from relay.gate.model import EvidenceFile

VARIABLE = "RELAY_EVIDENCE"
FOLDER = "evidence"
"""Below the directory of outputs, which sweeps it."""
MAX_FILES = 20
"""Most files of one gate."""
MAX_BYTES = 1_000_000
"""Of one file; of a larger one only the name and the size are noted."""
MAX_KEPT = 500
"""Files in the folder; then none is added until old ones are swept."""
_MAX_NAME_CHARS = 200
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


def open_evidence(scratch: Path) -> Path | None:
    """Return a new, empty directory for a gate's files; None if the disk has no room."""
    with contextlib.suppress(OSError):
        return Path(tempfile.mkdtemp(prefix="evidence-", dir=scratch))
    return None


def keep_evidence(root: Path, outputs: Path, left: Path, handed: Sequence[str]) -> tuple[EvidenceFile, ...]:
    """Keep the files of a gate; an error of the disk loses them, and not the gate.

    Args:
        outputs: The directory of outputs, below the root.
        left: From `open_evidence`.
        handed: Values that no file may hold.
    """
    with contextlib.suppress(OSError, ValueError):
        found = tuple(islice(_iter_files(left), MAX_FILES))
        if found:
            with open_ignored(root, outputs.relative_to(root).parts, FOLDER) as folder:
                return tuple(_keep(folder, *one, handed) for one in found)
    return ()


def _iter_files(left: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, size and beginning of each regular file."""
    for place, folders, names, holder in os.fwalk(left, follow_symlinks=False):
        folders[:] = sorted(folders)[:MAX_FILES] if Path(place).relative_to(left).parts[3:] == () else []
        for name in sorted(names):
            with contextlib.suppress(OSError):
                handle = open_regular(name, holder)
                try:
                    size, data = os.fstat(handle).st_size, read_bytes(handle, MAX_BYTES + 1)
                finally:
                    os.close(handle)
                yield (Path(place) / name).relative_to(left).as_posix(), size, data


def _keep(folder: int, name: str, size: int, data: bytes, handed: Sequence[str]) -> EvidenceFile:
    shown = "".join(char if char.isprintable() else "?" for char in name)[-_MAX_NAME_CHARS:]
    is_secret = any(value.encode() in data for value in handed)
    digest = "" if len(data) > MAX_BYTES or is_secret else hashlib.sha256(data).hexdigest()
    if digest:
        kept = name_kept(shown, digest)
        there = os.listdir(folder)
        if kept in there or len(there) < MAX_KEPT:
            replace_unsynced(folder, kept, data)
        else:
            digest = ""
    return EvidenceFile(name=shown, size_bytes=size, sha256=digest)


def name_kept(name: str, sha256: str) -> str:
    """Return the name under which a file is kept."""
    suffix = PurePosixPath(name).suffix
    return f"{sha256}{suffix if _SUFFIX.fullmatch(suffix) else ''}"
