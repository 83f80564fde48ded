"""Ask git about objects, and have it store them: by one long-lived process for each kind of question.

Worth, at 2 ms a git process: a phase of four tools reads 100 objects, stores 22 and compares trees 5 times.
`relay.git.lock_journal` passes these processes over: they take no lock.

The bytes to store go through a file without a name, so that no command can put a link in its place. Git syncs the new
object (``core.fsync``) but not its directory; `relay.git.objects.sync_objects` does, before a commit point. Git
believes that an object of this name is whole. A power cut may have damaged one that the user's git did not sync, so
relay reads it back, and has a damaged one written anew.
"""

import atexit
import contextlib
import hashlib
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

from relay.base.interrupts import wait_readable
from relay.base.tree import FileState, take_look
from relay.base.values import dataclass
from relay.git.command import Git, GitError

_READ_ONCE = ("packed-refs", "reftable/tables.list", "refs/replace", "info/grafts", "shallow")
"""Files below the common directory that git reads once: they say which object replaces another one."""
_PACKS = "objects/pack"
"""Git remembers a pack that it found an object in, and that another git may have removed since."""
_MOST_OPEN = 8
_LIMIT_S = 60.0
_LARGEST_READ_BACK = 1_000_000
_MOST_KNOWN, _LARGEST_KNOWN = 1_000, 20_000
"""Objects, and bytes of one. A phase of three tools asks 360 times, and 26 of the questions reach git."""
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DESCRIPTORS = b"/proc/self/fd" if sys.platform == "linux" else b"/dev/fd"
MARK = "RELAY_READS_OBJECTS"
"""An environment variable that marks these processes."""

_Key = tuple[int, Path, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Helper:
    process: subprocess.Popen[bytes]
    marks: tuple[FileState, ...]

    def ask(self, question: bytes) -> bytes:
        """Return the first line of the answer.

        Raises:
            OSError: The process is gone.
            EOFError: It ended, since an object is damaged, or it hangs: a pipe may be in an object's place.
        """
        assert self.process.stdin is not None  # noqa: S101  # a pipe
        self.process.stdin.write(question)
        self.process.stdin.flush()
        if not wait_readable([self.answers.fileno()], _LIMIT_S) or not (line := self.answers.readline()):
            raise EOFError
        return line

    @property
    def answers(self) -> BinaryIO:
        assert self.process.stdout is not None  # noqa: S101  # a pipe
        return self.process.stdout  # type: ignore[return-value]


_open: dict[_Key, _Helper] = {}
"""Oldest first. The key has this process's id, since a fork must not share a pipe."""
_known: dict[tuple[Path, tuple[FileState, ...], str], tuple[str, bytes]] = {}
"""Oldest first."""
_lock = threading.RLock()


def find_marks(common_dir: Path) -> tuple[FileState, ...]:
    """Return a value that changes whenever an id may name another object than before: see git-replace(1)."""
    return tuple(take_look(common_dir, name) for name in _READ_ONCE)


def read_object(git: Git, common_dir: Path, name: str) -> tuple[str, bytes] | None:
    """Return kind and bytes of an object, by its id or another name that git resolves.

    None: the object is missing or cannot be read; a git that is asked for it alone says which.
    """
    for _ in range(0 if "\n" in name else 2):  # once more where somebody killed it
        with contextlib.suppress(OSError, EOFError), _borrow(git, common_dir, ("cat-file", "--batch")) as helper:
            head = helper.ask(os.fsencode(f"{name}\n"))
            if head.endswith((b" missing\n", b" ambiguous\n")):
                return None
            _, kind, size = head.split(b" ")
            data = helper.answers.read(int(size) + 1)
            if len(data) <= int(size):
                raise EOFError
            return kind.decode(), data[:-1]
    return None


def read_known(git: Git, common_dir: Path, name: str) -> tuple[str, bytes] | None:
    """Do the same, but for small objects that this process has read by their ids: they cannot have changed."""
    key = common_dir, find_marks(common_dir), name
    if key in _known:
        return _known[key]
    found = read_object(git, common_dir, name)
    if found is not None and _ID.fullmatch(name) and len(found[1]) <= _LARGEST_KNOWN:
        with _lock:
            while len(_known) >= _MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[key] = found
    return found


def ask_about(git: Git, common_dir: Path, args: tuple[str, ...], line: str) -> bytes:
    """Return the answer of ``git diff-tree --stdin`` with `args` to a line; empty where git alone has to say why."""
    end = f"{secrets.token_hex(8)}\n".encode()  # git repeats a line that names no object, and sends all it has
    with contextlib.suppress(OSError, EOFError), _borrow(git, common_dir, ("diff-tree", "--stdin", *args)) as helper:
        found = helper.ask(f"{line}\n".encode() + end)
        while not found.endswith(end):
            if not (more := helper.answers.readline()):
                raise EOFError
            found += more
        return found.removesuffix(end)
    return b""


@contextlib.contextmanager
def _borrow(git: Git, common_dir: Path, args: tuple[str, ...], pass_fds: Sequence[int] = ()) -> Iterator[_Helper]:
    key = (os.getpid(), common_dir, args)
    with _lock:
        marks = (*find_marks(common_dir), take_look(common_dir, _PACKS))
        if key in _open and _open[key].marks != marks:
            _close(key)
        while key not in _open and len(_open) >= _MOST_OPEN:
            _close(next(iter(_open)))
        if key not in _open:
            process = _bind(git, common_dir).open(*args, env={MARK: "1"}, pass_fds=pass_fds)
            _open[key] = _Helper(process=process, marks=marks)
        try:
            yield _open[key]
        except BaseException:
            _close(key)  # the rest of the answer would be taken for the next one
            raise


def _bind(git: Git, common_dir: Path) -> Git:
    return replace(git, cwd=common_dir, place=(f"--git-dir={common_dir}",))


def _close(key: _Key) -> None:
    if helper := _open.pop(key, None):
        for stream in (helper.process.stdin, helper.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if key[0] == os.getpid():
            helper.process.kill()
            helper.process.wait()


@atexit.register
def close_all() -> None:
    """End all of them."""
    for key in tuple(_open):
        _close(key)
    if _open_scratch.cache_info().currsize:
        _open_scratch(os.getpid()).close()
        _open_scratch.cache_clear()


def compute_id(algorithm: str, kind: str, data: bytes) -> str:
    """Return an object's id; `algorithm` is the repository's object format, `kind` ``blob``, ``tree`` or ``commit``."""
    return hashlib.new(algorithm, b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


def store_object(git: Git, common_dir: Path, kind: str, content: Iterable[bytes]) -> str:
    """Have git store an object, and return its id.

    Raises:
        GitError: It cannot be stored.
    """
    with _lock:
        try:
            scratch = _open_scratch(os.getpid())
            scratch.seek(0)
            scratch.truncate()
            scratch.writelines(content)
            size = scratch.tell()
            scratch.flush()
            object_id = _store(git, common_dir, kind, scratch)
            loose = common_dir / "objects" / object_id[:2] / object_id[2:]
            # As a power cut leaves it; git believes that it is there.
            is_empty = loose.exists() and not loose.stat().st_size
            if is_empty or (size <= _LARGEST_READ_BACK and read_object(git, common_dir, object_id) is None):
                loose.unlink(missing_ok=True)
                object_id = _store(git, common_dir, kind, scratch)
        except OSError as error:
            raise GitError(f"an object cannot be stored: {error.strerror}") from error
    return object_id


@cache
def _open_scratch(_process_id: int) -> BinaryIO:
    import tempfile

    return tempfile.TemporaryFile()


def _store(git: Git, common_dir: Path, kind: str, scratch: BinaryIO) -> str:
    # Git 2.40 refuses what its fsck only warns of: a linked .gitignore.
    literally = () if kind == "blob" else ("--literally",)
    args = ("hash-object", "-w", "-t", kind, *literally, "--no-filters", "--stdin-paths")
    fds, question = (scratch.fileno(),), b"%s/%d\n" % (_DESCRIPTORS, scratch.fileno())
    scratch.seek(0)  # where both processes have one position
    try:
        with _borrow(git, common_dir, args, fds) as helper:
            line = helper.ask(question)
    except (OSError, EOFError):
        line = _bind(git, common_dir).run(*args, stdin=question, pass_fds=fds)  # says why, or was killed before
    return line.decode().strip()
