"""One relay per work tree."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from relay.errors import RepoError
from relay.git.repository import Repo


@contextlib.contextmanager
def lock_worktree(repo: Repo) -> Iterator[None]:
    """Hold the work tree's lock; the kernel releases it when this process ends, however it ends.

    Children do not inherit it. What the file says is for the message only, never a reason to take the lock away.

    Raises:
        RepoError: Another process holds it.
    """
    # The file is never removed: two relays could then each lock a file of that name.
    fd = os.open(repo.make_relay_dir() / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"
            raise RepoError(f"another relay is at work here: {holder}", hint="wait for it, or stop it") from error
        # Emptied only once the lock is held: until then the file names its holder.
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
