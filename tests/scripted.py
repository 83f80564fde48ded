"""A runner without an endpoint: its sessions say and call what a test wrote down."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from relay.config import ModelSettings, Settings
from relay.runners.base import ModelInfo, RunnerKind, SessionSpec, Surroundings
from relay.session.events import Event
from relay.session.prices import Budget
from relay.session.spend import Meter, Pace
from relay.session.usage import Spent
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult
from relay.setup.session import Sessions

Call = tuple[str, Mapping[str, Any]]
"""Name and input of a tool call."""
Act = Call | Callable[[], object]
"""A call, or something that happens meanwhile: a signal, an edit of the user's."""


@dataclass
class ScriptedRunner:
    """Plays sessions; a `relay.runners.base.Runner`."""

    sessions: list[list[Sequence[Act | SessionOutcome]]]
    """For each session what it does at each message: acts, then an outcome. Without one, and when nothing is left, it
    ends its turn."""
    told: list[str] = field(default_factory=list)
    """Every message, in order."""
    results: list[ToolResult] = field(default_factory=list)
    specs: list[SessionSpec] = field(default_factory=list)
    agent: str = ""
    metering: str = ""

    @property
    def kind(self) -> RunnerKind:
        """It needs no key, and is opened as it is."""
        return RunnerKind(get_key=lambda _: "", open=self._open)

    @contextmanager
    def _open(self, _: Surroundings) -> Iterator["ScriptedRunner"]:
        yield self

    def get_model(self, model: str) -> ModelInfo:
        """Return a model of ordinary size."""
        return ModelInfo(id=model, window_tokens=200_000, max_output_tokens=8_000, rehearsed=True, source="script")

    def describe_model(self, _model: str) -> ModelSettings:
        """Say that nothing is known."""
        return ModelSettings()

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator["ScriptedSession"]:
        """Return the next session."""
        self.specs.append(spec)
        yield ScriptedSession(self, spec, iter(self.sessions.pop(0)))


@dataclass
class ScriptedSession:
    """Plays one session; a `relay.runners.base.Session`."""

    runner: ScriptedRunner
    spec: SessionSpec
    advances: Iterator[Sequence[Act | SessionOutcome]]

    def advance(self, message: str) -> SessionOutcome:
        """Do what comes next."""
        self.runner.told.append(message)
        for act in next(self.advances, ()):
            if isinstance(act, SessionOutcome):
                return act
            if callable(act):
                act()
                continue
            call = ToolCall(id=f"call{len(self.runner.results)}", name=act[0], input=act[1])
            self.runner.results.append(self.spec.callbacks.run_tool(call))
            if self.runner.results[-1].ends_session:
                return SessionOutcome(end=SessionEnd.ENDED_BY_TOOL)
        return SessionOutcome(end=SessionEnd.FINISHED)


def make_sessions(runner: ScriptedRunner, events: list[Event], **settings) -> Sessions:
    """Return sessions on a runner, with a meter that hears what everybody hears."""
    own = Settings(**settings)
    meter = Meter(Budget(run_cap_usd=None, phase_cap_usd=None, token_cap=1_000), price=None, before=Spent())

    def observe(event: Event) -> None:
        meter.observe(event)
        events.append(event)

    return Sessions(
        get_runner=lambda _: runner,
        model=runner.get_model(own.model),
        settings=own,
        price=None,
        find_price=lambda _: None,
        meter=meter,
        check_budget=meter.check,
        pace=Pace(),
        observe=observe,
    )
