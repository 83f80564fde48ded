"""A session over a messages endpoint: ask, look at the gauge, run tools, ask again.

The loop is the same for every end: an answer is accounted for, then handled by its stop reason. It never raises for
what a model or an endpoint does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from relay.base.values import dataclass
from relay.config.model import NOTHING_SET, ModelSettings
from relay.runners.base import ModelInfo, SessionSpec
from relay.runners.messages.answers import Answer
from relay.runners.messages.connection import ApiConnection, get_model
from relay.runners.messages.context_window import ContextWindow
from relay.runners.turns import (
    LoopDetector,
    end_at_hard_line,
    end_by_turns,
    refuse_first_prompt,
    show_crossing,
    show_tool_end,
    show_tool_start,
)
from relay.session.events import Noticed, RelaySpoke
from relay.session.gauge import Zone
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult

MAX_CUT_ANSWERS = 2
"""Answers in a row that may be cut at the model's own output limit before the session ends."""
MAX_IDLE_ANSWERS = 3
"""Answers in a row that may do nothing: empty ones, pauses, a stop for tools without a call."""

_EMPTY = "relay: your answer was empty. Go on with your task, or end your turn with a last line of text."
_PAUSED = "relay: your turn was paused. Go on where you stopped."
_NO_CALL = "relay: you stopped to use a tool but called none. Go on."
_CUT = "Not executed: the answer was cut at the output limit. Write long files in several smaller steps."


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRunner:
    """Runs sessions on a messages endpoint; a `relay.runners.base.Runner`.

    Mutable: it remembers what it has asked.
    """

    connection: ApiConnection
    find_own: Callable[[str], ModelSettings] = lambda _: NOTHING_SET
    """What the user's settings say of a model; it counts more than what the endpoint says."""
    known: dict[str, ModelInfo] = field(default_factory=dict)
    """What has been asked already."""
    agent: str = ""
    """It is none."""
    metering: str = ""

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model; the endpoint is asked once."""
        if model not in self.known:
            self.known[model] = get_model(self.connection, model, self.find_own(model))
        return self.known[model]

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator["Conversation"]:
        """Return a fresh session; nothing is sent yet."""
        conversation = Conversation(self.connection, spec, self.get_model(spec.model))
        yield conversation

    def describe_model(self, model: str) -> ModelSettings:
        """Return what is known of a model by now."""
        info = self.get_model(model)
        return replace(
            self.find_own(model),
            window_tokens=info.window_tokens,
            max_output_tokens=info.max_output_tokens,
            compat=self.connection.dialect.say_learnt(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """What became of a history at the reset line."""

    words: str
    made_room: bool
    """False: nothing could be done, and the session hands over instead."""


Shorten = Callable[[ContextWindow], Shortened | SessionOutcome]
"""Decides at the reset line what of the history is sent from here on, and begins it; or how the session ends."""


class Conversation:
    """One session; a `relay.runners.base.Session`.

    Args:
        shorten: Goes on at the reset line; None hands over there, which is what relay does.
    """

    def __init__(
        self, connection: ApiConnection, spec: SessionSpec, model: ModelInfo, *, shorten: Shorten | None = None
    ) -> None:
        self._connection = connection
        self._context = ContextWindow(connection, spec, model)
        self._shorten = shorten
        self.end: SessionEnd | None = None
        """How the last `advance` ended; None before the first."""
        self.go_on_for(spec)

    def go_on_for(self, spec: SessionSpec) -> None:
        """Serve a leg in this conversation, whatever was said in it before; system and tools must be the same."""
        self._context.spec = spec
        self._context.history.begin_task()
        self._stuck = LoopDetector()
        self._cut_answers = self._idle_answers = 0
        self._noticed = False
        self._first_turn = self._context.turn

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the model and work until it stops or must be stopped."""
        if self._context.history.ends_in_notice:
            return self._stop_idle()  # a message may not follow a notice that was never answered
        self._say(message)
        outcome = None
        while outcome is None:
            outcome = self._check_before_request() or self._step()
        self.end = outcome.end
        return outcome

    def _step(self) -> SessionOutcome | None:
        answer = self._context.ask()
        return self._handle(answer) if isinstance(answer, Answer) else answer

    def _check_before_request(self) -> SessionOutcome | None:
        if self._connection.interrupts.finish_turn:
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="asked to stop")
        if outcome := self._check_size():
            return outcome
        if self._shorten is not None and self._context.gauge.zone in {Zone.SOFT, Zone.HARD}:
            outcome = self._make_room(self._shorten)
            if outcome is not None:
                return outcome
        if self._context.gauge.zone is Zone.HARD:
            return self._cross_hard_line()
        return self._context.check_budget()

    def _check_size(self) -> SessionOutcome | None:
        """Stop a session whose first prompt is over the hard line, and one that has gone on for too long."""
        gauge, turns = self._context.gauge, self._context.turn - self._first_turn
        if turns >= self._context.spec.max_turns:
            return end_by_turns(turns)
        if self._context.turn or gauge.zone not in {Zone.SOFT, Zone.HARD} or self._context.history.call_ids:
            return None
        if gauge.zone is Zone.HARD:
            ways = "choose a model with a larger window, or shorten the rules, the plan or the phase"
            return refuse_first_prompt(gauge, ways)
        words = (
            f"the first prompt of a session has about {gauge.least_tokens:,} tokens, over the reset line of "
            f"{gauge.soft_tokens:,}: it is asked to hand over at once (reset_at)"
        )
        self._connection.observe(Noticed(text=words, warning=True))
        return None

    def _make_room(self, shorten: Shorten) -> SessionOutcome | None:
        before = self._context.gauge
        show_crossing(self._connection.observe, before, Zone.SOFT)
        found = shorten(self._context)
        if isinstance(found, SessionOutcome):
            return found
        if found.made_room:
            fill = self._context.gauge.least_tokens
            words = f"{found.words}: {before.least_tokens:,} → about {fill:,} tokens"
        else:
            self._shorten = None
            words = f"{found.words}; the session hands over instead"
        self._connection.observe(Noticed(text=words, warning=not found.made_room))
        return None

    def _handle(self, answer: Answer) -> SessionOutcome | None:
        """Act on a complete answer; None means: go on."""
        if answer.stop_reason == "max_tokens":
            return self._handle_cut(answer)
        self._cut_answers = 0
        match answer.stop_reason:
            case "tool_use":
                return self._run_tools(answer)
            case "pause_turn":
                return self._go_on(answer, _PAUSED)
            case "end_turn" | "stop_sequence":
                return self._finish(answer)
            case "refusal":
                words = (
                    answer.stop_details.get("explanation") or answer.stop_details.get("category") or "no reason given"
                )
                return SessionOutcome(end=SessionEnd.REFUSED, detail=f"the model refused: {words}", text=answer.text)
            case "model_context_window_exceeded":
                return SessionOutcome(end=SessionEnd.OVERFLOW, detail="the model's window is full", text=answer.text)
            case reason:
                words = f"the endpoint ended its answer with {reason!r}, which is no stop reason of the Messages API"
                return SessionOutcome(end=SessionEnd.DENIED, detail=f"{words}: nothing of it was run")

    def _finish(self, answer: Answer) -> SessionOutcome | None:
        if not answer.content:
            # Known to happen right after tool results; a new message helps, the same request again does not.
            ended = self._go_on(answer, _EMPTY)
            return ended and SessionOutcome(end=SessionEnd.FINISHED, detail=ended.detail)
        self._idle_answers = 0
        self._context.history.add_answer(answer.content)
        self._answer_unrun(answer, "Not executed: the turn had ended.")
        return SessionOutcome(end=SessionEnd.FINISHED, text=answer.text)

    def _go_on(self, answer: Answer, words: str) -> SessionOutcome | None:
        """Ask for more after an answer that did nothing, a few times."""
        self._context.history.add_answer(answer.content)
        self._answer_unrun(answer, "Not executed: the turn was not finished.")
        self._idle_answers += 1
        if self._idle_answers >= MAX_IDLE_ANSWERS:
            return self._stop_idle()
        self._say(words)
        return None

    def _stop_idle(self) -> SessionOutcome:
        return SessionOutcome(end=SessionEnd.STUCK, detail=f"{self._idle_answers} answers in a row did nothing")

    def _handle_cut(self, answer: Answer) -> SessionOutcome | None:
        """Ask again with more room once; after that keep what is whole, run nothing and say so."""
        if self._context.allowed_tokens < self._context.max_output_tokens:
            words = f"an answer was cut at {self._context.allowed_tokens:,} tokens, the most that the caps leave"
            why = self._context.check_longest()  # and what would be enough is known
            return SessionOutcome(end=SessionEnd.BUDGET, detail=f"{words}: {why}", text=answer.text)
        if self._context.raise_output_limit():
            limit = self._context.max_output_tokens
            self._connection.observe(
                Noticed(text=f"an answer was cut at its output limit; asked again with {limit:,} tokens")
            )
            return None
        self._cut_answers += 1
        if self._cut_answers >= MAX_CUT_ANSWERS or not answer.content:
            words = f"cut at the model's output limit of {self._context.max_output_tokens:,} tokens"
            return SessionOutcome(end=SessionEnd.TRUNCATED, detail=words, text=answer.text)
        self._context.history.add_answer(answer.content)
        if not self._answer_unrun(answer, _CUT):
            self._say(_CUT)
        return None

    def _answer_unrun(self, answer: Answer, words: str) -> bool:
        """Answer calls that are not run, because every call must be answered; False when there are none."""
        ids = [block["id"] for block in answer.content if block.get("type") == "tool_use"]
        if ids:
            self._add_results([(call_id, ToolResult(text=words, is_error=True)) for call_id in ids])
        return bool(ids)

    def _run_tools(self, answer: Answer) -> SessionOutcome | None:
        blocks = [block for block in answer.content if block.get("type") == "tool_use"]
        if not blocks:
            return self._go_on(answer, _NO_CALL)
        self._idle_answers = 0
        self._context.history.add_answer(answer.content)
        pairs: list[tuple[ToolCall, ToolResult]] = []
        for block in blocks:
            ended = any(result.ends_session for _, result in pairs)
            pairs.append(self._run_block(block, answer, ended=ended))
        self._add_results([(call.id, result) for call, result in pairs])
        if any(result.ends_session for _, result in pairs):
            return SessionOutcome(end=SessionEnd.ENDED_BY_TOOL, text=answer.text)
        outcome = self._look_at_gauge() or self._look_for_loop(pairs)
        if outcome is None and (words := self._context.spec.callbacks.hear()):
            self._notify(words)
        return outcome

    def _run_block(self, block: dict[str, Any], answer: Answer, *, ended: bool) -> tuple[ToolCall, ToolResult]:
        call = ToolCall(id=block["id"], name=block["name"], input=block["input"])
        if ended or self._connection.interrupts.stop_now:
            return call, ToolResult(text="Not executed: the session has ended.", is_error=True)
        if why := answer.broken_calls.get(call.id):
            return call, ToolResult(text=f"Not executed: {why}.", is_error=True)
        return call, self._run_tool(call)

    def _run_tool(self, call: ToolCall) -> ToolResult:
        observe, started = self._connection.observe, self._connection.clock()
        show_tool_start(observe, call)
        result = self._context.spec.callbacks.run_tool(call)
        show_tool_end(observe, call, result, duration_s=self._connection.clock() - started)
        return result

    def _say(self, text: str) -> None:
        self._context.history.say(text)
        self._context.append(text)
        if self._context.turn > self._first_turn:  # what a leg begins with is told when it begins
            self._connection.observe(RelaySpoke(size_bytes=len(text.encode("utf-8", "replace"))))

    def _notify(self, text: str) -> None:
        taken = self._connection.dialect.takes_system(self._context.spec.model)
        self._context.history.notify(text, as_system=taken)
        self._context.append(text)
        self._connection.observe(RelaySpoke(size_bytes=len(text.encode("utf-8", "replace"))))

    def _add_results(self, results: Sequence[tuple[str, ToolResult]]) -> None:
        self._context.history.add_results(results)
        self._context.append(*(result.text for _, result in results))

    def _look_at_gauge(self) -> SessionOutcome | None:
        """After tool results: the hard line stops, the soft line is told once."""
        if self._shorten is not None:
            return None  # room is made before the next request
        gauge = self._context.gauge
        if gauge.zone is Zone.HARD:
            return self._cross_hard_line()
        if gauge.zone is Zone.SOFT and not self._noticed:
            self._noticed = True
            show_crossing(self._connection.observe, gauge, Zone.SOFT)
            self._notify(
                self._context.spec.callbacks.render_soft_notice(
                    gauge.least_tokens, gauge.hard_tokens - gauge.least_tokens
                )
            )
        return None

    def _cross_hard_line(self) -> SessionOutcome:
        show_crossing(self._connection.observe, self._context.gauge, Zone.HARD)
        return end_at_hard_line(self._context.gauge)

    def _look_for_loop(self, pairs: Sequence[tuple[ToolCall, ToolResult]]) -> SessionOutcome | None:
        found = self._stuck.judge(pairs)
        if isinstance(found, SessionOutcome):
            return found
        if found:
            self._notify(found)
        return None
