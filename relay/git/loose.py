"""Git's objects as loose files, read and written without a process for each.

What is written is what ``git hash-object -w`` writes: a file next to its final place, synced, then renamed, so that
a crash leaves the object or nothing of that name. Git does not sync the directory that names it, and nor does this:
`relay.git.objects.sync_objects` does, before a commit point. A name that is left over is one that ``git gc`` clears.
"""

import contextlib
import hashlib
import os
import secrets
import zlib
from pathlib import Path

from relay.files.tree import read_start
from relay.files.walk import sync_fd
from relay.git.command import GitError

_LEVEL = 1
"""Git's own for loose objects. Source: git-config(1), core.looseCompression."""
_LARGEST_HEADER = 64
_MOST_BYTES = 64 << 20
"""Larger objects are left to git: only what a session writes is stored here, and that is smaller."""


def compute_id(algorithm: str, kind: str, data: bytes) -> str:
    """Return the id of an object; `algorithm` is the repository's object format, `kind` ``blob``, ``tree`` or so."""
    return hashlib.new(algorithm, _render_header(kind, data) + data, usedforsecurity=False).hexdigest()


def _render_header(kind: str, data: bytes) -> bytes:
    return b"%s %d\0" % (kind.encode(), len(data))


def read_loose(objects: Path, algorithm: str, object_id: str) -> tuple[str, bytes] | None:
    """Return kind and bytes of an object; None when it has no sound file of its own: git may have it, or complain."""
    try:
        packed = read_start(f"{objects}/{object_id[:2]}/{object_id[2:]}", _MOST_BYTES)
        # A file of a few kB can hold gigabytes of zeros.
        stream = zlib.decompressobj()
        whole = stream.decompress(packed or b"", _MOST_BYTES)
    except (OSError, zlib.error):
        return None
    if not stream.eof:
        return None
    header, _, data = whole.partition(b"\0")
    kind = header[:_LARGEST_HEADER].decode("ascii", "replace").partition(" ")[0]
    return (kind, data) if compute_id(algorithm, kind, data) == object_id else None


def write_loose(objects: Path, algorithm: str, kind: str, data: bytes) -> str:
    """Store an object, synced, and return its id.

    Raises:
        GitError: It cannot be stored, or other bytes with the same id are.
    """
    object_id = compute_id(algorithm, kind, data)
    file = objects / object_id[:2] / object_id[2:]
    try:
        if not _is_stored(file, objects, algorithm, object_id, (kind, data)):
            _write(file, zlib.compress(_render_header(kind, data) + data, _LEVEL))
    except OSError as error:
        raise GitError(f"an object cannot be stored: {error.strerror}") from error
    return object_id


def _is_stored(file: Path, objects: Path, algorithm: str, object_id: str, wanted: tuple[str, bytes]) -> bool:
    """Return whether the object is there and looks new now, as git sees to: ``git gc`` goes by its time."""
    if not file.exists():
        return False
    found = read_loose(objects, algorithm, object_id)
    if found is None:
        return False  # damaged by a power cut, say: written anew
    if found != wanted:
        raise GitError(f"two contents have the id {object_id}")
    try:
        os.utime(file)
    except PermissionError:
        return False  # another user's: written anew
    return True


def _write(file: Path, packed: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    new = file.with_name(f"tmp_obj_{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444), "wb") as stream:
            stream.write(packed)
            stream.flush()
            sync_fd(stream.fileno())
        # Over whatever stands there: a file that a power cut damaged has to give way.
        new.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
