"""Read the user's index, find tracked files that git was told not to look at, and name the states that stop relay.

`read_index_file` reads an index of the usual form without git. Worth, at 2 ms a git process: 4 processes in a phase of
four tools, and the only one of ``relay status``. Source: gitformat-index(5), versions 2 and 3. Git replaces the file as
a whole, so the bytes are of one moment. Git alone reads an index that is large, shared with another file, sparse, or of
version 4.

Git's status is blind to a file with ``--assume-unchanged`` or ``--skip-worktree``, in a private copy of the index too.
Such a file mostly holds settings of one machine, which would be in no snapshot. So relay takes the flags away in its
private copies, for files that exist. The user's own index keeps its flags; a file that is absent, as in a sparse
checkout, stays as the index has it.
"""

import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from relay.base.tree import Look, find_stat, make_look, read_start
from relay.base.values import dataclass
from relay.git.command import Git
from relay.git.config_guard import Guarded
from relay.git.repository import Repo
from relay.git.trees import GITLINK

_LARGEST_BYTES = 1 << 18
"""About 2,500 files; for more, starting git takes less time."""
_VERSIONS = frozenset({2, 3})
_STAT_BYTES, _MODE_AT = 40, 24
_VALID, _EXTENDED, _STAGE, _SKIPPED = 0x8000, 0x4000, 0x3000, 0x4000

_read_before: dict[Path, tuple[Look, "IndexFile | None"]] = {}
"""Per index file: what it looked like, and what was in it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """What an index holds."""

    entries: Mapping[str, tuple[str, str]]
    """``path: (mode, object id)``; without those of a conflict."""
    has_flags: bool
    """Whether git was told not to look at some file."""
    has_conflicts: bool


def read_index_file(repo: Repo) -> IndexFile | None:
    """Return what the user's index holds; None where only git can tell."""
    index = repo.git_dir / "index"
    try:
        look = make_look(index.lstat())
        if _read_before.get(index, ((), None))[0] != look:
            data = read_start(index, _LARGEST_BYTES)
            found = _parse_index(data, len(repo.zero_id) // 2) if data and len(data) <= _LARGEST_BYTES else None
            _read_before[index] = (look, found)
            if make_look(index.lstat()) != look:
                del _read_before[index]
                return None
    except (OSError, ValueError, struct.error):
        return None
    return _read_before[index][1]


def _parse_index(data: bytes, id_bytes: int) -> IndexFile | None:
    """Read an index.

    Raises:
        ValueError: It is cut off, as by `struct.error`.
    """
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in _VERSIONS:
        return None
    entries: dict[str, tuple[str, str]] = {}
    at, flagged, conflicts = 12, False, False
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", data, at + _MODE_AT)
        flags_at = at + _STAT_BYTES + id_bytes
        flags, extended = struct.unpack_from(">HH", data, flags_at)
        is_extended = bool(flags & _EXTENDED)
        name_at = flags_at + (4 if is_extended else 2)
        end = data.index(b"\0", name_at)
        flagged |= bool(flags & _VALID or (is_extended and extended & _SKIPPED))
        if flags & _STAGE:
            conflicts = True
        else:
            entries[os.fsdecode(data[name_at:end])] = (f"{mode:06o}", data[at + _STAT_BYTES : flags_at].hex())
        at += (end - at + 8) & ~7
    while at < len(data) - id_bytes:
        signature, size = struct.unpack_from(">4sI", data, at)
        if not signature[:1].isupper():  # one that changes what the entries mean
            return None
        at += 8 + size
    return (
        IndexFile(entries=entries, has_flags=flagged, has_conflicts=conflicts) if at == len(data) - id_bytes else None
    )


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


_OPERATIONS = (
    ("rebase-merge", "a rebase is in progress", "git rebase --continue (or --abort)"),
    ("rebase-apply/applying", "git am is in progress", "git am --continue (or --abort)"),
    ("rebase-apply", "a rebase is in progress", "git rebase --continue (or --abort)"),
    ("MERGE_HEAD", "a merge is in progress", "git commit (or git merge --abort)"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is in progress", "git cherry-pick --continue (or --abort)"),
    ("REVERT_HEAD", "a revert is in progress", "git revert --continue (or --abort)"),
    ("sequencer", "a sequence of cherry-picks or reverts is in progress", "git cherry-pick --continue (or --abort)"),
    ("BISECT_LOG", "a bisect is in progress", "git bisect reset"),
)


def check_state(repo: Repo) -> str | None:
    """Return what is unfinished in the repository and the command that ends it; None when nothing is."""
    for name, words, command in _OPERATIONS:
        if _exists(repo, name):
            return f"{words}; end it with: {command}"
    if has_unmerged(repo):
        return "there are unmerged files; end it with: git status, then git add <file> or git checkout --ours <file>"
    return None


def _exists(repo: Repo, name: str) -> bool:
    if os.path.exists(f"{repo.git_dir}/{name}"):  # noqa: PTH110  # looked at often, and a path takes longer than the look
        return True
    # The reftable backend keeps these refs elsewhere.
    return name.endswith("_HEAD") and (repo.common_dir / "reftable").is_dir() and repo.find_commit(name) is not None
