"""Read git's objects by one long-lived ``git cat-file --batch`` for each repository; write them as loose files.

Worth, at 2 ms a git process: a phase of four tools reads 80 objects, each in 0.05 ms here (160 ms in all; in a clone
all but the newest are packed), and writes 31 (+43 processes with the trees and commits, 90 ms).
`relay.git.lock_journal` passes the reading processes over: they take no lock.

relay writes the same bytes as ``git hash-object -w``, to a file next to its final place, syncs and renames it, so that
a crash leaves the whole object or none. Several objects are synced at the same time, then renamed in the order of their
writing. Like git, this module does not sync the directory; `relay.git.objects.sync_objects` does, before a commit
point. ``git gc`` clears left-over temporary files.
"""

import atexit
import contextlib
import hashlib
import os
import secrets
import subprocess
import threading
import zlib
from dataclasses import field, replace
from pathlib import Path

from relay.base.interrupts import wait_readable
from relay.base.tree import Look, take_look
from relay.base.values import dataclass
from relay.base.walk import sync_together
from relay.git.command import Git, GitError

_READ_ONCE = ("packed-refs", "reftable/tables.list", "refs/replace", "info/grafts", "shallow")
"""Files below the common directory that git reads once: they say which object replaces another one."""
_MOST_OPEN = 4
_LIMIT_S = 60.0
MARK = "RELAY_READS_OBJECTS"
"""An environment variable that marks these processes."""

_Key = tuple[int, Path, tuple[Look, ...]]
_open: dict[_Key, subprocess.Popen[bytes]] = {}
"""Open processes, oldest first. The key has this process's id, since a fork must not share a pipe."""
_lock = threading.Lock()


def find_marks(common_dir: Path) -> tuple[Look, ...]:
    """Return a value that changes whenever an id may name another object than before: see git-replace(1)."""
    return tuple(take_look(common_dir, name) for name in _READ_ONCE)


def read_object(git: Git, common_dir: Path, name: str) -> tuple[str, bytes] | None:
    """Return kind and bytes of an object, by its id or another name that git resolves.

    None: the object is missing or cannot be read; a git that is asked for it alone says which.
    """
    if "\n" in name:
        return None
    key = (os.getpid(), common_dir, find_marks(common_dir))
    with _lock:
        for _ in range(2):  # once more where somebody killed it
            try:
                return _ask(_get(git, key), name)
            except (OSError, EOFError):
                _close(key)
            except BaseException:
                _close(key)  # the rest of the answer would be taken for the next one
                raise
    return None


def _get(git: Git, key: _Key) -> subprocess.Popen[bytes]:
    if key not in _open:
        while len(_open) >= _MOST_OPEN:
            _close(next(iter(_open)))
        _open[key] = replace(git, cwd=key[1], place=(f"--git-dir={key[1]}",)).open(
            "cat-file", "--batch", env={MARK: "1"}
        )
    return _open[key]


def _ask(process: subprocess.Popen[bytes], name: str) -> tuple[str, bytes] | None:
    """Ask a process for an object.

    Raises:
        OSError: The process is gone.
        EOFError: The process ended, since the object is damaged, or it hangs: a pipe may be in an object's place.
    """
    assert process.stdin is not None  # noqa: S101  # both are pipes
    assert process.stdout is not None  # noqa: S101
    process.stdin.write(os.fsencode(f"{name}\n"))
    process.stdin.flush()
    if not wait_readable([process.stdout.fileno()], _LIMIT_S):
        raise EOFError
    head = process.stdout.readline()
    words = head.split(b" ")
    if head.endswith((b" missing\n", b" ambiguous\n")):
        return None
    if not head:
        raise EOFError
    size = int(words[2])
    data = process.stdout.read(size + 1)
    if len(data) <= size:
        raise EOFError
    return words[1].decode(), data[:-1]


def _close(key: _Key) -> None:
    if process := _open.pop(key, None):
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if key[0] == os.getpid():
            process.kill()
            process.wait()


@atexit.register
def close_all() -> None:
    """End all of them."""
    for key in tuple(_open):
        _close(key)


_LEVEL = 1
"""Git's own for loose objects. Source: git-config(1), core.looseCompression."""
_MOST_UNSYNCED = 32
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def compute_id(algorithm: str, kind: str, data: bytes) -> str:
    """Return an object's id; `algorithm` is the repository's object format, `kind` ``blob``, ``tree`` or ``commit``."""
    return hashlib.new(algorithm, _render_header(kind, data) + data, usedforsecurity=False).hexdigest()


def _render_header(kind: str, data: bytes) -> bytes:
    return b"%s %d\0" % (kind.encode(), len(data))


def write_loose(objects: Path, algorithm: str, kind: str, data: bytes, unsynced: "Unsynced | None" = None) -> str:
    """Store an object and return its id.

    Args:
        objects: Git's directory of objects.
        algorithm: As in `compute_id`.
        kind: As in `compute_id`.
        data: The object's bytes.
        unsynced: Syncs and names the object later; None: it is on the disk when this returns.

    Raises:
        GitError: It cannot be stored, or other bytes have the same id.
    """
    object_id = compute_id(algorithm, kind, data)
    file = objects / object_id[:2] / object_id[2:]
    try:
        if not _is_stored(file, whole := _render_header(kind, data) + data):
            waiting = unsynced or Unsynced()
            waiting.write(file, zlib.compress(whole, _LEVEL))
            if waiting is not unsynced:
                waiting.settle()
    except OSError as error:
        raise GitError(f"an object cannot be stored: {error.strerror}") from error
    return object_id


def _is_stored(file: Path, whole: bytes) -> bool:
    """Return whether the object is there and looks new now, as git sees to: ``git gc`` goes by its time."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(file.read_bytes(), len(whole) + 1)
        if is_whole := stream.eof and found == whole:
            os.utime(file)
    except (FileNotFoundError, PermissionError, zlib.error):
        return False  # or damaged by a power cut, or another user's: written anew
    if found != whole and (stream.eof or len(found) > len(whole)):
        raise GitError(f"two contents have the id {file.parent.name}{file.name}")
    return is_whole


@dataclass(slots=True)
class Unsynced:
    """Written objects that wait for the disk together. Mutable: it holds their open files.

    Until `settle` they have no names: git does not find them, and no ref may name them.
    """

    _files: list[tuple[int, Path, Path]] = field(default_factory=list)
    """Descriptor, temporary name and final name of each."""

    def write(self, file: Path, packed: bytes) -> None:
        """Write an object whose final name is `file`.

        Raises:
            OSError: It cannot be written.
            GitError: Too many were waiting, and one cannot be stored.
        """
        if len(self._files) >= _MOST_UNSYNCED:
            self.settle()
        new = file.with_name(f"tmp_obj_{secrets.token_hex(6)}")
        try:
            fd = os.open(new, _CREATE, 0o444)
        except FileNotFoundError:
            file.parent.mkdir(exist_ok=True)
            fd = os.open(new, _CREATE, 0o444)
        self._files.append((fd, new, file))
        try:
            left = memoryview(packed)
            while left:
                left = left[os.write(fd, left) :]
        except BaseException:
            self.drop()
            raise

    def settle(self) -> None:
        """Sync all objects, then rename each to its final name.

        Raises:
            GitError: An object cannot be stored.
        """
        own = [fd for fd, _, _ in self._files]
        try:
            failed = sync_together(own)
            for fd in own:
                if fd in failed:
                    raise failed[fd]
            while self._files:
                fd, new, file = self._files[0]
                # Over whatever stands there: a file that a power cut damaged has to give way.
                new.replace(file)
                del self._files[0]
                os.close(fd)
        except OSError as error:
            raise GitError(f"an object cannot be stored: {error.strerror}") from error
        finally:
            self.drop()

    def drop(self) -> None:
        """Remove the objects that were not settled."""
        for fd, new, _ in self._files:
            with contextlib.suppress(OSError):
                os.close(fd)
            with contextlib.suppress(OSError):
                new.unlink()
        self._files.clear()
