"""Where a work tree of relay's own leaves what is kept of its runs: in the work tree where the user typed the command.

The note is in the work tree's git directory, which no session writes. Without it a work tree is its own home.
"""

import os
from pathlib import Path

from relay.git.notes import read_note, write_note
from relay.git.repository import Repo

_NOTE = "home"


def get_jobs_place(root: Path) -> Path:
    """Return the directory that the work trees of a work tree's jobs are in: beside it."""
    return root.parent / f"{root.name}.relay"


def note_home(repo: Repo, home: Path) -> None:
    """Note whose job a work tree is."""
    write_note(repo, _NOTE, str(home))


def find_home(repo: Repo) -> Path:
    """Return the root of the work tree whose job this one is; its own where it is nobody's."""
    if repo.git_dir == repo.common_dir:
        return repo.root
    noted = Path(read_note(repo, _NOTE) or repo.root)
    return noted if noted.is_absolute() and os.path.lexists(noted / ".git") else repo.root
