"""Whether relay is at work here or keeps refs: asked first, because what reads more loads most of the write path."""

import fcntl
import os

from relay.git.repository import Repo


def has_kept_refs(repo: Repo, branch: str | None) -> bool:
    """Return whether there is a leg, a written plan, a rewound past, a cost, a job's branch or a move that was cut off.

    There is none for a detached HEAD.
    """
    if branch is None:
        return False
    if (repo.relay_dir / "pending").exists():
        return True
    # Of every branch: what they cost may be this plan's.
    kept = ("refs/relay/leg/", "refs/relay/plan/", "refs/relay/rewound/", "refs/relay/spent/", "refs/heads/relay-jobs/")
    return bool(repo.list_refs(*kept))


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
