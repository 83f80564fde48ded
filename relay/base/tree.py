"""Files of the work tree by their repository-relative path; no symlink leads outside.

relay replaces a file atomically: at every instant the path holds the whole old file or the whole new one. The next run
removes temporary files of a killed relay.
"""

import errno
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.base.walk import DIRECTORY, MISSING, NotAFileError, open_parent, open_regular, read_bytes, sync_fd

_NAME = re.compile(r"\.relay-([0-9a-f]{16})([0-9a-f]{16})\.tmp")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_temporary_name() -> str:
    """Return a unique name that only relay makes up: the next run removes files with such names."""
    number = os.urandom(8).hex()
    return f".relay-{number}{_sign(number)}.tmp"


def is_temporary(name: str) -> bool:
    """Return whether a file name without directories comes from `make_temporary_name`."""
    found = _NAME.fullmatch(name)
    return found is not None and _sign(found[1]) == found[2]


def _sign(number: str) -> str:
    """Return digits that follow from `number`, so that no other program makes up such a name."""
    return hashlib.sha256(f"relay {number}".encode()).hexdigest()[:16]


def replace_with_file(
    parent_fd: int,
    name: str,
    data: bytes,
    *,
    executable: bool | None = None,
    scratch_fd: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Put a regular file at `name`; it and the directory are on the disk when this returns.

    The new file takes the permission bits and the owner of a regular file that it replaces.

    Args:
        parent_fd: The directory that holds `name`.
        name: Whatever stands there is replaced; a link is not followed.
        executable: None keeps the executable bits too.
        scratch_fd: A directory on the same file system for the temporary file; None for `parent_fd`.
        check: Called just before the rename; an exception from it stops the replacement.

    Raises:
        OSError: The disk is full, or a directory is not writable; nothing changed then.
    """
    traits = _Traits.find(parent_fd, name, executable=executable)

    def make(folder_fd: int, temporary: str) -> None:
        _write_new(folder_fd, temporary, data, traits)
        check()

    _replace(parent_fd, name, make, scratch_fd)
    sync_fd(parent_fd)


def replace_unsynced(parent_fd: int, name: str, data: bytes) -> None:
    """Replace a regular file without syncing: a power cut may leave it empty, or undo the replacement."""
    traits = _Traits.find(parent_fd, name, executable=None)
    _replace(parent_fd, name, partial(_write_new, data=data, traits=traits, synced=False))


def _replace(parent_fd: int, name: str, make: Callable[[int, str], None], scratch_fd: int | None = None) -> None:
    temporary, folder_fd = make_temporary_name(), parent_fd if scratch_fd is None else scratch_fd
    try:
        make(folder_fd, temporary)
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=parent_fd)
    except BaseException:
        with suppress(OSError):  # the disk may be full or broken; the next run removes it
            os.unlink(temporary, dir_fd=folder_fd)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """Permissions and owner of a new file."""

    permissions: int | None
    """None for the umask's choice."""
    user: int
    group: int

    @classmethod
    def find(cls, parent_fd: int, name: str, *, executable: bool | None) -> Self:
        """Read them from the file at `name`, else from the directory, as the kernel does for a new file."""
        try:
            old = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        except FileNotFoundError:
            old = None
        if old is None or not stat.S_ISREG(old.st_mode):
            parent = os.fstat(parent_fd)
            group = parent.st_gid if parent.st_mode & stat.S_ISGID else os.getegid()
            return cls(permissions=0o755 if executable else None, user=os.geteuid(), group=group)
        bits = stat.S_IMODE(old.st_mode) & 0o777
        if executable is not None:
            bits = bits | (bits & 0o444) >> 2 if executable else bits & ~0o111
        return cls(permissions=bits, user=old.st_uid, group=old.st_gid)


def _write_new(folder_fd: int, name: str, data: bytes, traits: _Traits, *, synced: bool = True) -> None:
    # Others cannot read it until its owner and mode are right: a private file is never readable, not for an instant.
    fd = os.open(name, _CREATE, 0o666 if traits.permissions is None else 0o600, dir_fd=folder_fd)
    with os.fdopen(fd, "wb") as stream:
        stream.write(data)
        stream.flush()
        if (traits.user, traits.group) != (os.geteuid(), os.getegid()):
            with suppress(PermissionError):  # only root can give a file away; content matters more than owner
                os.fchown(fd, traits.user, traits.group)
        if traits.permissions is not None:
            os.fchmod(fd, traits.permissions)
        # Sync before the rename: else a power cut could leave the name without the bytes.
        if synced:
            sync_fd(fd)


def find_boot_id() -> str:
    """Return an id that changes at each boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


FoundT = TypeVar("FoundT")
FileState = tuple[int, ...]
"""A file's identity and state: device, inode, mode, size, mtime, ctime; empty if there is no file."""


def take_look(root: Path, path: str) -> FileState:
    """Return the `FileState` of a path without reading the file; of a symlink, the link's own."""
    try:
        return make_look(os.lstat(f"{root}/{path}"))
    except (OSError, ValueError):
        return ()


def make_look(found: os.stat_result) -> FileState:
    """Return the `FileState` in a file's status."""
    return (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def _ignoring_missing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in MISSING:
            raise


def _find(root: Path, path: str, what: str, get: Callable[[int, str], FoundT]) -> FoundT | None:
    """Return what `get` finds by an open directory and a name in it; None if nothing of the kind is there.

    Raises:
        RepoError: The path cannot be `what`, such as ``read``.
    """
    try:
        with open_parent(root, path) as (parent, name):
            return get(parent, name)
    except NotAFileError:
        return None
    except OSError as error:
        if error.errno in {*MISSING, errno.ENXIO}:  # a socket is there
            return None
        hint = f"chmod u+r {shlex.quote(path)}" if error.errno == errno.EACCES else ""
        raise RepoError(f"{path!r} cannot be {what}: {error.strerror}", hint=hint) from error


def find_stat(root: Path, path: str) -> os.stat_result | None:
    """Return the status of `path`, following symlinks in no component; None if nothing is there."""
    return _find(root, path, "looked at", lambda parent, name: os.stat(name, dir_fd=parent, follow_symlinks=False))


def read_file(root: Path, path: str) -> bytes | None:
    """Return the bytes of a regular file, or a symlink's target; None when there is neither."""

    def read(parent: int, name: str) -> bytes | None:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            try:
                return os.fsencode(os.readlink(name, dir_fd=parent))
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return None  # a file has replaced the link
                raise
        if not stat.S_ISREG(mode):
            return None
        with os.fdopen(open_regular(name, parent), "rb") as file:
            return file.read()

    return _find(root, path, "read", read)


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
    return _find(root, path, "read", lambda parent, name: open_regular(name, parent))


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
            _replace(parent, name, lambda fd, temporary: os.symlink(data, temporary, dir_fd=fd))
            sync_fd(parent)
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
            with suppress(FileNotFoundError, NotAFileError):
                if stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    with os.fdopen(open_regular(name, parent), "rb") as file:
                        sync_fd(file.fileno())
            sync_fd(parent)
