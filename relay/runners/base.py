"""The contract between a run and whoever runs its sessions, and what every runner does with a turn.

A runner turns a prompt into work. It owns the conversation, its retries and its gauge; it never touches git, ticks a
box or decides that a phase is done. A further runner is a folder next to ``messages/`` with a `RunnerKind`, and one
line in `relay.runners.registry`.

`LoopDetector` recognises a session that repeats itself. A repeat counts only when calls *and* results are equal and
nothing was written in between: re-running a test after an edit, or waiting for a server with a changing answer, is
work. Periods up to four count, because A-B-A-B is a loop too; three times, where OpenCode, Cline and OpenHands warn:
twice happens in honest work.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Protocol

from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.config import ModelSettings, Settings
from relay.sandbox.policy import Limits
from relay.sandbox.run import Sandbox
from relay.session.events import GaugeCrossed, Observe, ToolFinished, ToolStarted
from relay.session.gauge import Gauge, ResetAt, Zone
from relay.session.prices import Price
from relay.session.tape import Keep
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a session asks, and tells, of whoever began it while it goes on."""

    run_tool: Callable[[ToolCall], ToolResult]
    """Runs one call to its end. Must not raise for what a model or a command can do."""
    render_soft_notice: Callable[[int, int], str]
    """Given the fill, and the room up to the hard line, in tokens: what the model is told once at the soft line."""
    note_wait: Callable[[float], None] = lambda _: None
    """Told, before a long wait for a limit, until when it lasts (seconds since the epoch): a restart must know."""
    note_boundary: Callable[[], None] = lambda: None
    """Told where all tools of a turn have ended that `run_tool` did not run: what they changed is not known."""
    hear: Callable[[], str] = lambda: ""
    """Asked before each further request of a turn: waits while the user pauses the run, and returns what the user says
    to the model; empty for nothing. What it returns has to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """Everything a fresh session is made of."""

    session_id: str
    model: str
    system: str
    """Role, protocol and rules; identical for every leg of a run so that a fresh session starts on a warm cache."""
    tools: tuple[ToolSpec, ...]
    callbacks: Callbacks
    reset_at: ResetAt
    """Where the soft line lies."""
    check_budget: Callable[[int, int], str | None]
    """Given the most prompt and output tokens the next request can cost: why it must not be sent, or None."""
    price: Price | None
    """None when the model's price is unknown; costs are then unknown, not zero."""
    find_price: Callable[[str], Price | None] = lambda _: None
    """The price of another model, which may answer in the place of the one that was asked."""
    max_output_tokens: int | None = None
    """Output limit of a request; None for the runner's default. Raised once when an answer is cut."""
    max_turns: int = 500
    """Requests of a session; at so many it is handed over."""
    effort: str | None = None
    """None for the model's default."""
    cached: bool = True
    """Whether the prompt is marked for the endpoint's cache."""
    cache_ttl: str = "auto"
    """How long entries of that cache shall live: ``5m``, ``1h``, or ``auto`` for what the runner makes of this run."""
    keep: Keep = lambda _: None
    """Takes notes of what goes over the wire (`relay.session.tape`)."""
    hide: Callable[[str], str] = str
    """Takes out of a text what no model is told; results of tools and messages come without it."""
    sandbox: Sandbox | None = None
    """Where the session's commands run; a runner that starts programs of its own starts them as confined."""
    writes: bool = False
    """Whether such a runner's programs may write what the sandbox lets commands write."""
    limits: Limits | None = None
    """Of those commands."""
    slowest_turn_s: float = 0.0
    """How far apart the starts of two requests were at most in this run: an answer and the pause behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What an endpoint says of a model, or the dated table where it says nothing."""

    id: str
    window_tokens: int
    max_output_tokens: int
    rehearsed: bool
    """The endpoint is a rehearsal server: a script plays the model."""
    source: str
    """``models api`` or ``table <date>``."""


class Session(Protocol):
    """One conversation.

    Contract:
        `advance` never raises for anything a model, an endpoint or a tool does; it returns a `SessionOutcome`.
        Usage is observed before the content of an answer is looked at. A tool runs only on a complete answer whose
        stop reason is ``tool_use``, and every call gets exactly one result. History is append-only.
        After any end but FINISHED or ENDED_BY_TOOL a further `advance` may be refused with the same end.
    """

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the model and work until it stops or must be stopped."""


class Runner(Protocol):
    """Starts sessions.

    Contract:
        `open_session` sends nothing. `get_model` may ask the endpoint once per model, waits as long as the settings
        allow while the endpoint is only overloaded, and raises `RunnerError` when no session could ever be started:
        key refused, unknown model, endpoint unreachable. It raises `Interrupted` when the user asks to stop meanwhile.
        Every run asks it before its first session.
    """

    @property
    def agent(self) -> str:
        """Name and version of the agent that ran the last session; empty for relay's own loop."""

    @property
    def metering(self) -> str:
        """Who counted its tokens: ``gateway``, or ``agent`` for the agent itself; nothing asks relay's own loop."""

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model; what the user's settings say of it counts more than the endpoint."""

    def open_session(self, spec: SessionSpec) -> AbstractContextManager[Session]:
        """Return a fresh session."""

    def describe_model(self, model: str) -> ModelSettings:
        """Return a model as a user would set it who knew what is set, said and was refused so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run gives to its runner."""

    environ: Mapping[str, str]
    """Where keys and addresses come from."""
    settings: Settings
    observe: Observe
    """Told of every request, answer and tool call."""
    interrupts: Interrupts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKind:
    """A way to run sessions, before it is opened."""

    get_key: Callable[[Mapping[str, str]], str]
    """Given the environment: which variable holds the key, never the key itself; empty for a runner that needs none.
    Raises `RunnerError` when it is missing. Sends nothing, costs nothing."""
    require: Callable[[Mapping[str, str], Settings], None] = lambda _environ, _settings: None
    """Raises `RelayError` for what is missing besides the key: a program, a sandbox. Asks nobody, starts nothing."""
    open: Callable[[Surroundings], AbstractContextManager[Runner]]
    """Opens a runner and closes it again; sends nothing, and returns at once: what takes long loads in a thread."""


MAX_PERIOD = 4
REPEATS = 3
NUDGE = (
    "relay: you have made the same calls with the same results three times and nothing changed in between. "
    "Do something else, or call block with what stands in the way."
)
LEAST_OUTPUT_TOKENS = 4_000
"""A request whose answer may not be as long as this is not worth sending: where the caps leave less, it is not sent."""
_SUMMARY_CHARS = 200


def fit_answer(check: Callable[[int, int], str | None], prompt_tokens: int, wanted_tokens: int) -> int | str:
    """Return how long an answer may be, or why its request must not be sent.

    Args:
        check: As `relay.runners.base.SessionSpec.check_budget`.
        wanted_tokens: How long it is where the caps leave enough; where they do not it is halved until they do.
    """
    most = wanted_tokens
    while (why := check(prompt_tokens, most)) and most // 2 >= LEAST_OUTPUT_TOKENS:
        most //= 2
    return why or most


def show_tool_start(observe: Observe, call: ToolCall) -> None:
    """Tell that a tool begins, with one line that says what the call is about: its first text argument."""
    words = next((value for value in call.input.values() if isinstance(value, str)), "")
    observe(ToolStarted(call_id=call.id, name=call.name, summary=render_summary(words)))


def render_summary(text: str) -> str:
    """Write the one line that a person sees of a call."""
    return " ".join(text.split())[:_SUMMARY_CHARS]


def show_tool_end(observe: Observe, call: ToolCall, result: ToolResult, *, duration_s: float) -> None:
    """Tell that a tool has ended; the wait for a person is no part of how long it took."""
    data = result.text.encode("utf-8", "surrogatepass")
    observe(
        ToolFinished(
            call_id=call.id,
            name=call.name,
            is_error=result.is_error,
            result_bytes=len(data),
            result_sha256=hashlib.sha256(data).hexdigest(),
            duration_s=duration_s - result.waited_s,
            changed_paths=result.changed_paths,
            shown=result.shown,
            problem=render_summary(result.text.partition("\n")[0]) if result.is_error else "",
        )
    )


def show_crossing(observe: Observe, gauge: Gauge, line: Zone) -> None:
    """Tell that a session is over a line: the soft or the hard one."""
    line_tokens = gauge.hard_tokens if line is Zone.HARD else gauge.soft_tokens
    observe(GaugeCrossed(line=line.value, fill_tokens=gauge.least_tokens, line_tokens=line_tokens))


def end_at_hard_line(gauge: Gauge) -> SessionOutcome:
    """Return how a session ends that is over its hard line."""
    words = f"{gauge.least_tokens:,} tokens in context, the hard line is {gauge.hard_tokens:,}"
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=words)


def end_by_turns(turns: int) -> SessionOutcome:
    """Return how a session ends that has gone on for too long."""
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=f"{turns} turns in one session (max_turns)")


def refuse_first_prompt(gauge: Gauge, ways: str) -> SessionOutcome:
    """Return how a session ends whose first prompt is over the hard line; `ways` is what the user can do besides."""
    words = (
        f"the first prompt of a session has about {gauge.least_tokens:,} tokens, and sessions stop at "
        f"{gauge.hard_tokens:,} (reset_at) of a window of {gauge.window_tokens:,}: raise reset_at, {ways}"
    )
    return SessionOutcome(end=SessionEnd.DENIED, detail=words)


@dataclass(slots=True)
class LoopDetector:
    """Sees every turn's calls and results. Mutable: remembers the turns."""

    _turns: list[str] = field(default_factory=list)
    _is_told: bool = False

    def judge(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> str | SessionOutcome:
        """Take one turn; return what the model is told, empty for nothing, or how a session ends that was told."""
        if not self.is_stuck(turn):
            return ""
        if self._is_told:
            names = ", ".join(dict.fromkeys(call.name for call, _ in turn))
            return SessionOutcome(end=SessionEnd.STUCK, detail=f"the same calls with the same results again ({names})")
        self._is_told = True
        self._turns.clear()
        return NUDGE

    def is_stuck(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> bool:
        """Take one turn; say whether the last turns are the same `MAX_PERIOD` or fewer turns, three times over."""
        if any(result.changed_paths for _, result in turn):
            self._turns.clear()
            return False
        self._turns.append(_signature(turn))
        return any(self._repeats(period) for period in range(1, MAX_PERIOD + 1))

    def _repeats(self, period: int) -> bool:
        tail = self._turns[-period * REPEATS :]
        return len(tail) == period * REPEATS and tail == tail[:period] * REPEATS


def _signature(turn: Sequence[tuple[ToolCall, ToolResult]]) -> str:
    return json.dumps(
        [(call.name, call.input, result.text, result.is_error) for call, result in turn], sort_keys=True, default=str
    )
