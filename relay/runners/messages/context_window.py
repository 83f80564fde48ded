"""The conversation of a session: its messages, how full the window is, and the accounted way to the next answer.

`system` and `tools` never change within a session, every call is answered, and earlier messages are never rewritten:
models that preserve thinking refuse a conversation whose past has changed. Only cache markers move, on copies made for
one request.

`CacheWatch` notices when the prompt cache broke. A drop of less than 5 %, or of fewer than 2,000 tokens, is noise:
entries end at block borders. Claude Code counts the same way.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from relay.base.values import dataclass
from relay.runners.account import Account, Sent, fit_answer
from relay.runners.base import ModelInfo, SessionSpec
from relay.runners.messages.answers import Answer, make_sendable
from relay.runners.messages.connection import ApiConnection, Fault, FaultKind, RetryPolicy
from relay.session.events import CacheBroken, Noticed, RequestStarted, TextShown
from relay.session.pictures import count_picture_tokens
from relay.session.tape import Note
from relay.session.usage import Usage, estimate_tokens
from relay.session.values import SessionEnd, SessionOutcome, ToolResult

MIN_DROP_TOKENS = 2_000
KEPT_SHARE = 0.95
SHORT_TTL_S = 300.0
LONG_TTL_S = 3_600.0


@dataclass(slots=True)
class CacheWatch:
    """Compares what each response read from the cache with what the one before had left there.

    Mutable: remembers the request before, and the model that answered it.
    """

    lifetime_s: float = SHORT_TTL_S
    _expected_tokens: int = 0
    _at: float = 0.0
    _before: tuple[Mapping[str, Any], str] = ({}, "")

    def check(self, usage: Usage | None, request: Mapping[str, Any], *, model: str, at: float) -> CacheBroken | None:
        """Check one response.

        Args:
            usage: None if nothing is known; the response is then skipped.
            request: The request as sent.
            at: When the request was sent, in seconds on any steady clock. After a pause longer than an entry lives, a
                miss is expected.
        """
        if usage is None:
            return None
        expected, read, broken = self._expected_tokens, usage.cache_read_tokens, None
        is_large = read < KEPT_SHARE * expected and expected - read >= MIN_DROP_TOKENS
        if is_large and at - self._at <= self.lifetime_s:
            changed = ", ".join(_list_changes(*self._before, request, model)) or "unknown"
            broken = CacheBroken(changed=changed, expected_tokens=expected, read_tokens=read)
        self._expected_tokens, self._at = read + usage.cache_write_tokens, at
        self._before = request, model
        return broken


def _list_changes(before: Mapping[str, Any], model_before: str, now: Mapping[str, Any], model: str) -> Iterator[str]:
    """Yield the names, for people, of the parts that two requests share and that differ; a marker is no change."""
    if _strip_marks(before["system"]) != _strip_marks(now["system"]):
        yield "system"
    if model_before != model:
        yield "model"
    if any(before.get(name) != now.get(name) for name in ("thinking", "output_config")):
        yield "settings"
    old, new = ({tool["name"]: tool for tool in request["tools"]} for request in (before, now))
    yield from (f"tool {name}" for name in {**old, **new} if old.get(name) != new.get(name))
    past, sent = before["messages"], now["messages"][: len(before["messages"])]
    if [_strip_marks(one["content"]) for one in past] != [_strip_marks(one["content"]) for one in sent]:
        yield "messages"


def _strip_marks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


Block = dict[str, Any]
MessageDict = dict[str, Any]

LOOK_BACK_BLOCKS = 20
"""How many blocks the cache looks back from a marker, the marked block included (prompt-caching docs, 2026-08)."""


class History:
    """The messages of one session. Mutable: grows at its end.

    Args:
        messages: The beginning of the conversation.
    """

    def __init__(self, messages: Iterable[MessageDict] = ()) -> None:
        self._messages: list[MessageDict] = list(messages)
        blocks = (block for message in self._messages for block in message["content"])
        self._call_ids = {block["id"] for block in blocks if block.get("type") == "tool_use"}
        self._cached_messages = self._cached_blocks = 0
        self.task_at = 0
        """Index of the message that the session began with."""

    def begin_task(self) -> None:
        """Note that the next message begins a session."""
        self.task_at = len(self._messages)

    @property
    def messages(self) -> Sequence[MessageDict]:
        """All messages so far; not to be changed."""
        return self._messages

    def estimate_tokens(self) -> int:
        """Estimate the tokens of all messages, as `relay.session.gauge` does."""
        return sum(estimate_block(block) for message in self._messages for block in message["content"])

    @property
    def call_ids(self) -> Collection[str]:
        """Ids of all calls so far."""
        return self._call_ids

    @property
    def ends_in_notice(self) -> bool:
        """Whether a ``system`` message stands last: only an answer or another ``system`` message may follow it."""
        return bool(self._messages) and self._messages[-1]["role"] == "system"

    def say(self, text: str) -> None:
        """Append a message from relay to the model.

        It is a message of its own even behind another of the user's: a message that was sent is never extended.
        """
        role = "system" if self.ends_in_notice else "user"
        self._messages.append({"role": role, "content": [{"type": "text", "text": _make_sendable(text)}]})

    def notify(self, text: str, *, as_system: bool) -> None:
        """Append a notice after tool results.

        Args:
            as_system: Whether the model accepts ``system`` messages in mid-conversation; else the notice is user text.
        """
        block: Block = {"type": "text", "text": _make_sendable(text)}
        if as_system:
            self._messages.append({"role": "system", "content": [block]})
        elif self._messages[-1]["role"] == "user":
            self._messages[-1]["content"].append(block)  # not sent yet, so it is still the same turn
        else:
            self._messages.append({"role": "user", "content": [block]})

    def demote_notice(self) -> None:
        """Turn the ``system`` message at the end into user text: the endpoint refused it, so no model has seen it."""
        *_, before, notice = self._messages
        if before["role"] == "user":
            before["content"].extend(notice["content"])
            del self._messages[-1]
        else:
            notice["role"] = "user"

    def add_answer(self, content: Iterable[Block]) -> None:
        """Append the model's answer, blocks untouched; an answer without blocks is no message."""
        blocks = list(content)
        if blocks:
            self._messages.append({"role": "assistant", "content": blocks})
            self._call_ids.update(block["id"] for block in blocks if block.get("type") == "tool_use")

    def add_results(self, results: Sequence[tuple[str, ToolResult]]) -> None:
        """Append the results of all calls of the last answer, in call order, in one message."""
        blocks: list[Block] = []
        for call_id, result in results:
            words = _make_sendable(result.text)
            shown = [{"type": "text", "text": words}, result.picture.block] if result.picture else words
            error = {"is_error": True} if result.is_error else {}
            blocks.append({"type": "tool_result", "tool_use_id": call_id, "content": shown, **error})
        self._messages.append({"role": "user", "content": blocks})

    def drop_pictures(self) -> bool:
        """Put a text in the place of each picture that no model has seen yet; return False if there is none."""
        begin = len(self._messages)
        while begin and self._messages[begin - 1]["role"] != "assistant":
            begin -= 1
        new = self._messages[begin:]
        self._messages[begin:] = [{**one, "content": [*map(_drop_picture, one["content"])]} for one in new]
        return self._messages[begin:] != new

    def render(self, ttl: Mapping[str, str], *, marks_last: bool = False) -> list[MessageDict]:
        """Return the messages for a request.

        The endpoint marks the last block by itself. If more blocks than its look-back were added since the last
        request, relay sets one more marker within reach of what was cached then.

        Args:
            ttl: The ``ttl`` field of this session's cache markers; empty for the default.
            marks_last: Whether relay marks the last block, because the endpoint does not.
        """
        control = {"type": "ephemeral", **ttl}
        total = self._count_blocks()
        reach = self._cached_blocks + LOOK_BACK_BLOCKS - 1
        messages = _mark(self._messages, total, control) if marks_last else list(self._messages)
        if self._cached_blocks == 0 or total <= reach:
            return messages
        return _mark(messages, reach, control)

    def note_cached(self) -> None:
        """Note that a request with all messages so far was answered."""
        self._cached_messages, self._cached_blocks = len(self._messages), self._count_blocks()

    def _count_blocks(self) -> int:
        """Count the blocks of all messages. Sent messages do not change and are not counted again."""
        return self._cached_blocks + sum(len(message["content"]) for message in self._messages[self._cached_messages :])


def estimate_block(block: Block) -> int:
    """Estimate the tokens of a block by its text, else by its JSON."""
    text = block.get("text") or block.get("content")
    if isinstance(text, str):
        return estimate_tokens(text)
    if isinstance(text, list) and block.get("type") == "tool_result":
        words, picture = text
        return estimate_tokens(words["text"]) + count_picture_tokens(picture)
    return estimate_tokens(json.dumps(block, default=str), json=True)


def _drop_picture(block: Block) -> Block:
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list):
        return block
    return {**block, "content": f"{content[0]['text']} Not shown: the endpoint refuses it."}


def _make_sendable(text: str) -> str:
    """Return text that the endpoint accepts: not blank, and without lone surrogates (from odd file names)."""
    return text.encode(errors="replace").decode() if text.strip() else "(no output)"


def _mark(messages: Sequence[MessageDict], reach: int, control: Mapping[str, str]) -> list[MessageDict]:
    """Copy `messages` with a cache marker on the last markable block among the first `reach`."""
    seen, best = 0, None
    for m, message in enumerate(messages):
        for b, block in enumerate(message["content"]):
            seen += 1
            if seen <= reach and (block.get("text") or block.get("type") in {"tool_use", "tool_result"}):
                best = m, b
    if best is None:
        return list(messages)
    m, b = best
    content = list(messages[m]["content"])
    content[b] = content[b] | {"cache_control": dict(control)}
    return [*messages[:m], {**messages[m], "content": content}, *messages[m + 1 :]]


DEFAULT_OUTPUT_TOKENS = 32_000
"""First output limit of a request. A cut answer is asked for again with the model's own limit."""
LEAST_BELIEVED = 1 / 3
"""Share of relay's own count of a prompt: an endpoint that reports less has not counted all of it. Estimates by size
are never that far off."""


KEPT_USES = 3
"""Newest tool uses that the API keeps when it edits a context: its own default."""
LEAST_FREED_SHARE = 0.2
"""Share of the reset line that clearing must free to be worth a new cache: OpenCode's 20k."""


def render_edit(line_tokens: int) -> dict[str, Any]:
    """Return the edit for a request: from this size on the API leaves old tool results out.

    Source: anthropic 2.12.0, `types/beta/beta_clear_tool_uses_20250919_edit_param.py`.
    """
    return {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": line_tokens},
        "keep": {"type": "tool_uses", "value": KEPT_USES},
        "clear_at_least": {"type": "input_tokens", "value": int(LEAST_FREED_SHARE * line_tokens)},
    }


class ContextWindow(Account):
    """A history, its account and the way to the endpoint. Mutable: all three change with each turn."""

    def __init__(self, connection: ApiConnection, spec: SessionSpec, model: ModelInfo, *, edited: bool = False) -> None:
        longest = min(spec.max_output_tokens or DEFAULT_OUTPUT_TOKENS, model.max_output_tokens)
        super().__init__(spec, model, connection.observe, longest)
        self._edited = edited
        self.cleared_tokens = 0
        """What the endpoint left out of the last request."""
        self._connection = connection
        # An entry lives from the *start* of the request that wrote or read it. So the cache of five minutes is lost if
        # an answer and the pause behind it take longer together. One such miss writes the whole context again at 1.25
        # times the price of input; entries of one hour cost 0.75 times more to write, each token once. So a run that
        # has come that close before asks for the hour in its next session.
        self._ttl = {"ttl": "1h"} if spec.slowest_turn_s > SHORT_TTL_S else {}
        self.allowed_tokens = longest
        """Longest answer of the next request."""
        self.begin(History())

    def begin(self, history: History) -> None:
        """Go on with this history. For the endpoint it is a new conversation, so nothing of it is measured yet."""
        self.history = history
        self._cache = CacheWatch(lifetime_s=LONG_TTL_S if self._ttl else SHORT_TTL_S)
        tools = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in self.spec.tools], default=str)
        prefix = estimate_tokens(self.spec.system) + estimate_tokens(tools, json=True)
        self._own_tokens = prefix + history.estimate_tokens()
        self.gauge = self.open_gauge().append(self._own_tokens)

    def append_results(self, results: Sequence[tuple[str, ToolResult]]) -> None:
        """Append the results of all calls of the last answer to the history, and count them."""
        self.history.add_results(results)
        for _, result in results:
            self.append(estimate_tokens(result.text) + (result.picture.tokens if result.picture else 0))

    def append(self, tokens: int) -> None:
        """Count what was appended to the history."""
        self._own_tokens += tokens
        self.gauge = self.gauge.append(tokens)

    def raise_output_limit(self) -> bool:
        """Allow answers as long as the model can give; return False if that was allowed already."""
        raised = self.max_output_tokens < self._model.max_output_tokens
        self.max_output_tokens = self._model.max_output_tokens
        return raised

    def ask(self) -> Answer | SessionOutcome:
        """Send the conversation until there is an answer, or no point in trying again."""
        self.turn += 1
        policy = RetryPolicy(max_wait_s=self._connection.max_wait_s)
        while True:
            self._connection.observe(RequestStarted(turn=self.turn))
            started, request = self._connection.clock(), self._render_request()
            self.spec.keep({"kind": "request", "body": request})
            result = self._connection.api.send(request, on_block=self._show)
            duration_s = self._connection.clock() - started
            self.spec.keep(_describe(result))
            if isinstance(result, Answer):
                self._connection.dialect.answered = True
                self._account(result, duration_s)
                self.history.note_cached()
                broken = self._cache.check(result.usage, request, model=result.model, at=started)
                if broken is not None and not self.cleared_tokens:  # an edit of the context breaks it, as it must
                    self._connection.observe(broken)
                return make_sendable(result, self.history.call_ids)
            if self._adapt(result, request):
                continue
            lost, may_be_billed = self._make_sent(1), result.may_be_billed
            self.book_lost(lost, result.usage, may_be_billed=may_be_billed, duration_s=duration_s)
            outcome = (
                self._refuse_first(result)
                or self._connection.wait_after(
                    result, policy, duration_s=duration_s, note=self.spec.callbacks.note_wait
                )
                or self.check_budget()
            )
            if outcome is not None:
                return outcome

    def check_budget(self) -> SessionOutcome | None:
        """Return how the session ends because of a cap; None if the next request may be sent.

        If the caps leave too little for the longest answer, the request asks for a shorter one: `allowed_tokens`.
        """
        fit = fit_answer(self.spec.check_budget, self.gauge.least_tokens, self.max_output_tokens)
        if isinstance(fit, SessionOutcome):
            self.allowed_tokens = self.max_output_tokens
            return fit
        self.allowed_tokens = fit
        return None

    def _adapt(self, fault: Fault, request: Mapping[str, Any]) -> bool:
        """Leave out a part that the endpoint refuses and relay can do without; return False if there is none."""
        if "image" in fault.message.lower() and self.history.drop_pictures():
            self._connection.observe(Noticed(text=f"the endpoint refuses a picture: left out ({fault.message})"))
            return True
        part = self._connection.dialect.learn(fault, request)
        if not part:
            return False
        if self.history.ends_in_notice:
            self.history.demote_notice()
        self._connection.observe(Noticed(text=f"the endpoint does not take {part}: left out ({fault.message})"))
        return True

    def _refuse_first(self, fault: Fault) -> SessionOutcome | None:
        """Return how a session ends whose first request is refused: a fresh session would send the same."""
        if self.turn > 1 or fault.kind not in {FaultKind.OVERFLOW, FaultKind.REQUEST}:
            return None
        size = f"the first prompt of a session has about {self.gauge.least_tokens:,} tokens: "
        words = size if fault.kind is FaultKind.OVERFLOW else ""
        return SessionOutcome(end=SessionEnd.DENIED, detail=f"{words}{fault.message}")

    def _render_request(self) -> dict[str, Any]:
        dialect, compat = self._connection.dialect, self._connection.dialect.compat
        ttl = {} if compat.cache_hour is False else self._ttl
        marked = self.spec.cached and compat.cache != "off"
        control = {"cache_control": {"type": "ephemeral", **ttl}} if marked else {}
        automatic = compat.cache != "blocks"
        messages = self.history.render(ttl, marks_last=not automatic) if control else list(self.history.messages)
        request: dict[str, Any] = {
            "model": self.spec.model,
            "max_tokens": self.allowed_tokens,
            "system": [{"type": "text", "text": self.spec.system, **control}],
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
                for tool in self.spec.tools
            ],
            "messages": dialect.render_messages(messages),
            **(control if automatic else {}),
            **dialect.choose_thinking(self.spec.model, self.allowed_tokens),
        }
        if self._edited:
            request["context_management"] = {"edits": [render_edit(self.gauge.soft_tokens)]}
        if self.spec.effort is not None:
            request["output_config"] = {"effort": self.spec.effort}
        return request

    def _make_sent(self, least_output_tokens: int) -> Sent:
        least = Usage(input_tokens=int(LEAST_BELIEVED * self._sent_tokens), output_tokens=least_output_tokens)
        worst = Usage(input_tokens=self.gauge.least_tokens, output_tokens=self.allowed_tokens)
        return Sent(model=self.spec.model, turn=self.turn, worst=worst, least=least)

    def _account(self, answer: Answer, duration_s: float) -> None:
        """Measure and observe an answer before its content is used."""
        self.cleared_tokens = min(answer.cleared_tokens, self._own_tokens)
        seen = added = sum(map(_estimate_seen, answer.content))
        if answer.usage is None or not answer.usage.prompt_tokens:  # no count of it will follow: by its size
            added = estimate_tokens(json.dumps(answer.content, default=str), json=True)
        self.book(
            self._make_sent(max(int(LEAST_BELIEVED * seen), bool(answer.content))),
            answer.usage,
            model=answer.model,
            own=Usage(input_tokens=self._sent_tokens, output_tokens=added),
            stop_reason=answer.stop_reason,
            streamed=answer.streamed,
            duration_s=duration_s,
        )
        self._own_tokens += seen

    @property
    def _sent_tokens(self) -> int:
        """Relay's own count of what the model was shown."""
        return self._own_tokens - self.cleared_tokens

    def _show(self, block: Mapping[str, Any]) -> None:
        text = block.get("text") if block.get("type") == "text" else block.get("thinking")
        if isinstance(text, str) and text.strip():
            self._connection.observe(TextShown(text=text, thinking=block["type"] == "thinking"))


def _describe(result: Answer | Fault) -> Note:
    """Return the tape's note of an answer or fault."""
    if isinstance(result, Fault):
        return {"kind": "answer", "fault": result.kind.value, "words": result.message}
    usage = asdict(result.usage) if result.usage else None
    return {"kind": "answer", "content": result.content, "stop_reason": result.stop_reason, "usage": usage}


def _estimate_seen(block: Mapping[str, Any]) -> int:
    """Estimate what a block of an answer adds to the next prompt; content that is not shown counts as nothing."""
    if block.get("type") == "tool_use":
        return estimate_tokens(json.dumps(block["input"], default=str))
    text = block.get("text") or block.get("thinking")
    return estimate_tokens(text) if isinstance(text, str) else 0
