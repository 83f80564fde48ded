"""Find an ordinary repository without asking git, which takes 2 ms at each start: `relay status` starts no git at all.

Ordinary is a work tree with a git directory of its own, this user's, as ``git init`` lays it out, and one that
``git worktree add`` has linked to such a repository. Whatever looks otherwise is left to git. Source: git's setup.c,
2.39 to 2.52, `read_gitfile_gently`, `get_common_dir`, `is_git_directory_gently`, `ensure_valid_ownership` and
`check_repository_format_gently`: they read this one configuration file, and no file that it includes.
"""

import os
import re
import stat
from pathlib import Path

from relay.base.tree import read_start
from relay.git.ref_files import find_head_ref

_LARGEST_BYTES = 1 << 16
_LINE = re.compile(
    rb"[ \t]*(?:[#;].*|\[(?P<section>[A-Za-z0-9-]+)(?P<sub> \"[^\"\\]*\")?\]|(?P<key>[A-Za-z][A-Za-z0-9-]*)"
    rb"(?:[ \t]*=[ \t]*(?P<value>.*?))?)?[ \t]*(?<!\\)",
    re.DOTALL,
)
"""Of a configuration file, as git writes it: a section and a setting have a line each."""
_LINK = re.compile(rb"gitdir: (/[^\x00\n]+/worktrees/[^/\x00\n]+)\n")
"""The ``.git`` of a linked work tree."""
_FORMAT = {b"repositoryformatversion": b"0", b"bare": b"false"}


def find_ordinary(root: Path) -> tuple[Path, Path] | None:
    """Return git directory and common directory of a work tree with sha1 ids whose root is `root`, a real path.

    None: git has to say.
    """
    link = root / ".git"
    try:
        if (found := _find_directories(link)) is None:
            return None
        own, common = found
        owners = {os.lstat(place).st_uid for place in (root, link, own, common)}
        modes = [os.lstat(place).st_mode for place in (root, own, common, common / "objects", common / "refs")]
        config = read_start(common / "config", _LARGEST_BYTES) or b""
    except OSError:
        return None
    if owners != {os.geteuid()} or not all(map(stat.S_ISDIR, modes)) or find_head_ref(own) is None:
        return None
    return found if len(config) <= _LARGEST_BYTES and _has_ordinary_format(config) else None


def _find_directories(link: Path) -> tuple[Path, Path] | None:
    """Return the directory that ``.git`` is or leads to, and the one that work trees share; None: they are not plain.

    Raises:
        OSError: Something cannot be read.
    """
    mode = os.lstat(link).st_mode
    if stat.S_ISDIR(mode):
        return None if os.path.lexists(link / "commondir") else (link, link)
    leads = _LINK.fullmatch(read_start(link, _LARGEST_BYTES) or b"") if stat.S_ISREG(mode) else None
    if leads is None:
        return None
    own = Path(os.fsdecode(leads[1]))
    is_plain = os.path.realpath(own) == str(own) and read_start(own / "commondir", _LARGEST_BYTES) == b"../..\n"
    return (own, own.parent.parent) if is_plain else None


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
