"""Find tracked files that git was told not to look at, and the repository states that stop relay.

Git's status is blind to a file with ``--assume-unchanged`` or ``--skip-worktree``, in a private copy of the index too.
Such a file mostly holds settings of one machine, which would be in no snapshot. So relay takes the flags away in its
private copies, for files that exist. The user's own index keeps its flags; an absent file, as in a sparse checkout,
stays as the index has it.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.git.command import Git
from relay.git.config_guard import Guarded
from relay.git.repository import Repo
from relay.git.trees import GITLINK

_PRIVATE = (("core.splitIndex", "false"), ("core.untrackedCache", "keep"), ("core.ignoreStat", "false"))
_listings: dict[Path, tuple[str, tuple[bytes, ...]]] = {}
"""Per index file: its mark, and the records of ``git ls-files -v --stage`` that are not ordinary. A phase of four tools
asks 15 times, and git reads the whole index for each listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenEntry:
    """An index entry with a flag that keeps git from looking at its file."""

    path: str
    mode: str
    object_id: str
    tag: str
    """Of ``git ls-files -v``: ``S`` for skip-worktree, ``h`` for assume-unchanged, ``s`` for both."""


def read_mark(index: Path) -> str:
    """Return a mark that changes whenever the index file does; empty without a file."""
    try:
        found = index.stat()
    except FileNotFoundError:  # an empty tree leaves no index
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _list_odd(repo: Repo) -> tuple[bytes, ...]:
    """Return the records of flagged entries and of conflicts; git is asked when the index changed."""
    index = repo.git_dir / "index"
    if not (mark := read_mark(index)):
        return ()
    if _listings.get(index, ("", ()))[0] != mark:
        records = repo.git.run("ls-files", "-z", "-v", "--stage").split(b"\0")[:-1]
        _listings[index] = (mark, tuple(record for record in records if record[:1] != b"H"))
    return _listings[index][1]


def read_flagged(repo: Repo) -> tuple[HiddenEntry, ...]:
    """Return the entries of the user's index that have such a flag, submodules aside."""
    entries = (_parse(record) for record in _list_odd(repo) if record[:1] in b"Shs")
    return tuple(entry for entry in entries if entry.mode != GITLINK)


def _parse(record: bytes) -> HiddenEntry:
    # ``tag mode id stage<TAB>path``
    head, _, path = record.partition(b"\t")
    tag, mode, object_id, _ = head.decode().split(" ")
    return HiddenEntry(path=os.fsdecode(path), mode=mode, object_id=object_id, tag=tag)


def has_unmerged(repo: Repo) -> bool:
    """Return whether the user's index has a conflict."""
    return any(record[:1] in b"Mm" for record in _list_odd(repo))


def find_hidden(repo: Repo, guarded: Guarded) -> tuple[HiddenEntry, ...]:
    """Return the flagged entries whose files exist."""
    flagged = read_flagged(repo)
    # In a sparse checkout git itself looks at files that are there in spite of the flag: most entries may have it.
    # Source: git 2.36, the oldest that relay works with; the setting takes it back.
    sparse = guarded.flag("core.sparsecheckout", default=False)
    if sparse and not guarded.flag("sparse.expectfilesoutsideofpatterns", default=False):
        flagged = tuple(entry for entry in flagged if entry.tag != "S")
    return tuple(entry for entry in flagged if _is_there(repo, entry.path))


def _is_there(repo: Repo, path: str) -> bool:
    """Return whether git would find a file: behind a symlinked directory it would not."""
    if not os.path.lexists(f"{repo.root}/{path}"):
        return False
    found = find_stat(repo.root, path)
    return found is not None and not stat.S_ISDIR(found.st_mode)


def show_hidden(git: Git, index: str, entries: Iterable[HiddenEntry]) -> None:
    """Remove the flags in a private index file by writing the entries anew."""
    lines = [os.fsencode(f"{entry.mode} {entry.object_id}\t{entry.path}") + b"\0" for entry in entries]
    if lines:
        whole = git.overruled(_PRIVATE)
        whole.run("update-index", "-z", "--index-info", stdin=b"".join(lines), env={"GIT_INDEX_FILE": index})


def render_flagged(entries: Sequence[HiddenEntry]) -> tuple[str, ...]:
    """Return arguments for one ``git update-index`` that writes entries with their flags."""
    # A flag applies to the names after it, and assume-unchanged to all further names.
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
    """Return the unfinished git operation and the command that ends it; None without one."""
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
