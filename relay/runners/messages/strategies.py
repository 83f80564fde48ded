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

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from relay.base.values import dataclass
from relay.config import ModelSettings
from relay.prompts.texts import render_summary_request
from relay.runners.base import ModelInfo, Session, SessionSpec
from relay.runners.messages.answers import Answer
from relay.runners.messages.context_window import ContextWindow, History, Message, estimate_block
from relay.runners.messages.conversation import ApiRunner, Conversation, Shorten, Shortened
from relay.session.gauge import Zone, parse_reset_at
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


@dataclass(slots=True, kw_only=True)
class Continuous:
    """Gives every leg the conversation of the leg before; a `relay.runners.base.Runner`.

    Mutable: keeps the conversation of the leg before.
    """

    runner: ApiRunner
    strategy: str
    """``none``, ``compact`` or ``prune``."""
    agent: str = ""
    """It is none."""
    metering: str = ""
    _kept: tuple[SessionSpec, Conversation] | None = None

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model."""
        return self.runner.get_model(model)

    def describe_model(self, model: str) -> ModelSettings:
        """Return what is known of a model by now."""
        return self.runner.describe_model(model)

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator[Session]:
        """Return the session that is open, or a fresh one where there is none or it cannot go on."""
        spec = replace(spec, reset_at=_WHOLE_WINDOW) if self.strategy == "none" else spec
        conversation = self._continue(spec)
        yield conversation
        self._kept = (spec, conversation) if conversation.end in _ENDED_WELL else None

    def _continue(self, spec: SessionSpec) -> Conversation:
        if self._kept is not None:
            before, conversation = self._kept
            if (before.system, before.tools, before.model) == (spec.system, spec.tools, spec.model):
                conversation.go_on_for(spec)
                return conversation
        ways: dict[str, Shorten] = {"compact": _Compaction(), "prune": prune}
        model = self.runner.get_model(spec.model)
        return Conversation(self.runner.connection, spec, model, shorten=ways.get(self.strategy))


def prune(context: ContextWindow) -> Shortened:
    """Clear old tool results where that frees enough to be worth a new cache."""
    before = context.gauge
    keep_tokens = int(KEPT_RESULTS_SHARE * before.soft_tokens)
    history, freed = clear_results(context.history.messages, keep_tokens=keep_tokens)
    if freed < LEAST_FREED_SHARE * before.soft_tokens:
        return Shortened(words=f"clearing old tool results would free about {freed:,} tokens only", made_room=False)
    context.begin(history)
    context.gauge = before.release(freed)
    return Shortened(words="old tool results cleared", made_room=True)


@dataclass(slots=True)
class _Compaction:
    """Replaces what was said by a summary of it. Mutable: counts the summaries that did not help for long."""

    _asked_at: int = 0
    _thrashed: int = 0

    def __call__(self, context: ContextWindow) -> Shortened | SessionOutcome:
        before, messages, task_at = context.gauge, tuple(context.history.messages), context.history.task_at
        self._thrashed = self._thrashed + 1 if context.turn - self._asked_at <= SHORT_RESPITE else 0
        if self._thrashed >= SHORT_RESPITE:
            return Shortened(words="the context fills again right behind every summary", made_room=False)
        summary = ask_for_summary(context)
        if isinstance(summary, SessionOutcome):
            return summary
        keep_tokens = int(KEPT_TURNS_SHARE * before.soft_tokens)
        context.begin(compact(messages, task_at, summary, keep_tokens=keep_tokens))
        if not summary or context.gauge.zone is not Zone.UNKNOWN:
            context.begin(History(messages))
            context.gauge = before
            words = "the conversation could not be summarised below the reset line"
            return Shortened(words=words, made_room=False)
        self._asked_at = context.turn
        return Shortened(words="compacted", made_room=True)


def ask_for_summary(context: ContextWindow) -> str | SessionOutcome:
    """Ask behind the whole conversation, which is read from the cache; the question is no part of what follows."""
    if outcome := context.check_budget():
        return outcome
    context.history.say(render_summary_request())
    answer = context.ask()
    return answer.text[:SUMMARY_CHARS].strip() if isinstance(answer, Answer) else answer


def compact(messages: Sequence[Message], task_at: int, summary: str, *, keep_tokens: int) -> History:
    """Begin a conversation with the task, a summary and the last turns of an old one.

    A turn is an answer and everything up to the next one, so a call is never cut from its result. The last turn is
    kept whatever its size, because the model has not seen its results yet.

    Args:
        task_at: Index of the message that the leg began with; what came before it is not kept.
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
