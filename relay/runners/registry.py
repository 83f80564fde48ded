"""Every runner by its name in the setting `runner`: relay's own loop (`api`), the known agents, the user's agents.

The modules that run a session are imported when a runner is opened.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from relay.base.errors import ConfigError, FlagError, RunnerError
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.plan.model import Phase, Violation
from relay.runners.agents.profiles import (
    PROFILES,
    EndpointSetup,
    Profile,
    adapt_profile,
    find_family,
    find_login,
    get_installed,
    read_brought,
)
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.messages.clouds import find_way, name_login
from relay.runners.messages.endpoint import ANTHROPIC, FAMILIES, Way, get_key_name
from relay.session.events import Noticed

if TYPE_CHECKING:
    from relay.runners.messages.conversation import ApiRunner


@contextmanager
def _open_api(given: Surroundings, way: Way | None = None) -> Iterator["ApiRunner"]:
    """Open an endpoint; for an agent it gives the limits of models alone."""
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection
    from relay.runners.messages.conversation import ApiRunner

    settings = given.settings
    with open_api(
        environ=given.environ,
        interrupts=given.interrupts,
        idle_timeout_s=given.endpoint_idle_s,
        way=way or find_way(settings, given.environ),
        for_models_only=given.for_models_only or way is not None,
    ) as api:
        connection = ApiConnection(
            api=api, observe=given.observe, interrupts=given.interrupts, max_wait_s=settings.max_wait_s
        )
        yield ApiRunner(connection=connection, find_own=settings.find_model, strategy=settings.strategy)


def _name_key(way: Way, environ: Mapping[str, str]) -> str:
    return way.credential.words if way.credential else get_key_name(environ, (way.family,))


def make_kind(profile: Profile, settings: Settings) -> RunnerKind:
    """Return an agent as a kind of runner.

    Args:
        settings: Say where its key comes from.
    """
    get_key, require = partial(_get_key, profile, settings), partial(_require, profile)
    return RunnerKind(get_key=get_key, require=require, open=partial(_open_agent, profile))


def choose_way(profile: Profile, settings: Settings, environ: Mapping[str, str]) -> tuple[EndpointSetup, Way]:
    """Return how an agent reaches its model; of several ways that of the model's vendor, else one with a variable.

    An agent that speaks the Messages API has every way of relay's own loop to it. The other APIs need a key in a
    variable: `provider` and `key_command` are for the Messages API, and one vendor's key is not another's business.

    Raises:
        RunnerError: There is no key.
        ConfigError: The settings do not go together.
    """
    known = {family.name: family for family in FAMILIES}
    setups = [(setup, known[setup.family]) for setup in profile.setups]
    keyed = [found for found in setups if any(environ.get(name) for name in found[1].keys)]
    own_way = settings.provider != ANTHROPIC.name or settings.key_command or name_login(environ)
    ready = keyed + [found for found in setups if found not in keyed and found[1] is ANTHROPIC and own_way]
    if not ready:
        get_key_name(environ, [family for _, family in setups])
    own = find_family(settings.model)
    setup, family = next((found for found in ready if found[0].family == own), ready[0])
    return setup, find_way(settings, environ) if family is ANTHROPIC else Way(family=family)


def _get_key(profile: Profile, settings: Settings, environ: Mapping[str, str]) -> str:
    if not profile.has_login:
        return _name_key(choose_way(profile, settings, environ)[1], environ)
    if found := find_login(profile, environ):
        return found
    raise RunnerError(
        f"no login of {profile.title}: none of {', '.join(profile.credentials)} is there (files: below your home)",
        hint=f"log in with {profile.title} itself, or leave out login in agents.{profile.name}",
    )


def _require(profile: Profile, environ: Mapping[str, str], settings: Settings) -> None:
    if settings.sandbox != "auto":
        raise ConfigError(
            f"{settings.origins.get('sandbox', 'sandbox')}: relay starts no agent without its sandbox: nothing else "
            f"would hold what {profile.title} does",
            hint=f"leave out --sandbox {settings.sandbox}, or use --runner api",
        )
    get_installed(profile, environ)
    deque(read_brought(profile, environ), maxlen=0)


@contextmanager
def _open_agent(profile: Profile, given: Surroundings) -> Iterator[Runner]:
    from relay.runners.agents.runner import AgentRunner

    settings = given.settings
    _require(profile, given.environ, settings)  # before the endpoint is asked
    if profile.has_login:
        sends = "and relay's gateway sends it to the vendor, whose terms may not allow that for a subscription"
        words = f"{sends}; relay counts every token and stores nothing of the login"
        if profile.tunnelled:
            words = (
                f"which reaches {', '.join(profile.hosts)} and nothing else; its usage is what it reports (~), and no "
                "cap holds before a request, only after a report"
            )
        given.observe(Noticed(text=f"{profile.name} gets your login in its sandbox, {words}", warning=True))
        family = next(found for found in FAMILIES if found.name == profile.setups[0].family)
        way = Way(family=family)
        yield AgentRunner(profile=profile, setup=profile.setups[0], way=way, given=given, endpoint=None)
        return
    setup, way = choose_way(profile, settings, given.environ)
    with _open_api(given, way) as endpoint:
        yield AgentRunner(profile=profile, setup=setup, way=way, given=given, endpoint=endpoint)


def list_profiles(settings: Settings) -> Mapping[str, Profile]:
    """Return the known agents and those of the user's settings, by name.

    Raises:
        ConfigError: An agent of the settings builds on an unknown agent, or names no program.
    """
    made = dict(PROFILES)
    for name, own in settings.agents.items():
        try:
            made[name] = adapt_profile(name, own, made)
        except ValueError as error:
            raise ConfigError(f"{settings.origins.get('agents', 'agents')}: agents.{name}: {error}") from None
    return made


def list_runners(settings: Settings) -> Mapping[str, RunnerKind]:
    """Return every runner by name.

    Raises:
        ConfigError: As `list_profiles`.
    """
    own = RunnerKind(get_key=lambda environ: _name_key(find_way(settings, environ), environ), open=_open_api)
    return {OWN_LOOP: own, **{name: make_kind(found, settings) for name, found in list_profiles(settings).items()}}


def get_kind(name: str, *, origin: str, known: Mapping[str, RunnerKind]) -> RunnerKind:
    """Return the runner of this name.

    Args:
        name: The value of the setting.
        origin: Where the value came from, for the message: ``--runner``, ``relay.toml:3``.
        known: All runners, by name.

    Raises:
        ConfigError: No runner has this name.
    """
    if name not in known:
        kind = FlagError if origin.startswith("--") else ConfigError
        raise kind(f"{origin}: runner: found {name!r}; allowed: {', '.join(known)}")
    return known[name]


def check_runners(phases: Sequence[Phase], settings: Settings, known: Mapping[str, RunnerKind]) -> Iterator[Violation]:
    """Yield a violation for each phase whose ``Runner:`` line names an unknown runner that this run would use."""
    for phase in phases:
        if phase.runner and settings.runner_for(phase.runner) not in known:
            words = f"Runner: found {phase.runner!r}; allowed: {', '.join(known)}"
            yield Violation(line=phase.find_wish("runner")[1], message=words)
