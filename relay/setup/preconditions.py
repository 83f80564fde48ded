"""What has to hold before a session, each thing looked at in one place; `relay.setup.preconditions` has the order.

A check changes nothing and asks no endpoint.
"""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from relay.base.errors import ConfigError, PlanError, RelayError, RepoError, RunnerError, within
from relay.base.hints import Command, Hint, TypedPath
from relay.base.replacement import replace_with_file
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.walk import open_folder
from relay.base.words import shorten
from relay.config import Settings, find_user_dir
from relay.config.model_table import show_user_file
from relay.gate.absence import may_be_made
from relay.git.command import get_version
from relay.git.config_guard import read_config
from relay.git.hooks import HEAD_BYTES, get_hooks_dir, has_hook, parse_programs
from relay.git.identity import get_identity
from relay.git.index import check_state
from relay.git.names import list_paths
from relay.git.repository import Repo
from relay.git.signing import check_signing
from relay.git.status import Status, find_ignored, read_status
from relay.plan.text import find_ledger_path
from relay.runners.agents.profiles import Profile, find_family, find_login, get_installed
from relay.runners.base import RunnerKind
from relay.runners.registry import check_runners, get_kind, list_profiles, list_runners
from relay.sandbox.run import Sandbox
from relay.sandbox.toolchains import clean_search_path
from relay.sandbox.veil import lift_veil
from relay.session.prices import suggest_models
from relay.session.spend import Meter
from relay.setup.context import RunRequest
from relay.setup.program import LOADED_FROM, find_exposed
from relay.setup.rules import Rules
from relay.setup.session import find_price_now, make_meter
from relay.store.branches import find_along
from relay.store.completion import find_pending_move
from relay.store.legs import read_leg
from relay.store.refs import get_branch
from relay.store.worktrees import find_home


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedLogin:
    """A login that would do where there is no key."""

    words: str
    """Whose it is, and where."""
    way: str
    """What to type and to write so that relay uses it, in lines."""


def find_unused_login(settings: Settings, environ: Mapping[str, str], runners: Collection[str]) -> UnusedLogin | None:
    """Look for one, first with the agents that are going to run; nothing is read of it.

    Args:
        runners: Names of those that are going to run.
    """
    for profile in sorted(list_profiles(settings).values(), key=lambda profile: profile.name not in runners):
        if profile.hosts and (place := find_login(profile, environ)):
            where = f"~/{place}" if place.startswith(".") else place
            way = _describe_way(profile, settings, environ, is_runner=profile.name in runners)
            return UnusedLogin(words=f"you are logged in with {profile.title} ({where})", way=way)
    return None


def _describe_way(profile: Profile, settings: Settings, environ: Mapping[str, str], *, is_runner: bool) -> str:
    try:
        get_installed(profile, environ)
        first = ""
    except RunnerError:
        first = f" {profile.package} and,"
    name = profile.name
    lines = [] if is_runner else [f'runner = "{name}"']
    lines += list_login_settings(profile, settings)
    where = f"at the top of {show_user_file(environ)} (docs/agents.md says what then holds)"
    return "\n".join((f"or with your login:{first} {where}", *lines))


def list_login_settings(profile: Profile, settings: Settings) -> list[str]:
    """Return the lines of the user's settings that let an agent use its own login."""
    lines = []
    if not profile.is_lent:
        own = profile.name in settings.agents
        name = profile.name
        lines.append(f'login = "tunnel"  # below [agents.{name}]' if own else f'agents.{name}.login = "tunnel"')
    if find_family(settings.model) not in {"", *(way.family for way in profile.ways)}:
        lines.append(f'model = "…"  # one of {profile.title}, and its limits and price: [models."…"]')
    return lines


_FILE = "approved-setup.json"
_MOST_BYTES = 1024 * 1024


def find_unapproved(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the setup commands that are the repository's wish and that nobody has approved here yet."""
    if "setup" not in settings.of_repository:
        return ()
    approved = _read(find_user_dir(environ)).get(str(root), ())
    return tuple(command for command in settings.setup if command not in approved)


def require_approval(root: Path, settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse commands that nobody has read.

    Raises:
        ConfigError: There are some; names them and the way.
    """
    if left := find_unapproved(root, settings, environ):
        raise ConfigError(
            f"{settings.origins['setup']}: this repository wants to run with network before its first session: "
            f"{'; '.join(left)}",
            hint=("read what they run, then type ", Command(words=("run", "--approve-setup")), ", once"),
        )


def save_approval(root: Path, commands: Sequence[str], environ: Mapping[str, str]) -> None:
    """Keep that the user approves of these commands in this repository.

    Raises:
        ConfigError: There is no directory of the user's.
    """
    folder = find_user_dir(environ)
    if folder is None:
        raise ConfigError("an approval cannot be kept: HOME is not set", hint="RELAY_SETUP says the commands yourself")
    known = _read(folder)
    known[str(root)] = list(dict.fromkeys((*known.get(str(root), ()), *commands)))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_folder(folder, ()) as here:
        replace_with_file(here, _FILE, json.dumps(known, indent=1).encode(), executable=None)


def _read(folder: Path | None) -> dict[str, list[str]]:
    """Return the approved commands by repository; what is there and makes no sense approves nothing."""
    try:
        data = read_start(folder / _FILE, _MOST_BYTES) if folder else None
        values: Any = json.loads(data or b"{}")
        return {str(root): [str(command) for command in commands] for root, commands in values.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


_NAMED_CHARS = 200
_WITHOUT_HOOKS = "RELAY_HOOKS=skip commits without your hooks"


class State(StrEnum):
    """How good a finding is."""

    OK = "ok"
    MISSING = "missing"
    """`relay run` does not work without it."""
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    details: tuple[str, ...] = ()
    hint: Hint = ""
    """What to do; empty when nothing is to be done."""
    error: RelayError | None = None
    """What a run stops with; None when it can go on."""


def require(finding: Finding) -> None:
    """Stop where something is missing.

    Raises:
        RelayError: What the finding says.
    """
    if finding.error is not None:
        raise finding.error


def check_approval(repo: Repo, settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Look whether a person has read the setup commands that the repository asks for."""

    def get() -> str:
        require_approval(find_home(repo), settings, environ)
        return f"{len(settings.setup)} to be run before a session" if settings.setup else "nothing to be run"

    return find_out(get, name="setup")


def make_missing(name: str, error: RelayError) -> Finding:
    """Return the finding that an error is."""
    return Finding(name=name, state=State.MISSING, words=str(error), hint=error.hint, error=error)


def find_out(get: Callable[[], str], *, name: str) -> Finding:
    """Return what `get` says as a finding, or what it raises as one that is missing."""
    try:
        return Finding(name=name, state=State.OK, words=get())
    except RelayError as error:
        return make_missing(name, error)


def check_program(root: Path, settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Look whether relay's own code is out of reach for what its sessions write: the next command would run it."""

    def get() -> str:
        places = (str(root), *(str(Path(place).expanduser()) for place in settings.writable_dirs))
        found = find_exposed(places, {name: environ[name] for name in LOADED_FROM if name in environ})
        if not found:
            return "relay runs from outside of what sessions write"
        what, place = found[0]
        if what.isupper():
            raise ConfigError(
                f"{what} names {place or 'the current directory (an empty entry)'}, where sessions write: the next "
                "relay would load code of a session, with your key",
                hint=f"env -u {what} relay … starts relay without it; commands of sessions never get it",
            )
        raise ConfigError(
            f"{what} is in {place}, where sessions write: the next relay would be what a session made of it, "
            "with your key",
            hint="install relay outside of this repository, as a copy (uv tool install or pipx install of a checkout, "
            "without --editable), and type relay, not python -m relay",
        )

    return find_out(get, name="relay")


def check_key(
    kinds: Sequence[RunnerKind], environ: Mapping[str, str], settings: Settings, runners: Sequence[str] = ()
) -> Finding:
    """Look for the keys that runners need; none is ever shown. Where one is missing, a login that would do is named.

    Args:
        kinds: Those that are going to run.
        environ: Where keys are looked for.
        settings: Which agents there are.
        runners: Names of those that are going to run.
    """

    def get() -> str:
        try:
            names = [*dict.fromkeys(name for kind in kinds if (name := kind.get_key(environ)))]
        except RunnerError as error:
            if (login := find_unused_login(settings, environ, runners)) is None:
                raise
            raise RunnerError(f"{error.message}; {login.words}", hint=(error.hint, "\n", login.way)) from None
        return f"{', '.join(names)} {'are' if names[1:] else 'is'} set" if names else "this runner needs none"

    return find_out(get, name="key")


def check_git(repo: Repo) -> Finding:
    """Look whether git is new enough."""
    return find_out(lambda: ".".join(str(part) for part in get_version(repo.git)), name="git")


def check_repository(repo: Repo) -> Finding:
    """Look for a detached HEAD, and a merge, rebase or the like that is unfinished."""

    def get() -> str:
        if words := check_state(repo):
            raise RepoError(words)
        elsewhere = "" if repo.git_dir.is_relative_to(repo.root) else f", git directory {repo.git_dir}"
        return f"{repo.root} on {get_branch(repo)}{elsewhere}"

    return find_out(get, name="repository")


def check_plan_file(repo: Repo, plan_path: str) -> Finding:
    """Look whether the plan is a file that relay can replace and git will keep: no link on the way, not ignored."""
    return find_out(lambda: _get_plan_file(repo, plan_path), name="plan")


def _get_plan_file(repo: Repo, plan_path: str) -> str:
    root = os.path.realpath(repo.root)
    real = os.path.realpath(repo.root / plan_path)
    if real != os.path.normpath(Path(root, plan_path)):
        inside = os.path.relpath(real, root) if Path(real).is_relative_to(root) else ""
        raise PlanError(
            f"{plan_path} leads through a symbolic link to {inside or real}; relay commits the plan where it is",
            hint=("--plan ", TypedPath(path=inside)) if inside else "put the plan itself into the repository",
        )
    if find_ignored(repo, [plan_path]):
        raise PlanError(
            f"{plan_path} is ignored by git, and relay commits the plan with the work",
            hint=("git add -f ", TypedPath(path=plan_path), ", or take it out of .gitignore"),
        )
    return plan_path


def check_identity(repo: Repo) -> Finding:
    """Look whether git knows who commits."""
    return find_out(lambda: str(get_identity(repo)), name="identity")


def check_signature(repo: Repo) -> Finding:
    """Where commits are signed, sign one that is kept nowhere: nobody is asked for a passphrase, as in a run."""

    def get() -> str:
        if words := check_signing(repo):
            raise RepoError(words)
        return "commits can be made unattended"

    return find_out(get, name="signing")


def check_hooks(repo: Repo, settings: Settings, environ: Mapping[str, str], sandbox: Sandbox | None = None) -> Finding:
    """Look whether the commit hooks can be started: what one names in its first bytes is looked for, and it is not run.

    What a session, or a setup command, may still make is no obstacle.

    Args:
        sandbox: In which they are going to be run; None where it is not known what that hides.
    """

    def get() -> str:
        config = read_config(repo)
        folder = get_hooks_dir(repo, config)
        found = [name for name in settings.hooks if has_hook(repo, config, name)]
        for name in found:
            for group in parse_programs(_read_hook(folder / name)):
                places = _list_places(group, repo.root, environ)
                there = [place for place in places if shutil.which(place)]
                hidden = _find_hidden(sandbox, there)
                if (hidden or not there) and not any(_may_come(place, repo.root, settings) for place in places):
                    raise _make_hook_error(folder / name, group, hidden)
        return f"{', '.join(found)}: what they name as their programs is there" if found else "no commit hook is run"

    return find_out(get, name="hooks")


def _list_places(programs: tuple[str, ...], root: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return where programs, paths and names, are looked for."""
    path = clean_search_path(environ.get("PATH", os.defpath)).split(os.pathsep)
    return [place for name in programs for place in ([root / name] if "/" in name else [Path(p, name) for p in path])]


def _may_come(place: Path, root: Path, settings: Settings) -> bool:
    """Say whether a session or a setup command may make what is at a place."""
    writable = (root, *(Path(folder).expanduser() for folder in settings.writable_dirs))
    made = [place.relative_to(folder) for folder in writable if place.is_relative_to(folder)]
    return any(settings.setup or may_be_made(f"./{path}", ()) for path in made)


def _find_hidden(sandbox: Sandbox | None, places: list[Path]) -> str:
    """Return the first of the places that hooks do not see; empty where they see any, or nobody knows."""
    veil = lift_veil(sandbox) if places and sandbox is not None and sandbox.mechanism.confines else None
    hidden = [veil.find_hidden(str(place)) for place in places] if veil is not None else []
    return hidden[0] if hidden and all(hidden) else ""


def _read_hook(place: Path) -> bytes:
    """Return how a hook begins; nothing of one that has no file, or none that git runs, or that nobody can read."""
    with suppress(OSError):
        return read_start(place, HEAD_BYTES) or b"" if os.access(place, os.X_OK) else b""
    return b""


def _make_hook_error(place: Path, programs: tuple[str, ...], hidden: str) -> RepoError:
    first, *others = (shorten(program, _NAMED_CHARS) for program in programs)
    words, typed = f"the {place.name} hook cannot be started", shlex.quote(str(place))
    if programs[0].endswith("\r"):
        way = f"sed -i 's/\\r$//' {typed} takes it away"
        return RepoError(f"{words}: its first line ends in a carriage return", hint=f"{way}; {_WITHOUT_HOOKS}")
    if hidden:
        words = f"{words}: {shorten(hidden, _NAMED_CHARS)}, which it names, is hidden from hooks"
        return RepoError(words, hint=f"readable_dirs in your own settings shows it a directory; {_WITHOUT_HOOKS}")
    if others:
        words = f"{words}: neither {first}, which made it, nor {others[0]} is there"
        return RepoError(words, hint=f"install {others[0]} again, then type: {others[0]} install; {_WITHOUT_HOOKS}")
    words = f"{words}: there is no program {first}, which its first line names"
    return RepoError(words, hint=f"install it, or correct the first line of {typed}; {_WITHOUT_HOOKS}")


def check_clean(repo: Repo, plan_path: str, status: Status | None = None) -> Finding:
    """Look for uncommitted changes of the user's to tracked files.

    An open leg's own changes are no obstacle: they are what the run goes on with.

    Args:
        plan_path: What differs there is looked at elsewhere.
        status: How the work tree differs; None: git is asked.
    """

    def get() -> str:
        if read_leg(repo) is not None or (status is None and find_along(repo)):
            return "a phase is open"
        if status is None and find_pending_move(repo) is not None:
            return "a run first finishes what an earlier commit lacks in the files"
        own = {plan_path, find_ledger_path(plan_path)}
        found = read_status(repo) if status is None else status
        dirty = [path for path in found.changed if path not in own]
        if dirty:
            named = [f"{path} (which git status was told to hide)" if path in found.hidden else path for path in dirty]
            raise RepoError(
                f"tracked files have uncommitted changes: {list_paths(named)}",
                hint="commit them, or use --allow-dirty: relay then keeps these files out of every commit",
            )
        return "no uncommitted changes"

    return find_out(get, name="changes")


def check_caps(request: RunRequest, meter: Meter | None = None) -> Finding:
    """Look whether the caps can be kept: what has no price cannot be counted in money.

    Args:
        meter: The plan's; None: it is made.
    """

    def get() -> str:
        settings = request.settings
        price = find_price_now(settings, settings.model)
        counted = meter or make_meter(request.repo, request.plan_path, settings, price)
        if (price is None or counted.total.cost_usd is None) and (words := counted.check(0, 0)):
            near = suggest_models(settings.model, settings.models) if price is None else ""
            raise ConfigError(f"{settings.model}{near}: {words}")
        return "every request is counted"

    return find_out(get, name="caps")


def check_rules(rules: Rules) -> Finding:
    """Look which rules sessions are given, and whether all of them are."""
    words = ", ".join(f"{file.path} ({file.bytes_used:,} of {file.bytes_total:,} bytes)" for file in rules.files)
    return Finding(
        name="rules",
        state=State.WARNING if rules.warnings else State.OK if words else State.INFO,
        words=words or "no AGENTS.md here",
        details=rules.warnings,
        hint=_advise(rules),
    )


def _advise(rules: Rules) -> str:
    """Say what helps where rules are cut or missing; how other agents' are read is among the warnings."""
    if any(file.truncated or file.omitted for file in rules.files):
        return "shorten them, or raise rules_max_bytes"
    return "" if rules.files or rules.warnings else "relay init writes one to start from"


def _list_kinds(request: RunRequest, known: Mapping[str, RunnerKind]) -> tuple[RunnerKind, ...]:
    """Return the runners of a run.

    Raises:
        RelayError: One of them does not exist.
    """
    with within(request.plan_path):
        for found in check_runners(request.phases, request.settings, known):
            hint = "relay agents shows which runners are installed"
            raise PlanError(found.message, line=found.line, hint=hint)
    origin = request.settings.origins.get("runner", "default")
    return tuple(get_kind(name, origin=origin, known=known) for name in request.runners)


def check_all(request: RunRequest) -> Iterator[Finding]:
    """Look at everything that a run requires, as far as it can be known without taking or opening anything."""
    yield from check_apart(request)
    yield from check_untaken(request)
    yield from check_taken(request)
    yield from check_enclosed(request)


def check_apart(request: RunRequest, known: Mapping[str, RunnerKind] | None = None) -> Iterator[Finding]:
    """Look at what git has no part in.

    Args:
        known: All runners there are; None: those that relay knows and the user's own.
    """
    repo, settings, environ = request.repo, request.settings, request.environ
    kinds: list[RunnerKind] = []

    def find_runners() -> str:
        kinds.extend(_list_kinds(request, list_runners(settings) if known is None else known))
        for kind in kinds:
            kind.require(environ, settings)
        return ", ".join(request.runners)

    yield find_out(find_runners, name="runner")
    yield check_program(repo.root, settings, environ)
    if request.kind.commits_phases:
        yield check_approval(repo, settings, environ)
    if kinds:
        yield check_key(kinds, environ, settings, request.runners)


def check_untaken(request: RunRequest) -> Iterator[Finding]:
    """Look whether the repository is fit to be taken."""
    yield check_git(request.repo)
    yield check_repository(request.repo)
    yield check_plan_file(request.repo, request.plan_path)


def check_taken(request: RunRequest, status: Status | None = None, meter: Meter | None = None) -> Iterator[Finding]:
    """Look at what a run looks at once it has taken the repository.

    Args:
        status: How the work tree differs; None: nobody has taken it, and git is asked.
        meter: The plan's; None: it is made.
    """
    repo = request.repo
    yield check_identity(repo)
    yield check_signature(repo)
    if request.needs_clean:
        yield check_clean(repo, request.plan_path, status)
    yield check_caps(request, meter)


def check_enclosed(request: RunRequest, sandbox: Sandbox | None = None) -> Iterator[Finding]:
    """Look at what depends on what a sandbox shows; None: that is not known."""
    if request.kind.commits_phases:
        yield check_hooks(request.repo, request.settings, request.environ, sandbox)


def require_all(findings: Iterable[Finding]) -> None:
    """Stop at the first thing that is missing; what comes behind it is not looked at.

    Raises:
        RelayError: What the finding says.
    """
    for finding in findings:
        require(finding)
