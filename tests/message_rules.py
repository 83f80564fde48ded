"""The ten rules that a message history must keep, to be checked on every request that a conversation sends.

Sources: the provider's documentation of messages, and what the normalisers of Codex, Cline, OpenCode and pi repair.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Block = Mapping[str, Any]
Message = Mapping[str, Any]

_THINKING = frozenset({"thinking", "redacted_thinking"})
_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")
_FOLLOWS = {
    # A user message may follow another: the API joins them, and a message that was sent is never extended.
    "user": {"user", "assistant"},
    "assistant": {"user", "system"},
    "system": {"user", "system"},
}
"""Role → the roles it may stand behind; first is `user` in any case."""


def check_messages(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return what is wrong with the messages of a request, in words that name the place; empty when nothing is.

    1. The first message is the user's.
    2. Roles follow each other as `_FOLLOWS` says; what follows a system message is an answer.
    3. Every call is answered in the very next message.
    4. No result is without its call.
    5. Results come first in their message, in the order of the calls.
    6. Call ids are unique, and each call has one result.
    7. No message, and no text, is empty.
    8. The last message is not the model's, and no answer ends in thinking.
    9. Thinking is signed and stands in answers only.
    10. Call ids are of ``[A-Za-z0-9_-]``, inputs are objects, and all text can be encoded.
    """
    return (
        *_check_roles([str(message.get("role")) for message in messages]),
        *(fault for at, message in enumerate(messages) for fault in _check_message(f"messages.{at}", message)),
        *_check_calls([_list_blocks(message) for message in messages]),
    )


def _is_blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def _list_blocks(message: Message) -> list[Block]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _check_roles(roles: list[str]) -> Iterator[str]:
    if roles[:1] != ["user"]:
        yield "rule 1: the first message is not the user's"
    for at, (before, role) in enumerate(pairwise(roles), 1):
        if before not in _FOLLOWS.get(role, ()):
            yield f"rule 2: messages.{at}: {role} behind {before}"
    if roles[-1:] == ["assistant"]:
        yield "rule 8: the last message is the model's"


def _check_message(where: str, message: Message) -> Iterator[str]:
    blocks = _list_blocks(message)
    if not blocks:
        yield f"rule 7: {where} is empty"
        return
    if message.get("role") == "assistant" and blocks[-1].get("type") in _THINKING:
        yield f"rule 8: {where} ends in thinking"
    for at, block in enumerate(blocks):
        yield from _check_block(f"{where}.content.{at}", str(message.get("role")), block)


def _check_block(where: str, role: str, block: Block) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and _is_blank(block.get("text")):
        yield f"rule 7: {where} is an empty text"
    if kind in _THINKING and (role != "assistant" or not (block.get("signature") or block.get("data"))):
        yield f"rule 9: {where} is thinking without its signature or its place"
    if kind == "tool_use" and (role != "assistant" or not _is_call(block)):
        yield f"rule 10: {where} is a call that cannot be sent"
    if not _is_encodable(block):
        yield f"rule 10: {where} cannot be encoded"


def _is_call(block: Block) -> bool:
    return _CALL_ID.fullmatch(str(block.get("id", ""))) is not None and isinstance(block.get("input"), Mapping)


def _is_encodable(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or value == value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return all(_is_encodable(item) for item in value.values())
    return not isinstance(value, list | tuple) or all(map(_is_encodable, value))


def _check_calls(contents: list[list[Block]]) -> Iterator[str]:
    seen: set[str] = set()
    pending: list[str] = []
    for at, blocks in enumerate(contents):
        yield from _check_results(f"messages.{at}", blocks, pending)
        pending = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(pending)) < len(pending) or seen.intersection(pending):
            yield f"rule 6: messages.{at} uses a call id again"
        seen.update(pending)
    if pending:
        yield f"rule 3: messages.{len(contents) - 1} has calls that nothing answers"


def _check_results(where: str, blocks: list[Block], pending: list[str]) -> Iterator[str]:
    results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
    if missing := [call for call in pending if call not in results]:
        yield f"rule 3: {where} does not answer {', '.join(missing)}"
    if orphans := [result for result in results if result not in pending]:
        yield f"rule 4: {where} answers {', '.join(orphans)}, which nobody asked"
    if len(set(results)) < len(results):
        yield f"rule 6: {where} answers a call twice"
    leading = [str(block.get("tool_use_id")) for block in blocks[: len(results)] if block.get("type") == "tool_result"]
    if leading != results or [call for call in pending if call in results] != results:
        yield f"rule 5: {where} has its results elsewhere than first, or out of order"
