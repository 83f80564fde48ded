"""Read the differences between the work tree and HEAD with git, and the repository states that stop relay.

Git's status is blind to a file with ``--assume-unchanged`` or ``--skip-worktree``, in a private copy of the index too.
Such a file mostly holds settings of one machine, which would be in no snapshot. So relay takes the flags away in its
private copies, for files that exist. The user's own index keeps its flags; an absent file, as in a sparse checkout,
stays as the index has it.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath

from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.git.command import NULL_ENVIRONMENT, Git
from relay.git.config_guard import Guarded, guard
from relay.git.names import with_parents
from relay.git.repository import Repo
from relay.git.trees import ABSENT, GITLINK

_HEAD = re.compile(rb"# branch\.oid ([0-9a-f]+)")


class ChangeKind(StrEnum):
    """How a path differs between two trees."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    TYPE_CHANGED = "typechanged"
    """A file became a symlink, a submodule or the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """One path that differs between two trees."""

    path: str
    """Repository-relative; bytes that are not UTF-8 as surrogates (`os.fsdecode`)."""
    kind: ChangeKind
    mode: str
    """Git's mode after the change: ``100644``, ``100755``, ``120000``, ``160000``; ``000000`` when deleted."""
    old_mode: str = ABSENT
    object_id: str = ""
    """Of the blob after the change; empty when deleted or not known."""
    old_object_id: str = ""

    @property
    def is_submodule(self) -> bool:
        """Whether a submodule is on either side."""
        return GITLINK in {self.mode, self.old_mode}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEntry:
    """One path of ``git status``."""

    path: str
    index: str
    """How the index differs from HEAD: ``.`` for not at all, else git's letter (M T A D U)."""
    worktree: str
    """How the work tree differs from the index; ``?`` for an untracked path."""
    mode: str
    """Mode in the work tree; ``000000`` when nothing is there; empty for an untracked path."""
    unmerged: bool = False

    @property
    def untracked(self) -> bool:
        """Whether git does not know the path (and does not ignore it)."""
        return self.worktree == "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All changed paths, without ignored ones."""

    entries: tuple[StatusEntry, ...] = ()
    nested: tuple[str, ...] = ()
    """Untracked directories that are repositories of their own, without the trailing slash."""
    head: str | None = None
    """The compared commit; None on an unborn branch."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Tracked paths whose content, mode or existence differs from HEAD, in the index or the work tree."""
        return tuple(entry.path for entry in self.entries if not entry.untracked)

    @property
    def staged(self) -> tuple[str, ...]:
        """Paths where the index differs from HEAD."""
        return tuple(e.path for e in self.entries if e.index not in ".?" and not e.unmerged)

    @property
    def untracked(self) -> tuple[str, ...]:
        """Untracked paths."""
        return tuple(entry.path for entry in self.entries if entry.untracked)

    @property
    def unmerged(self) -> tuple[str, ...]:
        """Paths with a conflict in the index."""
        return tuple(entry.path for entry in self.entries if entry.unmerged)


def read_status(repo: Repo, paths: Sequence[str] = ()) -> Status:
    """Return the differences from HEAD, of the whole work tree or below `paths`.

    The index is not written. Renames are shown as a deletion and an addition; submodules are not entered.
    """
    guarded = guard(repo)
    hidden = find_hidden(repo, guarded)
    if not hidden:
        return read_guarded_status(guarded, paths)
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(dir=repo.make_relay_dir(), prefix="status-") as place:
        index = shutil.copy2(repo.git_dir / "index", f"{place}/index")  # git needs its time
        show_hidden(guarded.git, index, hidden)
        return read_guarded_status(guarded, paths, index=index)


def read_guarded_status(guarded: Guarded, paths: Sequence[str] = (), *, index: str | None = None) -> Status:
    """Return the same for an `index` file, or for the user's index without its hidden files."""
    out = guarded.git.run(
        "status", "--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--untracked-files=all", "--no-renames",
        "--ignore-submodules=dirty", "--", *paths,
        env={"GIT_INDEX_FILE": index} if index else NULL_ENVIRONMENT,
    )  # fmt: skip
    return _parse_status(out)


def _parse_status(out: bytes) -> Status:
    entries: list[StatusEntry] = []
    nested: list[str] = []
    head = None
    for record in out.split(b"\0"):
        if record.startswith(b"# "):
            found = _HEAD.fullmatch(record)
            head = found[1].decode() if found else head
        elif record.startswith(b"? ") and record.endswith(b"/"):
            nested.append(os.fsdecode(record[2:-1]))
        elif record:
            entries.append(_parse_entry(record))
    return Status(entries=tuple(entries), nested=tuple(nested), head=head)


def _parse_entry(record: bytes) -> StatusEntry:
    kind = record[:1]
    if kind == b"?":
        return StatusEntry(path=os.fsdecode(record[2:]), index="?", worktree="?", mode="")
    # ``1 XY sub mH mI mW hH hI path``; ``u XY sub m1 m2 m3 mW h1 h2 h3 path``
    fields = record.split(b" ", 10 if kind == b"u" else 8)
    states = fields[1].decode()
    return StatusEntry(
        path=os.fsdecode(fields[-1]),
        index=states[0],
        worktree=states[1],
        mode=fields[6 if kind == b"u" else 5].decode(),
        unmerged=kind == b"u",
    )


def find_tracked_hidden(repo: Repo) -> tuple[str, ...]:
    """Return the tracked files that no session may see: the index and history would still show them."""
    return tuple(path for path in repo.git.list_files() if repo.hidden.covers(path))


def find_ignored(repo: Repo, paths: Sequence[str]) -> tuple[str, ...]:
    """Return those of `paths` that exist, are not tracked and are ignored by git.

    A directory counts when it has files and git ignores all of them.
    """
    there = [path for path in paths if os.path.lexists(f"{repo.root}/{path}")]
    if not there:
        return ()
    git = guard(repo).git
    # check-ignore refuses literal pathspecs, which are among relay's fixed flags.
    ignored = with_parents(git.list_files("--others", "--ignored", "--exclude-standard", "--", *there))
    found = [path for path in there if str(PurePosixPath(path)) in ignored]
    seen = with_parents(git.list_files("--cached", "--others", "--exclude-standard", "--", *found)) if found else ()
    return tuple(path for path in found if str(PurePosixPath(path)) not in seen)


def find_unwelcome(repo: Repo, paths: Sequence[str]) -> frozenset[str]:
    """Return those of `paths` that git would ignore once they exist, without tracked ones.

    Where a path leads through a symbolic link git says nothing about any of them.
    """
    asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)  # in front of which nothing is magic
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    out = guard(repo).git.probe(*words, stdin=asked).out if paths else b""
    return frozenset(os.fsdecode(path[2:]) for path in out.split(b"\0")[:-1])


def list_known(repo: Repo) -> tuple[str, ...]:
    """Return the files of the work tree that git tracks, or does not ignore."""
    return tuple(sorted(set(guard(repo).git.list_files("--cached", "--others", "--exclude-standard"))))


_ORDINARY = (b"H 100", b"H 120")
_PRIVATE = (("core.splitIndex", "false"), ("core.untrackedCache", "keep"), ("core.ignoreStat", "false"))
_listings: dict[Path, tuple[str, tuple[bytes, ...]]] = {}
"""Per index file: its mark, and the records of ``git ls-files -v --stage`` that are not ordinary. A phase of three
tools asks 28 times, and git reads the whole index for each listing."""


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
    """Return the records of flagged entries, conflicts and submodules; git is asked when the index changed."""
    index = repo.git_dir / "index"
    if not (mark := read_mark(index)):
        return ()
    if _listings.get(index, ("", ()))[0] != mark:
        records = repo.git.run("ls-files", "-z", "-v", "--stage").split(b"\0")[:-1]
        _listings[index] = (mark, tuple(record for record in records if not record.startswith(_ORDINARY)))
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
        return "there are unmerged files; end it with: git status, then git add FILE or git checkout --ours FILE"
    return None


def _exists(repo: Repo, name: str) -> bool:
    if os.path.exists(f"{repo.git_dir}/{name}"):  # noqa: PTH110  # looked at often, and a path takes longer than the look
        return True
    # The reftable backend keeps these refs elsewhere.
    return name.endswith("_HEAD") and (repo.common_dir / "reftable").is_dir() and repo.find_commit(name) is not None


def list_submodules(repo: Repo) -> tuple[str, ...]:
    """Return the submodules that have files in the work tree."""
    paths = (entry.path for entry in map(_parse, _list_odd(repo)) if entry.mode == GITLINK)
    return tuple(path for path in paths if os.path.lexists(repo.root / path / ".git"))
