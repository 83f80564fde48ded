"""How the work tree differs from a commit about to be made, and from the environment that a gate may see beside it.

Git is asked only for the names in the commit. relay looks for everything else in the directories themselves, because
git is silent about much of it: ignored files, empty directories, pipes, modes that it was told not to trust.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.tree import read_file
from relay.base.values import dataclass
from relay.git import objects
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.names import with_parents
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.git.trees import ABSENT, EXECUTABLE, FILE, GITLINK, SYMLINK
from relay.plan.text import STATE_DIR
from relay.sandbox.places import GENERATED, find_real, is_below
from relay.store.environment import OWN, Environment, SessionChanges, SessionSpan, read_spans
from relay.store.snapshot import TreeSnapshot
from relay.store.worktree_notes import find_home

_Folders = dict[str, dict[str, str]]
"""For each directory that holds files, ``name: mode``; the root's name is empty."""
_NO_NAMES: dict[str, str] = {}
_Entries = Mapping[str, tuple[str, str]]
"""``path: (mode, object id)``."""
_LAG_NS = 2_000_000_000
"""A program that saves a file writes it, gives it a mode and a name: each moves the date of its last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDifference:
    """How the work tree differs from a commit and the environment beside it."""

    extra: tuple[str, ...] = ()
    """Files, and directories as a whole, that neither commit nor environment has, or that sessions changed in the
    environment."""
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    """``path: (mode, object id)`` in the commit, where the work tree has something else or nothing."""
    modes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """``path: mode`` in the commit, of files with the same content that are executable in only one of the two."""
    shown: str = ""
    """One sentence on session changes in the environment that a gate sees all the same; empty for none."""
    backdated: frozenset[str] = frozenset()
    """The commit's own files with a date from before they were changed: a build of the user's would pass for theirs."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted({*self.extra, *self.changed, *self.modes}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A commit about to be made."""

    head: str | None
    """The parent; None on an unborn branch."""
    paths: tuple[str, ...]
    """The paths that it takes from the work tree; all others are as in the parent."""
    drafts: tuple[str, ...]
    """The plan and its ledger: relay has their new bytes, and shows the work tree's to a gate."""


def find_tree_difference(repo: Repo, intent: Intent, now: TreeSnapshot, environment: Environment) -> TreeDifference:
    """Compare the work tree with a commit that is about to be made of it.

    Args:
        environment: May be there besides.
    """
    own = {*intent.paths, *intent.drafts}
    parent = intent.head or repo.empty_tree
    changes = [c for c in objects.diff_trees(repo, parent, now.tree) if c.path not in own and not c.is_submodule]
    changed = {c.path: (c.old_mode, c.old_object_id) for c in changes if c.kind is not ChangeKind.ADDED}
    trusts_modes = guard(repo).flag("core.filemode", default=True)
    taken = objects.read_entries(repo, now.tree, intent.paths)
    folders = _list_folders(repo, intent, taken)
    by_sessions = SessionChanges(root=os.fspath(repo.root), spans=read_spans(repo))
    walk = _Look(
        repo=repo,
        folders=folders,
        environment=environment,
        own=frozenset(intent.paths),
        trusts_modes=trusts_modes,
        by_sessions=by_sessions,
    )
    walk.look()
    other_kinds = [path for path in walk.other_kinds if path not in own]
    return TreeDifference(
        extra=tuple(sorted((*walk.extra, *by_sessions.hidden))),
        changed={**changed, **objects.read_entries(repo, parent, other_kinds), **_find_cleaned(repo, taken)},
        backdated=_find_backdated(repo, taken, by_sessions.spans),
        modes={path: mode for path, mode in walk.other_modes.items() if path not in changed},
        shown=by_sessions.render(),
    )


def read_committed(repo: Repo, difference: TreeDifference) -> dict[str, tuple[str, bytes]]:
    """Return ``path: (mode, bytes)`` of files that the commit has in another form, bytes as a checkout writes them.

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
        for path, (mode, blob) in difference.changed.items()
    }


def _list_folders(repo: Repo, intent: Intent, taken: _Entries) -> _Folders:
    """Return the files that the commit will hold, and the drafts that exist in the work tree."""
    own = {path: taken.get(path, (ABSENT, ""))[0] for path in intent.paths}
    drafts = {path: FILE for path in intent.drafts if os.path.lexists(repo.root / path)}
    return _put(_list_commit(repo, intent.head) if intent.head else {}, own | drafts)


def _find_cleaned(repo: Repo, taken: _Entries) -> dict[str, tuple[str, str]]:
    """Return mode and cleaned blob of the files that a checkout writes with other bytes: line ends, ``ident``."""
    git, cleaned = guard(repo).git, dict[str, tuple[str, str]]()
    for path, (mode, _) in taken.items():
        there = read_file(repo.root, path) if mode in {FILE, EXECUTABLE} else None
        if there is not None and (b"\r\n" in there or b"$Id" in there):  # else git changes nothing
            try:
                blob = objects.hash_bytes(git, there, filter_as=path)
            except GitError:  # git does not take it, which the commit step tells the session
                continue
            if git.run("cat-file", "--filters", f"--path={path}", blob) != there:
                cleaned[path] = mode, blob
    return cleaned


def _find_backdated(repo: Repo, taken: _Entries, spans: Sequence[SessionSpan]) -> frozenset[str]:
    """Return the files whose date is older than the last session, or than their last change."""
    start, found = spans[-1].start if spans else 0, set[str]()
    for path in taken:
        with contextlib.suppress(OSError):  # it was removed meanwhile
            status = os.lstat(repo.root / path)
            is_old = status.st_mtime_ns < max(start, status.st_ctime_ns - _LAG_NS)
            found |= {path} if stat.S_ISREG(status.st_mode) and is_old else set()
    return frozenset(found)


def _put(folders: _Folders, modes: Mapping[str, str]) -> _Folders:
    """Return the same with other modes of some files; mode ``000000`` removes a file."""
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
    # With --format git 2.39 quotes names in spite of -z.
    out = repo.git.run("ls-tree", "-r", "-z", "--full-tree", commit)
    folders: _Folders = {}
    modes: dict[str, str] = {}  # one string per mode, not per file
    last, names = "", folders.setdefault("", {})
    for record in os.fsdecode(out).split("\0")[:-1]:
        mode = record[:6]
        folder, _, name = record.partition("\t")[2].rpartition("/")
        if folder != last:
            last, names = folder, folders.setdefault(folder, {})
        names[name] = modes.setdefault(mode, mode)
    return folders


@dataclass(slots=True, kw_only=True)
class _Look:
    """A walk over every directory of the work tree. Mutable: collects the differences."""

    repo: Repo
    folders: _Folders
    environment: Environment
    own: frozenset[str]
    """The commit's own paths."""
    trusts_modes: bool
    by_sessions: SessionChanges
    extra: list[str] = field(default_factory=list)
    other_kinds: list[str] = field(default_factory=list)
    other_modes: dict[str, str] = field(default_factory=dict)

    @property
    def own_dirs(self) -> tuple[Path, ...]:
        return (self.repo.git_dir, self.repo.common_dir, self.repo.root / STATE_DIR)

    def look(self) -> None:
        """Collect all differences. A directory that neither commit nor environment needs is extra as a whole."""
        committed = with_parents(self.folders)
        known = committed | with_parents(self.environment.roots)
        plain = frozenset({FILE, EXECUTABLE}) if self.trusts_modes else frozenset[str]()
        pending = [""]
        while pending:
            folder = pending.pop()
            names, below = self.folders.get(folder, _NO_NAMES), f"{folder}/" if folder else ""
            for entry in self._list(folder):
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

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        place = f"{self.repo.root}/{folder}"
        try:
            return list(os.scandir(place))
        except OSError as error:
            if not folder:
                words = f"the repository's directory cannot be listed: {error.strerror}"
                raise RepoError(words, hint="chmod u+rx . at its root") from error
            # Commands use the entries that they know by name, if they may enter it.
            self.extra += (
                [folder] if error.errno not in {errno.EACCES, errno.ENOENT} or os.access(place, os.X_OK) else []
            )
            return []

    def _leads_away(self, path: str) -> bool:
        """Return whether a link leads to git's or relay's data, or one of the commit to what git ignores.

        Commands see the tree at the user's path, and in ``/proc`` and relay's own directory what no commit has.
        """
        place, home = f"{self.repo.root}/{path}", f"{find_home(self.repo)}/"
        try:
            target = os.readlink(place)  # noqa: PTH115  # text
        except OSError:
            return True  # it was removed meanwhile
        if target.startswith(("/proc/", "/run/relay/")):
            return True
        names = target.split("/")
        real = find_real(self.repo.root / target.removeprefix(home) if target.startswith(home) else Path(place))
        if not OWN.isdisjoint(names) or is_below(real, self.own_dirs):
            return True
        inside = path in self.own and real.is_relative_to(self.repo.root)
        parts = real.relative_to(self.repo.root).parts if inside else ()
        ignored = not with_parents(["/".join(parts)]).isdisjoint(self.environment.roots)
        return ignored and GENERATED.isdisjoint(parts)

    def _compare(self, path: str, wanted: str, entry: os.DirEntry[str]) -> None:
        if wanted == GITLINK:
            self.by_sessions.look(path, is_module=True)
            return
        is_file, is_link = entry.is_file(follow_symlinks=False), entry.is_symlink()
        if (wanted == SYMLINK) != is_link or (wanted != SYMLINK and not is_file):
            self.other_kinds.append(path)
        elif is_link and self._leads_away(path):
            self.extra.append(path)
        elif is_file and not self.trusts_modes:
            mode = EXECUTABLE if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else FILE
            if mode != wanted:
                self.other_modes[path] = wanted
