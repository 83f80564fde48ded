"""Work trees that git was making or taking away when it was killed: made whole, so that they can be used or taken away.

Git locks one that it makes and leaves it so, and of one that it takes away any part may be there. Nothing is removed
that might be anybody's: missing files are written again, and a file that is cut short is written to its end.
"""

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from relay.base.tree import read_file, remove_file
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.holder import is_locked
from relay.git.lock_journal import is_git_at_work
from relay.git.notes import drop_note, read_note, write_note
from relay.git.repository import Repo, open_repo

_NOTE = "worktree"
_MADE = b"initializing"
"""What git writes into the lock of a work tree that it makes. Source: builtin/worktree.c, 2.39 to 2.52."""


def note_half(repo: Repo, place: Path) -> None:
    """Note on the disk which work tree git is going to make or take away; it may be killed alone."""
    write_note(repo, _NOTE, str(place))


def drop_half(repo: Repo) -> None:
    """Drop the note: git has said that all is done."""
    drop_note(repo, _NOTE)


def finish_half(repo: Repo, folder: Path) -> Path | None:
    """Make whole the work tree in `folder` that was being made or taken away; one without anything in it goes.

    Args:
        repo: Whose note it is; the caller holds the work tree's lock.
        folder: What the note says of other places is not believed: it may have come out of an archive.

    Returns:
        The work tree; None where no note named one, or a git is still at work there.
    """
    place = Path(read_note(repo, _NOTE))
    is_ours = _is_in(folder, place)
    if is_ours and is_git_at_work(place):
        return None
    if is_ours:
        for own in _find_own(repo, place):
            _finish(own, place)
        with contextlib.suppress(OSError):  # something is in it: it is whole, or somebody's
            place.rmdir()
    drop_note(repo, _NOTE)
    return place if is_ours else None


def forget_gone(repo: Repo, folder: Path) -> None:
    """Forget the work trees in `folder` that somebody removed without git; one that lost its ``.git`` alone gets it.

    Until then git takes their branches for checked out. One that is locked stays, since it may be on a disk that comes
    back, and one whose relay is still at work.

    Args:
        repo: The caller holds the work tree's lock.
    """
    for own in _list_own(repo):
        place = _read_place(own)
        if place is None or not _is_in(folder, place) or os.path.lexists(place / ".git"):
            continue
        if (own / "locked").exists() or is_locked(replace(repo, git_dir=own)):
            continue
        with contextlib.suppress(OSError):  # files are in it, or it is gone
            place.rmdir()
        _discard(own, place)
        if own.exists():
            _link(own, place)


def _is_in(folder: Path, place: Path) -> bool:
    return place.parent == folder and place.name.isdecimal() and os.path.realpath(place) == str(place)


def _find_own(repo: Repo, place: Path) -> tuple[Path, ...]:
    """Return what git keeps of the work tree, and what it has under that name without one."""
    return tuple(own for own in _list_own(repo) if _read_place(own) in {place, *_if_named(own, place)})


def _list_own(repo: Repo) -> tuple[Path, ...]:
    """Return what git keeps of each linked work tree."""
    with contextlib.suppress(OSError), os.scandir(repo.common_dir / "worktrees") as entries:
        return tuple(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return ()


def _if_named(own: Path, place: Path) -> tuple[None, ...]:
    return (None,) if own.name.startswith(place.name) else ()


def _read_place(own: Path) -> Path | None:
    """Return the work tree of which this is the git directory; None when that is not noted."""
    text = os.fsdecode(read_file(own, "gitdir") or b"").removesuffix("\n")
    return Path(os.path.normpath(own / text)).parent if text else None


def _finish(own: Path, place: Path) -> None:
    is_named = _read_place(own) is not None and (read_file(own, "HEAD") or b"0")[:1] != b"0"
    if not (is_named and (own / "commondir").exists() and place.is_dir()):
        _discard(own, place)
        return
    if (read_file(own, "locked") or b"").strip() == _MADE:
        (own / "locked").unlink()
    for name in ("index.lock", "HEAD.lock"):
        (own / name).unlink(missing_ok=True)
    if not os.path.lexists(place / ".git") or read_file(place, ".git") == b"":
        _link(own, place)
    with contextlib.suppress(GitError):  # on a full disk, say: what is there stays, and keeps it
        _fill(open_repo(place))


def _link(own: Path, place: Path) -> None:
    (place / ".git").write_bytes(f"gitdir: {own}\n".encode())


def _discard(own: Path, place: Path) -> None:
    """Forget a work tree of which there are no files yet, or no more."""
    if not place.exists() or {entry.name for entry in place.iterdir()} <= {".git"}:
        (place / ".git").unlink(missing_ok=True)
        shutil.rmtree(own)


def _fill(repo: Repo) -> None:
    """Write the files that are missing, or cut short, as the commit has them; all others stay."""
    git = guard(repo).git
    if not (repo.git_dir / "index").exists():
        git.run("read-tree", "HEAD")
    git.probe("checkout-index", "-a", "--quiet", "--index")  # exit status 1: some are there, otherwise
    git.probe("update-index", "-q", "--refresh")
    changed = git.run("diff-files", "--name-only", "-z").split(b"\0")[:-1]
    for path in map(os.fsdecode, changed):
        found = read_file(repo.root, path)
        whole = git.run("cat-file", "--filters", f"--path={path}", f":{path}")
        if found is not None and whole.startswith(found):
            remove_file(repo.root, path)
            git.run("checkout-index", "--quiet", "--index", "--", path)
