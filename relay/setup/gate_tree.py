"""The tree of gates and commit hooks: the files of a commit that is to be made, and what git ignores in the user's own.

It is a linked work tree of relay's own, beside the one in which a phase's sessions work, and no session reaches it.
Before each gate relay checks out there what the commit would hold, and removes what an earlier gate left: what is
tested is what is committed. Nothing in it is anybody's work, so relay makes it anew wherever it is broken.

Packages come from the user's work tree, or from the setup commands. Where there are none, a gate uses the packages that
the sessions have installed, and the commit says so.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from shlex import quote

from relay.base.errors import RepoError
from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.base.walk import open_ignored
from relay.git import worktrees
from relay.git.command import GitError
from relay.git.names import list_paths, with_parents
from relay.git.notes import read_note, write_note
from relay.git.objects import read_entries
from relay.git.repository import Repo, open_worktree
from relay.git.trees import GITLINK, SYMLINK
from relay.plan.text import STATE_DIR
from relay.sandbox.places import GENERATED, find_real, is_below
from relay.session.events import Observe
from relay.setup.context import GateFiles, GateTree, RunRequest
from relay.setup.ignored import bring_ignored, bring_installed, bring_named, find_installed
from relay.setup.rules import Rules
from relay.setup.workspace import ensure_set_up, get_mechanism, hide_places
from relay.store.worktree_notes import Brought, find_home, get_gate_place, is_own_tree, note_home, read_brought
from relay.tools.workspace import Workspace

_MADE = "made"
"""What setup commands made there, and stays."""


@dataclass(slots=True, kw_only=True)
class GateOpener:
    """Opens the tree of the gates of one work tree. Mutable: remembers where it and the user's are."""

    request: RunRequest
    """Of the run, in the work tree of the sessions."""
    rules: Rules
    observe: Observe
    open_heard: Callable[[RunRequest, Rules], AbstractContextManager[Workspace]]
    gate: Repo | None = None
    main: Repo | None = None
    """The user's work tree: what git ignores comes from there, never from the sessions'."""
    named: tuple[str, ...] = ()
    """What the settings `copy` and `env_file` name, as it is in the gate's tree."""

    @contextmanager
    def open(self, files: GateFiles) -> Iterator[GateTree]:
        """Check a commit's files out there, and open a workspace; a `RunContext.open_gate`.

        Raises:
            ConfigError: A setup command failed.
            RepoError: The tree cannot be made: the disk is full, for example.
        """
        try:
            gate, laid = self._lay_out(files)
        except (GitError, OSError):  # a command made something that nobody can remove, say: the tree is made anew
            worktrees.drop_worktree(self.request.repo, get_gate_place(self.request.repo))
            gate, laid = self._lay_out(files)
        settings = self.request.settings
        with open_ignored(gate.root, (STATE_DIR,)):
            pass  # relay makes it before a command could
        with self.open_heard(replace(self.request, repo=gate), self.rules) as workspace:
            if ensure_set_up(gate, settings, workspace, self.observe):
                write_note(gate, _MADE, "\0".join(worktrees.list_ignored_entries(gate)))
            yield laid(workspace=workspace)

    def _lay_out(self, files: GateFiles) -> tuple[Repo, "partial[GateTree]"]:
        """Bring what the commit does not hold, and check its files out; the value lacks its workspace."""
        job, settings = self.request.repo, self.request.settings
        if self.gate is None or not (self.gate.root / ".git").exists():
            self.gate = _ensure(job)
        if self.main is None:
            users = replace(self.request, repo=open_worktree(job, find_home(job))) if is_own_tree(job) else self.request
            self.main = hide_places(users).repo
        gate, before = self.gate, read_brought(self.gate)
        worktrees.follow_sparse(self.main, gate)
        named = (*settings.copy, *([settings.env_file] if settings.env_file else []))
        installed = () if settings.setup else find_installed(job, gate)
        is_users = files.is_baseline or not before or is_own_tree(job)  # else sessions have written there since
        if is_users:
            has_packages = not settings.setup and get_mechanism(settings).confines
            bring_ignored(self.main, gate, named=named, has_packages=has_packages, installed=installed)
        self.named = bring_named(self.main, gate, named, is_users=is_users)
        bring_installed(job, gate, installed)
        put = partial(self._put, gate, files)
        links, is_new = put(), read_brought(gate) != before
        return gate, partial(GateTree, repo=gate, reset=put, is_new=is_new, installed=installed, links=links)

    def _put(self, gate: Repo, files: GateFiles) -> tuple[str, ...]:
        """Make the tree's files those of the commit; return the links that are left out."""
        brought, made = read_brought(gate) or Brought(copies={}, lent=()), read_note(gate, _MADE).split("\0")
        kept = filter(None, (*brought.copies, *brought.lent, *self.named, *made))
        worktrees.put_tree(gate, files.tree, head=files.head, kept=kept)
        entries = read_entries(gate, files.tree, files.paths)
        _require_shown(gate, entries)
        return _remove_links_away(gate, entries)


def _ensure(job: Repo) -> Repo:
    """Return the gate's tree; make it anew unless it is whole."""
    home, place = find_home(job), get_gate_place(job)
    with contextlib.suppress(RepoError, OSError):
        if (place / ".git").exists() and is_own_tree(found := open_worktree(job, place)) and find_home(found) == home:
            return found
    worktrees.drop_worktree(job, place)
    place.parent.mkdir(parents=True, exist_ok=True)
    made = worktrees.add_worktree(job, place, "")
    note_home(made, home)  # last: it says that the tree is whole
    return made


def _require_shown(gate: Repo, entries: Mapping[str, tuple[str, str]]) -> None:
    """Refuse files of a commit that are not there.

    Raises:
        RepoError: The user's checkout is a sparse one, without them.
    """
    if out := [path for path, (mode, _) in entries.items() if mode != GITLINK and find_stat(gate.root, path) is None]:
        folders = " ".join(map(quote, sorted({path.rpartition("/")[0] or path for path in out})))
        words = f"outside of your sparse checkout, where no gate sees it: {list_paths(out)}"
        raise RepoError(words, hint=f"git sparse-checkout add {folders}")


def _remove_links_away(gate: Repo, entries: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """Remove those of a commit's new links that lead to git's or relay's data, or to what git ignores; return them.

    A clean clone has none of that, but for packages and caches.
    """
    away = tuple(path for path, (mode, _) in entries.items() if mode == SYMLINK and _leads_away(gate, path))
    for path in away:
        with contextlib.suppress(OSError):
            (gate.root / path).unlink()
    return away


def _leads_away(gate: Repo, path: str) -> bool:
    place, home = gate.root / path, f"{find_home(gate)}/"
    try:
        target = os.readlink(place)  # noqa: PTH115  # text
    except OSError:  # where core.symlinks is off, it is a file
        return False
    if target.startswith(("/proc/", "/run/relay/")):
        return True
    names = target.split("/")
    real = find_real(gate.root / target.removeprefix(home) if target.startswith(home) else place)
    own = (gate.git_dir, gate.common_dir, gate.root / STATE_DIR)
    if not {".git", STATE_DIR}.isdisjoint(names) or is_below(real, own):
        return True
    if not real.is_relative_to(gate.root):
        return False
    parts = real.relative_to(gate.root).parts
    brought = read_brought(gate)
    return (
        brought is not None
        and not with_parents(["/".join(parts)]).isdisjoint(brought.copies)
        and GENERATED.isdisjoint(parts)
    )
