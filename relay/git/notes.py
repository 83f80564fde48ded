"""Read and write relay's small files in the git directory: notes, and the lock of a work tree.

relay reads them as hostile input: a git directory from an archive may hold a link, a pipe, a device or an endless file.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import LockedError, RepoError
from relay.base.tree import replace_unsynced, replace_with_file
from relay.base.walk import MISSING, NotAFileError, open_folder, open_regular
from relay.git.repository import Repo

_HOLDER = re.compile(r"process ([0-9]{1,9}) on (.+)")
_PAUSE_S = 0.02


@contextlib.contextmanager
def lock_worktree(repo: Repo, name: str = "lock", *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold a lock of the work tree; the kernel releases it when this process ends, however it ends.

    Children do not inherit the lock. The text in its file is for messages only, never a reason to take the lock away.

    Args:
        name: The file: by default the lock that each run holds for hours, and most commands for milliseconds.
        wait_s: Seconds to wait for another holder.

    Raises:
        LockedError: Another process holds the lock.
        RepoError: Something else than a file stands in its place.
    """
    import socket

    # The file is never removed: two relays could then each lock a file of that name.
    file = repo.make_relay_dir() / name
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:  # a link, a directory, a socket
            raise
        raise _explain(file) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _explain(file)
        until = time.monotonic() + wait_s
        while not (taken := _try_lock(fd, fcntl.LOCK_EX)) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        if not taken:
            holder = _read_holder(fd) or "another process"
            raise LockedError(f"another relay is at work here: {holder}", hint="wait, or: relay watch, relay stop")
        # Only once the lock is held: until then the file names its holder. The file is cut behind the new text, not
        # emptied first: ext4 writes an emptied file's new content to the disk when it is closed.
        own = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        os.pwrite(fd, own, 0)
        os.ftruncate(fd, len(own))
        yield
    finally:
        os.close(fd)


def is_locked(repo: Repo) -> bool:
    """Return whether a relay is at work in the work tree; nothing is created to find out."""
    return _find_holder(repo) is not None


def find_holder(repo: Repo) -> int | None:
    """Return the process that holds the work tree's lock; None if nobody does, or a process on another machine."""
    import socket

    found = _HOLDER.fullmatch(_find_holder(repo) or "")
    return int(found[1]) if found and found[2] == socket.gethostname() else None


def _find_holder(repo: Repo) -> str | None:
    """Return the text of a lock that is held; None if it is free."""
    try:
        fd = os.open(repo.relay_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _try_lock(fd, fcntl.LOCK_SH) else _read_holder(fd)
    except OSError:
        return ""  # the file system cannot tell
    finally:
        os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(fd: int) -> str:
    return os.pread(fd, 200, 0).decode(errors="replace").strip()


def _explain(file: Path) -> RepoError:
    return RepoError(f"{file} is not a regular file", hint="remove it: nothing is lost with it")


STEERING = "steering"
"""The name of the note about steering files; see `relay.store.steering_files`."""
MAX_BYTES = 1 << 20
"""The largest note; a note of a thousand commits has 65,000 bytes."""


def read_note(repo: Repo, name: str) -> str:
    """Return the text of a note; empty where it is missing or not a file that relay wrote."""
    try:
        with (
            open_folder(repo.git_dir, (repo.relay_dir.name,)) as here,
            os.fdopen(open_regular(name, here), "rb") as file,
        ):
            data = file.read(MAX_BYTES + 1)
    except NotAFileError:
        return ""
    except OSError as error:
        if error.errno in {*MISSING, errno.ENXIO}:  # a socket is there
            return ""
        raise
    return os.fsdecode(data) if len(data) <= MAX_BYTES else ""


def write_note(repo: Repo, name: str, text: str, *, executable: bool = False, synced: bool = True) -> None:
    """Write a note to the disk as a whole; a link in its place is not followed.

    Without `synced` a power cut may leave it empty or undo it.
    """
    repo.make_relay_dir()
    with _refusing_folders(repo, name), open_folder(repo.git_dir, (repo.relay_dir.name,)) as here:
        if synced:
            replace_with_file(here, name, os.fsencode(text), executable=executable or None)
        else:
            replace_unsynced(here, name, os.fsencode(text))


def drop_note(repo: Repo, name: str) -> None:
    """Remove a note, if it exists."""
    with _refusing_folders(repo, name):
        (repo.relay_dir / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _refusing_folders(repo: Repo, name: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError as error:
        words = f"{repo.relay_dir / name} is a directory, and relay keeps a file of that name"
        raise RepoError(words, hint="remove it: nothing is lost with it") from error
