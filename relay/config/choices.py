"""The models and efforts that a plan's phases and the settings name: are they known?

A model is known if relay's table (`relay.session.prices`) or the user's ``models`` have it.
"""

from collections.abc import Iterator, Sequence

from relay.base.errors import ConfigError
from relay.config.model import Settings
from relay.plan.model import Phase, Violation
from relay.plan.statements import EFFORTS
from relay.session.prices import list_limits, normalize_model, suggest_models


def check_models(phases: Sequence[Phase], settings: Settings) -> Iterator[Violation]:
    """Yield a violation for each phase whose ``Model:`` or ``Effort:`` line has a value that relay does not know.

    A typed model or effort counts for all phases, so that nobody reads these lines then.
    """
    for phase in phases:
        model, line = phase.find_wish("model")
        if model and settings.model_for(model) == model and (words := find_unknown_model(model, settings)):
            yield Violation(line=line, message=f"Model: {words}")
        effort, line = phase.find_wish("effort")
        if effort and settings.effort_for(effort) == effort and effort not in EFFORTS:
            yield Violation(line=line, message=f"Effort: found {effort!r}; allowed: {', '.join(EFFORTS)}")


def require_models(settings: Settings) -> None:
    """Refuse an unknown model in the settings that choose one beside `model`.

    Raises:
        ConfigError: There is one.
    """
    found = [("roles", settings.roles.plan), *(("escalate", model) for model in settings.other_models)]
    for key, model in found:
        if model and (words := find_unknown_model(model, settings)):
            raise ConfigError(f"{settings.origins.get(key, key)}: {key}: {words}")


def find_unknown_model(model: str, settings: Settings) -> str:
    """Return words about a model that neither relay's table nor the user's `models` have; empty for a known one."""
    priced = (price.model for price in settings.prices)
    known = dict.fromkeys((settings.model, *settings.models, *priced, *list_limits()))
    if model in known or normalize_model(model) in known:
        return ""
    near = suggest_models(model, settings.models)
    return f'found {model!r}{near}; allowed: {", ".join(known)}, or one that [models."ID"] describes'
