"""A git directory of its own for each of the user's hooks, which goes with it.

Hook managers write there: lint-staged keeps a stash while it works, lefthook its hooks' checksum. The copy has all
that git needs to work, but for objects and what is large besides, of which the caller shows the original.
"""

import os
import shutil
import stat
from pathlib import Path

from relay.git.repository import Repo

_COPIED = frozenset({"hooks", "info", "reftable", "refs"})
"""Directories that are copied; all other ones are to be shown as they are."""
_OWN_REFS = "relay"
"""Below ``refs/``: relay's snapshots, which may be thousands."""
_STASH_LOG = "logs/refs/stash"


def copy_git_dir(repo: Repo, place: Path, *, branch: str = "") -> tuple[str, ...]:
    """Fill the new directory `place` with a copy of the repository's common git directory.

    Neither links nor anything that is no file are followed or opened: links are copied as links.

    Args:
        branch: What HEAD names in the copy, at the same commit; empty for what it names. Kept in a reftable, it stays.

    Returns:
        The names of directories that are not copied; each has an empty directory in `place`.
    """
    shown = []
    place.mkdir(mode=0o700)
    for entry in os.scandir(repo.common_dir):
        target = place / entry.name
        if entry.is_dir(follow_symlinks=False) and entry.name not in _COPIED | {"logs"}:
            target.mkdir()
            shown.append(entry.name)
        elif entry.is_dir(follow_symlinks=False) and entry.name != "logs":
            _copy_tree(Path(entry.path), target, leave_out=_OWN_REFS if entry.name == "refs" else "")
        else:
            _copy_file(Path(entry.path), target)
    (place / _STASH_LOG).parent.mkdir(parents=True)
    _copy_file(repo.common_dir / _STASH_LOG, place / _STASH_LOG)
    if repo.git_dir != repo.common_dir and repo.git_dir.is_relative_to(repo.common_dir):
        _copy_tree(repo.git_dir, place / repo.git_dir.relative_to(repo.common_dir))
        shown = [name for name in shown if name != "worktrees"]
    if branch and (head := repo.head()):
        ref = place / "refs/heads" / branch
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(f"{head}\n")
        (place / os.path.relpath(repo.git_dir, repo.common_dir) / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    return tuple(sorted(shown))


def _copy_tree(source: Path, target: Path, *, leave_out: str = "") -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        if entry.name == leave_out:
            continue
        if entry.is_dir(follow_symlinks=False):
            _copy_tree(Path(entry.path), target / entry.name)
        else:
            _copy_file(Path(entry.path), target / entry.name)


def _copy_file(source: Path, target: Path) -> None:
    try:
        mode = source.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(mode) and not source.name.endswith(".lock"):
        shutil.copy2(source, target)
