"""Who runs the sessions of a run: what its phases wish for, and the runners that are open."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field

from relay.base.errors import PlanError, within
from relay.base.values import dataclass
from relay.config import Settings
from relay.plan.model import Phase, Violation
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import get_kind, list_runners
from relay.setup.context import RunRequest


def check_runners(
    phases: Sequence[Phase], settings: Settings, known: Mapping[str, RunnerKind] | None = None
) -> Iterator[Violation]:
    """Name the phases that wish for a runner that there is not; what was typed for the run counts more than a wish.

    Raises:
        ConfigError: The user's own agents cannot be made of their settings.
    """
    known = list_runners(settings) if known is None else known
    for phase in phases:
        if phase.runner and settings.runner_for(phase.runner) not in known:
            yield Violation(
                line=phase.runner_line, message=f"Runner: found {phase.runner!r}; allowed: {', '.join(known)}"
            )


def require_runners(phases: Sequence[Phase], settings: Settings, known: Mapping[str, RunnerKind] | None = None) -> None:
    """Stop where a phase that is going to be worked on wishes for a runner that there is not.

    Raises:
        PlanError: With its line.
    """
    for found in check_runners(phases, settings, known):
        raise PlanError(found.message, line=found.line, hint="relay agents shows which of them are installed")


def list_kinds(request: RunRequest, known: Mapping[str, RunnerKind] | None = None) -> tuple[RunnerKind, ...]:
    """Return the runners that a run is going to have.

    Raises:
        RelayError: There is not one of them.
    """
    settings = request.settings
    known = list_runners(settings) if known is None else known
    with within(request.plan_path):
        require_runners(request.phases, settings, known)
    origin = settings.origins.get("runner", "default")
    return tuple(get_kind(name, origin=origin, known=known) for name in request.runners)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRunners:
    """The runners of a run. Mutable: one that an edit of the plan names meanwhile is opened when its phase begins."""

    known: Mapping[str, RunnerKind]
    given: Surroundings
    stack: ExitStack
    """Closes them."""
    opened: dict[str, Runner] = field(default_factory=dict)

    def open(self, names: Sequence[str]) -> "OpenRunners":
        """Open some of them, as `get` does; return all."""
        for name in names:
            self.get(name)
        return self

    def get(self, name: str) -> Runner:
        """Return the runner of a name.

        Raises:
            RelayError: There is none of this name, or something that it needs is missing.
        """
        if name not in self.opened:
            kind = get_kind(name, origin="Runner", known=self.known)
            kind.get_key(self.given.environ)
            self.opened[name] = self.stack.enter_context(kind.open(self.given))
        return self.opened[name]
