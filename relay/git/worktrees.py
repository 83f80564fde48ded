"""List, make and remove linked work trees; repair a work tree whose git was killed while it made or removed it.

A killed ``git worktree add`` leaves a lock behind; a killed ``worktree remove`` may leave any part of the tree.
`finish_half` repairs such a work tree, so that it can be used or removed. It removes nothing that might be a user's: it
writes missing files again and completes truncated ones.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.tree import find_stat, read_file, remove_file
from relay.base.values import dataclass
from relay.git import objects
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.lock_journal import declare_locks, is_git_at_work
from relay.git.notes import drop_note, is_locked, read_note, write_note
from relay.git.objects import check_out
from relay.git.refs import find_ref
from relay.git.repository import Repo, find_link, list_linked, open_worktree
from relay.git.trees import find_mode

KEYS = "git-crypt"
"""Git-crypt's directory in a git directory: it holds its keys."""
_NOTE = "worktree"
_REMOVALS = 3
_MEANING, _ESCAPED = re.compile(r"[\\*?\[ #!]"), r"\\\g<0>"
"""Characters with a meaning in an ignore file, and what stands for one."""
_LINE = "\n"
"""No ignore file can have it in a name: any character there will do."""
_MADE = b"initializing"
"""Git's text in the lock of a new work tree. Source: builtin/worktree.c, 2.39 to 2.52."""


def finish_half(repo: Repo, folder: Path) -> Path | None:
    """Repair the work tree in `folder` that git was making or removing; an empty one goes.

    Args:
        repo: Has the note; the caller holds the work tree's lock.
        folder: A note that names another place is ignored: it may come from an archive.

    Returns:
        The work tree; None where no note names one, or a git is still at work there.
    """
    place = Path(read_note(repo, _NOTE))
    is_ours = _is_in(folder, place)
    if is_ours and is_git_at_work(place):
        return None
    if is_ours:
        for own in _find_own(repo, place):
            _finish(repo, own, place)
        with contextlib.suppress(OSError):  # something is in it: it is whole, or somebody's
            place.rmdir()
    drop_note(repo, _NOTE)
    return place if is_ours else None


def forget_gone(repo: Repo, folder: Path) -> tuple[Path, ...]:
    """Forget the work trees in `folder` that somebody removed without git; repair those that are removed in part.

    These get their ``.git`` file and missing tracked files again.

    Until then git takes their branches for checked out. A locked work tree stays, since it may be on a disk that comes
    back, and so does one whose relay is still at work.

    Args:
        repo: The caller holds the work tree's lock.

    Returns:
        The repaired ones. What else was lost of them, nobody knows.
    """
    repaired: list[Path] = []
    for own in list_linked(repo.common_dir):
        place = _read_place(own)
        if place is None or not _is_in(folder, place) or os.path.lexists(place / ".git"):
            continue
        if (own / "locked").exists() or is_locked(replace(repo, git_dir=own)):
            continue
        with contextlib.suppress(OSError):  # files are in it, or it is gone
            place.rmdir()
        _discard(own, place)
        if own.exists() and place.exists():
            _link(own, place)
            repaired.append(place)
            with contextlib.suppress(GitError):
                _fill(open_worktree(repo, place))
    return tuple(repaired)


def _is_in(folder: Path, place: Path) -> bool:
    return (
        place.parent == folder
        and place.name.removesuffix(".gate").isdecimal()
        and os.path.realpath(place) == str(place)
    )


def _find_own(repo: Repo, place: Path) -> tuple[Path, ...]:
    """Return the git directories of the work tree, and those of its name that name no work tree."""
    return tuple(
        own
        for own in list_linked(repo.common_dir)
        if (found := _read_place(own)) == place or (found is None and own.name.startswith(place.name))
    )


def _read_place(own: Path) -> Path | None:
    """Return the work tree of which this is the git directory; None when that is not noted."""
    text = os.fsdecode(read_file(own, "gitdir") or b"").removesuffix("\n")
    return Path(os.path.normpath(own / text)).parent if text else None


def _finish(repo: Repo, own: Path, place: Path) -> None:
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
        _fill(open_worktree(repo, place))


def _link(own: Path, place: Path) -> None:
    (place / ".git").write_bytes(f"gitdir: {own}\n".encode())


def _discard(own: Path, place: Path) -> None:
    """Forget a work tree without files."""
    if not place.exists() or {entry.name for entry in place.iterdir()} <= {".git"}:
        (place / ".git").unlink(missing_ok=True)
        for _ in range(_REMOVALS):  # a process that still writes there can leave some of it
            shutil.rmtree(own, ignore_errors=True)
        if own.exists():
            raise RepoError(f"{own} is left of a work tree that is gone, and cannot be removed", hint="run this again")


def _link_keys(repo: Repo) -> None:
    """Show git-crypt its keys: it looks for them in a linked work tree's own git directory (git-crypt 0.7)."""
    if (repo.common_dir / KEYS).is_dir() and not os.path.lexists(repo.git_dir / KEYS):
        (repo.git_dir / KEYS).symlink_to(repo.common_dir / KEYS)


def _fill(repo: Repo) -> None:
    """Write missing and truncated files as the commit has them; all others stay."""
    _link_keys(repo)
    git = guard(repo).git
    if not (repo.git_dir / "index").exists():
        git.run("read-tree", "HEAD")
    git.probe("checkout-index", "-a", "--quiet", "--index")  # exit status 1: some are there, otherwise
    git.probe("update-index", "-q", "--refresh")
    changed = git.run("diff-files", "--name-only", "-z").split(b"\0")[:-1]
    for path in map(os.fsdecode, changed):
        found = read_file(repo.root, path)
        whole = check_out(git, path, f":{path}")
        if found is not None and whole.startswith(found):
            remove_file(repo.root, path)
            git.run("checkout-index", "--quiet", "--index", "--", path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """One work tree of a repository, as git lists it."""

    root: Path
    branch: str | None
    """The branch that its HEAD names; None when it is detached, or git says that the repository is bare."""
    unusable: str = ""
    """Why relay must not touch it: it is locked, or its directory is gone; empty otherwise."""


def list_worktrees(repo: Repo) -> tuple[Worktree, ...]:
    """Return all work trees of a repository, the main one first, then by place.

    Raises:
        GitError: Git cannot say.
    """
    blocks = repo.git.run("worktree", "list", "--porcelain", "-z").split(b"\0\0")
    return tuple(_parse([os.fsdecode(line) for line in block.split(b"\0")]) for block in blocks if block.strip(b"\0"))


def list_roots(repo: Repo) -> tuple[Path, ...]:
    """Return the existing directories of a repository's work trees, this one included.

    Git is not asked: it says nothing at all while one of them is half made.
    """
    main = repo.common_dir.parent if repo.common_dir.name == ".git" else repo.common_dir
    links = (find_link(own) for own in list_linked(repo.common_dir))
    roots = dict.fromkeys(Path(os.path.realpath(root)) for root in (main, *(link.parent for link in links if link)))
    return tuple(root for root in roots if os.path.lexists(root / ".git"))


def forget_torn(repo: Repo) -> None:
    """Forget work trees whose git was killed before it had written where their repository is: no git works beside one.

    Args:
        repo: The caller holds the work tree's lock.
    """
    for own in list_linked(repo.common_dir):
        place = _read_place(own)
        with contextlib.suppress(OSError):
            is_torn = (own / "commondir").stat().st_size == 0
            if is_torn and place is not None and not is_git_at_work(place):
                shutil.rmtree(own)


def _parse(lines: list[str]) -> Worktree:
    fields = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    branch = fields.get("branch", "")
    unusable = next((f"{word} {fields[word]}".strip() for word in ("locked", "prunable") if word in fields), "")
    return Worktree(
        root=Path(fields.get("worktree", "")),
        branch=branch.removeprefix("refs/heads/") if branch.startswith("refs/heads/") else None,
        unusable=unusable,
    )


def add_worktree(repo: Repo, place: Path, branch: str) -> Repo:
    """Make a work tree that is on an existing branch, or on none and without files where that is empty, and return it.

    No hook and no filter of the repository's own is run.

    Raises:
        GitError: There is something at that place, the branch is in another work tree, or git cannot write.
    """
    write_note(repo, _NOTE, str(place))  # on the disk first: git may be killed alone
    where = (*(() if branch else ("--detach",)), str(place), branch or "HEAD")
    guard(repo).git.run("worktree", "add", "--quiet", "--no-checkout", *where)
    new = open_worktree(repo, place)
    _link_keys(new)
    if branch:
        guard(new).git.run("read-tree", "-m", "-u", "HEAD")
    drop_note(repo, _NOTE)
    return new


def remove_worktree(repo: Repo, place: Path) -> bool:
    """Remove a work tree without uncommitted files; ignored files go with it.

    Returns:
        False when git refuses or was killed: `relay.git.worktrees.finish_half` repairs the work tree then.
    """
    write_note(repo, _NOTE, str(place))  # on the disk first: git may be killed alone
    is_gone = guard(repo).git.probe("worktree", "remove", str(place)).code == 0
    if not (is_gone or _find_own(repo, place)):  # git had begun with it, and forgot it, and a file could not be removed
        with contextlib.suppress(RepoError):
            drop_worktree(repo, place)
            is_gone = True
    if is_gone:
        drop_note(repo, _NOTE)
    return is_gone


def drop_worktree(repo: Repo, place: Path) -> None:
    """Remove a work tree with all that is in it, whatever is left of it: the caller knows that nothing is a user's.

    Raises:
        RepoError: Something of it cannot be removed.
    """

    def open_up(_: object, path: str, __: object) -> None:
        place = Path(path)
        is_folder = place.is_dir() and not place.is_symlink()
        with contextlib.suppress(OSError):
            place.parent.chmod(0o700)
            if is_folder:
                place.chmod(0o700)
            shutil.rmtree(place) if is_folder else place.unlink()

    owns = _find_own(repo, place)
    link = read_file(place, ".git") or b"" if place.is_dir() and not place.is_symlink() else b""
    half = Path(read_note(repo, _NOTE)) == place or link.startswith(
        os.fsencode(f"gitdir: {repo.common_dir}/worktrees/")
    )
    is_empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
    if os.path.lexists(place) and not (owns or half or is_empty):
        raise RepoError(f"{place} is no work tree of relay's", hint="move it away: relay needs that name")
    for folder in filter(os.path.lexists, (place, *owns)):  # the git directory last: it says whose the place is
        shutil.rmtree(folder, onerror=open_up)
        if os.path.lexists(folder):
            raise RepoError(f"{folder} cannot be removed", hint="remove it, and run this again")


def follow_sparse(main: Repo, repo: Repo) -> None:
    """Have a work tree show what the user's does of a sparse checkout; what was changed in it stays.

    Args:
        main: The user's.
        repo: One of relay's.

    Raises:
        GitError: Git cannot write.
    """
    if (wanted := _read_sparse(main)) == _read_sparse(repo):
        return
    git = guard(repo).git
    if wanted is None:
        git.run("sparse-checkout", "disable")
        return
    listed = main.git.run("sparse-checkout", "list")
    git.run("sparse-checkout", "set", "--cone" if wanted[0] else "--no-cone", "--stdin", stdin=listed)


def _read_sparse(repo: Repo) -> tuple[bool, bytes] | None:
    """Return the patterns of a sparse checkout, and whether they name directories alone; None where all is shown."""
    patterns = read_file(repo.git_dir, "info/sparse-checkout")
    if patterns is None or not (guarded := guard(repo)).flag("core.sparsecheckout", default=False):
        return None
    return guarded.flag("core.sparsecheckoutcone", default=True), patterns


def put_tree(repo: Repo, tree: str, *, head: str | None, kept: Iterable[str]) -> None:
    """Make a work tree's files those of a tree, whatever was done to them, and HEAD a commit; all else is removed.

    Args:
        repo: A work tree with a detached HEAD, of which nothing is a user's.
        kept: Untracked files and directories that stay.

    Raises:
        GitError: The disk is full, for example.
        OSError: Something there cannot be removed.
    """
    git, patterns = guard(repo).git, repo.make_relay_dir() / "kept"
    (repo.git_dir / "index.lock").unlink(missing_ok=True)  # git was killed here
    lines = (f"/{_MEANING.sub(_ESCAPED, path).replace(_LINE, '?')}\n" for path in kept)
    patterns.write_bytes(b"".join(map(os.fsencode, lines)))
    for path in git.list_files("--others", f"--exclude-from={patterns}"):
        if path.endswith("/"):  # a repository that a command made
            shutil.rmtree(repo.root / path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                remove_file(repo.root, path)
    for path in git.list_files("--others", "--directory", f"--exclude-from={patterns}"):  # empty ones
        for folder, _, _ in os.walk(repo.root / path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    git.run("read-tree", "--reset", "-u", "--no-recurse-submodules", tree)
    if head and (read_file(repo.git_dir, "HEAD") or b"").strip() != head.encode():
        git.run("update-ref", "--no-deref", "HEAD", head)


def list_changed(repo: Repo, paths: Collection[str]) -> tuple[str, ...]:
    """Return those of some paths whose files are not as in the work tree's index; those that are gone are missing."""
    git = guard(repo).git
    found = map(
        os.fsdecode,
        git.run("diff-files", "--name-only", "--diff-filter=MT", "--ignore-submodules=all", "-z").split(b"\0")[:-1],
    )
    maybe = sorted(frozenset(paths).intersection(found))
    entries = objects.read_index(git, maybe) if maybe else {}
    blobs = objects.hash_files(git, maybe) if maybe else ()
    modes = (find_mode(find_stat(repo.root, path)) for path in maybe)
    return tuple(path for path, *now in zip(maybe, modes, blobs, strict=True) if entries.get(path) != tuple(now))


def list_ignored(repo: Repo, *paths: str) -> tuple[str, ...]:
    """Return the ignored files of a work tree, at or below `paths` if given."""
    return tuple(guard(repo).git.list_files("--others", "--ignored", "--exclude-standard", "--", *paths))


def list_ignored_entries(repo: Repo, *paths: str) -> tuple[str, ...]:
    """Return the ignored files of a work tree; of a directory of which all is ignored its name alone, with a ``/``."""
    return tuple(guard(repo).git.list_files("--others", "--ignored", "--exclude-standard", "--directory", "--", *paths))


def put_on_branch(repo: Repo, branch: str) -> None:
    """Make HEAD name a branch that is at HEAD's commit; no file is touched.

    Raises:
        GitError: The branch is at another commit, or git cannot write.
    """
    if find_ref(repo, f"refs/heads/{branch}") != repo.head():
        raise GitError(f"{branch} is not where HEAD is")
    with declare_locks(repo, repo.git_dir / "HEAD.lock"):
        repo.git.run("symbolic-ref", "-m", "relay: the work tree's next phase", "HEAD", f"refs/heads/{branch}")
