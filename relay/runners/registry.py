"""Every runner by its name in the setting `runner`: relay's own loop (`api`), the known agents, the user's agents.

The modules that run a session are imported when a runner is opened.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from relay.base.errors import ConfigError, FlagError, RunnerError
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.plan.model import Phase, Violation
from relay.runners.agents.profiles import PROFILES, Profile, adapt_profile, find_login, get_installed, get_setup
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.messages.endpoint import ANTHROPIC, FAMILIES, PLAIN, Way, get_key_name
from relay.session.events import Noticed


@contextmanager
def _open_api(given: Surroundings) -> Iterator[Runner]:
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection, make_dialect
    from relay.runners.messages.conversation import ApiRunner

    settings = given.settings
    with open_api(
        environ=given.environ,
        interrupts=given.interrupts,
        idle_timeout_s=settings.idle_timeout_s,
        way=_find_way(settings, given.environ),
    ) as api:
        connection = ApiConnection(
            api=api,
            observe=given.observe,
            interrupts=given.interrupts,
            max_wait_s=settings.max_wait_s,
            dialect=make_dialect(settings.find_model(settings.model).compat),
        )
        yield ApiRunner(connection=connection, find_own=settings.find_model, strategy=settings.strategy)


def _find_way(settings: Settings, environ: Mapping[str, str]) -> Way:
    if settings.provider == ANTHROPIC.name and any(environ.get(name) for name in ANTHROPIC.keys):
        return PLAIN
    from relay.runners.messages.clouds import find_way

    return find_way(settings, environ)


def _get_own_key(settings: Settings, environ: Mapping[str, str]) -> str:
    way = _find_way(settings, environ)
    return way.credential.words if way.credential else get_key_name(environ, (way.family,))


def make_kind(profile: Profile) -> RunnerKind:
    """Return an agent as a kind of runner."""
    get_key, require = partial(_get_key, profile), partial(_require, profile)
    return RunnerKind(get_key=get_key, require=require, open=partial(_open_agent, profile))


def _get_key(profile: Profile, environ: Mapping[str, str]) -> str:
    if not profile.has_login:
        known = {family.name: family for family in FAMILIES}
        return get_key_name(environ, [known[setup.family] for setup in profile.setups])
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


@contextmanager
def _open_agent(profile: Profile, given: Surroundings) -> Iterator[Runner]:
    from relay.runners.agents.runner import AgentRunner
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection
    from relay.runners.messages.conversation import ApiRunner

    settings = given.settings
    _require(profile, given.environ, settings)  # before the endpoint is asked
    if profile.has_login:
        given.observe(Noticed(text=_describe_login(profile), warning=True))
        family = next(found for found in FAMILIES if found.name == profile.setups[0].family)
        yield AgentRunner(profile=profile, setup=profile.setups[0], family=family, given=given, endpoint=None)
        return
    setup, family = get_setup(profile, given.environ, settings.model)
    idle_s = settings.idle_timeout_s
    with open_api(
        environ=given.environ, interrupts=given.interrupts, idle_timeout_s=idle_s, way=Way(family=family)
    ) as api:
        connection = ApiConnection(
            api=api, observe=given.observe, interrupts=given.interrupts, max_wait_s=settings.max_wait_s
        )
        endpoint = ApiRunner(connection=connection, find_own=settings.find_model)
        yield AgentRunner(profile=profile, setup=setup, family=family, given=given, endpoint=endpoint)


def _describe_login(profile: Profile) -> str:
    if not profile.tunnelled:
        return (
            f"{profile.name} gets your login in its sandbox, and relay's gateway sends it to the vendor, whose terms "
            "may not allow that for a subscription; relay counts every token and stores nothing of the login"
        )
    return (
        f"{profile.name} gets your login in its sandbox, which reaches {', '.join(profile.hosts)} and nothing else; "
        "its usage is what it reports (~), and no cap holds before a request, only after a report"
    )


RUNNERS: Mapping[str, RunnerKind] = {
    OWN_LOOP: RunnerKind(get_key=partial(_get_own_key, Settings()), open=_open_api),
    **{name: make_kind(profile) for name, profile in PROFILES.items()},
}


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
    own = {OWN_LOOP: replace(RUNNERS[OWN_LOOP], get_key=partial(_get_own_key, settings))}
    made = {name: make_kind(profile) for name, profile in list_profiles(settings).items()} if settings.agents else {}
    return {**RUNNERS, **own, **made}


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
