"""Put new content where a file stands, so that at every instant either the old or the new is there, whole."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from relay.files.temporary import make_temporary_name
from relay.tools.confine import Place
from relay.tools.workspace import RefusedError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def require_target(place: Place) -> None:
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


def replace_file(place: Place, data: bytes, *, scratch_fd: int | None) -> None:
    """Write `data` to a place that `require_target` let through.

    Mode and owner of a file that was there are kept; parent directories are made. The data and the directory are on
    disk when this returns.

    Args:
        place: Where to.
        data: The whole new content.
        scratch_fd: A directory that git ignores. The new file is made there first, so that a crash leaves nothing in
            the work tree that could end up in a commit. None, or one on another file system: made beside the target.

    Raises:
        RefusedError: The file changed since it was looked at.
        OSError: The disk is full, or a directory is not writable; nothing changed then.
    """
    with _open_parent(place) as parent_fd:
        try:
            _replace_from(parent_fd if scratch_fd is None else scratch_fd, parent_fd, place, data)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _replace_from(parent_fd, parent_fd, place, data)
        os.fsync(parent_fd)


def _replace_from(scratch_fd: int, parent_fd: int, place: Place, data: bytes) -> None:
    temporary = make_temporary_name()
    try:
        _write_new(scratch_fd, temporary, data, place.status, os.fstat(parent_fd))
        _require_unchanged(parent_fd, place)
        os.rename(temporary, place.name, src_dir_fd=scratch_fd, dst_dir_fd=parent_fd)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=scratch_fd)
        raise


@contextmanager
def _open_parent(place: Place) -> Iterator[int]:
    fd = os.dup(place.parent_fd)
    try:
        for name in place.missing:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            below = os.open(name, _DIRECTORY, dir_fd=fd)
            os.fsync(fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _write_new(scratch_fd: int, name: str, data: bytes, old: os.stat_result | None, parent: os.stat_result) -> None:
    fd = os.open(name, _CREATE, 0o666 if old is None else 0o600, dir_fd=scratch_fd)
    with os.fdopen(fd, "wb") as stream:
        stream.write(data)
        if old is not None:
            _give_to(fd, old.st_uid, old.st_gid)
            os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
        elif parent.st_mode & stat.S_ISGID:
            _give_to(fd, os.geteuid(), parent.st_gid)  # as the kernel does for a file that is made there
        stream.flush()
        os.fsync(fd)


def _give_to(fd: int, user: int, group: int) -> None:
    if (user, group) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root can give a file away; content matters more than owner
            os.fchown(fd, user, group)


def _require_unchanged(parent_fd: int, place: Place) -> None:
    try:
        now = os.stat(place.name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(place.status):
        raise RefusedError(f"{place.path} was changed by something else just now; read it again.")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return status and (status.st_ino, status.st_dev, status.st_mode, status.st_size, status.st_mtime_ns)
