"""Find repository, settings and plan from the current directory."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from relay.base.errors import ConfigError, PlanError, RepoError, within
from relay.base.hints import Caller, Command, Hint, TypedPath
from relay.base.places import find_place, is_outside, name_outside
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.notes import STEERING, read_note
from relay.git.repository import Repo, open_repo
from relay.plan.model import Plan
from relay.plan.parse import find_plan_in, parse_plan
from relay.plan.text import DEFAULT_PLAN, MAX_PLAN_BYTES, decode_text, find_setting_line, require_utf8
from relay.store.history import find_removed, find_text
from relay.store.loose import is_loose, require_versions
from relay.store.plan_state import PlanSource
from relay.store.worktree_notes import is_own_tree

if TYPE_CHECKING:
    from relay.config import Settings

MAX_SETTINGS_BYTES = 1024 * 1024
"""The limit of the settings' own reader, which reports a larger file."""
_PLAN_KEY = re.compile(rb"^[^#\n]*\bplan\b", re.MULTILINE)
_HIDING_KEY = re.compile(rb"^[^#\n]*\bhide\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The surroundings of a command."""

    root: Path
    """The repository's root; without a repository, the current directory."""
    found: Repo | None
    """The repository; None without one, for commands that do not need it."""
    plan_file: Path
    plan_name: str
    """The plan's path in messages: relative to the root if it is inside."""
    caller: Caller
    """Writes commands for the user to type."""

    @property
    def repo(self) -> Repo:
        """The repository. Raises RepoError without one."""
        if self.found is None:
            raise RepoError("there is no git repository here", hint="git init")
        return self.found

    def tell_choice(self, command: str) -> tuple[str, ...]:
        """Return which plan a command takes where nobody named one and another of that name may be meant."""
        name, folder = PurePath(self.plan_name), Path(self.caller.folder)
        is_nearest = folder.is_relative_to(name.parent) and name.parent != PurePath()
        other = name.name if is_nearest else os.path.normpath(folder / name)
        if self.caller.plan or other == self.plan_name or not (self.root / other).is_file():
            return ()
        taken, command_of = TypedPath(path=self.plan_name), Command(words=(command,), plan_path=other)
        which, whose = ("the nearest", "the root's") if is_nearest else ("the settings'", "this folder's")
        return (self.caller.write(("this is ", taken, f", {which} plan; ", command_of, f" takes {whose}")),)


def get_place(
    *, plan: str | None, environ: Mapping[str, str], needs_repo: bool = True, cwd: Path | None = None
) -> Place:
    """Find the repository and the plan's file; the plan is not read yet.

    Args:
        plan: The plan as typed, relative to the current directory; None to take it from the settings.
        needs_repo: Whether the command needs a repository.
        cwd: Takes the place of the current directory.

    Raises:
        RepoError: There is no usable repository, and the command needs one.
        GitError: Git failed.
        ConfigError: A setting is invalid.
    """
    cwd = cwd or Path.cwd()
    repo: Repo | None = None
    try:
        repo = open_repo(cwd, environ)
    except RepoError as error:
        # After a failure of git, a repository may well exist.
        if needs_repo or isinstance(error, GitError):
            raise
    root = repo.root if repo else cwd
    if repo:
        _require_own_settings(repo)
    base, typed = (cwd, plan) if plan else (root, _find_plan_name(environ, root, cwd))
    plan_file = find_place(base, typed)
    if repo and is_outside(os.path.relpath(plan_file, root)):
        words = "a plan in a directory of this name at the root would be taken for one in your home directory"
        raise PlanError(words, path=str(plan_file), hint="rename the directory")
    if repo:
        repo = _hide(repo, environ, plan_file)
    caller = Caller(folder=os.path.relpath(cwd, root), plan=plan or "")
    name, spelled = os.path.relpath(plan_file, root), Path(os.path.normpath(plan_file))
    if not spelled.is_relative_to(root):
        name = name_outside(spelled) if repo else str(spelled)
    return Place(
        root=root,
        found=repo,
        plan_file=plan_file,
        plan_name=name,
        caller=caller,
    )


def _require_own_settings(repo: Repo) -> None:
    """Refuse settings that a session may have written: they would set the plan, its gate and its caps."""
    if not read_note(repo, STEERING):  # relay has not run here yet: avoid the imports below
        return
    from relay.store.steering_files import describe_strange, find_settings_files, find_strange

    if strange := find_strange(repo, find_settings_files(repo.root)):
        words, ways = describe_strange(repo, strange)
        raise ConfigError(words, hint=ways)


def _find_plan_name(environ: Mapping[str, str], root: Path, cwd: Path) -> str:
    """Return the plan's path from the settings, else the nearest PLAN.md from the current directory up to the root.

    Loading all settings costs a fifth of the time of `relay status`: it is done only if a file can set the plan.
    """
    if "RELAY_PLAN" in environ or any(_may_name(file, _PLAN_KEY) for file in _list_settings_files(environ, root)):
        settings = find_settings({}, environ, root, plan=None)
        if settings.origins.get("plan", "default") != "default":
            return settings.plan
    return find_nearest_plan(root, cwd) or DEFAULT_PLAN


def find_nearest_plan(root: Path, cwd: Path) -> str:
    """Return the path from the root of the first PLAN.md from a directory up to the root; empty without one."""
    above = (folder / DEFAULT_PLAN for folder in (cwd, *cwd.parents) if folder.is_relative_to(root))
    return next((os.path.relpath(path, root) for path in above if os.path.lexists(path)), "")


def _hide(repo: Repo, environ: Mapping[str, str], plan_file: Path) -> Repo:
    """Return the repository with its hidden files; the settings are loaded only if a file can set them."""
    files = (*_list_settings_files(environ, repo.root), plan_file)
    if "RELAY_PATHS" not in environ and not any(_may_name(file, _HIDING_KEY) for file in files):
        return repo
    from relay.setup.workspace import get_hidden

    try:
        plan = find_plan_in(decode_text(read_start(plan_file, MAX_PLAN_BYTES) or b""))
    except OSError:
        plan = None
    settings = find_settings({}, environ, repo.root, plan=plan, plan_name=plan_file.name)
    return replace(repo, hidden=get_hidden(repo, settings, environ))


def _list_settings_files(environ: Mapping[str, str], root: Path) -> tuple[Path, ...]:
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/"), ".config"), "relay", "config.toml")
    return (root / "relay.toml", root / "pyproject.toml", user)


def _may_name(file: Path, key: re.Pattern[bytes]) -> bool:
    try:
        start = read_start(file, MAX_SETTINGS_BYTES)
        return start is None or len(start) > MAX_SETTINGS_BYTES or key.search(start) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # loading the settings reports the error


def find_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], root: Path, *, plan: Plan | None, plan_name: str = ""
) -> "Settings":
    """Load the settings of a command from all sources.

    Args:
        flags: Settings that were typed.
        root: The repository's root.
        plan: Its front matter may have settings; None leaves them out.
        plan_name: The plan's path in messages.

    Raises:
        ConfigError: A setting is invalid; the message names its origin.
    """
    from relay.config import find_user_dir, load_settings
    from relay.config.sources import Origin

    def find_in_plan(key: str) -> Origin:
        line = find_setting_line(plan.outline.front, plan.outline.lines, key) if plan else 0
        return Origin(name=plan_name, is_file=True, line=line)

    settings = load_settings(
        flags=flags,
        environ=environ,
        plan_settings=plan.settings if plan else {},
        find_in_plan=find_in_plan,
        repo_root=root,
        user_dir=find_user_dir(environ),
    )
    if (origin := settings.origins.get("runner", "default")) != "default":  # the default needs no import
        from relay.runners.registry import get_kind, list_runners

        get_kind(settings.runner, origin=origin, known=list_runners(settings))
    return settings


def load_plan(place: Place) -> Plan:
    """Read and parse the plan.

    Raises:
        PlanError: There is no such file, or it is invalid.
    """
    with within(place.plan_name):
        return parse_plan(read_plan_text(place))


def find_source(place: Place) -> PlanSource:
    """Return the plan as a source for `relay.store.plan_state`."""
    return PlanSource(plan_name=place.plan_name, load=partial(load_plan, place))


def read_plan_text(place: Place) -> str:
    """Read the plan's file.

    Raises:
        PlanError: There is no such file, or it is no text.
    """
    if place.found and (held := _find_held(place.found, place)) is not None:
        return held
    try:
        start = read_start(place.plan_file, MAX_PLAN_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        is_below = place.caller.folder != "." and not place.caller.plan
        where = f" in {os.path.relpath('.', place.caller.folder)}, the repository's root" if is_below else ""
        raise PlanError(f"there is no such plan{where}", hint=_find_way_back(place)) from None
    if start is None:
        raise PlanError("this is not a regular file")
    return require_utf8(start)


def _find_held(repo: Repo, place: Place) -> str | None:
    """Return a loose plan's text at HEAD where no file is read: in a tree of relay's own, or in a clone without it."""
    if not is_own_tree(repo) and os.path.lexists(place.plan_file):
        return None
    text = find_text(repo, repo.head(), place.plan_name) if is_loose(repo, place.plan_name) else None
    if text is None:
        require_versions(repo, place.plan_name)
    return text


def _find_way_back(place: Place) -> Hint:
    from relay.gate.needs import find_near

    repo, is_inside = place.found, not (is_outside(place.plan_name) or Path(place.plan_name).is_absolute())
    if repo is not None and is_inside and find_text(repo, repo.head(), place.plan_name) is not None:
        return ("the last commit has it: git restore ", TypedPath(path=place.plan_name))
    folder, typed = place.caller.folder, place.caller.plan
    # The path may be relative to the root, or a plan may lie in the current directory.
    other = os.path.normpath(typed or Path(folder, place.plan_name))
    if other != place.plan_name and (place.root / other).is_file():
        return _name_commands(other)
    if near := find_near(place.plan_file.name, place.plan_file.parent):
        return ("did you mean ", TypedPath(path=str(PurePath(place.plan_name).with_name(near))), "?")
    if repo is not None and not typed:
        there = (path for path in repo.git.list_files() if path.endswith(f"/{place.plan_name}"))
        if first := next(there, ""):
            return _name_commands(first)
    if repo is not None and is_inside and (took := find_removed(repo, place.plan_name)[:12]):
        return (f"{took} took it out: git restore --source {took}~1 ", TypedPath(path=place.plan_name))
    writes = ("`", Command(words=("plan",)), ' "what you want"` writes one')
    return writes if typed else (writes, "; `relay init` puts an example there")


def _name_commands(plan: str) -> Hint:
    """Return the commands for a plan that is somewhere else; `check` takes its path alone, the others by ``--plan``."""
    check, run = (Command(words=(name,), plan_path=plan) for name in ("check", "run"))
    return ("there is ", TypedPath(path=plan), ": `", check, "` checks it, `", run, "` builds it")
