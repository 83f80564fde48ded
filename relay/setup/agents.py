"""Which agents are on this machine."""

from collections.abc import Mapping

from relay.base.errors import RunnerError
from relay.base.values import dataclass
from relay.config import Settings
from relay.runners.agents.home import find_engine_version, find_login, find_package_version, get_installed
from relay.runners.agents.kinds import make_kind
from relay.runners.agents.profiles import Profile
from relay.runners.registry import list_profiles


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """One agent that relay knows, as it is here."""

    profile: Profile
    program: str = ""
    """Where it is; empty when it cannot be used."""
    version: str = ""
    """Of its package; empty when that is not known."""
    engine: str = ""
    """The version of what does its work, where that is another program; empty when that is not known."""
    missing: str = ""
    """What is missing; empty when nothing is."""
    login: str
    """What it asks its model with: the variable of a key, or what is missing, with a login that it could use."""


def examine_agents(settings: Settings, environ: Mapping[str, str]) -> tuple[AgentFound, ...]:
    """Look for every agent; nothing is started."""
    return tuple(examine_agent(profile, environ) for profile in list_profiles(settings).values())


def examine_agent(profile: Profile, environ: Mapping[str, str]) -> AgentFound:
    """Look for one."""
    login = _find_login(profile, environ)
    try:
        installed = get_installed(profile, environ)
    except RunnerError as error:
        return AgentFound(profile=profile, missing=error.message, login=login)
    return AgentFound(
        profile=profile,
        program=str(installed.program),
        version=find_package_version(installed.program),
        engine=find_engine_version(profile, installed),
        login=login,
    )


def _find_login(profile: Profile, environ: Mapping[str, str]) -> str:
    try:
        return make_kind(profile).get_key(environ)
    except RunnerError:
        place = "" if profile.is_lent else find_login(profile, environ)
        return f"no key; a login ({place})" if place else "no login" if profile.is_lent else "no key"
