"""What a session has cost so far, noted request by request: what a kill leaves of it between two snapshots.

One file for each session in ``.git/relay/spent/``, a line for each change, of which the last whole one counts: it says
what the session has cost from its beginning, so nothing is ever added twice. The session's leg, or the record of its
planning, says what was spent before it (`relay.store.legs`, `relay.store.spend`).
"""

import contextlib
import errno
import os
import re

from relay.base.walk import open_parent, open_regular, sync_fd
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store.trailers import parse_spent, parse_usage, render_spent

_ID = re.compile(r"[0-9A-Za-z]{1,64}")
_LAST_BYTES = 4_096
"""No line is nearly as long."""


def note_spent(repo: Repo, session_id: str, spent: Spent, *, synced: bool) -> None:
    """Note what a session has cost from its beginning.

    Args:
        spent: All of it, with what a request that is on its way can cost at most.
        synced: Whether it has to survive a power cut when this returns; a kill it always survives. Only then is a file
            made: a session that something lasting tells of by now is not noted again.

    Raises:
        OSError: It cannot be written.
    """
    # Begins with a line feed too: what a full disk left of the last line must not spoil this one.
    (_, usage), (_, cost) = render_spent(spent)
    line = f"\n{cost}; {usage};\n".encode()
    with open_parent(repo.common_dir, _get_path(session_id), create=synced) as (parent, name):
        fd = open_regular(name, parent, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if synced else 0))
        try:
            is_new = os.fstat(fd).st_size == 0
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), session_id)
            if synced:
                sync_fd(fd)
        finally:
            os.close(fd)
        if synced and is_new:
            sync_fd(parent)


def find_spent(repo: Repo, session_id: str) -> Spent | None:
    """Return what is noted of a session; None when nothing is."""
    try:
        with (
            open_parent(repo.common_dir, _get_path(session_id)) as (parent, name),
            os.fdopen(open_regular(name, parent), "rb") as stream,
        ):
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LAST_BYTES))
            lines = stream.read(_LAST_BYTES).decode("ascii", "replace").split("\n")
    except OSError:
        return None
    return next((spent for line in reversed(lines[:-1]) if (spent := _parse(line)) is not None), None)


def drop_spent(repo: Repo, session_id: str) -> None:
    """Forget a session: something that lasts says by now what it has cost."""
    with contextlib.suppress(OSError), open_parent(repo.common_dir, _get_path(session_id)) as (parent, name):
        os.unlink(name, dir_fd=parent)


def _parse(line: str) -> Spent | None:
    cost, _, rest = line.partition("; ")
    return parse_spent(rest, cost) if rest.endswith(";") and parse_usage(rest) else None


def _get_path(session_id: str) -> str:
    """Return where a session is noted, below the directory that all work trees share.

    Raises:
        OSError: The id is none of relay's.
    """
    if not _ID.fullmatch(session_id):
        raise OSError(errno.EINVAL, "not a session", session_id)
    return f"relay/spent/{session_id}"
