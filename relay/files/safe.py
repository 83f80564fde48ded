"""Files of the work tree, handled so that no symlink leads outside and no crash leaves half a file."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from relay.errors import RepoError
from relay.files.temporary import make_temporary_name

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = 0o666
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Nothing is at a path: a component is missing, is a file, or is a symlink that is not followed."""
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})


@contextlib.contextmanager
def _ignoring_missing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _MISSING:
            raise


@contextlib.contextmanager
def open_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory that holds `path`, one component at a time and never through a symlink.

    Args:
        root: The work tree.
        path: Repository-relative, with ``/``.
        create: Make missing directories.

    Yields:
        A file descriptor of the directory, and the last component.

    Raises:
        OSError: A component is missing, is a symlink or is not a directory.
    """
    *parents, name = PurePosixPath(path).parts
    here = os.open(root, _DIRECTORY)
    try:
        for part in parents:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            below = os.open(part, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        yield here, name
    finally:
        os.close(here)


def find_stat(root: Path, path: str) -> os.stat_result | None:
    """Return what is at `path`, not following symlinks in any component; None when nothing is there."""
    try:
        with open_parent(root, path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise RepoError(f"{path!r} cannot be looked at: {error.strerror}") from error


def read_file(root: Path, path: str) -> bytes | None:
    """Return the bytes of a regular file, or a symlink's target; None when there is neither."""
    try:
        with open_parent(root, path) as (parent, name):
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return _read_link(parent, name)
            if not stat.S_ISREG(mode):
                return None
            with os.fdopen(os.open(name, _FILE, dir_fd=parent), "rb") as file:
                return file.read()
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise RepoError(f"{path!r} cannot be read: {error.strerror}") from error


def _read_link(parent: int, name: str) -> bytes | None:
    try:
        return os.fsencode(os.readlink(name, dir_fd=parent))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # a file stands there by now
        raise


def open_file(root: Path, path: str) -> int | None:
    """Open a regular file for reading, through no symlink; None when there is none. The caller closes it.

    Raises:
        RepoError: It cannot be read.
    """
    try:
        with open_parent(root, path) as (parent, name):
            fd = os.open(name, _FILE, dir_fd=parent)
    except OSError as error:
        if error.errno in {*_MISSING, errno.ENXIO}:  # a socket is there
            return None
        raise RepoError(f"{path!r} cannot be read: {error.strerror}") from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def replace_file(root: Path, path: str, data: bytes, mode: str) -> None:
    """Put `data` at `path` so that a crash leaves the old file or the new one: temporary, sync, rename, sync.

    Args:
        root: The work tree.
        path: Repository-relative.
        data: The file's bytes, or the target of a symlink.
        mode: Git's: ``100644``, ``100755`` or ``120000``. An existing regular file keeps its permission bits, but
            for the executable ones.
    """
    with open_parent(root, path, create=True) as (parent, name):
        temporary = make_temporary_name()
        try:
            if mode == "120000":
                os.symlink(data, temporary, dir_fd=parent)
            else:
                _write_new(parent, temporary, data, _find_permissions(parent, name, executable=mode == "100755"))
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            with contextlib.suppress(OSError):  # the disk may be full or broken; the next run removes it
                os.unlink(temporary, dir_fd=parent)
            raise
        sync_fd(parent)


def remove_file(root: Path, path: str) -> None:
    """Remove a file or symlink and the directories that are empty then; nothing there is fine."""
    with _ignoring_missing(), open_parent(root, path) as (parent, name):
        os.unlink(name, dir_fd=parent)
        sync_fd(parent)
    for directory in list(PurePosixPath(path).parents)[:-1]:
        try:
            with open_parent(root, str(directory)) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except OSError:
            return


def _find_permissions(parent: int, name: str, *, executable: bool) -> int | None:
    """Return the permission bits that the file at `name` shall have; None for the umask's choice."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if found is None or not stat.S_ISREG(found.st_mode):
        return 0o755 if executable else None
    bits = stat.S_IMODE(found.st_mode) & 0o777
    return bits | (bits & 0o444) >> 2 if executable else bits & ~0o111


def _write_new(parent: int, name: str, data: bytes, permissions: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, _NEW_FILE, dir_fd=parent), "wb") as file:
        file.write(data)
        file.flush()
        if permissions is not None:
            os.fchmod(file.fileno(), permissions)
        sync_fd(file.fileno())


def sync_fd(fd: int) -> None:
    """Wait until the file or directory is on the disk; a file system that cannot say so is left alone."""
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def sync_directory(path: Path) -> None:
    """Sync one directory; a missing one has nothing to lose."""
    with _ignoring_missing():
        fd = os.open(path, _DIRECTORY)
        try:
            sync_fd(fd)
        finally:
            os.close(fd)


def fsync_paths(root: Path, paths: Iterable[str]) -> None:
    """Sync the regular files at `paths` (repository-relative) and the directories that name them.

    Deleted files and symlinks only need their directory; a path whose directory is gone is passed over.
    """
    for path in paths:
        with _ignoring_missing(), open_parent(root, path) as (parent, name):
            _sync_at(parent, name)
            sync_fd(parent)


def _sync_at(parent: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            sync_fd(fd)
        finally:
            os.close(fd)
