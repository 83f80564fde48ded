"""Lock files that a killed git leaves behind, and the rule by which relay may remove one.

Git never removes a lock it did not make, so one SIGKILL can block a repository (65 of 100 kill points of a plain
`git commit` do). Under names that only relay uses a left lock is always stale while relay's own lock is held. Any
other lock is removed only when relay had declared that it is about to take that very lock and never came back, the
lock is from that moment, and no git process is at work here; for a lock that all
work trees of the repository share, in none of them. Otherwise relay leaves the lock and names it to the user.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from relay.files.replacement import is_temporary
from relay.files.tree import remove_file, sync_directory
from relay.files.walk import sync_fd
from relay.git.names import render_ref_part
from relay.git.repository import Repo

_INTENT = "intent"
WINDOW_S = 60.0
"""How much later than the declaration a lock may be to count as ours."""
QUIET_S = 10.0
"""Where processes cannot be listed, a lock must be this old."""
_CLOCK_SLACK_S = 2.0
"""Some file systems keep times in steps of two seconds."""


@contextlib.contextmanager
def declare_locks(repo: Repo, *locks: Path) -> Iterator[None]:
    """Note on the disk which foreign lock files the block takes; the note is gone when the block is left alive."""
    write_note(repo, _INTENT, json.dumps({"time": time.time(), "locks": [str(lock) for lock in locks]}))
    try:
        yield
    finally:
        _note(repo).unlink(missing_ok=True)


def write_note(repo: Repo, name: str, text: str) -> None:
    """Write a small file into relay's directory so that it is there, whole, when this returns."""
    note = repo.make_relay_dir() / name
    new = note.with_name(f"{name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        sync_fd(file.fileno())
    # Bytes, then name, then directory: after a power cut the note is whole or not there.
    new.replace(note)
    sync_directory(repo.relay_dir)


def find_ref_locks(repo: Repo, ref: str) -> tuple[Path, ...]:
    """Return the lock files that git takes to move or drop a ref."""
    common = (repo.common_dir / f"{ref}.lock", repo.common_dir / "packed-refs.lock")
    return (*common, repo.git_dir / "HEAD.lock", repo.common_dir / "reftable/tables.list.lock")


def _note(repo: Repo) -> Path:
    return repo.relay_dir / _INTENT


def clear_stale_locks(repo: Repo) -> tuple[str, ...]:
    """Remove what a killed relay left, half-written files included; the caller holds the work tree's lock.

    Returns:
        Words for each lock file that is in the way and not relay's to remove; empty when nothing is.
    """
    _clear_own(repo)
    _clear_temporaries(repo)
    declared = _read_note(repo)
    for lock in declared:
        if _is_stale(lock, declared[lock]) and not _is_git_at_work(repo, lock):
            lock.unlink(missing_ok=True)
    if not any(lock.exists() for lock in declared):
        _note(repo).unlink(missing_ok=True)
    return tuple(_explain(lock) for lock in _find_foreign(repo) if lock.exists())


def _clear_own(repo: Repo) -> None:
    branch = render_ref_part(repo.branch or "")
    refs = repo.common_dir / "refs/relay"
    places = [refs / "leg", refs / "plan", refs / "wip" / branch, refs / "rejected" / branch, refs / "rewound" / branch]
    found = [place.glob(f"{_escape(branch)}.lock") for place in places[:2]] + [p.glob("*.lock") for p in places[2:]]
    for lock in (*(file for files in found for file in files), *repo.relay_dir.glob("*.lock")):
        lock.unlink(missing_ok=True)
    for file in repo.relay_dir.glob("*.new"):
        file.unlink(missing_ok=True)


def _clear_temporaries(repo: Repo) -> None:
    """Remove what stood there for a moment: git has what was being written, and a proof of the sandbox is empty."""
    untracked = repo.git.run("ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    for path in map(os.fsdecode, untracked):
        if is_temporary(path.rpartition("/")[2]):
            remove_file(repo.root, path)


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _read_note(repo: Repo) -> dict[Path, float]:
    """Return the declared locks with the time of the declaration; a torn or foreign note declares nothing."""
    try:
        note = json.loads(_note(repo).read_text(encoding="utf-8"))
        return {Path(lock): float(note["time"]) for lock in note["locks"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _is_stale(lock: Path, declared: float) -> bool:
    try:
        made = lock.stat().st_mtime
    except OSError:
        return False
    return declared - _CLOCK_SLACK_S <= made <= declared + WINDOW_S


def _is_git_at_work(repo: Repo, lock: Path) -> bool:
    """Return whether a git runs that could hold the lock: a killed relay's last child may still be finishing."""
    processes = Path("/proc/self/cmdline")
    if not processes.exists():
        with contextlib.suppress(OSError):
            return time.time() - lock.stat().st_mtime < QUIET_S
        return False
    places = _find_places(repo, lock)
    return any(_is_git_at(places, process) for process in Path("/proc").iterdir() if process.name.isdecimal())


def _find_places(repo: Repo, lock: Path) -> tuple[Path, ...]:
    """Return the directories in which a git that takes the lock may run.

    The index's lock is taken in its own work tree only, every other one in any work tree of the repository.
    """
    here = (repo.root, repo.common_dir)
    if lock == repo.git_dir / "index.lock":
        return here
    lines = repo.git.run("worktree", "list", "--porcelain", "-z").split(b"\0")
    trees = (os.fsdecode(line.removeprefix(b"worktree ")) for line in lines if line.startswith(b"worktree "))
    return (*here, *(Path(os.path.realpath(tree)) for tree in trees))


def _is_git_at(places: tuple[Path, ...], process: Path) -> bool:
    """Return whether a process is a git whose directory, arguments or environment lead to one of the places."""
    try:
        program = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
        if not program.startswith("git"):
            return False
        words = (process / "cmdline").read_bytes().split(b"\0")
        words += [word for word in (process / "environ").read_bytes().split(b"\0") if word.startswith(b"GIT_")]
        cwd = (process / "cwd").readlink()
    except PermissionError:
        return True  # another user's: it may be anywhere
    except OSError:
        return False  # it has ended
    return any(_leads_to(places, cwd, word) for word in (b".", *words))


def _leads_to(places: tuple[Path, ...], cwd: Path, word: bytes) -> bool:
    """Return whether a word, or what follows its ``=``, is or holds a path at or below one of the places."""
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
