"""Where the work tree is not what a commit is about to hold: what a gate must not see, or must see in another form.

Git is asked for the commit's names only. What stands beside them is looked up in the directories themselves, because
git is silent about much of it: what it ignores, empty directories, pipes, modes that it was told not to trust.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from relay.base.values import dataclass
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.names import with_parents
from relay.git.ref_files import has_replacements
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.git.trees import ABSENT, EXECUTABLE, FILE, GITLINK, SYMLINK
from relay.sandbox.links import list_entries
from relay.store.environment import Environment
from relay.store.session_changes import SessionChanges, read_spans
from relay.store.snapshot import TreeSnapshot

_Folders = dict[str, dict[str, str]]
"""Of each directory that holds files, ``name: mode``; the root is the empty name."""
_MOST_KEPT = 200_000
"""Files; with 100,000 it is 16 MB."""
_NO_NAMES: dict[str, str] = {}
_known: dict[tuple[Path, str], _Folders] = {}
"""Of one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """How the work tree differs from a commit and the environment beside it."""

    extra: tuple[str, ...] = ()
    """Files, and directories with all that is in them, that neither of the two has, or that sessions changed there."""
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    """``path: (mode, object id)`` of what the commit has there, where the work tree has something else or nothing."""
    modes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Modes of files that are executable in one of the two only, and whose content is the same."""
    shown: str = ""
    """A sentence on what a gate sees all the same of what sessions changed in the environment; empty for nothing."""

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
        environment: What may be there besides.
    """
    own = {*intent.paths, *intent.drafts}
    parent = intent.head or repo.empty_tree
    changes = [c for c in objects.diff_trees(repo, parent, now.tree) if c.path not in own and not c.is_submodule]
    changed = {c.path: (c.old_mode, c.old_object_id) for c in changes if c.kind is not ChangeKind.ADDED}
    trusts_modes = guard(repo).flag("core.filemode", default=True)
    folders = _list_folders(repo, intent, now)
    by_sessions = SessionChanges(root=os.fspath(repo.root), spans=read_spans(repo))
    walk = _Look(
        repo=repo, folders=folders, environment=environment, trusts_modes=trusts_modes, by_sessions=by_sessions
    )
    walk.look()
    other_kinds = [path for path in walk.other_kinds if path not in own]
    return Surplus(
        extra=tuple(sorted((*walk.extra, *by_sessions.hidden))),
        changed={**changed, **objects.read_entries(repo, parent, other_kinds)},
        modes={path: mode for path, mode in walk.other_modes.items() if path not in changed},
        shown=by_sessions.render(),
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


def _list_folders(repo: Repo, intent: Intent, now: TreeSnapshot) -> _Folders:
    """Return what the commit is going to hold, and the drafts where the work tree has them."""
    taken = objects.read_entries(repo, now.tree, intent.paths)
    own = {path: taken.get(path, (ABSENT, ""))[0] for path in intent.paths}
    drafts = {path: FILE for path in intent.drafts if os.path.lexists(repo.root / path)}
    return _put(_list_commit(repo, intent.head) if intent.head else {}, own | drafts)


def _put(folders: _Folders, modes: Mapping[str, str]) -> _Folders:
    """Return the same with other modes of some files; mode ``000000`` takes one out."""
    changed: _Folders = {}
    for path, mode in modes.items():
        folder, _, name = path.rpartition("/")
        if folder not in changed:
            changed[folder] = {**folders.get(folder, _NO_NAMES)}
        changed[folder][name] = mode
        if mode == ABSENT:
            del changed[folder][name]
    return {folder: names for folder, names in (folders | changed).items() if names}


def _list_commit(repo: Repo, commit: str) -> _Folders:
    """Return what a commit holds; that of the last one is kept, which a phase has for its start and its end."""
    key = (repo.common_dir, commit)
    if key not in _known or has_replacements(repo.common_dir):
        folders = _read_on(repo, commit)
        folders = _ask_for_folders(repo, commit) if folders is None else folders
        _known.clear()
        if sum(map(len, folders.values())) > _MOST_KEPT:
            return folders
        _known[key] = folders
    return _known[key]


def _read_on(repo: Repo, commit: str) -> _Folders | None:
    """Return the files of a commit by how it differs from the last commit read; None when none was read here."""
    for (place, known), folders in _known.items():
        if place == repo.common_dir:
            return _put(folders, {change.path: change.mode for change in objects.diff_trees(repo, known, commit)})
    return None


def _ask_for_folders(repo: Repo, commit: str) -> _Folders:
    out = repo.git.run("ls-tree", "-r", "-z", "--full-tree", "--format=%(objectmode) %(path)", commit)
    folders: _Folders = {}
    modes: dict[str, str] = {}  # each once, and not with each file
    last, names = "", folders.setdefault("", {})
    for record in os.fsdecode(out).split("\0")[:-1]:
        mode = record[:6]
        folder, _, name = record[7:].rpartition("/")
        if folder != last:
            last, names = folder, folders.setdefault(folder, {})
        names[name] = modes.setdefault(mode, mode)
    return folders


@dataclass(slots=True, kw_only=True)
class _Look:
    """One look at every directory of the work tree. Mutable: notes what it meets."""

    repo: Repo
    folders: _Folders
    environment: Environment
    trusts_modes: bool
    by_sessions: SessionChanges
    extra: list[str] = field(default_factory=list)
    other_kinds: list[str] = field(default_factory=list)
    other_modes: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Note everything; a directory that neither needs is extra as a whole and is not entered."""
        committed = with_parents(self.folders)
        known = committed | with_parents(self.environment.roots)
        plain = frozenset({FILE, EXECUTABLE}) if self.trusts_modes else frozenset[str]()
        pending = [""]
        while pending:
            folder = pending.pop()
            names, below = self.folders.get(folder, _NO_NAMES), f"{folder}/" if folder else ""
            for entry in list_entries(f"{self.repo.root}/{folder}"):
                wanted = names.get(entry.name)
                if wanted is None:
                    path = f"{below}{entry.name}"
                    if path not in committed and self.environment.holds(path):
                        self.by_sessions.look(path)
                    elif path in known and entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    else:
                        self.extra.append(path)
                elif wanted not in plain or not entry.is_file(follow_symlinks=False):
                    self._compare(f"{below}{entry.name}", wanted, entry)

    def _compare(self, path: str, wanted: str, entry: os.DirEntry[str]) -> None:
        if wanted == GITLINK:
            self.by_sessions.look(path, is_module=True)
            return
        is_file, is_link = entry.is_file(follow_symlinks=False), entry.is_symlink()
        if (wanted == SYMLINK) != is_link or (wanted != SYMLINK and not is_file):
            self.other_kinds.append(path)
        elif is_file and not self.trusts_modes:
            mode = EXECUTABLE if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else FILE
            if mode != wanted:
                self.other_modes[path] = wanted
