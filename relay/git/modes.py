"""Git's modes of what a tree or an index names."""

import os
import stat
from functools import cache

FILE = "100644"
EXECUTABLE = "100755"
SYMLINK = "120000"
GITLINK = "160000"
"""A submodule: the commit that it is at."""
ABSENT = "000000"
"""Nothing is there; on the way into an index, what takes a path out."""
TREE = b"40000"
"""A directory, as trees write it."""


def find_mode(found: os.stat_result | None) -> str:
    """Return git's mode for a file or a link; empty for a directory and for nothing."""
    if found is None or stat.S_ISDIR(found.st_mode):
        return ""
    return SYMLINK if stat.S_ISLNK(found.st_mode) else EXECUTABLE if found.st_mode & stat.S_IXUSR else FILE


@cache
def parse_tree_mode(raw: bytes) -> bytes:
    """Return the mode that git takes the one in a tree for: old programs wrote further ones, and leading zeros."""
    mode = int(raw, 8)
    if stat.S_ISDIR(mode):
        return TREE
    if stat.S_ISREG(mode):
        return (EXECUTABLE if mode & stat.S_IXUSR else FILE).encode()
    return (SYMLINK if stat.S_ISLNK(mode) else GITLINK).encode()
