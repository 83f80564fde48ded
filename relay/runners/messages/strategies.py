"""What relay's reset is compared with: the same run with one conversation that goes on from phase to phase.

``none``     Nothing is done about the context until the model's window is full.
``compact``  At the reset line the model writes a summary; a new conversation begins with the task, the summary and the
             last turns, kept whole.
``prune``    At the reset line the results of old tool calls are cleared, in one large batch; the newest stay.

Plan, gates, ticks, commits and prompts are those of ``reset``. Where a strategy cannot go on (the window is full, the
summary does not fit, there is nothing left to clear), the session hands over to a fresh one as usual, and what it says
to the model is the usual soft notice. A run that is resumed begins with a fresh conversation: git is the state here
too, and a conversation is not in it.

**Preserved thinking.** Models that preserve thinking refuse a history whose past has changed. So what is kept across a
change goes on *without its thinking blocks*, which they accept (the provider's escape for this case): compaction drops
thinking from the turns it keeps, pruning from every answer behind the first result it clears.

Sources: what Claude Code, Codex, OpenCode and Cline do when a window fills; in batches as Cline does, because each
rewrite costs the cached prefix once. Constants are named where they stand.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from relay.meters.gauge import Gauge, Zone, parse_reset_at
from relay.prompts.texts import render_summary_request
from relay.runners.base import ModelInfo, Runner, Session, SessionSpec
from relay.runners.messages.answers import Answer
from relay.runners.messages.conversation import ApiRunner, Conversation
from relay.runners.messages.history import History, Message, estimate_block
from relay.session.events import Noticed
from relay.session.tokens import estimate_tokens
from relay.session.values import SessionEnd, SessionOutcome

KEPT_TURNS_SHARE = 0.2
"""Of the reset line, for the last turns behind a summary: Cline keeps 20k, Codex 20k of user text."""
KEPT_RESULTS_SHARE = 0.4
"""Of the reset line, for the newest tool results when old ones are cleared: OpenCode protects 40k."""
LEAST_FREED_SHARE = 0.2
"""Of the reset line, that clearing must free to be worth a new cache: OpenCode's 20k."""
SUMMARY_CHARS = 16_000
"""Most of a summary that is kept; Cline's 4,096 tokens."""
SHORT_RESPITE = 3
"""Requests between two compactions that are too few; after as many such compactions in a row it is given up."""
CLEARED = "[old tool result cleared to save context; call the tool again if you need it]"

_CLEARED_TOKENS = estimate_tokens(CLEARED)
_THINKING = frozenset({"thinking", "redacted_thinking"})
_ENDED_WELL = frozenset({SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL})
_WHOLE_WINDOW = parse_reset_at("100%")


def choose_runner(runner: ApiRunner, strategy: str) -> Runner:
    """Return the runner of a strategy: relay's own one for ``reset``."""
    kinds = {"none": Conversation, "compact": Compacting, "prune": Pruning}
    if strategy not in kinds:
        return runner
    return Continuous(runner=runner, kind=kinds[strategy], whole_window=strategy == "none")


@dataclass(slots=True, kw_only=True)
class Continuous:
    """Gives every leg the conversation of the leg before; a `relay.runners.base.Runner`.

    Mutable: keeps the conversation of the leg before.
    """

    runner: ApiRunner
    kind: type[Conversation]
    whole_window: bool = False
    """Whether the reset line is pushed out to where the window ends."""
    _kept: tuple[SessionSpec, Conversation] | None = None

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model."""
        return self.runner.get_model(model)

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator[Session]:
        """Return the session that is open, or a fresh one where there is none or it cannot go on."""
        spec = replace(spec, reset_at=_WHOLE_WINDOW) if self.whole_window else spec
        session = _Watched(self._continue(spec))
        yield session
        self._kept = (spec, session.conversation) if session.end in _ENDED_WELL else None

    def _continue(self, spec: SessionSpec) -> Conversation:
        if self._kept is not None:
            before, conversation = self._kept
            if (before.system, before.tools, before.model) == (spec.system, spec.tools, spec.model):
                conversation.go_on_for(spec)
                return conversation
        return self.kind(self.runner.line, spec, self.runner.get_model(spec.model))


@dataclass(slots=True)
class _Watched:
    """A session that remembers how it ended. Mutable: the end is noted when it comes."""

    conversation: Conversation
    end: SessionEnd | None = None

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the model and work until it stops or must be stopped."""
        outcome = self.conversation.advance(message)
        self.end = outcome.end
        return outcome


class _MakingRoom(Conversation, ABC):
    """A conversation that makes room at the reset line, and hands over only when it cannot."""

    _full = False
    _task_at: int | None = None
    """Where the message stands that the leg began with."""

    def go_on_for(self, spec: SessionSpec) -> None:
        """Serve a leg in this conversation."""
        super().go_on_for(spec)
        self._task_at = None

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the model and work until it stops or must be stopped."""
        if self._task_at is None:
            self._task_at = len(self._exchange.history.messages)
        return super().advance(message)

    def _look_at_gauge(self) -> SessionOutcome | None:
        return super()._look_at_gauge() if self._full else None  # room is made before the next request

    def _check_before_request(self) -> SessionOutcome | None:
        gauge = self._exchange.gauge
        over = gauge.zone in {Zone.SOFT, Zone.HARD}
        if not over or self._full or self._line.interrupts.finish_turn:
            return super()._check_before_request()
        self._observe_line("soft", gauge.soft_tokens)
        return self._make_room(gauge) or super()._check_before_request()

    @abstractmethod
    def _make_room(self, before: Gauge) -> SessionOutcome | None:
        """Shorten the history; how the session ends when that takes it."""

    def _report(self, what: str, before: Gauge) -> None:
        fill = self._exchange.gauge.least_tokens
        self._line.observe(Noticed(text=f"{what}: {before.least_tokens:,} → about {fill:,} tokens"))

    def _give_up(self, why: str) -> None:
        self._full = True
        self._line.observe(Noticed(text=f"{why}; the session hands over instead", warning=True))


class Pruning(_MakingRoom):
    """Clears old tool results."""

    def _make_room(self, before: Gauge) -> None:
        exchange, soft = self._exchange, before.soft_tokens
        history, freed = clear_results(exchange.history.messages, keep_tokens=int(KEPT_RESULTS_SHARE * soft))
        if freed < LEAST_FREED_SHARE * soft:
            self._give_up(f"clearing old tool results would free about {freed:,} tokens only")
            return
        exchange.begin(history)
        exchange.gauge = before.release(freed)
        self._report("old tool results cleared", before)


class Compacting(_MakingRoom):
    """Replaces what was said by a summary of it."""

    _asked_at = 0
    _thrashed = 0

    def _make_room(self, before: Gauge) -> SessionOutcome | None:
        exchange, messages = self._exchange, tuple(self._exchange.history.messages)
        self._thrashed = self._thrashed + 1 if exchange.turn - self._asked_at <= SHORT_RESPITE else 0
        if self._thrashed >= SHORT_RESPITE:
            self._give_up("the context fills again right behind every summary")
            return None
        summary = self._ask_for_summary()
        if isinstance(summary, SessionOutcome):
            return summary
        keep_tokens = int(KEPT_TURNS_SHARE * before.soft_tokens)
        exchange.begin(compact(messages, self._task_at or 0, summary, keep_tokens=keep_tokens))
        if not summary or exchange.gauge.zone is not Zone.UNKNOWN:
            exchange.begin(History(messages))
            exchange.gauge = before
            self._give_up("the conversation could not be summarised below the reset line")
            return None
        self._task_at, self._asked_at = 0, exchange.turn
        self._report("compacted", before)
        return None

    def _ask_for_summary(self) -> str | SessionOutcome:
        """Ask behind the whole conversation, which is read from the cache; the question is no part of what follows."""
        if outcome := self._exchange.check_budget():
            return outcome
        self._exchange.history.say(render_summary_request())
        answer = self._exchange.ask()
        return answer.text[:SUMMARY_CHARS].strip() if isinstance(answer, Answer) else answer


def compact(messages: Sequence[Message], task_at: int, summary: str, *, keep_tokens: int) -> History:
    """Begin a conversation with the task, a summary and the last turns of an old one.

    A turn is an answer and everything up to the next one, so a call is never cut from its result. The last turn is
    kept whatever its size, because the model has not seen its results yet.

    Args:
        messages: The old conversation.
        task_at: Index of the message that the leg began with; what came before it is not kept.
        summary: What the model wrote about all of it.
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
    begin: Message = {"role": "user", "content": [messages[task_at]["content"][0], {"type": "text", "text": words}]}
    return History([begin, *map(_drop_thinking, messages[kept:])])


def clear_results(messages: Sequence[Message], *, keep_tokens: int) -> tuple[History, int]:
    """Clear old tool results.

    Args:
        messages: A conversation.
        keep_tokens: Of the newest results, by estimate; those that the model has not seen yet stay in any case.

    Returns:
        The conversation without them, and about how many tokens that saves.
    """
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    old: dict[tuple[int, int], int] = {}
    kept = 0
    for at, message in reversed(list(enumerate(messages))):
        for place, block in reversed(list(enumerate(message["content"]))):
            saved = estimate_block(block) - _CLEARED_TOKENS if block.get("type") == "tool_result" else 0
            kept += max(0, saved)
            if saved > 0 and kept > keep_tokens and at < answers[-1]:
                old[at, place] = saved
    first = min((at for at, _ in old), default=len(messages))
    behind = [_drop_thinking(_clear(messages[at], at, old)) for at in range(first, len(messages))]
    return History([*messages[:first], *behind]), sum(old.values())


def _clear(message: Message, at: int, old: Collection[tuple[int, int]]) -> Message:
    blocks = enumerate(message["content"])
    return {**message, "content": [b | {"content": CLEARED} if (at, place) in old else b for place, b in blocks]}


def _drop_thinking(message: Message) -> Message:
    return {**message, "content": [block for block in message["content"] if block.get("type") not in _THINKING]}
