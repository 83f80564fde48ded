"""Logins of agents that are on this machine and that nobody has told relay to use."""

from collections.abc import Collection, Mapping

from relay.base.errors import RunnerError
from relay.base.values import dataclass
from relay.config import Settings
from relay.config.model_table import show_user_file
from relay.runners.agents.home import find_family, find_login, get_installed
from relay.runners.agents.profiles import Profile
from relay.runners.registry import list_profiles


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
    if not profile.is_lent:
        own = name in settings.agents
        lines.append(f'login = "tunnel"  # below [agents.{name}]' if own else f'agents.{name}.login = "tunnel"')
    if find_family(settings.model) not in {"", *(way.family for way in profile.ways)}:
        lines.append(f'model = "…"  # one of {profile.title}, and its limits and price: [models."…"]')
    where = f"at the top of {show_user_file(environ)} (docs/agents.md says what then holds)"
    return "\n".join((f"or with your login:{first} {where}", *lines))
