"""Tracked files that git was told not to look at: ``update-index --assume-unchanged`` and ``--skip-worktree``.

Git's status is blind to such a file, in a private copy of the index too. What the user keeps in it, mostly settings
of one machine, would be in no snapshot. So relay takes the flags away in its private copies, for files that exist.
The user's own index keeps its flags; a file that is absent, as in a sparse checkout, stays as the index has it.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.git.command import Git
from relay.git.config_guard import Guarded
from relay.git.index_file import read_index_file
from relay.git.modes import GITLINK
from relay.git.repository import Repo

_PRIVATE = (("core.splitIndex", "false"), ("core.untrackedCache", "keep"), ("core.ignoreStat", "false"))
_known: dict[Path, tuple[str, tuple["HiddenEntry", ...]]] = {}
"""Per index file: what it looked like, and its entries then. A listing reads the whole index; snapshots are many."""

_unmerged: dict[Path, tuple[str, bool]] = {}
"""The same for whether there were conflicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenEntry:
    """An index entry with a flag that keeps git from looking at its file."""

    path: str
    mode: str
    object_id: str
    tag: str
    """Of ``git ls-files -v``: ``S`` for skip-worktree, ``h`` for assume-unchanged, ``s`` for both."""


def read_mark(index: Path) -> str:
    """Return what tells an index file from any other that may come to stand there; empty without one."""
    try:
        found = index.stat()
    except FileNotFoundError:  # an empty tree leaves no index
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def read_flagged(repo: Repo, git: Git) -> tuple[HiddenEntry, ...]:
    """Return the entries of the user's index that have such a flag, submodules aside; git is asked when it changed."""
    index = repo.git_dir / "index"
    mark = read_mark(index)
    if not mark:
        return ()
    if (whole := read_index_file(repo)) and not whole.has_flags:
        return ()
    seen, entries = _known.get(index, ("", ()))
    if seen != mark:
        records = git.run("ls-files", "-z", "-v", "--stage").split(b"\0")
        _unmerged[index] = (mark, any(record[:2] in {b"M ", b"m "} for record in records))
        entries = tuple(_parse(record) for record in records if record and record[:1] in b"Shs")
        entries = tuple(entry for entry in entries if entry.mode != GITLINK)
        _known[index] = (mark, entries)
    return entries


def _parse(record: bytes) -> HiddenEntry:
    # ``tag mode id stage<TAB>path``
    head, _, path = record.partition(b"\t")
    tag, mode, object_id, _ = head.decode().split(" ")
    return HiddenEntry(path=os.fsdecode(path), mode=mode, object_id=object_id, tag=tag)


def has_unmerged(repo: Repo) -> bool:
    """Return whether the user's index has a conflict; git is asked when it changed."""
    index = repo.git_dir / "index"
    mark = read_mark(index)
    if whole := read_index_file(repo):
        return whole.has_conflicts
    seen, found = _unmerged.get(index, ("", False))
    if seen != mark:
        found = bool(repo.git.run("ls-files", "-z", "--unmerged"))
        _unmerged[index] = (mark, found)
    return found


def find_hidden(repo: Repo, guarded: Guarded) -> tuple[HiddenEntry, ...]:
    """Return the flagged entries whose files are there, whatever is in them."""
    flagged = read_flagged(repo, guarded.git)
    # In a sparse checkout git itself looks at files that are there in spite of the flag: most entries may have it.
    # Source: git 2.36, the oldest that relay works with; the setting takes it back.
    sparse = guarded.flag("core.sparsecheckout", default=False)
    if sparse and not guarded.flag("sparse.expectfilesoutsideofpatterns", default=False):
        flagged = tuple(entry for entry in flagged if entry.tag != "S")
    return tuple(entry for entry in flagged if _is_there(repo, entry.path))


def _is_there(repo: Repo, path: str) -> bool:
    """Return whether git would find a file: one behind a symlinked directory is absent to it."""
    if not os.path.lexists(f"{repo.root}/{path}"):
        return False
    found = find_stat(repo.root, path)
    return found is not None and not stat.S_ISDIR(found.st_mode)


def show_hidden(git: Git, index: str, entries: Iterable[HiddenEntry]) -> None:
    """Take the flags away in a private index file: an entry that is written anew has none."""
    lines = [os.fsencode(f"{entry.mode} {entry.object_id}\t{entry.path}") + b"\0" for entry in entries]
    if lines:
        whole = git.overruled(_PRIVATE)
        whole.run("update-index", "-z", "--index-info", stdin=b"".join(lines), env={"GIT_INDEX_FILE": index})


def render_flagged(entries: Sequence[HiddenEntry]) -> tuple[str, ...]:
    """Return arguments for one ``git update-index`` that writes entries with their flags."""
    # A flag counts for the names behind it, and assume-unchanged for all further ones whatever comes then.
    skipped = [f"./{entry.path}" for entry in entries if entry.tag in "Ss"]
    assumed = [f"./{entry.path}" for entry in entries if entry.tag in "hs"]
    written = [part for e in entries for part in ("--cacheinfo", f"{e.mode},{e.object_id},{e.path}")]
    flags = (("--skip-worktree", *skipped) if skipped else (), ("--assume-unchanged", *assumed) if assumed else ())
    return (*written, *flags[0], *flags[1])
