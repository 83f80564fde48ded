"""The conversation as the API wants it: append-only, every call answered, markers placed at request time.

`system` and `tools` never change within a session and earlier messages are never rewritten: models that preserve
thinking refuse a conversation whose past has changed. Only cache markers move, on copies made for one request.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from relay.session.tokens import estimate_tokens
from relay.session.values import ToolResult

Block = dict[str, Any]
Message = dict[str, Any]

LOOK_BACK_BLOCKS = 20
"""How far the cache looks back from a marker, the marked block included. Source: prompt-caching docs, 2026-08."""


class History:
    """The messages of one session.

    Args:
        messages: What the conversation begins with.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = list(messages)
        blocks = (block for message in self._messages for block in message["content"])
        self._call_ids = {block["id"] for block in blocks if block.get("type") == "tool_use"}
        self._cached_messages = self._cached_blocks = 0
        self.task_at = 0
        """Where the message stands that the leg began with."""

    def begin_task(self) -> None:
        """Note that the next message begins a leg."""
        self.task_at = len(self._messages)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages so far; not to be changed."""
        return self._messages

    def estimate_tokens(self) -> int:
        """Estimate what all messages take, as `relay.session.gauge` does; 0 when there are none."""
        return sum(estimate_block(block) for message in self._messages for block in message["content"])

    @property
    def call_ids(self) -> Collection[str]:
        """Ids of all calls so far."""
        return self._call_ids

    @property
    def ends_in_notice(self) -> bool:
        """Whether a ``system`` message stands last: only an answer, or another of its kind, may follow it."""
        return bool(self._messages) and self._messages[-1]["role"] == "system"

    def say(self, text: str) -> None:
        """Append something that relay says to the model.

        It is a message of its own even behind another of the user's: what has been sent is never extended.
        """
        role = "system" if self.ends_in_notice else "user"
        self._messages.append({"role": role, "content": [{"type": "text", "text": _make_sendable(text)}]})

    def notify(self, text: str, *, as_system: bool) -> None:
        """Append a notice after tool results.

        Args:
            as_system: Whether the model takes ``system`` messages in mid-conversation; else it is user text.
        """
        block: Block = {"type": "text", "text": _make_sendable(text)}
        if as_system:
            self._messages.append({"role": "system", "content": [block]})
        elif self._messages[-1]["role"] == "user":
            self._messages[-1]["content"].append(block)  # not yet sent: still the same turn
        else:
            self._messages.append({"role": "user", "content": [block]})

    def demote_notice(self) -> None:
        """Make the ``system`` message that stands last text of the user's: it was refused, and nobody has seen it."""
        *_, before, notice = self._messages
        if before["role"] == "user":
            before["content"].extend(notice["content"])
            del self._messages[-1]
        else:
            notice["role"] = "user"

    def add_answer(self, content: Iterable[Block]) -> None:
        """Append what the model answered, blocks untouched; an answer without any is no message."""
        blocks = list(content)
        if blocks:
            self._messages.append({"role": "assistant", "content": blocks})
            self._call_ids.update(block["id"] for block in blocks if block.get("type") == "tool_use")

    def add_results(self, results: Sequence[tuple[str, ToolResult]]) -> None:
        """Append the results of all calls of the last answer, in call order, in one message."""
        blocks = [
            {"type": "tool_result", "tool_use_id": call_id, "content": _make_sendable(result.text)}
            | ({"is_error": True} if result.is_error else {})
            for call_id, result in results
        ]
        self._messages.append({"role": "user", "content": blocks})

    def render(self, ttl: Mapping[str, str], *, marks_last: bool = False) -> list[Message]:
        """Return the messages for a request.

        The endpoint marks the last block by itself. Where more blocks than its look-back were added since the last
        request, one more marker goes within reach of what was cached then.

        Args:
            ttl: The ``ttl`` field of this session's cache markers; empty for the default.
            marks_last: The endpoint does not mark the last block: that is done here.
        """
        control = {"type": "ephemeral", **ttl}
        total = self._count_blocks()
        reach = self._cached_blocks + LOOK_BACK_BLOCKS - 1
        messages = _mark(self._messages, total, control) if marks_last else list(self._messages)
        if self._cached_blocks == 0 or total <= reach:
            return messages
        return _mark(messages, reach, control)

    def note_cached(self) -> None:
        """Remember that everything up to here was in a request that was answered."""
        self._cached_messages, self._cached_blocks = len(self._messages), self._count_blocks()

    def _count_blocks(self) -> int:
        """Count the blocks of all messages; what was sent does not change, and is not counted again."""
        return self._cached_blocks + sum(len(message["content"]) for message in self._messages[self._cached_messages :])


def estimate_block(block: Block) -> int:
    """Estimate the tokens of a block: its text where it has one, else its JSON."""
    text = block.get("text") or block.get("content")
    if isinstance(text, str):
        return estimate_tokens(text)
    return estimate_tokens(json.dumps(block, default=str), json=True)


def _make_sendable(text: str) -> str:
    """Return text as the endpoint takes it: not blank, and without halves of characters (from odd file names)."""
    return text.encode(errors="replace").decode() if text.strip() else "(no output)"


def _mark(messages: Sequence[Message], reach: int, control: Mapping[str, str]) -> list[Message]:
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
