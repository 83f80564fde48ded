"""Profiles of the user's own: what the settings say on top of one that relay knows. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from relay.config.agents import AgentSettings
from relay.runners.agents.profile import NO_KEY, Profile, Way

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
