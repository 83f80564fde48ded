"""How many lines a commit added and deleted in each file."""

import os

from relay.git.repository import Repo
from relay.session.shapes import ChangedFile

MOST_FILES = 500
"""Files that are counted; a commit of more is a move or a generated tree, whose lines nobody reads."""


def count_lines(repo: Repo, commit: str) -> tuple[ChangedFile, ...]:
    """Return what a commit did to each file against its first parent, by name; at most `MOST_FILES` files."""
    parts = repo.git.run(
        "diff-tree", "--root", "--no-commit-id", "-r", "-m", "--first-parent", "-z", "--numstat", "--no-renames",
        "--no-ext-diff", "--no-textconv", commit, "--",
    )  # fmt: skip
    rows = (row.split(b"\t", 2) for row in parts.split(b"\0")[:MOST_FILES] if row)
    return tuple(
        ChangedFile(path=os.fsdecode(path), added=_read_count(added), deleted=_read_count(deleted))
        for added, deleted, path in rows
    )


def _read_count(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
