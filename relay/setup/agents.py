"""Which agents are on this machine."""

from collections.abc import Mapping

from relay.errors import RunnerError
from relay.runners.agents.home import find_version, get_installed
from relay.runners.agents.profiles import PROFILES, Profile
from relay.values import dataclass


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
    install: str
    """What to type for it."""


def examine_agents(environ: Mapping[str, str]) -> tuple[AgentFound, ...]:
    """Look for every agent; nothing is started."""
    return tuple(_examine(profile, environ) for profile in PROFILES.values())


def _examine(profile: Profile, environ: Mapping[str, str]) -> AgentFound:
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
    )
