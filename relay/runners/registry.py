"""The runners that relay knows, by the word that the setting `runner` has for each."""

from collections.abc import Iterator, Mapping, Sequence

from relay.base.errors import ConfigError, FlagError
from relay.config import Settings
from relay.plan.model import Phase, Violation
from relay.runners.agents.kinds import adapt_profile, make_kind
from relay.runners.agents.profiles import PROFILES, Profile
from relay.runners.base import RunnerKind
from relay.runners.messages.runner import MESSAGES

RUNNERS: Mapping[str, RunnerKind] = {
    "api": MESSAGES,
    **{name: make_kind(profile) for name, profile in PROFILES.items()},
}


def list_profiles(settings: Settings) -> Mapping[str, Profile]:
    """Return every agent, with those of the user's settings.

    Raises:
        ConfigError: One of them is like an agent that there is not, or has no program.
    """
    made = dict(PROFILES)
    for name, own in settings.agents.items():
        try:
            made[name] = adapt_profile(name, own, made)
        except ValueError as error:
            raise ConfigError(f"{settings.origins.get('agents', 'agents')}: agents.{name}: {error}") from None
    return made


def list_runners(settings: Settings) -> Mapping[str, RunnerKind]:
    """Return every runner, in the same way."""
    if not settings.agents:
        return RUNNERS
    return {**RUNNERS, **{name: make_kind(profile) for name, profile in list_profiles(settings).items()}}


def get_kind(name: str, *, origin: str, known: Mapping[str, RunnerKind] = RUNNERS) -> RunnerKind:
    """Return the runner of a name.

    Args:
        name: The value of the setting.
        origin: Where the value came from, for the message: ``--runner``, ``relay.toml:3``.

    Raises:
        ConfigError: There is none of this name.
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
            yield Violation(line=phase.runner_line, message=words)
