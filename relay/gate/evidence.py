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

from relay.base.errors import SandboxError
from relay.base.tree import replace_unsynced
from relay.base.walk import open_folder, open_ignored, open_regular
from relay.base.words import render_size
from relay.plan.text import OUTPUTS
from relay.session.events import LeftFile

VARIABLE = "RELAY_EVIDENCE"
FOLDER = "evidence"
"""Below the directory of outputs, which sweeps it."""
MAX_FILES = 20
"""Most files of one gate."""
MAX_BYTES = 1_000_000
"""Of one file; of a larger one only the name and the size are noted."""
MAX_KEPT = 500
"""Files in the folder; then none is added until old ones are swept."""
REFUSED = "the disk refuses it"
"""How the reason begins if the disk is at fault, and not the file."""
_MAX_NAME_CHARS = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


def open_evidence(scratch: Path) -> Path:
    """Return a new, empty directory for a gate's files.

    Raises:
        SandboxError: The disk refuses it.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="evidence-", dir=scratch))
    except OSError as error:
        raise SandboxError(f"there is no place for what a gate leaves: {error.strerror}") from error


def keep_evidence(root: Path, left: Path, handed: Sequence[str]) -> tuple[LeftFile, ...]:
    """Keep the files of a gate; an error of the disk loses them, and not the gate.

    Args:
        root: The work tree whose directory of outputs keeps them.
        left: From `open_evidence`.
        handed: Values that no file may hold.
    """
    found: list[tuple[str, int, bytes]] = []
    with contextlib.suppress(OSError):  # a command may have taken the directory away
        found.extend(islice(_iter_files(left), MAX_FILES))
    if not found:
        return ()
    try:
        with open_ignored(root, OUTPUTS.split("/"), FOLDER) as folder:
            return tuple(_keep(folder, *one, handed) for one in found)
    except OSError as error:
        return tuple(LeftFile(name=name, size_bytes=size, sha256="", why=_name_fault(error)) for name, size, _ in found)


def read_evidence(root: Path, name: str, sha256: str) -> bytes | None:
    """Return a file that a gate left; None if it is gone, or is no longer what the gate left.

    Args:
        name: As in the event; any text, as is the digest.
    """
    if not _DIGEST.fullmatch(sha256):
        return None
    with contextlib.suppress(OSError), open_folder(root, (*OUTPUTS.split("/"), FOLDER)) as folder:
        with os.fdopen(open_regular(name_kept(name, sha256), folder), "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        return data if hashlib.sha256(data).hexdigest() == sha256 else None
    return None


def _iter_files(left: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield printable name, size and beginning of each regular file."""
    for place, folders, names, holder in os.fwalk(left, follow_symlinks=False):
        folders[:] = sorted(folders)[:MAX_FILES] if Path(place).relative_to(left).parts[3:] == () else []
        for name in sorted(names):
            with contextlib.suppress(OSError):
                with os.fdopen(open_regular(name, holder), "rb") as stream:
                    size, data = os.fstat(stream.fileno()).st_size, stream.read(MAX_BYTES + 1)
                path = (Path(place) / name).relative_to(left).as_posix()
                yield "".join(char if char.isprintable() else "?" for char in path)[-_MAX_NAME_CHARS:], size, data


def _keep(folder: int, name: str, size: int, data: bytes, handed: Sequence[str]) -> LeftFile:
    if len(data) > MAX_BYTES:
        return LeftFile(name=name, size_bytes=size, sha256="", why=f"larger than {render_size(MAX_BYTES)}")
    if any(value.encode() in data for value in handed):
        return LeftFile(name=name, size_bytes=size, sha256="", why="a value of env_file is in it")
    digest = hashlib.sha256(data).hexdigest()
    try:
        kept, there = name_kept(name, digest), os.listdir(folder)
        if kept not in there and len(there) >= MAX_KEPT:
            return LeftFile(name=name, size_bytes=size, sha256="", why=f"{MAX_KEPT} files are kept already")
        replace_unsynced(folder, kept, data)
    except OSError as error:
        return LeftFile(name=name, size_bytes=size, sha256="", why=_name_fault(error))
    return LeftFile(name=name, size_bytes=size, sha256=digest, why="")


def _name_fault(error: OSError) -> str:
    return f"{REFUSED}: {error.strerror}"


def name_kept(name: str, sha256: str) -> str:
    """Return the name under which a file is kept."""
    suffix = PurePosixPath(name).suffix
    return f"{sha256}{suffix if _SUFFIX.fullmatch(suffix) else ''}"
