"""What lies between two trees, for somebody who reads it: as a patch, and counted in lines."""

import os
import re
from collections.abc import Collection

from relay.git.config_guard import guard
from relay.git.names import render_path
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.session.shapes import ChangedFile

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\r(?!\n)"
)
"""What ends a line where git sees none, or hides and reorders text: each line of a patch begins with git's own mark."""
MOST_FILES = 500
"""Files that are counted; a commit of more is a move or a generated tree, whose lines nobody reads."""


def read_patch(repo: Repo, a: str, b: str, *, most_bytes: int, only: Collection[str] | None = None) -> str:
    """Return what turns the tree (or commit) `a` into `b`, file by file; no filter or program of a repository runs.

    Where it is longer than that, the files that do not fit are named instead, with how to see them. Of `only` some
    paths, where they are given.
    """
    shown: list[str] = []
    left: list[str] = []
    room = most_bytes
    for change in diff_trees(repo, a, b):
        if only is not None and change.path not in only:
            continue
        data = guard(repo).git.run(
            "diff-tree", "-r", "-p", "--no-color", "--no-renames", "--no-ext-diff", "--no-textconv", "--full-index",
            a, b, "--", change.path,
        )  # fmt: skip
        if len(data) > room:
            left.append(f"{render_path(change.path)} ({change.kind}, {len(data):,} bytes)")
            continue
        room -= len(data)
        shown.append(_HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", data.decode(errors="replace")))
    if left:
        shown.append("Not shown, look at them in the work tree (git diff HEAD -- <file>):\n" + "\n".join(left))
    return "\n".join(shown)


def count_lines(repo: Repo, commit: str) -> tuple[ChangedFile, ...]:
    """Return what a commit did to each file against its first parent, by name; at most `MOST_FILES` files.

    Empty where git cannot say: a commit that has been made is made, whatever an old object of it lacks.
    """
    result = repo.git.probe(
        "diff-tree", "--root", "--no-commit-id", "-r", "--diff-merges=first-parent", "-z", "--numstat", "--no-renames",
        "--no-ext-diff", "--no-textconv", commit, "--",
    )  # fmt: skip
    parts = b"" if result.code else result.out
    rows = (row.split(b"\t", 2) for row in parts.split(b"\0")[:MOST_FILES] if row)
    return tuple(
        ChangedFile(path=os.fsdecode(path), added=_read_count(added), deleted=_read_count(deleted))
        for added, deleted, path in rows
    )


def _read_count(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
