"""Whether a directory is an ordinary repository, told without asking git: it would be asked at each start of relay.

Ordinary is a work tree with a git directory of its own, this user's, as ``git init`` lays it out. Whatever looks
otherwise is left to git. Source: git's setup.c, 2.39 to 2.52, `is_git_directory_gently`, `ensure_valid_ownership` and
`check_repository_format_gently`: they read this one configuration file, and no file that it includes.
"""

import os
import re
import stat
from pathlib import Path

from relay.files.tree import read_start
from relay.git.ref_files import find_head_ref
from relay.regexes import regex

_LARGEST_BYTES = 1 << 16
_LINE = regex(
    rb"[ \t]*(?:[#;].*|\[(?P<section>[A-Za-z0-9-]+)(?P<sub> \"[^\"\\]*\")?\]|(?P<key>[A-Za-z][A-Za-z0-9-]*)"
    rb"(?:[ \t]*=[ \t]*(?P<value>.*?))?)?[ \t]*(?<!\\)",
    re.DOTALL,
)
"""Of a configuration file, as git writes it: a section and a setting have a line each."""
_FORMAT = {b"repositoryformatversion": b"0", b"bare": b"false"}


def is_ordinary(root: Path) -> bool:
    """Return whether git takes `root`, a real path, for the root of a work tree with ``.git`` in it and sha1 ids."""
    git_dir = root / ".git"
    try:
        own = [os.lstat(place) for place in (root, git_dir)]
        parts = [os.lstat(git_dir / name) for name in ("objects", "refs")]
        config = read_start(git_dir / "config", _LARGEST_BYTES) or b""
    except OSError:
        return False
    if {found.st_uid for found in own} != {os.geteuid()} or not all(stat.S_ISDIR(one.st_mode) for one in own + parts):
        return False
    has_head = find_head_ref(git_dir) is not None and not os.path.lexists(git_dir / "commondir")
    return has_head and len(config) <= _LARGEST_BYTES and _has_ordinary_format(config)


def _has_ordinary_format(config: bytes) -> bool:
    found: dict[bytes, bytes] = {}
    section = b""
    for line in config.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or (match["section"] or b"").lower() == b"extensions":
            return False
        if match["section"]:
            section = match["section"].lower() + (match["sub"] or b"")
        key, value = (match["key"] or b"").lower(), match["value"] or b""
        if section == b"core" and key in {*_FORMAT, b"worktree"}:
            if value != _FORMAT.get(key):
                return False
            found[key] = value
    return found == _FORMAT
