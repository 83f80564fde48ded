"""Whether a relay is at work in a work tree, as its lock says."""

import fcntl
import os

from relay.git.repository import Repo


def is_locked(repo: Repo) -> bool:
    """Return whether a relay is at work in the work tree; nothing is made or written to find out."""
    try:
        fd = os.open(repo.relay_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # gone with the descriptor, in a moment
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
