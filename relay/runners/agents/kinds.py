"""Agents as kinds of runner; what their sessions need is loaded when one is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from relay.base.errors import ConfigError, RunnerError
from relay.config import Settings
from relay.runners.agents.profile import Profile
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.session.events import Noticed


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
