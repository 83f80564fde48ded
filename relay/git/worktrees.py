"""Linked work trees: which there are, making one, taking away one that holds nothing."""

import os
from pathlib import Path

from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.half_trees import drop_half, note_half
from relay.git.lock_journal import declare_locks
from relay.git.ref_files import find_head_ref
from relay.git.repository import Repo, find_link


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """One work tree of a repository, as git lists it."""

    root: Path
    branch: str | None
    """The branch that its HEAD names; None when it is detached, or git says that the repository is bare."""
    unusable: str = ""
    """Why it is not to be touched: somebody locked it, or its directory is gone; empty for all others."""


def list_worktrees(repo: Repo) -> tuple[Worktree, ...]:
    """Return all work trees of a repository, the main one first, then by place.

    Raises:
        GitError: Git cannot say.
    """
    if (found := _read_all(repo.common_dir)) is not None:
        return found
    blocks = repo.git.run("worktree", "list", "--porcelain", "-z").split(b"\0\0")
    return tuple(_parse([os.fsdecode(line) for line in block.split(b"\0")]) for block in blocks if block.strip(b"\0"))


def list_roots(repo: Repo) -> tuple[Path, ...]:
    """Return the directories of a repository's work trees that are there, this one too, without asking git.

    Raises:
        GitError: The list cannot be read.
    """
    try:
        links = [find_link(place) for place in _list_own(repo.common_dir)]
    except OSError as error:
        raise GitError(f"{error.filename}: {error.strerror}") from None
    main = repo.common_dir if repo.common_dir.name == ".git" else None
    return tuple(link.parent for link in (main, *links) if link is not None and os.path.lexists(link))


def _list_own(common_dir: Path) -> list[Path]:
    """Return the git directories of the linked work trees."""
    place = common_dir / "worktrees"
    return [place / name for name in os.listdir(place)] if place.exists() else []  # noqa: PTH208  # names


def _read_all(common_dir: Path) -> tuple[Worktree, ...] | None:
    """Return the same where each is on a branch, and is there to be touched; None: git has to say."""
    try:
        own = _list_own(common_dir)
    except OSError:
        return None
    main = _read(common_dir, common_dir)
    linked = [_read(place, find_link(place)) for place in own]
    found = sorted((tree for tree in linked if tree is not None), key=lambda tree: tree.root)
    return (main, *found) if main is not None and len(found) == len(own) else None


def _read(own: Path, link: Path | None) -> Worktree | None:
    """Return the work tree of a git directory and a ``.git``; None where it is unusual."""
    ref = find_head_ref(own)
    if ref is None or link is None or link.name != ".git" or not link.exists() or os.path.lexists(own / "locked"):
        return None
    return Worktree(root=link.parent, branch=ref.removeprefix("refs/heads/"))


def _parse(lines: list[str]) -> Worktree:
    fields = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    branch = fields.get("branch", "")
    unusable = next((f"{word} {fields[word]}".strip() for word in ("locked", "prunable") if word in fields), "")
    return Worktree(
        root=Path(fields.get("worktree", "")),
        branch=branch.removeprefix("refs/heads/") if branch.startswith("refs/heads/") else None,
        unusable=unusable,
    )


def add_worktree(repo: Repo, place: Path, branch: str) -> None:
    """Make a work tree that is on an existing branch, or on none where that is empty.

    No hook and no filter of the repository's own is run.

    Raises:
        GitError: There is something at that place, the branch is in another work tree, or git cannot write.
    """
    note_half(repo, place)
    guard(repo).git.run("worktree", "add", "--quiet", *(() if branch else ("--detach",)), str(place), branch or "HEAD")
    drop_half(repo)


def remove_worktree(repo: Repo, place: Path) -> bool:
    """Take away a work tree in which git sees nothing that is not committed; what it ignores goes with it.

    Returns:
        False when git refuses, or was killed: `relay.git.half_trees.finish_half` makes it whole then.
    """
    note_half(repo, place)
    is_gone = guard(repo).git.probe("worktree", "remove", str(place)).code == 0
    if is_gone:
        drop_half(repo)
    return is_gone


def list_ignored(repo: Repo, *paths: str) -> tuple[str, ...]:
    """Return the files of a work tree, at or below `paths` where there are any, that git ignores."""
    out = guard(repo).git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *paths)
    return tuple(os.fsdecode(path) for path in out.split(b"\0")[:-1])


def put_on_branch(repo: Repo, branch: str) -> None:
    """Have HEAD name a branch that is at the commit where HEAD is; no file is touched.

    Raises:
        GitError: It is at another one, or git cannot write.
    """
    if repo.find_commit(f"refs/heads/{branch}") != repo.head():
        raise GitError(f"{branch} is not where HEAD is")
    with declare_locks(repo, repo.git_dir / "HEAD.lock"):
        repo.git.run("symbolic-ref", "-m", "relay: the work tree's next phase", "HEAD", f"refs/heads/{branch}")
