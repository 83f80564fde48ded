"""Read and write relay's small files in the git directory, and tell whether a relay holds its lock.

relay reads them as hostile input: a git directory from an archive may hold a link, a pipe, a device or an endless file.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from relay.base.errors import RepoError
from relay.base.replacement import replace_unsynced, replace_with_file
from relay.base.walk import MISSING, NotAFileError, open_folder, open_regular
from relay.git.repository import Repo


def is_locked(repo: Repo) -> bool:
    """Return whether a relay is at work in the work tree; nothing is created to find out."""
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
    return data.decode("utf-8", "replace") if len(data) <= MAX_BYTES else ""


def write_note(repo: Repo, name: str, text: str, *, executable: bool = False, synced: bool = True) -> None:
    """Write a note to the disk as a whole; a link in its place is not followed.

    Without `synced` a power cut may leave it empty or undo it.
    """
    repo.make_relay_dir()
    with _refusing_folders(repo, name), open_folder(repo.git_dir, (repo.relay_dir.name,)) as here:
        if synced:
            replace_with_file(here, name, text.encode(), executable=executable or None)
        else:
            replace_unsynced(here, name, text.encode())


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
