"""Where the work tree is not what a commit is about to hold: what a gate must not see, or must see in another form.

Git is asked for the commit's names only. What stands beside them is looked up in the directories themselves, because
git is silent about much of it: what it ignores, empty directories, pipes, modes that it was told not to trust.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from relay.git import objects
from relay.git.config_guard import guard
from relay.git.modes import ABSENT, EXECUTABLE, FILE, GITLINK, SYMLINK
from relay.git.names import with_parents
from relay.git.ref_files import has_replacements
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.git.trees import find_differences
from relay.store.environment import Environment
from relay.store.snapshot import TreeSnapshot
from relay.values import dataclass

_Entries = dict[str, tuple[str, str]]
"""``path: (mode, object id)``."""
_MOST_KEPT = 20_000
_known: dict[tuple[Path, str], _Entries] = {}
"""Of one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """How the work tree differs from a commit and the environment beside it."""

    extra: tuple[str, ...] = ()
    """Files, and directories with all that is in them, that neither of the two has."""
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    """``path: (mode, object id)`` of what the commit has there, where the work tree has something else or nothing."""
    modes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Modes of files that are executable in one of the two only, and whose content is the same."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted({*self.extra, *self.changed, *self.modes}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a commit is going to be."""

    head: str | None
    """Its parent; None on an unborn branch."""
    paths: tuple[str, ...]
    """What it takes from the work tree; all else is as in its parent."""
    drafts: tuple[str, ...]
    """The plan and its ledger: relay has their new bytes, and shows the work tree's to a gate."""


def find_surplus(repo: Repo, intent: Intent, now: TreeSnapshot, environment: Environment) -> Surplus:
    """Compare the work tree with a commit that is about to be made of it.

    Args:
        repo: The repository.
        intent: The commit.
        now: The work tree as it is.
        environment: What may be there besides.
    """
    own = {*intent.paths, *intent.drafts}
    parent = intent.head or repo.empty_tree
    changes = [c for c in objects.diff_trees(repo, parent, now.tree) if c.path not in own and not c.is_submodule]
    changed = {c.path: (c.old_mode, c.old_object_id) for c in changes if c.kind is not ChangeKind.ADDED}
    entries = _list_entries(repo, intent, now)
    trusts_modes = guard(repo).flag("core.filemode", default=True)
    walk = _Look(repo=repo, entries=entries, environment=environment, trusts_modes=trusts_modes)
    walk.look()
    return Surplus(
        extra=tuple(sorted(walk.extra)),
        changed={**changed, **{path: entries[path] for path in walk.other_kinds if path not in own}},
        modes={path: mode for path, mode in walk.other_modes.items() if path not in changed},
    )


def read_committed(repo: Repo, surplus: Surplus) -> dict[str, tuple[str, bytes]]:
    """Return ``path: (mode, bytes)`` of what the commit has in another form, as a checkout of it writes the bytes.

    Raises:
        GitError: Something cannot be read.
    """
    git = guard(repo).git
    return {
        path: (
            mode,
            objects.load_blob(repo, blob)
            if mode == SYMLINK
            else git.run("cat-file", "--filters", f"--path={path}", blob),
        )
        for path, (mode, blob) in surplus.changed.items()
    }


def _list_entries(repo: Repo, intent: Intent, now: TreeSnapshot) -> _Entries:
    """Return what the commit is going to hold, and the drafts where the work tree has them."""
    entries = dict(_list_commit(repo, intent.head)) if intent.head else {}
    for path in intent.paths:
        entries.pop(path, None)
    return {
        **entries,
        **objects.read_entries(repo, now.tree, intent.paths),
        **{path: (FILE, "") for path in intent.drafts if os.path.lexists(repo.root / path)},
    }


def _list_commit(repo: Repo, commit: str) -> _Entries:
    """Return what a commit holds; that of the last one is kept, which a phase has for its start and its end."""
    key = (repo.common_dir, commit)
    if key not in _known or has_replacements(repo.common_dir):
        entries = _read_on(repo, commit) or _ask_for_entries(repo, commit)
        _known.clear()
        if len(entries) > _MOST_KEPT:
            return entries
        _known[key] = entries
    return _known[key]


def _read_on(repo: Repo, commit: str) -> _Entries | None:
    """Return what a commit holds by how it differs from the last one; None where only git knows."""
    for (place, known), entries in _known.items():
        if place == repo.common_dir and (differences := find_differences(repo, known, commit)) is not None:
            now = {**entries}
            for name, _, after in differences:
                now.pop(os.fsdecode(name), None)
                if after:
                    now[os.fsdecode(name)] = (after[0].decode(), after[1])
            return now
    return None


def _ask_for_entries(repo: Repo, commit: str) -> _Entries:
    entries: _Entries = {}
    for record in repo.git.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]:
        head, _, name = record.partition(b"\t")
        mode, _, object_id = head.decode().split(" ")
        entries[os.fsdecode(name)] = (mode, object_id)
    return entries


@dataclass(slots=True, kw_only=True)
class _Look:
    """One look at every directory of the work tree. Mutable: notes what it meets."""

    repo: Repo
    entries: _Entries
    environment: Environment
    trusts_modes: bool
    extra: list[str] = field(default_factory=list)
    other_kinds: list[str] = field(default_factory=list)
    other_modes: dict[str, str] = field(default_factory=dict)
    known: frozenset[str] = field(init=False)
    """Directories that the commit or the environment needs."""

    def __post_init__(self) -> None:
        named = with_parents({path.rpartition("/")[0] for path in self.entries} - {""})
        self.known = named | with_parents(self.environment.roots)

    def look(self) -> None:
        """Note everything; a directory that neither needs is extra as a whole and is not entered."""
        pending = [""]
        while pending:
            folder = pending.pop()
            for entry in _list_folder(f"{self.repo.root}/{folder}"):
                path = f"{folder}/{entry.name}" if folder else entry.name
                wanted, _ = self.entries.get(path, (ABSENT, ""))
                if wanted == GITLINK or (wanted == ABSENT and self.environment.holds(path)):
                    continue
                if wanted != ABSENT:
                    self._compare(path, wanted, entry)
                elif path in self.known and entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                else:
                    self.extra.append(path)

    def _compare(self, path: str, wanted: str, entry: os.DirEntry[str]) -> None:
        is_file, is_link = entry.is_file(follow_symlinks=False), entry.is_symlink()
        if (wanted == SYMLINK) != is_link or (wanted != SYMLINK and not is_file):
            self.other_kinds.append(path)
        elif is_file and not self.trusts_modes:
            mode = EXECUTABLE if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else FILE
            if mode != wanted:
                self.other_modes[path] = wanted


def _list_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []  # unreadable for relay is unreadable for a gate
