"""Where the work trees are that belong together: those of a repository, and those that relay made for a clone.

A work tree of relay's own leaves what is kept of its runs in the work tree where the user typed the command. The notes
of that, and of what it may land, are in its git directory, which no session writes and no fetch brings.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from relay.base.errors import LockedError, RepoError
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo
from relay.git.worktrees import list_roots

_HOLDER = re.compile(r"process ([0-9]{1,9}) on (.+)")

_PAUSE_S = 0.02


@contextlib.contextmanager
def lock_worktree(repo: Repo, name: str = "lock", *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the work tree's lock, or another one in it; the kernel releases it when this process ends, however it ends.

    Children do not inherit it. What the file says is for the message only, never a reason to take the lock away.

    Args:
        wait_s: For one that holds it; a run does for hours, most commands for milliseconds.

    Raises:
        LockedError: Another process holds it.
        RepoError: Something that is no file stands in its place.
    """
    # The file is never removed: two relays could then each lock a file of that name.
    file = repo.make_relay_dir() / name
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:  # a link, a directory, a socket
            raise
        raise _explain(file) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _explain(file)
        until = time.monotonic() + wait_s
        while not (taken := _try_lock(fd)) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        if not taken:
            holder = _read_holder(fd) or "another process"
            raise LockedError(f"another relay is at work here: {holder}", hint="wait for it, or stop it")
        # Only once the lock is held: until then the file names its holder. Cut behind what is written and not before:
        # what was emptied first ext4 puts on the disk at the end.
        own = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        os.pwrite(fd, own, 0)
        os.ftruncate(fd, len(own))
        yield
    finally:
        os.close(fd)


def find_holder(repo: Repo) -> int | None:
    """Return the process that holds the work tree's lock; None when nobody does, or one on another machine."""
    try:
        fd = os.open(repo.relay_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        found = _HOLDER.fullmatch(_read_holder(fd))
        return int(found[1]) if found and found[2] == socket.gethostname() else None
    finally:
        os.close(fd)
    return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(fd: int) -> str:
    return os.pread(fd, 200, 0).decode(errors="replace").strip()


def _explain(file: Path) -> RepoError:
    return RepoError(f"{file} is not a regular file", hint="remove it: nothing is lost with it")


STORE = "store"
"""In each directory of those in which a fleet's worker keeps its clones: the repository, beside its work trees."""
_NOTE = "home"
_CHECKED = "checked"
_JOBS = ".relay"
_CLONE = re.compile(r"[0-9a-f]{16}")


def get_jobs_place(root: Path) -> Path:
    """Return the directory that the work trees of a work tree's jobs are in: beside it."""
    return root.parent / f"{root.name}{_JOBS}"


def find_other_trees(repo: Repo) -> tuple[Path, ...]:
    """Return the roots of the repository's other work trees.

    Raises:
        GitError: See `list_roots`.
    """
    return tuple(root for root in list_roots(repo) if root != repo.root)


def find_made_places(repo: Repo, others: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories in which relay has made work trees or clones, beside work trees of the repository.

    Args:
        others: As `find_other_trees` gave them.
    """
    beside = {place for root in (repo.root, *others) for place in root.parent.glob(f"*{_JOBS}")}
    jobs = [place for place in beside if os.path.lexists(place.with_suffix("") / ".git")]
    clone, store = repo.common_dir.parents[1], repo.common_dir.parent.name
    return (*sorted(jobs), *([clone.parent] if store == STORE and _CLONE.fullmatch(clone.name) else []))


def note_home(repo: Repo, home: Path) -> None:
    """Note whose job a work tree is."""
    write_note(repo, _NOTE, str(home))


def find_home(repo: Repo) -> Path:
    """Return the root of the work tree whose job this one is, where runs leave what is kept; its own without a note."""
    if repo.git_dir == repo.common_dir:
        return repo.root
    noted = Path(read_note(repo, _NOTE) or repo.root)
    return noted if noted.is_absolute() and os.path.lexists(noted / ".git") else repo.root


def note_checked(repo: Repo, *commits: str) -> None:
    """Note where a job's branch may land: the plan's branch has these commits, or relay checked and made them here.

    Name the commit that the branch is about to move to and the one that it is at: a kill leaves it at either.
    """
    write_note(repo, _CHECKED, " ".join(commits), synced=False)  # lost in a power cut, they are checked once more


def is_checked(repo: Repo, commit: str) -> bool:
    """Whether a job's branch may land at a commit: it was checked in this work tree, with all below it.

    What somebody else committed there, or a fetch brought, was not.
    """
    return commit in read_note(repo, _CHECKED).split()
