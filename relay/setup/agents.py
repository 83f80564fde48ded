"""Which agents are on this machine."""

from collections.abc import Mapping

from relay.config import Settings
from relay.errors import RunnerError
from relay.runners.agents.home import find_version, get_installed
from relay.runners.agents.kinds import make_kind
from relay.runners.agents.profile import Profile
from relay.runners.registry import list_profiles
from relay.values import dataclass

TOLD = "~"
"""For what the agent itself tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """One agent that relay knows, as it is here."""

    name: str
    """For ``--runner``."""
    title: str
    program: str
    """Where it is; empty when it cannot be used."""
    version: str
    """Of its package; empty when that is not known."""
    tested: str
    """The version that its profile was tried with."""
    missing: str
    """What is missing; empty when nothing is."""
    usage: str
    """``exact`` where relay's gateway counts it, ``~`` where the agent tells it."""
    steering: str
    """How it is told something in the middle of a turn."""
    tools: str
    """How relay's own tools reach it."""
    is_lent: bool
    """Whether it has the user's own login."""
    login: str
    """What it asks its model with: the variable of a key, or what there is to set."""
    install: str
    """What to type for it."""


def examine_agents(settings: Settings, environ: Mapping[str, str]) -> tuple[AgentFound, ...]:
    """Look for every agent; nothing is started."""
    return tuple(examine_agent(profile, environ) for profile in list_profiles(settings).values())


def examine_agent(profile: Profile, environ: Mapping[str, str]) -> AgentFound:
    """Look for one."""
    program, version, missing = "", "", ""
    try:
        place = get_installed(profile, environ).program
        program, version = str(place), find_version(place)
    except RunnerError as error:
        missing = error.message
    return AgentFound(
        name=profile.name,
        title=profile.title,
        program=program,
        version=version,
        tested=profile.tested,
        missing=missing,
        install=profile.package,
        is_lent=profile.is_lent,
        usage=TOLD if profile.tunnelled else "exact",
        steering="yes",
        tools=_find_way_of_tools(profile),
        login=_find_login(profile, environ),
    )


def _find_way_of_tools(profile: Profile) -> str:
    texts = (*profile.arguments, *(text for _, text in profile.files))
    return "MCP" if profile.takes_server or any("{server}" in text for text in texts) else "extension"


def _find_login(profile: Profile, environ: Mapping[str, str]) -> str:
    try:
        return make_kind(profile).get_key(environ)
    except RunnerError:
        return "no login" if profile.is_lent else "no key"
