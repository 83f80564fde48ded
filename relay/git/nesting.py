"""Whether a git directory below the work tree makes git run something: what a session leaves, a person's git obeys.

A plain ``git status`` at the root enters the directory of a submodule; an editor and a shell's prompt enter any other.
"""

import os
import re
import stat
from pathlib import Path

from relay.git.repository import Repo

_INERT = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev|sharedrepository|compression)"
    r"|remote\.[^\n]*\.(url|fetch|tagopt|mirror)|branch\.[^\n]*\.(remote|merge|rebase)|submodule\.[^\n]*\.(url|active)"
    r"|user\.(name|email)|init\.defaultbranch|gc\.auto|(commit|tag)\.gpgsign|maintenance\.auto"
    r"|extensions\.(objectformat|refstorage|partialclone)|receive\.deny[a-z]+|uploadpack\.allow[a-z]+|http\.[a-z]+buffer"
)
"""Settings that make git run nothing and read no other file, of those that git writes itself and that tests set."""


def is_git_layout(names: frozenset[str]) -> bool:
    """Return whether git takes a directory with these entries for a git directory: a bare repository is one."""
    return {"HEAD", "objects", "refs"} <= names


def is_armed(repo: Repo, place: Path) -> bool:
    """Return whether a git directory, or a ``.git`` file, makes git run or read what its maker chose.

    A file or a link names a directory elsewhere, and is taken for armed whatever it names.
    """
    if not stat.S_ISDIR(place.lstat().st_mode) or os.path.lexists(place / "commondir"):
        return True
    return _has_hook(place / "hooks") or any(_has_setting(repo, place / name) for name in ("config", "config.worktree"))


def _has_hook(folder: Path) -> bool:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return os.path.lexists(folder)
    return any(not entry.name.endswith(".sample") and os.access(entry, os.X_OK) for entry in entries)


def _has_setting(repo: Repo, file: Path) -> bool:
    """Return whether a configuration file holds more than inert settings, or is none that git reads."""
    if not os.path.lexists(file):
        return False
    if not stat.S_ISREG(file.lstat().st_mode):
        return True
    result = repo.git.probe("config", "--no-includes", "--name-only", "-z", "--list", "--file", str(file))
    return bool(result.code) or any(not _INERT.fullmatch(os.fsdecode(key)) for key in result.out.split(b"\0") if key)
