"""The sandbox of tools and commands, its policy from the settings, and the setup commands that run in it.

Setup commands install packages. They run confined like a session's commands, but reach public hosts by HTTPS, unless
the user's `network` setting says otherwise. Sessions and gates see the installed directories (`node_modules`, `.venv`).
Setup commands must not change a file that git knows: it would be taken for work of a phase.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from relay.base.errors import ConfigError, RepoError
from relay.base.interrupts import Interrupts
from relay.base.redaction import find_secret_values, read_assignments
from relay.base.secrecy import Hidden
from relay.base.tree import read_start
from relay.base.walk import open_ignored
from relay.base.words import render_output
from relay.config import Settings, find_user_dir
from relay.config.network import CLOSED, EVERY
from relay.gate.needs import read_beginning
from relay.git.config_guard import find_tree_files, read_config
from relay.git.hooks import get_hooks_dir
from relay.git.names import list_paths
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo
from relay.git.status import list_known, read_status
from relay.git.worktrees import KEYS
from relay.plan.text import STATE_DIR, find_protected
from relay.sandbox.openings import serve_openings
from relay.sandbox.places import GENERATED, find_environments, find_real, is_socket, is_there
from relay.sandbox.policy import MIB, Level, Limits, Mechanism, Policy
from relay.sandbox.run import Sandbox, open_sandbox
from relay.session.events import Observe, SetupFinished, SetupStarted
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.preconditions import check_program, require
from relay.setup.rules import Rules, load_repository_rules
from relay.store.worktree_notes import find_home, find_made_places, find_other_trees, read_brought
from relay.tools.workspace import Workspace


def get_mechanism(settings: Settings) -> Mechanism:
    """Return the sandbox mechanism of the settings; bubblewrap by default."""
    return Mechanism.BWRAP if settings.sandbox == "auto" else Mechanism(settings.sandbox)


def make_policy(
    repo: Repo, settings: Settings, protected: tuple[str, ...], environ: Mapping[str, str], plan_text: str = ""
) -> Policy:
    """Return the sandbox policy for commands in this repository.

    Args:
        plan_text: Virtual environments that it names become visible.

    Raises:
        ConfigError: See `get_unreadable`.
        RepoError: See `get_hooks_dir` and `find_other_trees`.
    """
    others, home = find_other_trees(repo), find_home(repo)
    is_moved, brought = home != repo.root and get_mechanism(settings).confines, read_brought(repo)
    apart = (place for place in (*others, *find_made_places(repo, others)) if not place.is_relative_to(repo.root))
    return Policy(
        root=repo.root,
        seen_at=home if is_moved else None,
        lent=tuple(home / path for path in brought.lent) if is_moved and brought else (),
        env=environ,
        git_dirs=tuple(dict.fromkeys((repo.git_dir, repo.common_dir))),
        protected=tuple(repo.root / path for path in (*protected, *find_tree_files(repo))),
        writable=tuple(_expand(settings, "write", environ).values()),
        readable=(
            get_hooks_dir(repo, read_config(repo)),
            *_expand(settings, "read", environ).values(),
            *find_environments(
                "\n".join((plan_text, *settings.verify)), repo.root, environ, () if is_moved else others
            ),
        ),
        unreadable=(
            *get_unreadable(repo.root, settings, environ),
            *_find_inside(repo.root, others),
            *(place for place in (repo.common_dir / KEYS,) if place.is_dir()),
        ),
        apart=tuple(apart),
        pass_env=settings.env,
        network=settings.network.whole,
        sockets=get_sockets(settings, environ),
    )


def get_sockets(settings: Settings, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths of the sockets in `network`, with links resolved.

    Raises:
        ConfigError: A path is no socket, or the place of a named socket is unknown.
    """
    origin = settings.origins.get("network", "default")
    return tuple(_get_socket(word, origin, environ) for word in settings.network.sockets)


def _get_socket(word: str, origin: str, environ: Mapping[str, str]) -> Path:
    named = environ.get(f"{word.upper()}_HOST", "").removeprefix("unix://")
    own = environ.get("XDG_RUNTIME_DIR", "")
    known = {
        "docker": (named, "/var/run/docker.sock", f"{own}/docker.sock"),
        "podman": (f"{own}/podman/podman.sock", "/run/podman/podman.sock"),
    }
    places = known.get(word, (word,))
    found = next((place for place in places if place.startswith("/") and is_there(Path(place))), None)
    if found is None or not is_socket(found):
        tried = ", ".join(place for place in places if place.startswith("/"))
        raise ConfigError(f"{origin}: network.sockets: {word}: there is no socket at {tried}")
    return find_real(Path(found))


def _expand(settings: Settings, name: str, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return each path of a list in `paths` with its home directory filled in.

    Raises:
        ConfigError: A path begins with ``~/`` and HOME is not set.
    """
    places, home = {}, environ.get("HOME", "")
    for text in getattr(settings.paths, name):
        if text.startswith("~/") and not home.startswith("/"):
            raise ConfigError(f"{settings.origins.get('paths', 'default')}: paths.{name}: {text}: HOME is not set")
        places[text] = Path(f"{home}/{text[2:]}" if text.startswith("~/") else text)
    return places


def read_handed(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return names and values of variables for gates (`env_file`) and tool servers; sessions do not get them."""
    data = None
    if settings.env_file:
        with contextlib.suppress(OSError):
            data = read_start(root / settings.env_file, MIB)
    given = ((name, environ.get(name, "")) for server in settings.mcp_servers.values() for name in server.env)
    return (*given, *read_assignments((data or b"").decode(errors="replace")))


def find_handed_secrets(request: RunRequest) -> tuple[str, ...]:
    """Return those of these values that look secret by their name, or hold a login; no session is told them."""
    return find_secret_values(dict(read_handed(request.repo.root, request.settings, request.environ)))


def find_all_secrets(request: RunRequest) -> tuple[str, ...]:
    """Return these and the secrets of the environment; relay keeps none of them anywhere."""
    return (*find_secret_values(request.environ), *find_handed_secrets(request))


def get_hidden(repo: Repo, settings: Settings, environ: Mapping[str, str]) -> Hidden:
    """Return the hidden places inside a repository.

    Raises:
        ConfigError: See `get_unreadable`.
        GitError: See `find_other_trees`.
    """
    root = repo.root
    places = _find_inside(root, (*get_unreadable(root, settings, environ), *find_other_trees(repo)))
    return Hidden(places=tuple(place.relative_to(root).as_posix() for place in places))


def _find_inside(root: Path, places: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(place for place in places if place.is_relative_to(root))


_CREDENTIAL_FILES = (
    "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
"""Variables that name files of credentials, wherever they are: no session reads these."""


def get_unreadable(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths that `paths` hides and the files of credentials, absolute and with links resolved.

    Raises:
        ConfigError: A path holds the whole repository, or HOME is needed and not set.
    """
    places = []
    for text, expanded in _expand(settings, "hide", environ).items():
        place = Path(os.path.realpath(root / expanded))
        if root.is_relative_to(place):
            raise ConfigError(f"{settings.origins['paths']}: paths.hide: {text} holds the repository itself")
        places.append(place)
    named = (Path(os.path.realpath(environ[name])) for name in _CREDENTIAL_FILES if environ.get(name, "")[:1] == "/")
    kept = (place for place in named if place.is_file() or place.is_dir())  # and no /dev/null
    return (*places, *(place for place in kept if not root.is_relative_to(place)))


def hide_places(request: RunRequest) -> RunRequest:
    """Return the request with a repository that knows its hidden files.

    Raises:
        ConfigError: See `get_unreadable`.
        GitError: See `find_other_trees`.
    """
    hidden = get_hidden(request.repo, request.settings, request.environ)
    return replace(request, repo=replace(request.repo, hidden=hidden))


def load_run_rules(request: RunRequest) -> Rules:
    """Load the rules (AGENTS.md) and the skills that the sessions of a run get; its repository knows what is hidden."""
    repo = request.repo
    return load_repository_rules(repo.root, request.settings, repo.hidden, find_user_dir(request.environ))


@contextmanager
def open_workspace(request: RunRequest, rules: Rules, interrupts: Interrupts) -> Iterator[Workspace]:
    """Open the sandbox of a run's tools and commands, and close it again; a session kind decides about write access.

    Args:
        rules: Their files are write-protected, whatever their names.

    Raises:
        RelayError: No sandbox works here, or the settings do not fit the machine.
    """
    root, settings = request.repo.root, request.settings
    if request.kind is SessionKind.EXPLORE:  # it reaches nothing, whatever the settings open
        settings = replace(settings, network=CLOSED)
    named = (file.path for file in rules.files if not file.path.startswith("/"))
    protected = tuple(dict.fromkeys((*find_protected(request.plan_path), *named)))
    policy = make_policy(request.repo, settings, protected, request.environ, read_beginning(root / request.plan_path))
    mechanism = get_mechanism(settings)
    level = Level.WORKSPACE_WRITE if request.kind.writes else Level.READ_ONLY
    closed = not mechanism.confines or settings.network.whole  # no proxy is needed then
    with (
        serve_openings(() if closed else settings.network.names, () if closed else settings.network.localhost) as held,
        open_sandbox(
            replace(policy, openings=held.openings),
            level,
            mechanism=mechanism,
            inquiries=held.inquiries,
        ) as sandbox,
    ):
        yield Workspace(
            root=root,
            sandbox=sandbox,
            protected=(*protected, *find_tree_files(request.repo)),
            should_stop=lambda: interrupts.stop_now,
            limits=Limits(timeout_s=settings.command_timeout_s),
            hidden=request.repo.hidden,
            spills="spill" not in settings.ablate,
        )


@contextmanager
def open_own_workspace(request: RunRequest) -> Iterator[Workspace]:
    """Open a session's workspace for a command that the user types, without a session, a key or a lock.

    Raises:
        RelayError: The sandbox does not work here.
    """
    root = request.repo.root
    require(check_program(root, request.settings, request.environ))
    request = hide_places(request)
    rules = load_run_rules(request)
    with open_ignored(root, (STATE_DIR,)):
        pass  # relay makes it before a command could, as a run does
    interrupts = Interrupts()
    try:
        with open_workspace(request, rules, interrupts) as opened:
            yield opened
    finally:
        interrupts.close()


_TAIL_CHARS = 4_000


def ensure_set_up(repo: Repo, settings: Settings, workspace: Workspace, observe: Observe) -> bool:
    """Run the setup commands unless they have run for the current lock files; a requested stop ends it early.

    Returns:
        Whether they ran to their end.

    Raises:
        ConfigError: A command failed.
        RepoError: A command changed files that git knows.
        SandboxError: The sandbox could not be set up.
    """
    if not settings.setup or is_set_up(repo, digest_setup(repo, settings.setup)):
        return False
    before = _look(repo)
    mechanism = workspace.sandbox.mechanism
    whole = settings.network.whole or not mechanism.confines
    hosts = () if whole else settings.network.names or (EVERY,)
    with serve_openings(hosts, () if whole else settings.network.localhost) as held:
        policy = replace(workspace.sandbox.policy, openings=held.openings)
        with open_sandbox(policy, Level.WORKSPACE_WRITE, mechanism=mechanism, inquiries=held.inquiries) as sandbox:
            for command in settings.setup:
                if not _run(command, settings, workspace, sandbox, observe):
                    return False
    after = _look(repo)
    if changed := [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]:
        raise RepoError(
            f"the setup commands changed files that git would take for work of a phase: {list_paths(changed)}",
            hint="see git status, and commit or undo the change; use a command that installs locked versions (npm ci, "
            "uv sync --frozen), and let git ignore the files that it makes",
        )
    save_set_up(repo, digest_setup(repo, settings.setup))
    return True


def _run(command: str, settings: Settings, workspace: Workspace, sandbox: Sandbox, observe: Observe) -> bool:
    """Run one command; return False if a stop was requested."""
    network = settings.network.text if settings.network.hosts else "every public host"
    observe(SetupStarted(command=command, network=network))
    result = replace(sandbox, hear=workspace.sandbox.hear).run(
        ["bash", "-o", "pipefail", "-c", command],
        limits=replace(workspace.limits, timeout_s=settings.gate_timeout_s),
        should_stop=workspace.should_stop,
    )
    output = "\n".join((render_output(result.output).strip("\n"), *(f"[{note}]" for note in result.notes)))
    for asked in sandbox.inquiries.take():
        observe(asked)
    tail = output[-_TAIL_CHARS:]
    observe(SetupFinished(command=command, exit_code=result.exit_code, duration_s=result.duration_s, output=tail))
    if result.interrupted:
        return False
    if result.exit_code != 0:
        how = "took too long (gate_timeout_s)" if result.timed_out else f"failed with exit {result.exit_code}"
        raise ConfigError(
            f"setup: `{command}` {how}\n{tail}",
            hint=f"relay shell --network -- {command!r} tries it; a host that was refused is named above",
        )
    return True


def _look(repo: Repo) -> Mapping[str, tuple[int, int]]:
    """Return each path that differs from HEAD, with its size and modification time."""
    marks = {}
    for entry in read_status(repo).entries:
        try:
            found = os.lstat(repo.root / entry.path)
            marks[entry.path] = (found.st_size, found.st_mtime_ns)
        except OSError:
            marks[entry.path] = (-1, 0)
    return marks


LOCK_FILES = (
    "Cargo.lock", "Gemfile.lock", "Pipfile.lock", "bun.lock", "bun.lockb", "composer.lock", "conda-lock.yml",
    "deno.lock", "go.sum", "gradle.lockfile", "mix.lock", "npm-shrinkwrap.json", "package-lock.json",
    "packages.lock.json", "pdm.lock", "pixi.lock", "pnpm-lock.yaml", "poetry.lock", "pubspec.lock", "pylock.toml",
    "uv.lock", "yarn.lock",
)  # fmt: skip
"""Names of lock files in any folder; `requirements*.txt` counts as one."""

_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.txt")
_MOST_BYTES = 64 * 1024 * 1024
_NOTE = "setup"


def is_lock_file(path: str) -> bool:
    """Return whether a path of the repository is the lock file of a package manager."""
    name = path.rpartition("/")[2]
    return name in LOCK_FILES or _REQUIREMENTS.fullmatch(name) is not None


def digest_setup(repo: Repo, commands: Sequence[str]) -> str:
    """Return a digest of the commands and the current lock files."""
    files = {path: _digest_file(repo, path) for path in list_known(repo) if is_lock_file(path)}
    return hashlib.sha256(json.dumps([list(commands), files]).encode()).hexdigest()


def _digest_file(repo: Repo, path: str) -> str:
    try:
        content = read_start(repo.root / path, _MOST_BYTES)
    except OSError:
        return "absent"
    return "no file" if content is None else hashlib.sha256(content).hexdigest()


def is_set_up(repo: Repo, digest: str) -> bool:
    """Return whether a setup with this digest has run here, and its environments still exist."""
    lines = read_note(repo, _NOTE).splitlines()
    return bool(lines) and lines[0] == digest and all((repo.root / name).is_dir() for name in lines[1:])


def save_set_up(repo: Repo, digest: str) -> None:
    """Note that a setup has run, with the environments at the root."""
    made = sorted(name for name in GENERATED if (repo.root / name).is_dir())
    write_note(repo, _NOTE, "\n".join((digest, *made)))
