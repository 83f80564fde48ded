"""Read the differences between the work tree and HEAD with git."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import PurePosixPath

from relay.base.values import dataclass
from relay.git.command import NULL_ENVIRONMENT, Git
from relay.git.config_guard import Guarded, guard
from relay.git.index import find_hidden, show_hidden
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
    hidden: tuple[str, ...] = ()
    """Those of `changed` that a user's ``git status`` does not show: `relay.git.index`."""
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
    with tempfile.TemporaryDirectory(dir=repo.make_relay_dir(), prefix="status-") as place:
        index = shutil.copy2(repo.git_dir / "index", f"{place}/index")  # git needs its time
        show_hidden(guarded.git, index, hidden)
        found = read_guarded_status(guarded, paths, index=index)
    names = {entry.path for entry in hidden}
    return replace(found, hidden=tuple(path for path in found.changed if path in names))


def read_guarded_status(guarded: Guarded, paths: Sequence[str] = (), *, index: str | None = None) -> Status:
    """Return the same for an `index` file, or for the user's index without its hidden files."""
    return begin_guarded_status(guarded, paths, index=index)()


def begin_guarded_status(
    guarded: Guarded, paths: Sequence[str] = (), *, index: str | None = None
) -> Callable[[], Status]:
    """Start ``git status`` and return a function to call once, which waits for its result."""
    finish = guarded.git.begin(
        "status", "--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--untracked-files=all", "--no-renames",
        "--ignore-submodules=dirty", "--", *paths,
        env={"GIT_INDEX_FILE": index} if index else NULL_ENVIRONMENT,
    )  # fmt: skip
    return lambda: _parse_status(finish())


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
    names = repo.git.run("ls-files", "-z").split(b"\0")[:-1]
    return tuple(path for path in map(os.fsdecode, names) if repo.hidden.covers(path))


def find_ignored(repo: Repo, paths: Sequence[str]) -> tuple[str, ...]:
    """Return those of `paths` that exist, are not tracked and are ignored by git.

    A directory counts when it has files and git ignores all of them.
    """
    there = [path for path in paths if os.path.lexists(f"{repo.root}/{path}")]
    if not there:
        return ()
    git = guard(repo).git
    # check-ignore refuses literal pathspecs, which are among relay's fixed flags.
    ignored = _list_files(git, "--others", "--ignored", "--exclude-standard", "--", *there)
    found = [path for path in there if str(PurePosixPath(path)) in ignored]
    seen = _list_files(git, "--cached", "--others", "--exclude-standard", "--", *found) if found else ()
    return tuple(path for path in found if str(PurePosixPath(path)) not in seen)


def find_unwelcome(repo: Repo, paths: Sequence[str]) -> frozenset[str]:
    """Return those of `paths` that git would ignore once they exist, without tracked ones.

    Where a path leads through a symbolic link git says nothing about any of them.
    """
    asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)  # in front of which nothing is magic
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    out = guard(repo).git.probe(*words, stdin=asked).out if paths else b""
    return frozenset(os.fsdecode(path[2:]) for path in out.split(b"\0")[:-1])


def _list_files(git: Git, *args: str) -> frozenset[str]:
    return with_parents(os.fsdecode(path) for path in git.run("ls-files", "-z", *args).split(b"\0")[:-1])
