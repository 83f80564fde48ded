"""Remove lock files that a killed git left behind, by a strict rule, and keep ``git gc`` out.

Git never removes another process's lock, so one SIGKILL can block a repository (65 of 100 kill points of a plain
`git commit` do). A lock under a name that only relay uses is stale whenever relay's own lock is held. relay removes any
other lock only if it had declared that lock, in this work tree or in one where no relay is at work now, and never came
back, the lock is from that moment, and no git process is at work here, or, if all work trees share the lock, in any of
them. Otherwise relay leaves the lock and names it to the user.

A declaration may come from an archive with the git directory: relay believes it only of files that git takes as locks,
in this git directory and through no link.

`hold_collections` keeps ``git gc`` out while relay stores objects that no ref names yet. `git gc --prune=now` lists the
reachable objects, then deletes every other loose object; it also deletes one that was stored meanwhile, whatever ref
holds it by then and however new it is. So relay takes the file by which git keeps two collections apart, ``gc.pid``, in
git's own way, and waits for a collection that is under way. The file holds a process id and a host name, and counts
while that process lives: what a killed relay leaves keeps nobody out. relay holds it from the first object to the ref,
never while a session or a gate is at work. ``git prune`` itself looks at no file; `relay.store.checkpoints` finds out
which objects it deleted.
"""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from relay.base.tree import is_temporary, make_temporary_name, read_start, remove_file
from relay.base.walk import list_names
from relay.git.command import GitError
from relay.git.names import render_ref_part
from relay.git.notes import drop_note, is_locked, read_note, write_note
from relay.git.object_database import MARK
from relay.git.repository import Repo, find_link, list_linked

P = ParamSpec("P")
R = TypeVar("R")

_COUNTS_S = 12 * 3600
"""Source: git's builtin/gc.c, lock_repo_for_gc()."""
_LONGEST_S = 600.0
"""How long a collection is waited for; then relay goes on: a checkpoint that may be lost is better than none."""
_GAP_S = 0.005
"""Between two looks: who collects in a loop leaves no longer gaps."""
_MOST_BYTES = 512
_OWN = "relay"
"""Marks the file as a relay's: whoever holds the lock between relays knows that its process is not at work."""
_held: dict[tuple[int, Path], list[int]] = {}
"""By process and repository: the locked git directory, once for each open block."""
_mutex = threading.Lock()


@contextlib.contextmanager
def hold_collections(repo: Repo) -> Iterator[None]:
    """Keep ``git gc`` out until the end of the block, which stores objects and moves a ref to them.

    Waits for a collection under way, and for another relay that stores. Blocks of a process may overlap.
    """
    key = os.getpid(), repo.common_dir
    with _mutex:
        blocks = _held.setdefault(key, [])
        blocks.append(blocks[0] if blocks else _take(repo))
    try:
        yield
    finally:
        with _mutex:
            place = blocks.pop()
            if not blocks:
                with contextlib.suppress(OSError):
                    if _read(_find_file(repo)) == _render():
                        _find_file(repo).unlink()
                os.close(place)


def storing(function: Callable[Concatenate[Repo, P], R]) -> Callable[Concatenate[Repo, P], R]:
    """Make a function of a repository keep ``git gc`` out until it returns."""

    @functools.wraps(function)
    def hold(repo: Repo, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with hold_collections(repo):
            return function(repo, *args, **kwargs)

    return hold


def _take(repo: Repo) -> int:
    """Take the file, and a lock between relays that ends with the process; return the lock's descriptor."""
    try:
        place = os.open(repo.common_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise GitError(f"{repo.common_dir} cannot be opened: {error.strerror}") from error
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(place, fcntl.LOCK_EX)
    until = time.monotonic() + _LONGEST_S
    while (_is_at_work(_find_file(repo)) or not _claim(repo)) and time.monotonic() < until:
        time.sleep(_GAP_S)
    return place


def _claim(repo: Repo) -> bool:
    """Take the file under git's lock for it; return whether no collection is under way and none can begin."""
    file, lock = _find_file(repo), _find_claim(repo)
    with contextlib.suppress(OSError):  # a full or broken disk, a file system without hard links: relay goes on
        if not _make_claim(repo, lock):
            return not _is_at_work(file) and _is_older(lock, QUIET_S)  # git died with it, and no other git can take it
        if _is_at_work(file):
            lock.unlink()
            return False
        if _is_counted(file):  # by another machine: git does not begin here while the file is there
            lock.unlink()
        else:
            lock.replace(file)
    return True


def _make_claim(repo: Repo, lock: Path) -> bool:
    """Make the lock, whole from its first moment, so that it says who left it; return False where there is one."""
    scratch = repo.make_relay_dir() / make_temporary_name()
    try:
        scratch.write_bytes(_render())
        os.link(scratch, lock)
    except FileExistsError:
        if _read(lock) and not _is_counted(lock):
            lock.unlink(missing_ok=True)
        return False
    finally:
        scratch.unlink(missing_ok=True)
    return True


def _find_file(repo: Repo) -> Path:
    return repo.common_dir / "gc.pid"


def _find_claim(repo: Repo) -> Path:
    return repo.common_dir / "gc.pid.lock"


def _read(file: Path) -> bytes:
    with contextlib.suppress(OSError):
        return read_start(file, _MOST_BYTES) or b""
    return b""


def _render() -> bytes:
    return f"{os.getpid()} {socket.gethostname()} {_OWN}".encode()  # git reads the first two words


def _is_at_work(file: Path) -> bool:
    """Return whether a collection of this machine is under way; of relays only the caller holds the lock."""
    words = _read(file).decode(errors="replace").split()
    return words[1:] == [socket.gethostname()] and _is_counted(file)


def _is_counted(file: Path) -> bool:
    """Return whether the file keeps others out, by git's own rule; a relay's does not: the caller holds the lock."""
    number, host, mark, *_ = *_read(file).decode(errors="replace").split(), "", "", ""
    if not number.isdecimal() or not int(number) or _is_older(file, _COUNTS_S):
        return False
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return mark != _OWN  # of a relay that is gone, whose parent has not asked for its end yet


_INTENT = "intent"
_SCRATCH = "status-"
"""Prefix of directories that exist during one call of git."""
WINDOW_S = 60.0
"""How much later than its declaration a lock may be to count as relay's."""
QUIET_S = 10.0
"""Where processes cannot be listed, a lock must be this old."""
_PATIENCE_S = 5.0
"""How long to wait for a lock of a user's git that is at work, such as ``git gc``."""
_PAUSE_S = 0.05
_CLOCK_SLACK_S = 2.0
"""Some file systems keep times in steps of two seconds."""


@contextlib.contextmanager
def declare_locks(repo: Repo, *locks: Path) -> Iterator[None]:
    """Note on the disk which shared lock files the block takes; the end of the block drops the note.

    A lock that is left then stays noted: a git on a broken disk could not remove it, and the next run may.
    """
    left = {lock: moment for lock, moment in _read_declared(repo).items() if lock.exists()}
    times = {str(lock): moment for lock, moment in (dict.fromkeys(locks, time.time()) | left).items()}
    write_note(repo, _INTENT, json.dumps({"locks": times}))
    try:
        yield
    finally:
        if not any(lock.exists() for lock in _read_declared(repo)):  # those of blocks inside, too
            drop_note(repo, _INTENT)


def find_ref_locks(repo: Repo, ref: str) -> tuple[Path, ...]:
    """Return the lock files that git takes to move or drop a ref."""
    common = (repo.common_dir / f"{ref}.lock", repo.common_dir / "packed-refs.lock")
    return (*common, repo.git_dir / "HEAD.lock", repo.common_dir / "reftable/tables.list.lock")


def clear_stale_locks(repo: Repo) -> tuple[str, ...]:
    """Remove a killed relay's locks and half-written files; the caller holds the work tree's lock.

    Returns:
        A sentence for each lock file in the way that relay may not remove.
    """
    clear_temporaries(repo, repo.git.list_files("--others", "--exclude-standard"))
    return clear_git_directory(repo)


def clear_git_directory(repo: Repo) -> tuple[str, ...]:
    """Do the same, without the half-written files in the work tree."""
    _clear_own(repo)
    declared, foreign = _read_declared(repo), _find_foreign(repo)
    _clear_declared(repo, declared)
    if not any(lock.exists() for lock in declared):
        drop_note(repo, _INTENT)
    if any(lock.exists() for lock in foreign):  # a killed relay's phase took it, in a tree that a run comes to later
        for other in (replace(repo, git_dir=own) for own in list_linked(repo.common_dir) if own != repo.git_dir):
            if not is_locked(other):
                _clear_declared(other, _read_declared(other))
    until = time.monotonic() + _PATIENCE_S
    while held := [lock for lock in foreign if lock.exists()]:
        if time.monotonic() > until or not any(_is_git_at_work(repo, lock) for lock in held):
            break
        time.sleep(_PAUSE_S)
    return tuple(_explain(lock) for lock in held if lock.exists())  # a git that is gone may have taken it along


def _clear_declared(repo: Repo, declared: Mapping[Path, float]) -> None:
    for lock, moment in declared.items():
        if _is_stale(lock, moment) and not _is_git_at_work(repo, lock):
            lock.unlink(missing_ok=True)


def clear_transfer_locks(repo: Repo) -> None:
    """Remove the locks of a killed fetch or push, on relay's own refs and on remote-tracking refs.

    Locks on refs that sessions of other work trees also move must be older than `QUIET_S`.
    """
    refs = repo.common_dir / "refs"
    own = [lock for name in ("relay/tip", "relay/remote", "remotes") for lock in (refs / name).rglob("*.lock")]
    others = [lock for name in ("relay", "heads/relay-jobs") for lock in (refs / name).rglob("*.lock")]
    old = [lock for lock in others if _is_older(lock, QUIET_S)]
    for lock in dict.fromkeys(lock for lock in (*own, *old) if _is_in_place(lock) and not lock.is_dir()):
        if not _is_git_at_work(repo, lock):
            lock.unlink(missing_ok=True)


def _is_older(lock: Path, seconds: float) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - lock.lstat().st_mtime > seconds
    return False


def _clear_own(repo: Repo) -> None:
    if os.path.lexists(_find_claim(repo)):
        with hold_collections(repo):  # which removes what a killed relay left
            pass
    branch = render_ref_part(repo.branch or "")
    refs = repo.common_dir / "refs/relay"
    counted = ("wip", "aside", "rewound", "spent")
    places = (*(refs / kind / branch for kind in counted), repo.make_relay_dir())
    locks = [place / name for place in places for name in list_names(place) if name.endswith(".lock")]
    locks += [lock for kind in ("leg", "written") if os.path.lexists(lock := refs / kind / f"{branch}.lock")]
    for lock in locks:
        if _is_in_place(lock) and not lock.is_dir():
            lock.unlink(missing_ok=True)
    for file in repo.relay_dir.iterdir():
        if file.name.startswith(_SCRATCH) and file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        elif (file.suffix == ".new" or is_temporary(file.name)) and not file.is_dir():
            file.unlink(missing_ok=True)


def clear_temporaries(repo: Repo, untracked: Iterable[str]) -> None:
    """Remove a killed relay's temporary files: git has their content, and the sandbox's probes are empty.

    Args:
        repo: Has the work tree; the caller holds its lock.
        untracked: The untracked files of the work tree.
    """
    for path in untracked:
        if is_temporary(path.rpartition("/")[2]):
            remove_file(repo.root, path)


def _read_declared(repo: Repo) -> dict[Path, float]:
    """Return the declared locks with the times of their declaration; a torn or foreign note declares nothing."""
    try:
        note = json.loads(read_note(repo, _INTENT))
        locks = {Path(lock): float(moment) for lock, moment in note["locks"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return {lock: moment for lock, moment in locks.items() if _may_be_declared(repo, lock)}


def _may_be_declared(repo: Repo, lock: Path) -> bool:
    """Return whether git takes a lock of this name to write the index, HEAD or a ref of this repository."""
    refs = repo.common_dir / "refs"
    known = lock in {*find_ref_locks(repo, "HEAD"), repo.git_dir / "index.lock"}
    is_ref = lock.suffix == ".lock" and lock.is_relative_to(refs) and ".." not in lock.parts
    return (known or is_ref) and _is_in_place(lock)


def _is_in_place(lock: Path) -> bool:
    """Return whether no directory above a lock is a link, which would lead to another program's file."""
    return os.path.realpath(lock.parent) == str(lock.parent)


def _is_stale(lock: Path, declared: float) -> bool:
    try:
        found = lock.lstat()
    except OSError:
        return False
    made = found.st_mtime
    return stat.S_ISREG(found.st_mode) and declared - _CLOCK_SLACK_S <= made <= declared + WINDOW_S


def _is_git_at_work(repo: Repo, lock: Path) -> bool:
    """Return whether a git runs that could hold the lock, such as a killed relay's last child."""
    processes = Path("/proc/self/cmdline")
    if not processes.exists():
        with contextlib.suppress(OSError):
            return time.time() - lock.stat().st_mtime < QUIET_S
        return False
    return is_git_at_work(*_find_places(repo, lock))


def is_git_at_work(*places: Path) -> bool:
    """Return whether a git runs for one of the places; False where processes cannot be listed."""
    processes = Path("/proc").glob("[0-9]*")
    return any(_is_git_at(places, process) for process in processes)


def _find_places(repo: Repo, lock: Path) -> tuple[Path, ...]:
    """Return the directories in which a git that takes the lock may run.

    The index's lock is taken in its own work tree only, every other one in any work tree of the repository.
    """
    here = (repo.root, repo.common_dir)
    if lock == repo.git_dir / "index.lock":
        return here
    links = (find_link(own) for own in list_linked(repo.common_dir))
    return (*here, repo.common_dir.parent, *(link.parent for link in links if link))


def _is_git_at(places: tuple[Path, ...], process: Path) -> bool:
    """Return whether a process is a git whose directory, arguments or environment lead to one of the places."""
    try:
        program = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
        if not program.startswith("git"):
            return False
        words = (process / "cmdline").read_bytes().split(b"\0")
        variables = (process / "environ").read_bytes().split(b"\0")
        if f"{MARK}=1".encode() in variables:
            return False
        words += [word for word in variables if word.startswith(b"GIT_")]
        cwd = (process / "cwd").readlink()
    except PermissionError:
        return True  # another user's: it may be anywhere
    except OSError:
        return False  # it has ended
    return any(_leads_to(places, cwd, word) for word in (b".", *words))


def _leads_to(places: tuple[Path, ...], cwd: Path, word: bytes) -> bool:
    """Return whether a word, or its part after ``=``, is or holds a path at or below one of the places."""
    parts = (os.fsdecode(part) for part in (word, word.partition(b"=")[2]) if part)
    paths = [Path(os.path.realpath(cwd / part)) for part in parts]
    return any(os.fsencode(place) in word or any(p.is_relative_to(place) for p in paths) for place in places)


def _find_foreign(repo: Repo) -> tuple[Path, ...]:
    branch = repo.branch
    ref = (repo.common_dir / f"refs/heads/{branch}.lock",) if branch else ()
    return (repo.git_dir / "index.lock", repo.git_dir / "HEAD.lock", *ref, repo.common_dir / "packed-refs.lock")


def _explain(lock: Path) -> str:
    age = ""
    with contextlib.suppress(OSError):
        age = f", {max(0, round(time.time() - lock.stat().st_mtime))} s old"
    return f"{lock} exists{age}: another git is at work here, or one was killed; if none runs, remove the file"
