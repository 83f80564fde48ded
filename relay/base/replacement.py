"""Replace files atomically: at every instant the path holds the whole old file or the whole new one.

The next run removes temporary files of a killed relay.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from relay.base.values import dataclass
from relay.base.walk import sync_fd

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

    def make(folder_fd: int, temporary: str) -> None:
        _write_new(folder_fd, temporary, data, _Traits.find(parent_fd, name, executable=executable))
        check()

    _replace(parent_fd, name, make, parent_fd if scratch_fd is None else scratch_fd)
    sync_fd(parent_fd)


def replace_unsynced(parent_fd: int, name: str, data: bytes, *, scratch_fd: int | None = None) -> None:
    """Replace a regular file without syncing: a power cut may leave it empty, or undo the replacement."""

    def make(folder_fd: int, temporary: str) -> None:
        _write_new(folder_fd, temporary, data, _Traits.find(parent_fd, name, executable=None), synced=False)

    _replace(parent_fd, name, make, parent_fd if scratch_fd is None else scratch_fd)


def replace_with_link(parent_fd: int, name: str, target: bytes) -> None:
    """Put a symlink at `name`, as `replace_with_file` does a file."""
    _replace(parent_fd, name, lambda fd, temporary: os.symlink(target, temporary, dir_fd=fd), parent_fd)
    sync_fd(parent_fd)


def _replace(parent_fd: int, name: str, make: Callable[[int, str], None], folder_fd: int) -> None:
    temporary = make_temporary_name()
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
