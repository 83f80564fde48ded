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
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Protocol

from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.config import Settings
from relay.sandbox.policy import Limits
from relay.sandbox.run import Sandbox
from relay.session.events import GaugeCrossed, Observe, ToolFinished, ToolStarted
from relay.session.gauge import CONSOLIDATE_SHARE, Gauge, ResetAt, Zone
from relay.session.prices import Price
from relay.session.recall import Recall, hash_call
from relay.session.tape import KeepNote
from relay.session.usage import BYTES_PER_TOKEN
from relay.session.values import CLAIM_LINKS, SessionEnd, SessionOutcome, ToolCall, ToolResult, ToolSpec

MOST_TURNS = 500
"""Requests of one session. A session whose tokens are counted rightly comes to its reset line long before: this ends
one whose endpoint reports too few."""
ENDPOINT_IDLE_S = 90.0
"""Longest silence in a response. An endpoint that works sends a ping or a piece every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions of the run that a session calls while it goes on."""

    run_tool: Callable[[ToolCall], ToolResult]
    """Runs one call to its end. Must not raise for what a model or a command can do."""
    render_soft_notice: Callable[[int, int], str]
    """Given the fill and the room up to the hard line, in tokens: returns the notice that the model gets once at the
    soft line."""
    render_band_notice: Callable[[int, int], str] = lambda _fill, _line: ""
    """Given the fill and the soft line, in tokens: returns the sentence that the model gets once in the consolidate
    band; empty for none."""
    note_wait: Callable[[float], None] = lambda _: None
    """Called before a long wait for a limit with its end (seconds since the epoch), so that a restart knows it."""
    note_boundary: Callable[[], None] = lambda: None
    """Called when all tools of a turn have ended that `run_tool` did not run; which files they changed is not known."""
    hear: Callable[[], str] = lambda: ""
    """Called before each further request of a turn. Waits while the user pauses the run; returns the user's words for
    the model, or the empty text. A runner must pass the words on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """Everything a fresh session is made of."""

    session_id: str
    model: str
    system: str
    """Role, protocol and rules; the same for all sessions of a run, so that a fresh one starts on a warm cache."""
    tools: tuple[ToolSpec, ...]
    callbacks: Callbacks
    reset_at: ResetAt
    """Where the soft line lies."""
    check_budget: Callable[[int, int], str | None]
    """Given the most prompt and output tokens of the next request: returns why it must not be sent, or None."""
    price: Price | None
    """None if the model's price is unknown; costs are then unknown, not zero."""
    find_price: Callable[[str], Price | None] = lambda _: None
    """Returns the price of another model, which may answer in place of the one asked."""
    max_output_tokens: int | None = None
    """Output limit of a request; None for the runner's default. Raised once when an answer is cut."""
    max_turns: int = MOST_TURNS
    """Most requests of a session; then it hands over."""
    effort: str | None = None
    """None for the model's default."""
    cached: bool = True
    """Whether the prompt is marked for the endpoint's cache."""
    keep: KeepNote = lambda _: None
    """Takes notes of what goes over the wire (`relay.session.tape`)."""
    preloads: tuple[tuple[str, str], ...] = ()
    """Path and text of each file in the first message; the runner notes their use."""
    hide: Callable[[str], str] = str
    """Removes from a text what no model may see; tool results and messages come without it already."""
    sandbox: Sandbox | None = None
    """Where the session's commands run. A runner that starts programs confines them in the same way."""
    writes: bool = False
    """Whether such programs may write what the sandbox lets commands write."""
    limits: Limits | None = None
    """Limits of the session's commands."""
    inside: Observe | None = None
    """Gets the events of a session inside another one, in place of the runner's observer; None for other sessions."""
    slowest_turn_s: float = 0.0
    """Longest time between the starts of two requests in this run: an answer and the pause behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What an endpoint says about a model, or the dated table if the endpoint says nothing."""

    id: str
    window_tokens: int
    max_output_tokens: int
    rehearsed: bool
    """Whether the endpoint is a rehearsal server: a script plays the model."""
    source: str
    """``models api`` or ``table <date>``."""
    credential: str = ""
    """What signs the requests and where it comes from; empty for a key of the environment."""


class Session(Protocol):
    """One conversation.

    Contract:
        `advance` never raises for anything a model, an endpoint or a tool does; it returns a `SessionOutcome`. Usage is
        observed before the content of an answer is looked at. A tool runs only on a complete answer whose stop reason
        is ``tool_use``, and every call gets exactly one result. History is append-only. After any end but FINISHED or
        ENDED_BY_TOOL a further `advance` may be refused with the same end.
    """

    def advance(self, message: str) -> SessionOutcome:
        """Send a message to the model and work until the model stops or must be stopped."""


class Runner(Protocol):
    """Starts sessions.

    Contract:
        `open_session` sends nothing. `get_model` may ask the endpoint once per model, and waits as long as the settings
        allow while the endpoint is only overloaded. It raises `RunnerError` if no session could ever be started: key
        refused, unknown model, endpoint unreachable. It raises `Interrupted` if the user asks to stop meanwhile. Every
        run calls it before its first session.
    """

    @property
    def agent(self) -> str:
        """Name and version of the agent that ran the last session; empty for relay's own loop."""

    @property
    def metering(self) -> str:
        """Who counted its tokens: ``gateway``, or ``agent`` for the agent itself. Nobody asks relay's own loop."""

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model; the user's settings take precedence over the endpoint."""

    def open_session(self, spec: SessionSpec) -> AbstractContextManager[Session]:
        """Return a fresh session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a run gives its runner."""

    environ: Mapping[str, str]
    """Holds keys and addresses."""
    settings: Settings
    observe: Observe
    """Receives every request, answer and tool call."""
    interrupts: Interrupts
    endpoint_idle_s: float = ENDPOINT_IDLE_S
    for_models_only: bool = False
    """Whether no session will be held: what only sessions need is not loaded then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKind:
    """A way to run sessions, before it is opened."""

    get_key: Callable[[Mapping[str, str]], str]
    """Given the environment: returns the variable that holds the key, never the key; empty for a runner without a key.
    Raises `RunnerError` if the key is missing. Sends nothing, costs nothing."""
    require: Callable[[Mapping[str, str], Settings], None] = lambda _environ, _settings: None
    """Raises `RelayError` if anything but the key is missing: a program, a sandbox. Sends and starts nothing."""
    open: Callable[[Surroundings], AbstractContextManager[Runner]]
    """Opens a runner, and closes it at the end. Sends nothing and returns at once: slow imports go into a thread."""


MAX_PERIOD = 4
REPEATS = 3
NUDGE = (
    "relay: you have made the same calls with the same results three times and nothing changed in between. "
    "Do something else, or call block with what stands in the way."
)
_SUMMARY_CHARS = 200


def render_summary(text: str) -> str:
    """Write the one line of a call that a person sees."""
    return " ".join(text.split())[:_SUMMARY_CHARS]


class ToolLog:
    """Emits the beginning and the end of tool calls. Mutable: knows what the session was shown.

    Args:
        preloads: As in `SessionSpec`.
    """

    def __init__(self, observe: Observe, preloads: Sequence[tuple[str, str]] = ()) -> None:
        self._observe = observe
        self._recall = Recall(preloads)

    def start(self, call: ToolCall) -> None:
        """Emit ToolStarted, summed up by the claims that the call names and its first text argument."""
        given = call.input
        texts = [value for value in given.values() if isinstance(value, str) and value.strip()]
        links = [f"{name} {ids}" for name in CLAIM_LINKS if isinstance(ids := given.get(name), str) and ids.strip()]
        words = ": ".join((*([", ".join(links)] if links else []), *texts[:1]))
        self._observe(ToolStarted(call_id=call.id, name=call.name, summary=render_summary(words)))

    def end(self, call: ToolCall, result: ToolResult, *, duration_s: float) -> None:
        """Emit ToolFinished; the wait for a person does not count as the tool's time."""
        data = result.text.encode("utf-8", "surrogatepass")
        shown = result.picture.data.encode() if result.picture else b""
        path = result.shown.path if result.shown else ""
        uses = self._recall.find_uses(call.input, path=path)
        self._recall.show(call.id, result.text, path=path)
        self._observe(
            ToolFinished(
                call_id=call.id,
                name=call.name,
                is_error=result.is_error,
                result_bytes=len(data) + (result.picture.tokens * BYTES_PER_TOKEN if result.picture else 0),
                result_sha256=hashlib.sha256(data + shown).hexdigest(),
                duration_s=duration_s - result.waited_s,
                changed_paths=result.changed_paths,
                shown=result.shown,
                problem=render_summary(result.text.partition("\n")[0]) if result.is_error else "",
                call_sha256=hash_call(call.name, call.input),
                cut_bytes=result.cut_bytes,
                uses=uses,
            )
        )


def show_crossing(observe: Observe, gauge: Gauge, line: Zone) -> None:
    """Emit GaugeCrossed for a line: soft, hard, or the lower edge of the consolidate band."""
    line_tokens = gauge.hard_tokens if line is Zone.HARD else gauge.soft_tokens
    if line is Zone.CONSOLIDATE:
        line_tokens = math.ceil(CONSOLIDATE_SHARE * line_tokens)
    observe(GaugeCrossed(line=line.value, fill_tokens=gauge.least_tokens, line_tokens=line_tokens))


@dataclass(slots=True)
class LineNotices:
    """Tells a session where its context stands: once in the consolidate band, once at the soft line.

    Mutable: remembers what it told.
    """

    _is_told: bool = False
    _is_asked: bool = False
    """Whether it was asked to hand over."""

    def find(self, gauge: Gauge, callbacks: Callbacks, observe: Observe) -> str:
        """Return a text for the model; empty for none."""
        if gauge.zone is Zone.SOFT and not self._is_asked:
            self._is_asked = True
            show_crossing(observe, gauge, Zone.SOFT)
            return callbacks.render_soft_notice(gauge.least_tokens, gauge.hard_tokens - gauge.least_tokens)
        if gauge.zone is not Zone.CONSOLIDATE or self._is_told or self._is_asked:
            return ""
        self._is_told = True
        words = callbacks.render_band_notice(gauge.least_tokens, gauge.soft_tokens)
        if words:
            show_crossing(observe, gauge, Zone.CONSOLIDATE)
        return words


def end_at_hard_line(gauge: Gauge) -> SessionOutcome:
    """Return the outcome of a session over its hard line."""
    words = f"{gauge.least_tokens:,} tokens in context, the hard line is {gauge.hard_tokens:,}"
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=words)


def end_by_turns(turns: int) -> SessionOutcome:
    """Return the outcome of a session with too many turns."""
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=f"{turns} turns in one session")


def refuse_first_prompt(gauge: Gauge, ways: str) -> SessionOutcome:
    """Return the outcome of a session whose first prompt is over the hard line; `ways` is further advice."""
    words = (
        f"the first prompt of a session has about {gauge.least_tokens:,} tokens, and sessions stop at "
        f"{gauge.hard_tokens:,} (reset_at) of a window of {gauge.window_tokens:,}: raise reset_at, {ways}"
    )
    return SessionOutcome(end=SessionEnd.DENIED, detail=words)


@dataclass(slots=True)
class LoopDetector:
    """Notices a session that repeats itself. Mutable: remembers the turns."""

    _turns: list[str] = field(default_factory=list)
    _is_told: bool = False

    def judge(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> str | SessionOutcome:
        """Take one turn; return a text for the model (empty for none), or how the session ends after that text."""
        if not self.is_stuck(turn):
            return ""
        if self._is_told:
            names = ", ".join(dict.fromkeys(call.name for call, _ in turn))
            return SessionOutcome(end=SessionEnd.STUCK, detail=f"the same calls with the same results again ({names})")
        self._is_told = True
        self._turns.clear()
        return NUDGE

    def is_stuck(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> bool:
        """Take one turn; return whether the last turns repeat a sequence of up to `MAX_PERIOD` turns three times."""
        if any(result.changed_paths for _, result in turn):
            self._turns.clear()
            return False
        said = [(call.name, call.input, result.text, result.is_error) for call, result in turn]
        self._turns.append(json.dumps(said, sort_keys=True, default=str))
        tails = ((self._turns[-period * REPEATS :], period) for period in range(1, MAX_PERIOD + 1))
        return any(len(tail) == period * REPEATS and tail == tail[:period] * REPEATS for tail, period in tails)
