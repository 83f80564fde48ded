"""What every request of relay's own loop must keep: what the endpoint requires, and some rules that are stricter.

Sources: the provider's documentation of messages, and what the normalisers of Codex, Cline, OpenCode and pi repair.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relay.rehearsal.wire import list_blocks
from tests.endpoint.checks import list_problems
from tests.endpoint.faults import StrictCard

_THINKING = frozenset({"thinking", "redacted_thinking"})


def check_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what is wrong with the messages of a request, in words that name the place; empty when nothing is.

    Beside what the endpoint refuses: results are in the order of the calls, no text is blank, thinking is signed and no
    answer ends in it, and all text can be encoded.
    """
    if not messages:
        return ("there are no messages",)
    refused = (problem.message for problem in list_problems(list(messages), StrictCard(id="m")))
    return (*refused, *_list_own_faults(messages))


def _list_own_faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    calls: list[Any] = []
    for at, message in enumerate(messages):
        blocks = list_blocks(message.get("content"))
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if results != calls:
            yield f"messages.{at} has results of other calls, or in another order"
        calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        if message.get("role") == "assistant" and blocks and blocks[-1].get("type") in _THINKING:
            yield f"messages.{at} ends in thinking"
        for block in blocks:
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                yield f"messages.{at} has a blank text"
            if block.get("type") in _THINKING and not (block.get("signature") or block.get("data")):
                yield f"messages.{at} has thinking without its signature"
            if not _is_encodable(block):
                yield f"messages.{at} cannot be encoded"


def _is_encodable(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or value == value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return all(_is_encodable(item) for item in value.values())
    return not isinstance(value, list | tuple) or all(map(_is_encodable, value))
