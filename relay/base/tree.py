"""Files of the work tree by their repository-relative path; no symlink leads outside."""

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from relay.base.errors import RepoError
from relay.base.replacement import replace_with_file, replace_with_link
from relay.base.walk import DIRECTORY, MISSING, NotAFileError, open_parent, open_regular, read_bytes, sync_fd


def find_boot_id() -> str:
    """Return an id that changes at each boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


Look = tuple[int, ...]
"""A file's identity and state: device, inode, mode, size, mtime, ctime; empty if there is no file."""


def take_look(root: Path, path: str) -> Look:
    """Return the `Look` of a path without reading the file; of a symlink, the link's own."""
    try:
        return make_look(os.lstat(f"{root}/{path}"))
    except (OSError, ValueError):
        return ()


def make_look(found: os.stat_result) -> Look:
    """Return the `Look` in a file's status."""
    return (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextlib.contextmanager
def _ignoring_missing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in MISSING:
            raise


def find_stat(root: Path, path: str) -> os.stat_result | None:
    """Return the status of `path`, following symlinks in no component; None if nothing is there."""
    try:
        with open_parent(root, path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in MISSING:
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
            with os.fdopen(open_regular(name, parent), "rb") as file:
                return file.read()
    except NotAFileError:
        return None
    except OSError as error:
        if error.errno in MISSING:
            return None
        raise RepoError(f"{path!r} cannot be read: {error.strerror}") from error


def _read_link(parent: int, name: str) -> bytes | None:
    try:
        return os.fsencode(os.readlink(name, dir_fd=parent))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # a file has replaced the link
        raise


def read_start(path: str | Path, most_bytes: int) -> bytes | None:
    """Return the first bytes of a regular file, up to `most_bytes` + 1; None for anything else.

    Links are followed. Pipes and endless files do not block.

    Raises:
        OSError: There is nothing, or it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return read_bytes(fd, most_bytes + 1)
    finally:
        os.close(fd)


def open_file(root: Path, path: str) -> int | None:
    """Open a regular file for reading, through no symlink; None when there is none. The caller closes it.

    Raises:
        RepoError: It cannot be read.
    """
    try:
        with open_parent(root, path) as (parent, name):
            return open_regular(name, parent)
    except NotAFileError:
        return None
    except OSError as error:
        if error.errno in {*MISSING, errno.ENXIO}:  # a socket is there
            return None
        hint = f"chmod u+r {shlex.quote(path)}" if error.errno == errno.EACCES else ""
        raise RepoError(f"{path!r} cannot be read: {error.strerror}", hint=hint) from error


def replace_file(root: Path, path: str, data: bytes, mode: str) -> None:
    """Put `data` at `path` so that a crash leaves the old file or the new one: temporary, sync, rename, sync.

    Args:
        data: The file's bytes, or the target of a symlink.
        mode: Git's: ``100644``, ``100755`` or ``120000``. An existing regular file keeps its permission bits except the
            executable ones.

    Raises:
        RepoError: The path leads into a git directory.
    """
    _require_no_git_dir(path)
    with open_parent(root, path, create=True) as (parent, name):
        if mode == "120000":
            replace_with_link(parent, name, data)
        else:
            replace_with_file(parent, name, data, executable=mode == "100755")


def _require_no_git_dir(path: str) -> None:
    """Refuse paths that git never puts in a tree. A fetched ref may hold one, and writing it could install a hook."""
    if any(part.lower() == ".git" for part in PurePosixPath(path).parts):
        raise RepoError(f"{path!r} is in a git directory: relay neither writes nor removes it")


def remove_file(root: Path, path: str) -> None:
    """Remove a file or symlink, and the directories that are empty then; a missing file is fine.

    Raises:
        RepoError: The path leads into a git directory.
    """
    _require_no_git_dir(path)
    with _ignoring_missing(), open_parent(root, path) as (parent, name):
        os.unlink(name, dir_fd=parent)
        sync_fd(parent)
    for directory in list(PurePosixPath(path).parents)[:-1]:
        try:
            with open_parent(root, str(directory)) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except OSError:
            return


def sync_directory(path: Path) -> None:
    """Sync one directory; a missing one has nothing to lose."""
    with _ignoring_missing():
        fd = os.open(path, DIRECTORY)
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
    with contextlib.suppress(FileNotFoundError, NotAFileError):
        if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return
        fd = open_regular(name, parent)
        try:
            sync_fd(fd)
        finally:
            os.close(fd)
