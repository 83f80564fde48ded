"""Find a file below a root without ever leaving it, and without a window between check and use.

Every walk goes down one component at a time over directory descriptors opened with ``O_NOFOLLOW``. The kernel
therefore never resolves a name that relay has not checked, and a link swapped in meanwhile fails to open. `locate` may
follow links: it reads them as text and walks their target, and ``..`` steps back on relay's own stack. ``openat2`` does
the same in one call, but has no binding in the standard library.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Self

from relay.base.values import dataclass

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors that mean "nothing is there": a component is missing, is a file, or is a symlink that is not followed."""
MAX_LINKS = 40
"""As many symbolic links as Linux itself follows in one path."""
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LEAST_READ = 4096
"""Bytes: the kernel's own files report a size of 0."""
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})


class WalkError(Exception):
    """A path leads out of the root, through a file, or through a link that is not followed; the message says which."""


class NotAFileError(OSError):
    """The name is a directory, a device, a pipe or a socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The end of a path: an open directory and a name in it."""

    parent_fd: int
    """Valid while the context of `locate` is open."""
    name: str
    """``.`` if the path leads to the root or ends in ``..``."""
    path: str
    """Relative to the root, no links, no dots; empty for the root."""
    status: os.stat_result | None
    """Of the name itself, links not followed; None if it does not exist."""
    missing: tuple[str, ...] = ()
    """Directories below `parent_fd` that do not exist yet and lead to `name`."""


def sync_fd(fd: int) -> None:
    """Wait until the file or directory is on the disk; a file system without sync is left alone."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def read_bytes(fd: int, most_bytes: int) -> bytes:
    """Return at most `most_bytes` from an open file, in a third of the time of a stream."""
    step, parts = max(os.fstat(fd).st_size + 1, _LEAST_READ), []
    while most_bytes > 0 and (part := os.read(fd, min(step, most_bytes))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def list_names(folder: Path) -> list[str]:
    """Return the names in a directory; empty if there is none or it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208  # names are wanted
    except OSError:
        return []


def _enter(here: int, name: str, *, create: bool = False, permissions: int = 0o777) -> int:
    """Open the subdirectory `name` of `here`. The caller closes it.

    With `create`, a missing one is made and synced.

    Raises:
        OSError: It is missing, a symlink or no directory; or `name` is a path of several components.
    """
    if name == ".." or "/" in name:
        raise OSError(errno.ENOENT, "not the name of a directory in this one", name)
    try:
        return os.open(name, DIRECTORY, dir_fd=here)
    except FileNotFoundError:
        if not create:
            raise
    # Another process may have made it since; opening it tells whether it is a directory.
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, permissions, dir_fd=here)
    below = os.open(name, DIRECTORY, dir_fd=here)
    sync_fd(here)
    return below


def enter_all(here: int, names: Sequence[str], *, create: bool = False, permissions: int = 0o777) -> int:
    """Open a directory several levels below `here`, as `_enter` does; `here` stays open."""
    below = os.dup(here)
    for name in names:
        above = below
        try:
            below = _enter(above, name, create=create, permissions=permissions)
        finally:
            os.close(above)
    return below


@contextmanager
def open_folder(root: Path, names: Sequence[str], *, create: bool = False, permissions: int = 0o777) -> Iterator[int]:
    """Open a directory below `root`, never through a symlink.

    Raises:
        OSError: As `_enter`.
    """
    top = os.open(root, DIRECTORY)
    try:
        here = enter_all(top, names, create=create, permissions=permissions)
    finally:
        os.close(top)
    try:
        yield here
    finally:
        os.close(here)


@contextmanager
def open_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory that holds `path`, never through a symlink.

    Args:
        path: Repository-relative, with ``/``.
        create: Make missing directories.

    Yields:
        A file descriptor of the directory, and the last component.

    Raises:
        OSError: As `_enter`.
    """
    *parents, name = PurePosixPath(path).parts
    if name in {"..", "/"}:
        raise OSError(errno.ENOENT, "not below the root", path)
    with open_folder(root, parents, create=create) as parent:
        yield parent, name


def open_regular(name: str, parent: int, flags: int = os.O_RDONLY) -> int:
    """Open a regular file without following a link or waiting for a pipe; a new file has mode 0600 at most.

    Raises:
        NotAFileError: The name is no regular file.
        OSError: It cannot be opened.
    """
    fd = os.open(name, flags | _PLAIN, 0o600, dir_fd=parent)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NotAFileError(errno.EINVAL, "not a regular file", name)


@contextmanager
def open_ignored(root: Path, names: Sequence[str], *below: str) -> Iterator[int]:
    """Open a directory of relay's own, or one `below` it, making missing ones; a file in it tells git to ignore it.

    An ignore file with content stays as it is. No link is followed: a repository that ships one gets nothing written
    through it.

    Raises:
        OSError: It cannot be made or written to, or something else stands there.
    """
    with open_folder(root, names, create=True, permissions=0o700) as here:
        fd = open_regular(".gitignore", here, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(fd).st_size == 0:
                os.write(fd, b"*\n")
                os.fsync(fd)  # else a power cut may leave the directory without it, and git would list its files
                os.fsync(here)
        except OSError:
            os.unlink(".gitignore", dir_fd=here)  # else `git status` would show the empty file
            raise
        finally:
            os.close(fd)
        if not below:
            yield here
    if below:
        with open_folder(root, (*names, *below), create=True, permissions=0o700) as folder:
            yield folder


def _split_path(root: Path, raw: str, shown: Path | None) -> list[str]:
    """Split the model's path into components below the root; ``..`` stays. Commands see the root at `shown`.

    Raises:
        WalkError: The path is absolute and outside, or no file can have it.
    """
    if "\0" in raw:
        raise WalkError("A path must not contain NUL.")
    if raw.startswith("/"):
        parts = Path(raw).parts
        top = next((top.parts for top in (shown, root) if top and parts[: len(top.parts)] == top.parts), None)
        if top is None:
            raise WalkError(f"{raw} is outside the repository. Paths are relative to its root.")
        raw = "/".join(parts[len(top) :])
    return [part for part in raw.split("/") if part not in {"", "."}]


@dataclass(slots=True)
class _Walk:
    """The open directories from the root to the current one. Mutable: goes down and up."""

    root: Path
    raw: str
    stack: ExitStack
    shown: Path | None
    fds: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    links: int = 0

    @classmethod
    def start(cls, root: Path, raw: str, stack: ExitStack, shown: Path | None) -> Self:
        walk = cls(root, raw, stack, shown)
        walk.push(os.open(root, DIRECTORY))
        return walk

    def push(self, fd: int) -> None:
        self.stack.callback(os.close, fd)
        self.fds.append(fd)

    def descend(self, name: str) -> None:
        try:
            self.push(_enter(self.fds[-1], name))
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise WalkError(f"{self.raw}: {name} is not a directory.") from error
            raise
        self.names.append(name)

    def ascend(self) -> None:
        if not self.names:
            raise WalkError(f"{self.raw} leads out of the repository.")
        self.names.pop()
        self.fds.pop()

    def splice(self, name: str, *, follow: bool) -> list[str]:
        """Return the components of a symbolic link's target."""
        target = os.readlink(name, dir_fd=self.fds[-1])
        here = "/".join([*self.names, name])
        if not follow:
            raise WalkError(f"{here} is a symbolic link to {target}; write to the file itself.")
        self.links += 1
        if self.links > MAX_LINKS:
            raise WalkError(f"{self.raw}: too many symbolic links.")
        try:
            parts = _split_path(self.root, target, self.shown)
        except WalkError:
            raise WalkError(f"{here} is a symbolic link out of the repository.") from None
        if target.startswith("/"):
            del self.fds[1:]
            self.names.clear()
        return parts

    def find(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fds[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None

    def place(self, name: str, status: os.stat_result | None, missing: tuple[str, ...] = ()) -> Location:
        path = "/".join([*self.names, *missing, *([] if name == "." else [name])])
        return Location(parent_fd=self.fds[-1], name=name, path=path, status=status, missing=missing)


@contextmanager
def locate(root: Path, raw: str, *, follow: bool, shown: Path | None = None) -> Iterator[Location]:
    """Walk to a path; `follow` decides whether symbolic links are followed or refused.

    Args:
        shown: Another path by which a model, or an absolute link, may name the root; it is never opened.

    Raises:
        WalkError: The path leaves the root, goes through a file, or through a link that is not followed.
    """
    pending = deque(_split_path(root, raw, shown))
    with ExitStack() as stack:
        walk = _Walk.start(root, raw, stack, shown)
        while pending:
            name = pending.popleft()
            if name == "..":
                walk.ascend()
                continue
            status = walk.find(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                pending.extendleft(reversed(walk.splice(name, follow=follow)))
            elif status is None:
                names = (name, *pending)
                if ".." in names:
                    raise WalkError(f"{raw}: no such directory: {'/'.join([*walk.names, name])}.")
                yield walk.place(names[-1], None, names[:-1])
                return
            elif pending:
                walk.descend(name)
            else:
                yield walk.place(name, status)
                return
        yield walk.place(".", os.fstat(walk.fds[-1]))
