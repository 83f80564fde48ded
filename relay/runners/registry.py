"""The runners that relay knows, by the word that the setting `runner` has for each."""

from collections.abc import Mapping

from relay.errors import ConfigError, FlagError
from relay.runners.agents.profiles import PROFILES
from relay.runners.agents.runner import make_kind
from relay.runners.base import RunnerKind
from relay.runners.messages.runner import MESSAGES

RUNNERS: Mapping[str, RunnerKind] = {
    "api": MESSAGES,
    **{name: make_kind(profile) for name, profile in PROFILES.items()},
}


def get_kind(name: str, *, origin: str, known: Mapping[str, RunnerKind] = RUNNERS) -> RunnerKind:
    """Return the runner of a name.

    Args:
        name: The value of the setting.
        origin: Where the value came from, for the message: ``--runner``, ``relay.toml:3``.
        known: All there are.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in known:
        kind = FlagError if origin.startswith("--") else ConfigError
        raise kind(f"{origin}: runner: found {name!r}; allowed: {', '.join(known)}")
    return known[name]
