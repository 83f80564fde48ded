"""One relay per work tree."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import LockedError, RepoError
from relay.git.repository import Repo

_HOLDER = re.compile(r"process ([0-9]{1,9}) on (.+)")

_PAUSE_S = 0.02


@contextlib.contextmanager
def lock_worktree(repo: Repo, name: str = "lock", *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the work tree's lock, or another one in it; the kernel releases it when this process ends, however it ends.

    Children do not inherit it. What the file says is for the message only, never a reason to take the lock away.

    Args:
        wait_s: For one that holds it; a run does for hours, most commands for milliseconds.

    Raises:
        LockedError: Another process holds it.
        RepoError: Something that is no file stands in its place.
    """
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
        while not (taken := _try_lock(fd)) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        if not taken:
            holder = _read_holder(fd) or "another process"
            raise LockedError(f"another relay is at work here: {holder}", hint="wait for it, or stop it")
        # Only once the lock is held: until then the file names its holder. Cut behind what is written and not before:
        # what was emptied first ext4 puts on the disk at the end.
        own = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        os.pwrite(fd, own, 0)
        os.ftruncate(fd, len(own))
        yield
    finally:
        os.close(fd)


def find_holder(repo: Repo) -> int | None:
    """Return the process that holds the work tree's lock; None when nobody does, or one on another machine."""
    try:
        fd = os.open(repo.relay_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        found = _HOLDER.fullmatch(_read_holder(fd))
        return int(found[1]) if found and found[2] == socket.gethostname() else None
    finally:
        os.close(fd)
    return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(fd: int) -> str:
    return os.pread(fd, 200, 0).decode(errors="replace").strip()


def _explain(file: Path) -> RepoError:
    return RepoError(f"{file} is not a regular file", hint="remove it: nothing is lost with it")
