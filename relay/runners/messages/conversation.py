"""A session over a messages endpoint: ask, look at the gauge, run tools, ask again; and strategies to compare it with.

The loop is the same for every end: an answer is accounted for, then handled by its stop reason. It never raises for
what a model or an endpoint does.

relay hands over at the reset line (`reset`). Other strategies go on with one conversation from phase to phase:

``none``     Nothing is done about the context until the model's window is full.
``compact``  At the reset line the model writes a summary; a new conversation begins with the task, the summary and the
             last turns, kept whole.
``edit``     The API clears old tool results itself (context editing, a beta): requests hold the whole history, and from
             the reset line on the model is shown the newest results alone.

Plan, gates, ticks, commits and prompts are those of ``reset``. Where a strategy cannot go on (the window is full, the
summary does not fit, nothing is left to clear), the session hands over to a fresh one, with the usual soft notice. A
run that is resumed begins with a fresh conversation: git is the state here too, and holds no conversation.

Models that preserve thinking refuse a history whose past has changed. They accept a history without thinking blocks
(the provider's escape for this case). So compaction drops thinking from the turns it keeps.

Sources of the strategies: what Claude Code, Codex, OpenCode and Cline do when a window fills. Other sources stand
beside the constants.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from msgspec import structs

from relay.base.values import dataclass
from relay.config.model import NOTHING_SET, Compat, ModelSettings
from relay.prompts.texts import render_text
from relay.runners.base import (
    LineNotices,
    LoopDetector,
    ModelInfo,
    SessionSpec,
    ToolLog,
    end_at_hard_line,
    end_by_turns,
    refuse_first_prompt,
    show_crossing,
)
from relay.runners.messages.answers import Answer
from relay.runners.messages.connection import ApiConnection, EndpointDialect, drop_thinking, get_model
from relay.runners.messages.context_window import (
    KEPT_USES,
    LEAST_FREED_SHARE,
    ContextWindow,
    History,
    MessageDict,
    estimate_block,
)
from relay.session.events import Noticed, RelaySpoke
from relay.session.gauge import Zone, parse_reset_at
from relay.session.pictures import MAX_PICTURES, MAX_SESSION_BYTES, Picture
from relay.session.usage import estimate_tokens
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult

MAX_CUT_ANSWERS = 2
"""Answers in a row that may be cut at the model's own output limit before the session ends."""
MAX_IDLE_ANSWERS = 3
"""Answers in a row that may do nothing: empty answers, pauses, a stop for tools without a call."""

_EMPTY = "relay: your answer was empty. Go on with your task, or end your turn with a last line of text."
_PAUSED = "relay: your turn was paused. Go on where you stopped."
_NO_CALL = "relay: you stopped to use a tool but called none. Go on."
_CUT = "Not executed: the answer was cut at the output limit. Write long files in several smaller steps."


Shorten = Callable[[ContextWindow], tuple[str, bool] | SessionOutcome]
"""Called at the reset line. Shortens the history that is sent from then on; returns a message for the user, and False
if nothing could be shortened and the session has to hand over. Or returns how the session ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRunner:
    """Runs sessions on a messages endpoint; a `relay.runners.base.Runner`.

    Mutable: remembers the models it asked for, and the last session's conversation where a strategy continues it.
    """

    connection: ApiConnection
    find_own: Callable[[str], ModelSettings] = lambda _: NOTHING_SET
    """The user's settings for a model; they take precedence over what the endpoint says."""
    strategy: str = "reset"
    """``reset``; or ``none``, ``compact`` or ``edit``: one conversation goes on from session to session."""
    known: dict[str, ModelInfo] = field(default_factory=dict)
    dialects: dict[Compat, EndpointDialect] = field(default_factory=dict)
    """What each endpoint accepts and refused, by what the user's settings say of its models."""
    kept: "list[tuple[SessionSpec, Conversation]]" = field(default_factory=list)
    agent: str = ""
    metering: str = ""

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model; the endpoint is asked once."""
        if model not in self.known:
            self.known[model] = get_model(self.connection, model, self.find_own(model))
        return self.known[model]

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator["Conversation"]:
        """Return a fresh session, or the open one if the strategy continues it; nothing is sent yet."""
        if spec.inside is not None:  # whatever the strategy, it is fresh, and the outer conversation stays
            connection = replace(self._connect(spec.model), observe=spec.inside)
            yield Conversation(connection, spec, self.get_model(spec.model))
            return
        spec = replace(spec, reset_at=_WHOLE_WINDOW) if self.strategy == "none" else spec
        ways: dict[str, Shorten] = {"compact": _Compaction(), "edit": leave_to_api}
        model, edited, shorten = self.get_model(spec.model), self.strategy == "edit", ways.get(self.strategy)
        conversation = self._find_kept(spec)
        conversation = conversation or Conversation(
            self._connect(spec.model), spec, model, shorten=shorten, edited=edited
        )
        yield conversation
        if self.strategy != "reset" and conversation.end in _ENDED_WELL:
            self.kept.append((spec, conversation))

    def _find_kept(self, spec: SessionSpec) -> "Conversation | None":
        before, conversation = self.kept.pop() if self.kept else (None, None)
        if before is None or conversation is None:
            return None
        if (before.system, before.tools, before.model) != (spec.system, spec.tools, spec.model):
            return None
        conversation.go_on_for(spec)
        return conversation

    def _connect(self, model: str) -> ApiConnection:
        """Return the connection with the dialect that the user's settings describe for a model."""
        compat = self.find_own(model).compat
        return replace(self.connection, dialect=self.dialects.setdefault(compat, EndpointDialect(compat)))

    def describe_model(self, model: str) -> ModelSettings:
        """Return what is known of a model by now."""
        info = self.get_model(model)
        return structs.replace(
            self.find_own(model),
            window_tokens=info.window_tokens,
            max_output_tokens=info.max_output_tokens,
            compat=self._connect(model).dialect.compat,
        )


class Conversation:
    """One session; a `relay.runners.base.Session`. Mutable.

    Args:
        shorten: Shortens the history at the reset line; None hands over there, which is what relay does.
        edited: Whether the API is asked to edit the context.
    """

    def __init__(
        self,
        connection: ApiConnection,
        spec: SessionSpec,
        model: ModelInfo,
        *,
        shorten: Shorten | None = None,
        edited: bool = False,
    ) -> None:
        self._connection = connection
        self._context = ContextWindow(connection, spec, model, edited=edited)
        self._shorten = shorten
        self._tool_log = ToolLog(connection.observe, spec.preloads)
        self.end: SessionEnd | None = None
        """How the last `advance` ended; None before the first."""
        self.go_on_for(spec)

    def go_on_for(self, spec: SessionSpec) -> None:
        """Serve a further session in this conversation; system and tools must be the same."""
        self._context.spec = spec
        self._context.history.begin_task()
        self._stuck = LoopDetector()
        self._cut_answers = self._idle_answers = 0
        self._pictures: list[Picture] = []
        self._notices = LineNotices()
        self._first_turn = self._context.turn

    def advance(self, message: str) -> SessionOutcome:
        """Send a message to the model and work until the model stops or must be stopped."""
        if self._context.history.ends_in_notice:
            return self._stop_idle()  # no message may follow an unanswered notice
        self._say(message)
        outcome = None
        while outcome is None:
            outcome = self._check_before_request()
            if outcome is None:
                answer = self._context.ask()
                outcome = self._handle(answer) if isinstance(answer, Answer) else answer
        self.end = outcome.end
        return outcome

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
        """End a session whose first prompt is over the hard line, or that has had too many turns."""
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
        words, made_room = found
        if made_room:
            words = f"{words}: {before.least_tokens:,} → about {self._context.gauge.least_tokens:,} tokens"
        else:
            self._shorten = None
            words = f"{words}; the session hands over instead"
        self._connection.observe(Noticed(text=words, warning=not made_room))
        return None

    def _handle(self, answer: Answer) -> SessionOutcome | None:
        """Act on a complete answer; return None to go on."""
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
            # Known to happen right after tool results. A new message helps; the same request again does not.
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
        """Ask again with more room once. After that keep the whole blocks, run nothing, and tell the model."""
        if self._context.allowed_tokens < self._context.max_output_tokens:
            return replace(self._context.end_cut(self._context.allowed_tokens), text=answer.text)
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
        """Answer calls that relay does not run: the API requires a result for each. Return False if there are none."""
        ids = [block["id"] for block in answer.content if block.get("type") == "tool_use"]
        if ids:
            self._context.append_results([(call_id, ToolResult(text=words, is_error=True)) for call_id in ids])
        return bool(ids)

    def _run_tools(self, answer: Answer) -> SessionOutcome | None:
        blocks = [block for block in answer.content if block.get("type") == "tool_use"]
        if not blocks:
            return self._go_on(answer, _NO_CALL)
        self._idle_answers = 0
        self._context.history.add_answer(answer.content)
        pairs: list[tuple[ToolCall, ToolResult]] = []
        for block in blocks:
            call = ToolCall(id=block["id"], name=block["name"], input=block["input"])
            if any(result.ends_session for _, result in pairs) or self._connection.interrupts.stop_now:
                result = ToolResult(text="Not executed: the session has ended.", is_error=True)
            elif why := answer.broken_calls.get(call.id):
                result = ToolResult(text=f"Not executed: {why}.", is_error=True)
            else:
                started = self._connection.clock()
                self._tool_log.start(call)
                result = self._fit_picture(self._context.spec.callbacks.run_tool(call))
                self._tool_log.end(call, result, duration_s=self._connection.clock() - started)
            pairs.append((call, result))
        self._context.append_results([(call.id, result) for call, result in pairs])
        if any(result.ends_session for _, result in pairs):
            return SessionOutcome(end=SessionEnd.ENDED_BY_TOOL, text=answer.text)
        if pairs[-1][1].ends_turn:
            return SessionOutcome(end=SessionEnd.FINISHED, text=answer.text)
        if outcome := self._look_at_gauge():
            return outcome
        stuck = self._stuck.judge(pairs)
        if isinstance(stuck, SessionOutcome):
            return stuck
        for words in (stuck, self._context.spec.callbacks.hear()):
            if words:
                self._notify(words)
        return None

    def _fit_picture(self, result: ToolResult) -> ToolResult:
        """Return a result without its picture, and why, if the model or the request cannot take it."""
        picture, model = result.picture, self._context.spec.model
        if picture is None:
            return result
        if not self._connection.dialect.takes("pictures", model):
            why = f"relay does not know that {model} takes pictures"
        elif (
            len(self._pictures) >= MAX_PICTURES
            or sum(len(one.data) for one in (*self._pictures, picture)) * 3 // 4 > MAX_SESSION_BYTES
        ):
            why = "this session has seen as many as a request can hold"
        else:
            self._pictures.append(picture)
            return result
        return replace(result, text=f"{result.text} Not shown: {why}.", is_error=True, picture=None)

    def _say(self, text: str) -> None:
        self._context.history.say(text)
        self._context.append(estimate_tokens(text))
        if self._context.turn > self._first_turn:  # the first message of a session is reported when the session begins
            self._connection.observe(RelaySpoke(size_bytes=len(text.encode("utf-8", "replace"))))

    def _notify(self, text: str) -> None:
        taken = self._connection.dialect.takes("system_messages", self._context.spec.model)
        self._context.history.notify(text, as_system=taken)
        self._context.append(estimate_tokens(text))
        self._connection.observe(RelaySpoke(size_bytes=len(text.encode("utf-8", "replace"))))

    def _look_at_gauge(self) -> SessionOutcome | None:
        """Stop at the hard line; tell the model once in the consolidate band, and once at the soft line."""
        if self._shorten is not None:
            return None  # the history is shortened before the next request
        gauge = self._context.gauge
        if gauge.zone is Zone.HARD:
            return self._cross_hard_line()
        if words := self._notices.find(gauge, self._context.spec.callbacks, self._connection.observe):
            self._notify(words)
        return None

    def _cross_hard_line(self) -> SessionOutcome:
        show_crossing(self._connection.observe, self._context.gauge, Zone.HARD)
        return end_at_hard_line(self._context.gauge)


KEPT_TURNS_SHARE = 0.2
"""Share of the reset line kept for the last turns behind a summary: Cline keeps 20k, Codex 20k of user text."""
SUMMARY_CHARS = 16_000
"""Longest summary that is kept; Cline's is 4,096 tokens."""
SHORT_RESPITE = 3
"""So few requests between two compactions are too few; after as many such compactions in a row, relay gives up."""
_ENDED_WELL = frozenset({SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL})
_WHOLE_WINDOW = parse_reset_at("100%")


def leave_to_api(context: ContextWindow) -> tuple[str, bool]:
    """Let the next request pass the line if the API will clear enough of it."""
    before = context.gauge
    sizes = [
        estimate_block(block)
        for message in context.history.messages
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    was_over = (before.measured_tokens or 0) >= before.soft_tokens
    if was_over and not context.cleared_tokens:
        return "the endpoint does not edit the context", False
    freed = sum(sizes[:-KEPT_USES]) - context.cleared_tokens
    if freed < LEAST_FREED_SHARE * before.soft_tokens:
        return f"clearing old tool results would free about {max(0, freed):,} tokens only", False
    context.gauge = before.release(freed)
    return "old tool results are left to the API to clear", True


@dataclass(slots=True)
class _Compaction:
    """Replaces the conversation by a summary of it. Mutable: counts the summaries that did not help for long."""

    _asked_at: int = 0
    _thrashed: int = 0

    def __call__(self, context: ContextWindow) -> tuple[str, bool] | SessionOutcome:
        before, messages, task_at = context.gauge, tuple(context.history.messages), context.history.task_at
        self._thrashed = self._thrashed + 1 if context.turn - self._asked_at <= SHORT_RESPITE else 0
        if self._thrashed >= SHORT_RESPITE:
            return "the context fills again right behind every summary", False
        if outcome := context.check_budget():
            return outcome
        context.history.say(render_text("summary"))  # behind the cached conversation; dropped afterwards
        answer = context.ask()
        if isinstance(answer, SessionOutcome):
            return answer
        summary = answer.text[:SUMMARY_CHARS].strip()
        keep_tokens = int(KEPT_TURNS_SHARE * before.soft_tokens)
        context.begin(compact(messages, task_at, summary, keep_tokens=keep_tokens))
        if not summary or context.gauge.zone in {Zone.SOFT, Zone.HARD}:
            context.begin(History(messages))
            context.gauge = before
            return "the conversation could not be summarised below the reset line", False
        self._asked_at = context.turn
        return "compacted", True


def compact(messages: Sequence[MessageDict], task_at: int, summary: str, *, keep_tokens: int) -> History:
    """Begin a conversation with the task, a summary and the last turns of the old one.

    A turn is an answer and everything up to the next one, so a call is never cut from its result. The last turn is kept
    whatever its size, because the model has not seen its results yet.

    Args:
        task_at: Index of the message that the session began with; older messages are dropped.
        keep_tokens: Most of the turns before the last, by estimate.
    """
    starts = [at for at, message in enumerate(messages) if at > task_at and message["role"] == "assistant"]
    kept = len(messages)
    for start in reversed(starts):
        size = sum(estimate_block(block) for message in messages[start:] for block in message["content"])
        if kept < len(messages) and size > keep_tokens:
            break
        kept = start
    words = f"relay: your summary of the conversation up to here, which it replaces:\n\n{summary}"
    begin: MessageDict = {"role": "user", "content": [messages[task_at]["content"][0], {"type": "text", "text": words}]}
    return History([begin, *drop_thinking(messages[kept:])])
