"""Each precondition of a session, as one check; the functions at the end have the order of the checks.

A check changes nothing and asks no endpoint.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from relay.base.errors import ConfigError, PlanError, RelayError, RepoError, RunnerError, within
from relay.base.hints import Command, Hint, TypedPath
from relay.base.places import find_place, is_outside, name_outside
from relay.base.tree import read_start, replace_with_file
from relay.base.values import dataclass
from relay.base.walk import open_folder
from relay.base.words import list_some
from relay.config import Settings, find_user_dir
from relay.config.choices import check_models, require_models
from relay.config.sources import show_user_file
from relay.git.command import get_version
from relay.git.identity import check_signing, get_identity
from relay.git.repository import Repo
from relay.git.status import check_state
from relay.runners.agents.profiles import Profile, find_family, find_login, get_installed
from relay.runners.base import RunnerKind
from relay.runners.registry import check_runners, get_kind, list_profiles, list_runners
from relay.session.prices import suggest_models
from relay.session.spend import Meter
from relay.setup.context import RunRequest
from relay.setup.program import LOADED_FROM, find_exposed
from relay.setup.rules import Rules
from relay.setup.session import find_price_now, make_meter
from relay.store.refs import get_branch
from relay.store.worktree_notes import find_home


def find_unused_login(settings: Settings, environ: Mapping[str, str], runners: Collection[str]) -> tuple[str, str]:
    """Look for the login of an agent, those of `runners` first, without reading it.

    Returns:
        Whose login it is and where, and how to use it; both empty without a login.
    """
    for profile in sorted(list_profiles(settings).values(), key=lambda profile: profile.name not in runners):
        if profile.hosts and (place := find_login(profile, environ)):
            where = f"~/{place}" if place.startswith(".") else place
            way = _describe_way(profile, settings, environ, is_runner=profile.name in runners)
            return f"you are logged in with {profile.title} ({where})", way
    return "", ""


def _describe_way(profile: Profile, settings: Settings, environ: Mapping[str, str], *, is_runner: bool) -> str:
    """Return how to use a login: the command and the lines for the user's settings."""
    try:
        get_installed(profile, environ)
        first = ""
    except RunnerError:
        first = f" {profile.package} and,"
    name = profile.name
    lines = [] if is_runner else [f'runner = "{name}"']
    lines += list_login_settings(profile, settings)
    where = f"at the top of {show_user_file(environ)}"
    return "\n".join((f"or with your login:{first} {where}", *lines))


def list_login_settings(profile: Profile, settings: Settings) -> list[str]:
    """Return the lines of the user's settings that let an agent use its own login."""
    lines = []
    if not profile.has_login:
        own = profile.name in settings.agents
        name = profile.name
        lines.append(f'login = "tunnel"  # below [agents.{name}]' if own else f'agents.{name}.login = "tunnel"')
    if find_family(settings.model) not in {"", *(setup.family for setup in profile.setups)}:
        lines.append(f'model = "…"  # one of {profile.title}, and its limits and price: [models."…"]')
    return lines


_FILE = "approved-setup.json"
_MOST_BYTES = 1024 * 1024


def find_unapproved(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the setup commands of the repository that the user has not approved here yet."""
    if "setup" not in settings.of_repository:
        return ()
    approved = _read(find_user_dir(environ)).get(str(root), ())
    return tuple(command for command in settings.setup if command not in approved)


def require_approval(root: Path, settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse unapproved setup commands.

    Raises:
        ConfigError: There are some; the error lists them and says how to approve them.
    """
    if left := find_unapproved(root, settings, environ):
        raise ConfigError(
            f"{settings.origins['setup']}: this repository wants to run with network before its first session: "
            f"{'; '.join(left)}",
            hint=("read what they run, then type ", Command(words=("run", "--approve-setup")), ", once"),
        )


def save_approval(root: Path, commands: Sequence[str], environ: Mapping[str, str]) -> None:
    """Save the user's approval of these commands in this repository.

    Raises:
        ConfigError: HOME is not set.
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
    """Return the approved commands by repository; an unreadable file approves nothing."""
    try:
        data = read_start(folder / _FILE, _MOST_BYTES) if folder else None
        values: Any = json.loads(data or b"{}")
        return {str(root): [str(command) for command in commands] for root, commands in values.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


class State(StrEnum):
    """The state of a finding."""

    OK = "ok"
    MISSING = "missing"
    """`relay run` cannot work without it."""
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check."""

    name: str
    state: State
    words: str
    details: tuple[str, ...] = ()
    hint: Hint = ""
    """What the user can do; empty for nothing."""
    error: RelayError | None = None
    """The error with which a run stops; None if a run can go on."""


def require(finding: Finding) -> None:
    """Raise the error of a finding, if it has one.

    Raises:
        RelayError: The finding's error.
    """
    if finding.error is not None:
        raise finding.error


def make_missing(name: str, error: RelayError) -> Finding:
    """Return an error as a finding."""
    return Finding(name=name, state=State.MISSING, words=str(error), hint=error.hint, error=error)


def find_out(get: Callable[[], str], *, name: str) -> Finding:
    """Return the text from `get` as a finding, or its RelayError as a missing one."""
    try:
        return Finding(name=name, state=State.OK, words=get())
    except RelayError as error:
        return make_missing(name, error)


def check_program(root: Path, settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Check that no session can write relay's own code: the next command would run it."""

    def get() -> str:
        places = (str(root), *(str(Path(place).expanduser()) for place in settings.paths.write))
        found = find_exposed(places, {name: environ[name] for name in LOADED_FROM if name in environ})
        if not found:
            return "sessions cannot write relay's own code"
        what, place = found[0]
        if what.isupper():
            raise ConfigError(
                f"{what} names {place or 'the current directory (an empty entry)'}, where sessions write: the next "
                "relay would load a session's code, with your key",
                hint=f"env -u {what} relay … starts relay without it; commands of sessions never get it",
            )
        raise ConfigError(
            f"{what} is in {place}, where sessions write: the next relay would run a session's code, with your key",
            hint="install relay outside of this repository, as a copy (uv tool install or pipx install of a checkout, "
            "without --editable), and type relay, not python -m relay",
        )

    return find_out(get, name="relay")


def check_key(
    kinds: Sequence[RunnerKind], environ: Mapping[str, str], settings: Settings, runners: Sequence[str] = ()
) -> Finding:
    """Check the keys of runners without showing them; if a key is missing, name a login that would do.

    Args:
        kinds: The runners of the run.
        settings: Define the known agents.
        runners: The runners' names.
    """

    def get() -> str:
        try:
            names = [*dict.fromkeys(name for kind in kinds if (name := kind.get_key(environ)))]
        except RunnerError as error:
            words, way = find_unused_login(settings, environ, runners)
            if not words:
                raise
            raise RunnerError(f"{error.message}; {words}", hint=(error.hint, "\n", way)) from None
        return f"{', '.join(names)} {'are' if names[1:] else 'is'} set" if names else "this runner needs none"

    return find_out(get, name="key")


def check_repository(repo: Repo) -> Finding:
    """Check for a detached HEAD and for an unfinished merge, rebase or the like."""

    def get() -> str:
        if words := check_state(repo):
            raise RepoError(words)
        elsewhere = "" if repo.git_dir.is_relative_to(repo.root) else f", git directory {repo.git_dir}"
        return f"{repo.root} on {get_branch(repo)}{elsewhere}"

    return find_out(get, name="repository")


def check_plan_file(repo: Repo, plan_path: str, settings: Settings | None = None) -> Finding:
    """Check that relay can replace the plan's file, that it is no link, and that no session can too.

    Args:
        settings: Name the directories that sessions write; None: not looked at.
    """
    return find_out(lambda: _get_plan_file(repo, plan_path, settings), name="plan")


def _get_plan_file(repo: Repo, plan_path: str, settings: Settings | None) -> str:
    place = find_place(repo.root, plan_path)
    real, root = Path(os.path.realpath(place)), os.path.realpath(repo.root)
    if is_outside(plan_path):
        written = settings.paths.write if settings else ()
        if place.is_symlink():
            raise PlanError(f"{plan_path} is a symbolic link to {real}; relay would replace it", hint=f"--plan {real}")
        if any(place.is_relative_to(os.path.realpath(Path(folder).expanduser())) for folder in written):
            raise PlanError(f"{plan_path} is where sessions write (paths.write)", hint="put the plan somewhere else")
        return plan_path
    if str(real) != os.path.normpath(Path(root, plan_path)):
        inside = os.path.relpath(real, root) if real.is_relative_to(root) else ""
        raise PlanError(
            f"{plan_path} leads through a symbolic link to {inside or real}; relay replaces the plan's file",
            hint=("--plan ", TypedPath(path=inside or name_outside(real))),
        )
    return plan_path


def check_caps(request: RunRequest, meter: Meter | None = None) -> Finding:
    """Check that the caps can be enforced: without a price no cap in money can.

    Args:
        meter: The plan's; None to make one.
    """

    def get() -> str:
        settings = request.settings
        counted = meter or make_meter(request.repo, request.plan_path, settings, None)
        for _, model in request.choices:
            price = find_price_now(settings, model)
            with counted.pricing(price):
                words = "" if price and counted.total.cost_usd is not None else counted.check(0, 0)
            if words:
                near = suggest_models(model, settings.models) if price is None else ""
                raise ConfigError(f"{model}{near}: {words}")
        return "relay counts every request"

    return find_out(get, name="caps")


def check_rules(rules: Rules) -> Finding:
    """Check the size of the rules that sessions get."""
    words = ", ".join(f"{file.path} ({file.bytes_used:,} of {file.bytes_total:,} bytes)" for file in rules.files)
    is_cut = any(file.truncated or file.omitted for file in rules.files)
    # The warnings say how to read other agents' rules.
    none = "" if rules.files or rules.warnings else "relay init writes one to start from"
    hint = "shorten them" if is_cut else none
    told = f"; skills: {list_some([skill.name for skill in rules.skills])}" if rules.skills else ""
    return Finding(
        name="rules",
        state=State.WARNING if rules.warnings else State.OK if words else State.INFO,
        words=f"{words or 'no AGENTS.md here'}{told}",
        details=rules.warnings,
        hint=hint,
    )


def _list_kinds(request: RunRequest, known: Mapping[str, RunnerKind]) -> tuple[RunnerKind, ...]:
    """Return the runners of a run.

    Raises:
        RelayError: One of them does not exist.
    """
    with within(request.plan_path):
        for found in check_runners(request.phases, request.settings, known):
            hint = "relay doctor --agent shows which runners are installed"
            raise PlanError(found.message, line=found.line, hint=hint)
        for found in check_models(request.phases, request.settings):
            raise PlanError(found.message, line=found.line)
    require_models(request.settings)
    origin = request.settings.origins.get("runner", "default")
    return tuple(get_kind(name, origin=origin, known=known) for name in request.runners)


def check_all(request: RunRequest) -> Iterator[Finding]:
    """Run all checks of a run, as far as possible without taking the repository or opening anything."""
    yield from check_apart(request)
    yield from check_untaken(request)
    yield from check_taken(request)


def check_apart(request: RunRequest, known: Mapping[str, RunnerKind] | None = None) -> Iterator[Finding]:
    """Run the checks that need no git.

    Args:
        known: All known runners; None: relay's and the user's own.
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

    def approve() -> str:
        require_approval(find_home(repo), settings, environ)
        return f"{len(settings.setup)} to run before a session" if settings.setup else "no commands to run"

    if request.kind.commits_phases:
        yield find_out(approve, name="setup")
    if kinds:
        yield check_key(kinds, environ, settings, request.runners)


def check_untaken(request: RunRequest) -> Iterator[Finding]:
    """Check that relay can take the repository."""
    yield find_out(lambda: ".".join(map(str, get_version(request.repo.git))), name="git")
    yield check_repository(request.repo)
    yield check_plan_file(request.repo, request.plan_path, request.settings)


def check_taken(request: RunRequest, meter: Meter | None = None) -> Iterator[Finding]:
    """Run the checks for a repository that the run has taken.

    Args:
        meter: The plan's; None to make one.
    """
    repo = request.repo

    def sign() -> str:  # a throw-away commit: nobody can type a passphrase during a run
        if words := check_signing(repo):
            raise RepoError(words)
        return "relay can commit unattended"

    yield find_out(lambda: str(get_identity(repo)), name="identity")
    yield find_out(sign, name="signing")
    yield check_caps(request, meter)


def require_all(findings: Iterable[Finding]) -> None:
    """Raise the first error; later checks do not run then.

    Raises:
        RelayError: The finding's error.
    """
    for finding in findings:
        require(finding)
