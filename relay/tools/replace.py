"""Replace a file that a tool has found, unless that is forbidden or the file changed meanwhile."""

import errno
import os
import stat
from functools import partial

from relay.base.replacement import replace_with_file
from relay.base.walk import Location, enter_all
from relay.tools.workspace import RefusedError


def require_target(place: Location) -> None:
    """Refuse what must not be replaced: anything but a regular file with one name, or a name no tool should make.

    Raises:
        RefusedError: With what stands there.
    """
    if place.name == "." or any(ord(char) < 32 or ord(char) == 127 for char in place.path):  # noqa: PLR2004  # ASCII
        raise RefusedError(f"{place.path!r} is not a file name that can be written.")
    if place.status is None:
        return
    if stat.S_ISDIR(place.status.st_mode):
        raise RefusedError(f"{place.path} is a directory.")
    if not stat.S_ISREG(place.status.st_mode):
        raise RefusedError(f"{place.path} is a device, pipe or socket, not a file.")
    if place.status.st_nlink > 1:
        raise RefusedError(f"{place.path} has {place.status.st_nlink} hard links; change it with a command.")
    if not place.status.st_mode & 0o222:
        raise RefusedError(f"{place.path} is marked read-only; use chmod in bash if it really must change.")


def replace_target(place: Location, data: bytes, *, scratch_fd: int | None) -> None:
    """Write `data` to a place that `require_target` let through.

    Mode and owner of a file that was there are kept; parent directories are made. The data and the directory are on
    disk when this returns.

    Args:
        scratch_fd: A directory that git ignores. The new file is made there first, so that a crash leaves nothing in
            the work tree that could end up in a commit. None, or one on another file system: made next to the target.

    Raises:
        RefusedError: The file changed since it was looked at.
        OSError: The disk is full, or a directory is not writable; nothing changed then.
    """
    parent_fd = enter_all(place.parent_fd, place.missing, create=True)

    def put(folder_fd: int | None) -> None:
        check = partial(_require_unchanged, parent_fd, place)
        replace_with_file(parent_fd, place.name, data, scratch_fd=folder_fd, check=check)

    try:
        put(scratch_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        put(None)
    finally:
        os.close(parent_fd)


def _require_unchanged(parent_fd: int, place: Location) -> None:
    try:
        now = os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(place.status):
        raise RefusedError(f"{place.path} was changed by something else just now; read it again.")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return status and (status.st_ino, status.st_dev, status.st_mode, status.st_size, status.st_mtime_ns)
