"""Find the user's commit hooks and prepare them for the caller's sandbox.

A hook gets a copy of the index and its own object store, which borrows from the repository's, so a hook that stages
files works although the git directory is read-only. relay ignores the staged objects and reads the files instead.

`copy_git_dir` makes a temporary git directory for each hook: hook managers write there (lint-staged keeps a stash while
it works, lefthook its hooks' checksum). The copy has all that git needs except objects and other large directories; the
caller shows the originals of those.
"""

import os
import shlex
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import get_version, render_settings
from relay.git.config_guard import GitSetting, find_value, is_true
from relay.git.names import quote_path
from relay.git.repository import Repo

CONFIGURED_HOOKS = (2, 54)
"""Git runs ``hook.<name>.command`` from this version on. Source: git-hook documentation, 2.54.0, 20 April 2026."""
_COPIED = frozenset({"hooks", "info", "reftable", "refs"})
"""Directories to copy; the caller shows the others as they are."""
_OWN_REFS = "relay"
"""The directory below ``refs/`` of relay's checkpoints, which may be thousands."""
_STASH_LOG = "logs/refs/stash"


def copy_git_dir(repo: Repo, place: Path, *, branch: str = "") -> tuple[str, ...]:
    """Fill the new directory `place` with a copy of the repository's common git directory.

    Links are copied as links, and nothing but regular files is opened.

    Args:
        branch: The branch that HEAD names in the copy, at the same commit; empty for the same one. In a reftable
            repository HEAD stays.

    Returns:
        The names of directories that are not copied; each has an empty directory in `place`.
    """
    shown = []
    place.mkdir(mode=0o700)
    for entry in os.scandir(repo.common_dir):
        target = place / entry.name
        if entry.is_dir(follow_symlinks=False) and entry.name not in _COPIED | {"logs"}:
            target.mkdir()
            shown.append(entry.name)
        elif entry.is_dir(follow_symlinks=False) and entry.name != "logs":
            _copy_tree(Path(entry.path), target, leave_out=_OWN_REFS if entry.name == "refs" else "")
        else:
            _copy_file(Path(entry.path), target)
    (place / _STASH_LOG).parent.mkdir(parents=True)
    _copy_file(repo.common_dir / _STASH_LOG, place / _STASH_LOG)
    if repo.git_dir != repo.common_dir and repo.git_dir.is_relative_to(repo.common_dir):
        _copy_tree(repo.git_dir, place / repo.git_dir.relative_to(repo.common_dir))
        shown = [name for name in shown if name != "worktrees"]
    if branch and (head := repo.head()):
        ref = place / "refs/heads" / branch
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(f"{head}\n")
        (place / os.path.relpath(repo.git_dir, repo.common_dir) / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    return tuple(sorted(shown))


def _copy_tree(source: Path, target: Path, *, leave_out: str = "") -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        if entry.name == leave_out:
            continue
        if entry.is_dir(follow_symlinks=False):
            _copy_tree(Path(entry.path), target / entry.name)
        else:
            _copy_file(Path(entry.path), target / entry.name)


def _copy_file(source: Path, target: Path) -> None:
    try:
        mode = source.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(mode) and not source.name.endswith(".lock"):
        shutil.copy2(source, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """A hook, ready to run."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """To be added to the sandbox's environment."""
    cwd: Path
    scratch: Path
    """Must be writable for the hook; holds the index copy, the object store and the message file."""
    copies: Mapping[str, Path] = field(default_factory=dict, hash=False)
    """Copies that the hook sees and may write in place of the repository's files: path → copy."""
    branch: str = ""
    """The branch that HEAD names for the hook, at the same commit; empty for the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How a hook ended."""

    ok: bool
    output: str = ""
    duration_s: float = 0.0
    copies: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """The copies after the hook ran; removed ones are missing."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Runs hooks for a commit; supplied by the caller, who owns the sandbox."""

    run: Callable[[HookRun], HookResult]
    scratch: Path
    """A directory for the hooks' own directories, which they may write."""
    tree: Repo | None = None
    """The work tree in which they run, with the commit's files and its parent at HEAD; None: the commit's own."""
    names: frozenset[str] | None = None
    """The hooks to run; None for all."""
    elsewhere: str = ""
    """Another branch to retry a refusing hook on: it may forbid only the current one. Empty where HEAD is on such."""
    may_make: Callable[[str], bool] = lambda _: True
    """Returns whether a commit takes a new file of this path that a hook made in `tree`."""
    recheck: Callable[[str, tuple[str, ...]], str | None] = lambda _tree, _paths: None
    """Called with the commit's tree and the paths that a hook rewrote; returns words if the phase's gate is red now."""


def only_forbids_branch(hooks: Hooks, refused: HookResult, run: Callable[[Hooks], HookResult]) -> bool:
    """Return whether a refusing hook accepts the commit on another branch.

    Args:
        run: Runs the hook once more.
    """
    if refused.ok or refused.timed_out or not hooks.elsewhere:
        return False
    return run(replace(hooks, run=lambda wanted: hooks.run(replace(wanted, branch=hooks.elsewhere)))).ok


def get_hooks_dir(repo: Repo, config: tuple[GitSetting, ...]) -> Path:
    """Return git's hooks directory: ``core.hooksPath``, else the repository's own.

    Raises:
        RepoError: The repository's own configuration, or a link, leads to a directory elsewhere, which a hook would
            then see.
    """
    setting = next((entry for entry in reversed(config) if entry.key == "core.hookspath"), None)
    value = setting.value if setting else ""
    place = repo.root / os.path.expanduser(value) if value else repo.common_dir / "hooks"  # noqa: PTH111  # git's rule
    if setting and value and setting.trusted:
        return place
    real = Path(os.path.realpath(place))
    main = repo.common_dir.parent if repo.common_dir.name == ".git" else repo.root  # of a linked work tree
    if real.is_dir() and not any(real.is_relative_to(own) for own in (repo.root, repo.common_dir, main)):
        raise RepoError(
            f"the hooks of this repository are in {real}, outside of it: only your own configuration may say so",
            hint=f"git config --global core.hooksPath {shlex.quote(str(real))}, or git config --unset core.hooksPath",
        )
    return place


def has_hook(repo: Repo, config: tuple[GitSetting, ...], name: str) -> bool:
    """Return whether git would run a program for the hook `name`."""
    program = get_hooks_dir(repo, config) / name
    return (program.is_file() and os.access(program, os.X_OK)) or bool(_find_configured(repo, config, name))


def _find_configured(repo: Repo, config: tuple[GitSetting, ...], name: str) -> tuple[GitSetting, ...]:
    """Return the settings of hooks that the configuration names for this event."""
    if get_version(repo.git) < CONFIGURED_HOOKS:
        return ()
    prefixes = [
        setting.key.removesuffix("event")
        for setting in config
        if setting.key.startswith("hook.") and setting.key.endswith(".event") and setting.value == name
    ]
    wanted = [p for p in prefixes if is_true(find_value(config, f"{p}enabled"), default=True)]
    return tuple(setting for setting in config if any(setting.key.startswith(prefix) for prefix in wanted))


def make_hook_run(
    repo: Repo,
    config: tuple[GitSetting, ...],
    name: str,
    args: tuple[str, ...],
    *,
    index: Path,
    author: Mapping[str, str],
) -> HookRun:
    """Return the hook `name`, ready to run.

    Args:
        index: The copy that it may change, in its scratch directory.
        author: The variables that name the commit's author, which `git commit` gives to hooks.
    """
    hooks_dir = get_hooks_dir(repo, config)
    objects = index.parent / "objects"
    objects.mkdir(exist_ok=True)
    env = {
        **{key: value for key, value in author.items() if key.startswith("GIT_AUTHOR_")},
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": quote_path(str(repo.common_dir / "objects")),
        "GIT_EDITOR": ":",
    }
    # The sandbox hides the home directory, and with it the configuration that names these.
    settings = [(s.key, s.value) for s in _find_configured(repo, config, name)]
    env |= render_settings(settings)
    return HookRun(
        name=name,
        argv=(repo.git.program, "-c", f"core.hooksPath={hooks_dir}", "hook", "run", name, "--", *args),
        env=env,
        cwd=repo.root,
        scratch=index.parent,
    )
