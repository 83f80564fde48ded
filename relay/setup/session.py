"""One session of any kind: opened, announced, driven to its end, and accounted for.

The caller knows the purpose of the session: a phase (`relay.run.attempt.session`) or a plan
(`relay.run.planning.planner`). A further kind is a `SessionTask`, a function that drives the open session, and that
function's result.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Protocol, TypeVar

from relay.base.redaction import hide_values
from relay.base.values import dataclass
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.git.repository import Repo
from relay.insight.telemetry.tape import FileTape
from relay.plan.model import Phase
from relay.prompts.texts import PartLimit, measure_prompt
from relay.runners.base import MOST_TURNS, Callbacks, ModelInfo, Runner, Session, SessionSpec
from relay.sandbox.policy import Limits
from relay.sandbox.run import Sandbox
from relay.session.events import (
    Event,
    Observe,
    ResponseReceived,
    RetryScheduled,
    SessionEnded,
    SessionStarted,
    ShownClaim,
)
from relay.session.gauge import open_gauge, parse_reset_at
from relay.session.prices import Budget, Price, find_price
from relay.session.spend import Meter, Pace
from relay.session.tape import VERSION
from relay.session.usage import Spent
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult, ToolSpec
from relay.store.attempts import note_spent
from relay.store.plan_state import read_plan_cost


class SessionResult(Protocol):
    """The end of a session; the driver of each kind adds further fields."""

    @property
    def kind(self) -> str:
        """``done``, ``handoff``, ``blocked``, ``failed`` or ``interrupted``."""

    @property
    def end(self) -> SessionEnd:
        """Why the session stopped answering."""

    @property
    def detail(self) -> str:
        """One line for the user."""


ResultT = TypeVar("ResultT", bound=SessionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTask:
    """The task of one session."""

    session_id: str
    title: str
    """For the user: the phase's title, or ``planning``."""
    phase_id: str = ""
    """Empty for a session without a phase."""
    number: int = 1
    """1 for the first session of a phase; a session that was cut off does not count."""
    tries: int = 1
    """The same, with sessions counted that were cut off."""
    reason: str = ""
    """Why the session starts, for the user."""
    reset_at: str = ""
    """The session's own reset line; empty for the line of the settings."""
    system: str
    tools: tuple[ToolSpec, ...]
    message_parts: tuple[tuple[str, str], ...] = ()
    """The first message as (source, text) pairs, as in `relay.prompts.texts`; the event tells their sizes."""
    claims: tuple[ShownClaim, ...] = ()
    """The claims of the ledger among them."""
    preloads: tuple[tuple[str, str], ...] = ()
    """Path and text of each file among them."""
    limits: tuple[PartLimit, ...] = ()
    callbacks: Callbacks
    runner: str = ""
    """The runner that the phase names; empty for the one of the settings."""
    writes: bool = False
    """Whether an agent may write the work tree, as far as the sandbox allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Runs all sessions of a run, each with its runner, and counts their cost together."""

    get_runner: Callable[[str], Runner]
    """Returns the runner of a name; opens it at first use. Raises RelayError."""
    model: ModelInfo
    """From the runner of the first session."""
    settings: Settings
    price: Price | None
    """None if the model's price is unknown; costs are then unknown, not zero."""
    max_turns: int = MOST_TURNS
    """Most requests of each of these sessions."""
    max_output_tokens: int | None = None
    """Longest answer; None leaves it to the runner and the model's limit."""
    find_price: Callable[[str], Price | None]
    """Returns the price of any other model."""
    meter: Meter
    check_budget: Callable[[int, int], str | None]
    """As in `relay.runners.base.SessionSpec`."""
    pace: Pace
    """How slow the commands and answers of this run are."""
    observe: Observe
    sandbox: Sandbox | None = None
    """Confines the commands of sessions; None if no runner starts programs of its own."""
    limits: Limits | None = None
    """Limits of those commands."""
    open_tape: Callable[[str], FileTape] | None = None
    """Opens the history of a session, by its id; None if none is kept."""
    handed: tuple[str, ...] = ()
    """Secrets that only gates and tool servers get; they are removed from all text for a model."""
    said_model: str = ""
    """The model, if it is not the run's; else empty."""
    said_effort: str = ""
    """The effort, in the same way."""
    rungs: tuple[str, ...] = ()
    """The changes of model and effort that the phase has had so far, as in the setting `escalate`."""
    inside: Observe | None = None
    """Gets the events of sessions inside another one, in place of `observe`; their cost is the other's. None for
    sessions that stand by themselves."""

    @property
    def soft_tokens(self) -> int:
        """The size of the context at which a session with this model is told to hand off."""
        reset_at = self.settings.reset_at_for(self.settings.model)
        return open_gauge(window_tokens=self.model.window_tokens, reset_at=reset_at).soft_tokens

    def find_runner(self, wish: str) -> Runner:
        """Return the runner that a phase wishes for; with an empty wish, the runner of the settings."""
        return self.get_runner(self.settings.runner_for(wish))

    def choose(self, phase: Phase, rungs: Sequence[str]) -> "Sessions":
        """Return the sessions of a phase: its model and effort, then the changes of `rungs`, the later ones first.

        Raises:
            RelayError: The runner, its key or the model is missing.
        """
        model, effort = self.settings.model_for(phase.model), self.settings.effort_for(phase.effort)
        for kind, _, value in (rung.partition("=") for rung in rungs):
            model, effort = (model, value) if kind == "effort" else (value, effort)
        asked = self if model == self.settings.model else self.ask_model(model, phase.runner)
        said = self.said_effort if effort == self.settings.effort else effort or ""
        settings = replace(asked.settings, effort=effort)
        return replace(asked, settings=settings, said_effort=said, rungs=tuple(rungs))

    def ask_model(self, model: str, runner: str) -> "Sessions":
        """Return the sessions of another model, at its price; `runner` is the wish for one.

        Raises:
            RelayError: The runner, its key or the model is missing.
        """
        info = self.find_runner(runner).get_model(model)
        settings, said = replace(self.settings, model=model), self.said_model if model == self.settings.model else model
        return replace(self, settings=settings, model=info, price=self.find_price(model), said_model=said)

    def run(self, task: SessionTask, drive: Callable[[Session], ResultT]) -> ResultT:
        """Open a fresh session, drive it, and emit events for its beginning, its end and its cost."""
        if self.inside is not None:
            with self.meter.pricing(self.price):
                return self._hold(task, drive)
        self.observe(
            SessionStarted(
                session_id=task.session_id,
                phase_id=task.phase_id,
                title=task.title,
                number=task.number,
                tries=task.tries,
                reason=task.reason,
                preloads=tuple(path for path, _ in task.preloads),
                prompt=measure_prompt(task.system, task.tools, task.message_parts, task.limits),
                handoff_note="\n\n".join(text for source, text in task.message_parts if source == "handoff_note"),
                claims=task.claims,
                runner=self.settings.runner_for(task.runner),
                model=self.said_model,
                effort=self.said_effort,
                rungs=self.rungs,
            )
        )
        self.meter.open_session(self.price)
        result = self._hold(task, drive)
        spent = self.meter.session
        self.observe(
            SessionEnded(
                session_id=task.session_id,
                phase_id=task.phase_id,
                end=result.end,
                result=result.kind,
                detail=result.detail,
                usage=spent.usage,
                cost_usd=spent.cost_usd,
                estimated=spent.estimated,
            )
        )
        return result

    def _hold(self, task: SessionTask, drive: Callable[[Session], ResultT]) -> ResultT:
        runner, name = self.find_runner(task.runner), self.settings.runner_for(task.runner)
        with ExitStack() as stack:
            settings, hide = self.settings, partial(hide_values, values=self.handed)

            def run_tool(call: ToolCall) -> ToolResult:
                result = task.callbacks.run_tool(call)
                return replace(result, text=hide(result.text))

            spec = SessionSpec(
                session_id=task.session_id,
                model=settings.model,
                system=task.system,
                tools=task.tools,
                callbacks=replace(task.callbacks, run_tool=run_tool),
                preloads=task.preloads,
                hide=hide,
                reset_at=parse_reset_at(task.reset_at) if task.reset_at else settings.reset_at_for(settings.model),
                check_budget=self.check_budget,
                sandbox=self.sandbox,
                writes=task.writes,
                limits=self.limits,
                price=self.price,
                find_price=self.find_price,
                max_output_tokens=self.max_output_tokens,
                max_turns=self.max_turns,
                effort=settings.effort,
                cached="cache" not in settings.ablate,
                slowest_turn_s=self.pace.turn_s,
                inside=self.inside,
            )
            if self.open_tape is not None:
                tape = stack.enter_context(contextlib.closing(self.open_tape(spec.session_id)))
                names = ("session_id", "model", "system", "max_output_tokens", "max_turns", "effort", "cached")
                note = {
                    "kind": "session",
                    "v": VERSION,
                    "model_info": asdict(self.model),
                    **{field: getattr(spec, field) for field in names},
                    "tools": [asdict(tool) for tool in spec.tools],
                    "reset_at": spec.reset_at,
                    **({} if name == OWN_LOOP else {"runner": name}),
                }
                tape.keep(note)
                spec = replace(spec, keep=tape.keep)
            return drive(_HidingSession(session=stack.enter_context(runner.open_session(spec)), hide=hide))


@dataclass(frozen=True, slots=True, kw_only=True)
class _HidingSession:
    """A session whose messages hold no secret that only gates and tool servers get."""

    session: Session
    hide: Callable[[str], str]

    def advance(self, message: str) -> SessionOutcome:
        return self.session.advance(self.hide(message))


def find_price_now(settings: Settings, model: str) -> Price | None:
    """Return the price of a model from the user's settings or relay's table; None if neither has it."""
    return find_price(model, overrides=settings.prices)


def make_meter(repo: Repo, plan_path: str, settings: Settings, price: Price | None) -> Meter:
    """Return a meter with the plan's spend: that of its commits, and of its open attempt unless a commit records it."""
    budget = Budget(
        run_cap_usd=settings.max_cost_usd,
        phase_cap_usd=settings.max_phase_cost_usd,
        token_cap=settings.max_tokens_total,
    )
    cost = read_plan_cost(repo, plan_path)
    meter = Meter(budget, price=price, before=cost.closed)
    meter.charge(cost.open)
    return meter


class Book:
    """Notes the open session's cost on disk before each request and after each answer; a kill loses none. Mutable.

    Args:
        meter: Must get each event before the book does.
    """

    def __init__(self, repo: Repo, meter: Meter) -> None:
        self._repo = repo
        self._meter = meter
        self._session_id = ""

    def check(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Return why a request of at most this size must not be sent; None if it may, after noting its worst case.

        If relay or the machine stops before the answer comes, that worst case counts as spent.
        """
        if words := self._meter.check(prompt_tokens, output_tokens):
            return words
        try:
            self._note(self._meter.session_at_most, synced=True)
        except OSError as error:
            return f"the cost of the next request cannot be noted on disk: {error.strerror}"
        return None

    def observe(self, event: Event) -> None:
        """Note the known cost. If it cannot be written, the larger worst case is noted already."""
        match event:
            case SessionStarted():
                self._session_id = event.session_id
            case ResponseReceived() | RetryScheduled() | SessionEnded():
                with contextlib.suppress(OSError):
                    self._note(self._meter.session, synced=False)
            case _:
                pass

    def _note(self, spent: Spent, *, synced: bool) -> None:
        if self._session_id:
            note_spent(self._repo, self._session_id, spent, synced=synced)
