"""Small files of relay's own in the git directory, written whole and read as hostile input, and who holds its lock.

A git directory out of an archive holds what its maker likes: a link, a pipe, a device, a file without end.
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


STEERING = "steering"
"""The note of files that steer something; see `relay.store.steering_files`."""
MAX_BYTES = 1 << 20
"""More than relay ever writes: a note of a thousand commits has 65,000."""


def read_note(repo: Repo, name: str) -> str:
    """Return the text of a note; empty where there is none, or something that relay did not write."""
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
    """Write a note so that it is on the disk, whole, when this returns; a link in its place is not followed.

    Where it is not `synced` a power cut may leave it empty, or undo it.
    """
    repo.make_relay_dir()
    with _refusing_folders(repo, name), open_folder(repo.git_dir, (repo.relay_dir.name,)) as here:
        if synced:
            replace_with_file(here, name, text.encode(), executable=executable or None)
        else:
            replace_unsynced(here, name, text.encode())


def drop_note(repo: Repo, name: str) -> None:
    """Remove a note; none there is fine."""
    with _refusing_folders(repo, name):
        (repo.relay_dir / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _refusing_folders(repo: Repo, name: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError as error:
        words = f"{repo.relay_dir / name} is a directory, and relay keeps a file of that name"
        raise RepoError(words, hint="remove it: nothing is lost with it") from error
