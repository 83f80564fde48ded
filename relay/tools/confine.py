"""Find a file inside the repository without ever leaving it, and without a window between check and use.

The walk goes down one component at a time over directory descriptors opened with ``O_NOFOLLOW``; a symbolic link is
read as text and walked in its place, ``..`` steps back on relay's own stack. The kernel therefore never resolves a
name that relay has not looked at, and a link swapped in meanwhile fails to open. ``openat2`` would do the same in one
call, but has no binding in the standard library and no macOS.
"""

import errno
import os
import stat
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Self

from relay.sandbox.policy import TEMPLATE_SUFFIXES
from relay.tools.workspace import ALWAYS_PROTECTED, RefusedError, Workspace

MAX_LINKS = 40
"""As many symbolic links as Linux itself follows in one path."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a path leads: an open directory and a name in it."""

    parent_fd: int
    """Valid while the context that gave the place is open."""
    name: str
    """``.`` when the path leads to the root or ends in ``..``."""
    path: str
    """Relative to the root, no links, no dots; empty for the root."""
    status: os.stat_result | None
    """Of the name itself, links not followed; None when it does not exist."""
    missing: tuple[str, ...] = ()
    """Directories below `parent_fd` that do not exist yet and lead to `name`."""


def parse_path(root: Path, raw: str) -> list[str]:
    """Split a path of the model into components below the root, ``..`` kept.

    Raises:
        RefusedError: The path is absolute and outside, or no file can have it.
    """
    if "\0" in raw:
        raise RefusedError("A path must not contain NUL.")
    if raw.startswith("/"):
        parts = Path(raw).parts
        if parts[: len(root.parts)] != root.parts:
            raise RefusedError(f"{raw} is outside the repository. Paths are relative to its root.")
        raw = "/".join(parts[len(root.parts) :])
    return [part for part in raw.split("/") if part not in {"", "."}]


@dataclass(slots=True)
class _Walk:
    """The directories between the root and where the walk stands."""

    root: Path
    raw: str
    stack: ExitStack
    fds: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    links: int = 0

    @classmethod
    def start(cls, root: Path, raw: str, stack: ExitStack) -> Self:
        walk = cls(root, raw, stack)
        walk.push(os.open(root, _DIRECTORY))
        return walk

    def push(self, fd: int) -> None:
        self.stack.callback(os.close, fd)
        self.fds.append(fd)

    def descend(self, name: str) -> None:
        try:
            self.push(os.open(name, _DIRECTORY, dir_fd=self.fds[-1]))
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise RefusedError(f"{self.raw}: {name} is not a directory.") from error
            raise
        self.names.append(name)

    def ascend(self) -> None:
        if not self.names:
            raise RefusedError(f"{self.raw} leads out of the repository.")
        self.names.pop()
        self.fds.pop()

    def splice(self, name: str, *, follow: bool) -> list[str]:
        """Return the components that stand for a symbolic link."""
        target = os.readlink(name, dir_fd=self.fds[-1])
        here = "/".join([*self.names, name])
        if not follow:
            raise RefusedError(f"{here} is a symbolic link to {target}; write to the file itself.")
        self.links += 1
        if self.links > MAX_LINKS:
            raise RefusedError(f"{self.raw}: too many symbolic links.")
        try:
            parts = parse_path(self.root, target)
        except RefusedError:
            raise RefusedError(f"{here} is a symbolic link out of the repository.") from None
        if target.startswith("/"):
            del self.fds[1:]
            self.names.clear()
        return parts

    def find(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fds[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None

    def place(self, name: str, status: os.stat_result | None, missing: tuple[str, ...] = ()) -> Place:
        path = "/".join([*self.names, *missing, *([] if name == "." else [name])])
        return Place(parent_fd=self.fds[-1], name=name, path=path, status=status, missing=missing)


@contextmanager
def locate(root: Path, raw: str, *, follow: bool) -> Iterator[Place]:
    """Walk to a path; `follow` says whether symbolic links are walked through or refused.

    Raises:
        RefusedError: The path leaves the repository, goes through a file, or through a link that is not followed.
    """
    pending = deque(parse_path(root, raw))
    with ExitStack() as stack:
        walk = _Walk.start(root, raw, stack)
        while pending:
            name = pending.popleft()
            if name == "..":
                walk.ascend()
                continue
            status = walk.find(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                pending.extendleft(reversed(walk.splice(name, follow=follow)))
            elif status is None:
                yield _place_missing(walk, name, pending)
                return
            elif pending:
                walk.descend(name)
            else:
                yield walk.place(name, status)
                return
        yield walk.place(".", os.fstat(walk.fds[-1]))


def _place_missing(walk: _Walk, name: str, pending: Sequence[str]) -> Place:
    names = [name, *pending]
    if ".." in names:
        raise RefusedError(f"{walk.raw}: no such directory: {'/'.join([*walk.names, name])}.")
    return walk.place(names[-1], None, tuple(names[:-1]))


def open_regular(place: Place) -> int:
    """Open an existing regular file for reading; devices, pipes and sockets are never opened.

    Raises:
        RefusedError: Something else than a regular file stands there.
    """
    if place.status is None:
        raise RefusedError(f"No such file: {place.path}.{_suggest(place)}")
    _require_regular(place.path, place.status)
    fd = os.open(place.name, _REGULAR, dir_fd=place.parent_fd)
    try:
        _require_regular(place.path, os.fstat(fd))
    except RefusedError:
        os.close(fd)
        raise
    return fd


def _require_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise RefusedError(f"{path or 'The root'} is a directory; use list.")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{path} is a device, pipe or socket, not a file.")


def _suggest(place: Place) -> str:
    """Name what the missing file may have been."""
    import difflib  # costs start-up time and is needed only here

    if place.missing:
        return ""
    with os.scandir(place.parent_fd) as entries:
        names = [entry.name for entry in islice(entries, 2_000)]
    near = difflib.get_close_matches(place.name, names, n=3)
    folder = place.path.removesuffix(place.name)
    return f" Near it: {', '.join(folder + name for name in near)}." if near else ""


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """Return a form that is equal for names some file system takes for the same one.

    Case folded, NFC, and without the invisible characters that HFS+ ignores (CVE-2014-9390).
    """
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", visible).casefold())


def is_covered(path: str, patterns: Sequence[str]) -> bool:
    """Say whether a path without dots and links is one of the patterns or lies below one; see `Workspace.protected`."""
    parts = tuple(fold_name(part) for part in path.split("/") if part)
    for pattern in patterns:
        anywhere, want = _parse_pattern(pattern)
        starts = range(len(parts) - len(want) + 1) if anywhere else (0,)
        if want and any(parts[at : at + len(want)] == want for at in starts):
            return True
    return False


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether the pattern holds at any depth, and its folded components."""
    parts = pattern.removeprefix("**/").split("/")
    return pattern.startswith("**/"), tuple(fold_name(part) for part in parts if part not in {"", "."})


def require_writable(workspace: Workspace, path: str) -> None:
    """Refuse what relay alone writes.

    Raises:
        RefusedError: The path is protected.
    """
    if is_covered(path, ("**/.git",)):
        raise RefusedError(f"{path}: git's files are read-only here; relay makes the commits.")
    if is_covered(path, (*ALWAYS_PROTECTED, *workspace.protected)):
        raise RefusedError(
            f"{path} is written by relay alone. Use tick for a finished item, amend for a change to an open phase, "
            "record for a finding."
        )
    _refuse_secret(workspace, path)


def require_readable(workspace: Workspace, path: str) -> None:
    """Refuse git's and relay's own files, but for spilled outputs, and secrets.

    Raises:
        RefusedError: The path is not shown.
    """
    if is_covered(path, ("**/.git",)):
        raise RefusedError(f"{path}: look at git's data with git in bash.")
    if is_covered(path, (".relay",)):
        outputs = workspace.render_handle(workspace.outputs_dir)
        if not is_covered(path, (outputs,)):
            raise RefusedError(f"{path} is relay's own; of .relay only {outputs} can be read.")
    _refuse_secret(workspace, path)


def is_readable(workspace: Workspace, path: str) -> bool:
    """Say whether `require_readable` lets a path pass."""
    try:
        require_readable(workspace, path)
    except RefusedError:
        return False
    return True


def _refuse_secret(workspace: Workspace, path: str) -> None:
    name = fold_name(path.rpartition("/")[2])
    secret = any(fnmatchcase(name, pattern) for pattern in workspace.secret_names)
    if (secret and not name.endswith(TEMPLATE_SUFFIXES)) or is_covered(path, workspace.unreadable):
        raise RefusedError(f"{path} may hold secrets; it is neither shown nor changed.")
