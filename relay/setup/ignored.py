"""Bring what git ignores in the user's work tree into one of relay's: dependencies, generated source, settings.

Without it sessions and gates would miss what they find in the user's own tree. Each work tree gets copies, which are
the sessions' to change: nothing that they install reaches the user, and nothing that he installs meanwhile pulls files
from under them. A directory that is too large to copy is *lent*: commands see the user's, and what they write there
goes with the command (`relay.sandbox.view`).

Left out are secrets, tools' caches, relay's own files, and the git directories of nested repositories. A copy is made
anew when the user has changed the original, unless sessions have changed the copy; installed packages follow the
user's.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain

from relay.base.errors import RepoError
from relay.base.walk import open_folder, open_parent, open_regular
from relay.git import worktrees
from relay.git.repository import Repo
from relay.git.status import Status, list_submodules, read_status
from relay.plan.text import STATE_DIR
from relay.sandbox.places import CACHES, INSTALLED, TOOL_CACHES
from relay.setup.project import find_packages
from relay.store.worktree_notes import Brought, read_brought, save_brought

MOST_FILES, MOST_BYTES = 150_000, 4 * 1024**3
"""Files and bytes that one work tree gets copies of. A directory beyond that is lent."""
_MARKED_DEPTH, _MOST_MARKED = 3, 5_000
"""How far down, and how many entries, a directory is looked at to find that somebody installed something."""
_CHUNK_BYTES = 1 << 30
_LEFT_OUT = frozenset({".git", *TOOL_CACHES})
_TAG = "CACHEDIR.TAG"
"""Marks a directory that can be made again; cargo, mypy and others write it. Source: https://bford.info/cachedir/."""
_HALF = "half"
"""In place of a copy's mark, while it is made."""
_SESSIONS = "session "
"""Before the mark of an original that a session installed."""


def copy_named(main: Repo, job: Repo, named: Collection[str]) -> None:
    """Copy the ignored files and directories of these names that the job lacks, whatever they are."""
    for path in (name for asked in named for name in worktrees.list_ignored(main, asked)):
        if not os.path.lexists(job.root / path) and path.partition("/")[0] != STATE_DIR:
            with contextlib.suppress(OSError):  # it went meanwhile
                _replace(main, job, path, lambda _: False)


def bring_named(main: Repo, gate: Repo, named: Collection[str], *, is_users: bool) -> tuple[str, ...]:
    """Make these names in the tree of the gate what the user has; return the files and directories."""
    found = [path.rstrip("/") for asked in named for path in worktrees.list_ignored_entries(main, asked)]
    for path in found:
        own = _mark(gate, path, whole=True)
        if path.partition("/")[0] != STATE_DIR and (not own or (is_users and own != _mark(main, path, whole=True))):
            with contextlib.suppress(OSError):  # it went meanwhile
                _replace(main, gate, path, lambda _: False)
    return tuple(found)


def is_brought(job: Repo) -> bool:
    """Return whether `bring_ignored` has come to its end there."""
    brought = read_brought(job)
    return brought is not None and all(own != _HALF for _, own in brought.copies.values())


def is_copy(job: Repo, path: str) -> bool:
    """Return whether an ignored file is as it was copied: the user may have removed his since."""
    his, own = brought.copies.get(path, ("", "")) if (brought := read_brought(job)) else ("", "")
    return bool(his) and own == _mark(job, path)


def bring_ignored(
    main: Repo, job: Repo, *, named: Collection[str], has_packages: bool, installed: Collection[str] | None = None
) -> tuple[str, ...]:
    """Copy what git ignores in the user's work tree, as far as the job lacks it or the user has changed it since.

    Args:
        main: The user's work tree.
        job: Its lock is held, and no session is at work there.
        named: Paths that are copied whatever they are: the settings `copy` and `env_file`.
        has_packages: Whether installed packages are brought, too: not where setup commands install them, nor where
            commands see the job at its own path, and what is installed names the user's.
        installed: Where only gates run in `job`, the packages that come from the sessions' (`bring_installed`). A copy
            that gates have changed is made anew there, but for packages and caches.

    Returns:
        The directories that are lent.

    Raises:
        RepoError: The disk is full.
    """
    known_copies = before.copies if (before := read_brought(job)) else {}
    copies, lent = dict[str, tuple[str, str]](), list[str]()
    files, size = MOST_FILES, MOST_BYTES
    if installed is None:
        copy_named(main, job, named)
    for path in _list(main, named, has_packages=has_packages):
        if path in (installed or ()):
            continue
        his, known = _mark(main, path), known_copies.get(path)
        is_whole = installed is not None and not _is_package(job, path)
        own = _mark(job, path, whole=is_whole)
        is_kept = known is not None and known[0] == his and bool(own)
        if installed is not None and is_kept and known and known[1] != own:
            is_kept = _is_package(job, path) or os.path.lexists(job.root / path / _TAG)
        is_half = known is not None and known[1] == _HALF
        may_be_sessions = own and installed is None and not is_half
        if is_kept or (may_be_sessions and (known is None or _is_changed(main, job, path, known[1], own))):
            copies[path] = known or ("", "")
            continue
        needs = _measure(main, path, files, size)
        if needs is None:
            if hidden := next(filter(main.hidden.covers, _walk(main, path)), ""):  # what is lent is seen as a whole
                words = f"{path} is too large to copy, and has {hidden}, which sessions must not see"
                raise RepoError(words, hint=f"move that away, or add {path} to paths.hide to go without all of it")
            with contextlib.suppress(OSError), open_folder(job.root, path.split("/"), create=True):
                lent.append(path)
            continue
        files, size = files - needs[0], size - needs[1]
        if (main.root / path).is_dir():  # a kill leaves a part of it, which is no session's
            save_brought(job, Brought(copies=known_copies | copies | {path: ("", _HALF)}, lent=tuple(lent)))
        try:
            _replace(main, job, path, main.hidden.covers)
        except OSError as error:  # else something tracked stands there by now, or it went meanwhile
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                words = f"there is no space for a copy of {path} in {job.root}, where sessions work"
                raise RepoError(words, hint="make room; what cannot be copied is missing there") from error
        copies[path] = his, _mark(job, path, whole=installed is not None and not _is_package(job, path))
    copies |= {path: known_copies[path] for path in installed or () if path in known_copies}
    save_brought(job, Brought(copies=copies, lent=tuple(lent)))
    return tuple(lent)


def bring_installed(job: Repo, gate: Repo, installed: Collection[str]) -> None:
    """Copy packages, as sessions have installed or changed them, into the tree of the gate."""
    brought = read_brought(gate) or Brought(copies={}, lent=())
    copies = dict(brought.copies)
    for path in installed:
        marks = f"{_SESSIONS}{_mark(job, path)}", _mark(gate, path)
        if copies.get(path) != marks:
            with contextlib.suppress(OSError):  # it cannot be read, or something tracked stands there
                _replace(job, gate, path, job.hidden.covers)
            copies[path] = marks[0], _mark(gate, path)
    if copies != brought.copies:
        save_brought(gate, Brought(copies=copies, lent=brought.lent))


def find_installed(job: Repo, gate: Repo) -> tuple[str, ...]:
    """Return the directories of packages that sessions have installed or changed."""
    return tuple(path for path in _find_changed(job, gate) if _is_package(job, path))


def find_unseen(job: Repo, gate: Repo) -> tuple[str, ...]:
    """Return the ignored paths and the submodules that the tree of the gate does not have as sessions see them.

    Without tools' caches, and without packages: a gate has the sessions', or those that the setup commands installed.
    """
    own = (path for path in _list_own(job, list_submodules(job)) if not _is_package(job, path))
    return tuple(path for path in own if _mark(job, path) != _mark(gate, path))


def _find_changed(job: Repo, gate: Repo) -> Iterator[str]:
    """Yield the ignored paths that sessions made or changed, without tools' caches."""
    brought, seen = read_brought(job), read_brought(gate)
    if brought:
        marks, lent = {path: own for path, (_, own) in brought.copies.items()}, brought.lent
    elif seen:  # the sessions work in the user's work tree
        marks, lent = {path: his.removeprefix(_SESSIONS) for path, (his, _) in seen.copies.items()}, seen.lent
    else:
        return
    for path in _list_own(job, marks):
        if path not in lent and marks.get(path) != _mark(job, path):
            yield path


def _list_own(job: Repo, more: Collection[str]) -> Iterator[str]:
    for path in dict.fromkeys(name.rstrip("/") for name in (*worktrees.list_ignored_entries(job), *more)):
        parts = path.split("/")
        if parts[0] != STATE_DIR and _LEFT_OUT.isdisjoint(parts) and os.path.lexists(job.root / path):
            yield path


def _is_package(repo: Repo, path: str) -> bool:
    is_environment = os.path.lexists(repo.root / path / "pyvenv.cfg") or (repo.root / path / "conda-meta").is_dir()
    return is_environment or not INSTALLED.isdisjoint(path.split("/"))


def find_brought_packages(job: Repo, status: Status) -> tuple[str, ...]:
    """Return the untracked paths in packages that were copied because the project forgot to have git ignore them."""
    packages = _list_brought_packages(job)
    return tuple(path for path in status.untracked if path.startswith(packages))


def _list_brought_packages(job: Repo) -> tuple[str, ...]:
    copies = brought.copies if (brought := read_brought(job)) else {}
    return tuple(f"{path}/" for path in copies if not INSTALLED.isdisjoint(path.split("/")))


def drop_packages(job: Repo) -> None:
    """Remove those packages: git removes no work tree that has untracked files."""
    for path in find_brought_packages(job, read_status(job)) if _list_brought_packages(job) else ():
        with contextlib.suppress(OSError), open_parent(job.root, path) as (folder, name):
            os.unlink(name, dir_fd=folder)


def _is_changed(main: Repo, job: Repo, path: str, known: str, own: str) -> bool:
    """Return whether sessions have changed a copy; what is installed in it does not count."""
    if not INSTALLED.isdisjoint(path.split("/")):
        return False
    files = [path, *_walk(job, path)]  # the mark ends at some depth, a session's file may not
    return own != known or not all(os.path.lexists(main.root / name) for name in files)


def _walk(repo: Repo, path: str) -> Iterator[str]:
    """Yield what is below a directory, by its path from the root; links are not followed."""
    pending = [path]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(OSError), os.scandir(repo.root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                yield name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)


def _list(main: Repo, named: Collection[str], *, has_packages: bool) -> Iterator[str]:
    """Yield the ignored files, the directories of which all is ignored, and submodules, without what is named.

    Git does not fill a submodule in a linked work tree. What a session writes there is in no commit either way.
    """
    packages = find_packages(read_status(main).untracked)  # a project may forget to have git ignore them
    found = (*worktrees.list_ignored_entries(main), *list_submodules(main), *packages)
    for path in (name.rstrip("/") for name in found):
        parts = path.split("/")
        is_left_out = parts[0] == STATE_DIR or not _LEFT_OUT.isdisjoint(parts) or main.hidden.covers(path)
        if not (is_left_out or path in named or (not has_packages and not INSTALLED.isdisjoint(parts))):
            yield path


def _mark(repo: Repo, path: str, *, whole: bool = False) -> str:
    """Return a digest of the names, sizes and dates of a file, or a directory's first levels; empty for nothing."""
    try:
        found = os.lstat(repo.root / path)
    except OSError:
        return ""
    said, pending = hashlib.sha256(_describe("", found)), deque([("", 0)] if stat.S_ISDIR(found.st_mode) else [])
    left = most = MOST_FILES * 2 if whole else _MOST_MARKED
    while pending and left > 0:
        folder, depth = pending.popleft()
        with contextlib.suppress(OSError), os.scandir(f"{repo.root}/{path}/{folder}") as entries:
            for entry in sorted(entries, key=lambda one: one.name)[:left]:
                left -= 1
                if entry.name in _LEFT_OUT or entry.name in CACHES:
                    continue
                name, status = f"{folder}{entry.name}", entry.stat(follow_symlinks=False)
                said.update(_describe(name, status))
                if entry.is_dir(follow_symlinks=False) and (whole or depth + 1 < _MARKED_DEPTH):
                    pending.append((f"{name}/", depth + 1))
    return said.hexdigest() if left < most or not stat.S_ISDIR(found.st_mode) else ""


def _describe(name: str, found: os.stat_result) -> bytes:
    # The date of a directory says that something was added or removed in it.
    return os.fsencode(f"{name}\0{found.st_size if not stat.S_ISDIR(found.st_mode) else 0}\0{found.st_mtime_ns}\n")


def _measure(main: Repo, path: str, most_files: int, most_bytes: int) -> tuple[int, int] | None:
    """Return the number of files at or below a path and their bytes; None if they are more than that."""
    files, size = 0, 0
    for name in chain((path,), _walk(main, path)):
        with contextlib.suppress(OSError):  # it went meanwhile
            found = os.lstat(f"{main.root}/{name}")
            if not stat.S_ISDIR(found.st_mode):
                files, size = files + 1, size + found.st_size
        if files > most_files or size > most_bytes:
            return None
    return files, size


def _replace(main: Repo, job: Repo, path: str, is_hidden: Callable[[str], bool]) -> None:
    """Copy a file or directory over what the job has there; no link of the job's is followed."""
    with open_parent(job.root, path, create=True) as (there, name), open_parent(main.root, path) as (here, _):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=there, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=there)
            else:
                os.unlink(name, dir_fd=there)
        _copy(here, there, name, path, is_hidden)


def _copy(here: int, there: int, name: str, path: str, is_hidden: Callable[[str], bool]) -> None:
    """Copy a file, link or directory from one open directory into another, with its mode and date."""
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
    elif stat.S_ISDIR(found.st_mode):
        os.mkdir(name, 0o700, dir_fd=there)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        source, target = os.open(name, flags, dir_fd=here), os.open(name, flags, dir_fd=there)
        try:
            for inner in os.listdir(source):  # noqa: PTH208  # an open directory
                if inner != ".git" and not is_hidden(f"{path}/{inner}"):
                    with contextlib.suppress(FileNotFoundError, PermissionError):
                        _copy(source, target, inner, f"{path}/{inner}", is_hidden)
            os.fchmod(target, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(source)
            os.close(target)
    elif stat.S_ISREG(found.st_mode):
        source = open_regular(name, here)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, stat.S_IMODE(found.st_mode) | stat.S_IWUSR, dir_fd=there)
        try:
            _copy_bytes(source, target)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(source)
            os.close(target)


def _copy_bytes(source: int, target: int) -> None:
    """Copy a file; the kernel shares its blocks where the file system can."""
    try:
        while os.copy_file_range(source, target, _CHUNK_BYTES):
            pass
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
            raise
        with open(source, "rb", closefd=False) as here, open(target, "wb", closefd=False) as there:
            shutil.copyfileobj(here, there)
