"""Where the work trees are that belong together: those of a repository, and those that relay made for a clone.

A work tree of relay's own leaves what is kept of its runs in the work tree where the user typed the command. The notes
of that, and of what it may land, are in its git directory, which no session writes and no fetch brings.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from relay.git.notes import read_note, write_note
from relay.git.repository import Repo
from relay.git.worktrees import list_roots

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
