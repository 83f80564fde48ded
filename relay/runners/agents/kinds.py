"""Agents as kinds of runner, the user's own among them; the modules for a session are loaded when one opens."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from relay.base.errors import ConfigError, RunnerError
from relay.config import Settings
from relay.config.agents import AgentSettings
from relay.runners.agents.profiles import NO_KEY, Profile, Way
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.session.events import Noticed

_UNKNOWN = Profile(name="", title="", package="", program="", tested="")


def adapt_profile(name: str, own: AgentSettings, known: Mapping[str, Profile]) -> Profile:
    """Return the profile of an agent as the user's settings have it.

    Args:
        name: What the user calls it; that of a known agent says what is different about that one.
        own: The settings.
        known: Profiles that it may begin with.

    Raises:
        ValueError: It begins with an unknown one, or nothing says which program it is.
    """
    if own.like and own.like not in known:
        raise ValueError(f"like: found {own.like!r}; allowed: {', '.join(known)}")
    base = known.get(own.like or name, _UNKNOWN)
    program = own.program or base.program
    if not program:
        raise ValueError("program is missing, or like, the name of an agent whose profile it begins with")
    ways = tuple(_find_way(base, family) for family in own.endpoints)
    made = replace(
        base,
        name=name,
        title=base.title or name,
        package=own.install or base.package,
        program=program,
        arguments=base.arguments if own.arguments is None else own.arguments,
        needs=(*base.needs, *own.needs),
        env=(*base.env, *own.env),
        files=(*base.files, *own.files),
        mode=own.mode or base.mode,
        ways=ways or base.ways,
        credentials=own.credentials or base.credentials,
        hosts=own.hosts or base.hosts,
    )
    return _lend(made, own.login) if own.login not in {"", "key"} else made


def _lend(profile: Profile, login: str) -> Profile:
    """Return a profile that has the user's login, without the key that is none, and in a tunnel without the gateway.

    Raises:
        ValueError: Nothing says where the login is, or whose it is.
    """
    tunnelled = login == "tunnel"
    for name in ("credentials", *(["hosts"] if tunnelled else [])):
        if not getattr(profile, name):
            raise ValueError(f"{name} is missing, which login = {login} needs")
    first = profile.ways[0]
    way = Way(family=first.family) if tunnelled else replace(first, env=_drop(first.env, NO_KEY))
    words = (NO_KEY, "{base}") if tunnelled else (NO_KEY,)
    env, files = _drop(profile.env, *words), _drop(profile.files, *words)
    return replace(profile, login=login, env=env, files=files, ways=(way,))


def _drop(pairs: tuple[tuple[str, str], ...], *words: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs if not any(word in text for word in words))


def _find_way(base: Profile, family: str) -> Way:
    return next((way for way in base.ways if way.family == family), Way(family=family))


def make_kind(profile: Profile) -> RunnerKind:
    """Return the kind of runner that an agent is."""
    get_key, require = partial(_get_key, profile), partial(_require, profile)
    return RunnerKind(get_key=get_key, require=require, open=partial(_open, profile))


def _require(profile: Profile, environ: Mapping[str, str], settings: Settings) -> None:
    from relay.runners.agents.home import get_installed

    if settings.sandbox != "auto":
        raise ConfigError(
            f"{settings.origins.get('sandbox', 'sandbox')}: relay starts no agent without its sandbox: nothing else "
            f"would hold what {profile.title} does",
            hint=f"leave out --sandbox {settings.sandbox}, or use --runner api",
        )
    get_installed(profile, environ)


@contextmanager
def _open(profile: Profile, given: Surroundings) -> Iterator[Runner]:
    from relay.runners.agents.home import get_way
    from relay.runners.agents.runner import AgentRunner
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection
    from relay.runners.messages.conversation import ApiRunner
    from relay.runners.messages.endpoint import FAMILIES

    settings = given.settings
    _require(profile, given.environ, settings)  # before anything is asked
    if profile.is_lent:
        given.observe(Noticed(text=_describe_login(profile), warning=True))
        family = next(found for found in FAMILIES if found.name == profile.ways[0].family)
        yield AgentRunner(profile=profile, way=profile.ways[0], family=family, given=given, endpoint=None)
        return
    way, family = get_way(profile, given.environ, settings.model)
    idle_s = settings.idle_timeout_s
    with open_api(environ=given.environ, interrupts=given.interrupts, idle_timeout_s=idle_s, family=family) as api:
        connection = ApiConnection(
            api=api, observe=given.observe, interrupts=given.interrupts, max_wait_s=settings.max_wait_s
        )
        endpoint = ApiRunner(connection=connection, find_own=settings.find_model)
        yield AgentRunner(profile=profile, way=way, family=family, given=given, endpoint=endpoint)


def _describe_login(profile: Profile) -> str:
    if not profile.tunnelled:
        return (
            f"{profile.name}: your login goes with it into its sandbox and through relay's gateway to its vendor, "
            "whose terms may not allow that to a subscription; relay counts every token and keeps nothing of it"
        )
    return (
        f"{profile.name}: your login goes with it into its sandbox, which reaches {', '.join(profile.hosts)} and "
        "nothing else; what it uses is what it tells (~), and no cap holds before a request, only after what it told"
    )


def _get_key(profile: Profile, environ: Mapping[str, str]) -> str:
    from relay.runners.agents.home import find_login
    from relay.runners.messages.endpoint import FAMILIES, get_key_name

    if not profile.is_lent:
        known = {family.name: family for family in FAMILIES}
        return get_key_name(environ, [known[way.family] for way in profile.ways])
    if found := find_login(profile, environ):
        return found
    raise RunnerError(
        f"no login of {profile.title}: none of {', '.join(profile.credentials)} is there (files: below your home)",
        hint=f"log in with {profile.title} itself, or leave out login in agents.{profile.name}",
    )
