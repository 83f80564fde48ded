"""The user's commit hooks: which there are, and how the caller is to run one in its sandbox.

A hook gets a copy of the index and an object store of its own that borrows from the repository's, so that a hook that
stages files works while the git directory is read-only. What it puts there is not used: relay takes the files in.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import render_settings
from relay.git.config_guard import Setting, find_value, is_true
from relay.git.config_listing import read_version
from relay.git.names import quote_path
from relay.git.refs import CONFIGURED_HOOKS
from relay.git.repository import Repo


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """One hook, ready to be run."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """To be added to the sandbox's environment."""
    cwd: Path
    scratch: Path
    """Must be writable for the hook; holds the index copy, the object store and the message file."""
    lent: Mapping[str, Path] = field(default_factory=dict, hash=False)
    """Files of the repository, by path, in whose place the hook is to have these copies, to read and to write."""
    branch: str = ""
    """What HEAD is to name for it, at the same commit; empty for what it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How a hook ended."""

    ok: bool
    output: str = ""
    duration_s: float = 0.0
    lent: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """The copies as the hook left them; without one that it took away."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """How hooks are run for a commit; supplied by the caller, who owns the sandbox."""

    run: Callable[[HookRun], HookResult]
    scratch: Path
    """A directory that hooks may write; each gets a new one in it."""
    names: frozenset[str] | None = None
    """Which are run; None: all there are."""
    elsewhere: str = ""
    """A branch that a hook which refuses may be tried on: it may only forbid this one. Empty where HEAD is on such."""
    recheck: Callable[[tuple[str, ...]], str | None] = lambda _: None
    """Called with the paths that a hook rewrote, after they were taken in: words when the phase is not green now."""


def only_forbids_branch(hooks: Hooks, refused: HookResult, run: Callable[[Hooks], HookResult]) -> bool:
    """Say whether a hook that has refused agrees on another branch.

    Args:
        run: Runs it once more, as these hooks are run.
    """
    if refused.ok or refused.timed_out or not hooks.elsewhere:
        return False
    return run(replace(hooks, run=lambda wanted: hooks.run(replace(wanted, branch=hooks.elsewhere)))).ok


def get_hooks_dir(repo: Repo, config: tuple[Setting, ...]) -> Path:
    """Return where git looks for hook programs: ``core.hooksPath``, else the repository's own place.

    Raises:
        RepoError: The repository's own configuration, or a link in it, leads to a directory elsewhere, which a hook
            would be shown.
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


def has_hook(repo: Repo, config: tuple[Setting, ...], name: str) -> bool:
    """Return whether git would run anything for the hook `name`."""
    program = get_hooks_dir(repo, config) / name
    return (program.is_file() and os.access(program, os.X_OK)) or bool(_find_configured(repo, config, name))


def _find_configured(repo: Repo, config: tuple[Setting, ...], name: str) -> tuple[Setting, ...]:
    """Return the settings of hooks that the configuration names for this event."""
    if read_version(repo) < CONFIGURED_HOOKS:
        return ()
    prefixes = [
        setting.key.removesuffix("event")
        for setting in config
        if setting.key.startswith("hook.") and setting.key.endswith(".event") and setting.value == name
    ]
    wanted = [p for p in prefixes if is_true(find_value(config, f"{p}enabled"), default=True)]
    return tuple(setting for setting in config if any(setting.key.startswith(prefix) for prefix in wanted))


def make_hook_run(repo: Repo, config: tuple[Setting, ...], name: str, args: tuple[str, ...], *, index: Path) -> HookRun:
    """Return how to run the hook `name`; `index` is the copy it may change, in its scratch directory."""
    hooks_dir = get_hooks_dir(repo, config)
    objects = index.parent / "objects"
    objects.mkdir(exist_ok=True)
    env = {
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
