"""The rules of a message history: roles, contents, and calls with their results."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from relay.rehearsal.catalog import ModelCard
from relay.rehearsal.prompt import THINKING, Block, list_blocks
from relay.rehearsal.wire import ApiError, refuse

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ROLES = {"user", "assistant", "system"}

Messages = list[Mapping[str, Any]]


def check_conversation(body: Mapping[str, Any], card: ModelCard, *, paused: bool) -> ApiError | None:
    """Check ``system`` and ``messages``; `paused`: the history has an answer that was a ``pause_turn``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return refuse("messages: Input should be a valid list")
    if not messages:
        return refuse("messages: at least one message is required")
    for block in list_blocks(body.get("system")):
        if not block.get("text"):
            return refuse("system: text content blocks must be non-empty")
    problems = (*_check_roles(messages, card, paused=paused), *_check_contents(messages), *_check_calls(messages))
    return problems[0] if problems else None


def _check_roles(messages: Messages, card: ModelCard, *, paused: bool) -> Iterator[ApiError]:
    roles = [message.get("role") for message in messages]
    for index, role in enumerate(roles):
        if role not in _ROLES:
            yield refuse(f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'")
    if roles[0] != "user":
        yield refuse('messages: first message must use the "user" role')
    if "system" in roles and not card.system_messages:
        yield refuse(f"messages.{roles.index('system')}: role 'system' is not supported on {card.id}")
    yield from _check_neighbours(roles, paused=paused)
    if roles[-1] == "assistant" and not (card.prefill or paused):
        yield refuse(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_neighbours(roles: list[Any], *, paused: bool) -> Iterator[ApiError]:
    for index, (role, following) in enumerate(zip(roles, [*roles[1:], None], strict=True)):
        if role == "system" and roles[index - 1] not in {"user", "system"}:
            yield refuse(f"messages.{index}: a system message must immediately follow a user turn")
        if role == "system" and following == "user":
            yield refuse(f"messages.{index}: a system message must precede an assistant turn or end the array")
        if role == following == "assistant" and not paused:
            yield refuse(f"messages.{index + 1}: roles must alternate between user and assistant")


def _check_contents(messages: Messages) -> Iterator[ApiError]:
    for index, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, str | list):
            yield refuse(f"messages.{index}.content: Field required")
        elif not content and not _sets_output(message):
            yield refuse(f"messages.{index}: all messages must have non-empty content")
        for place, block in enumerate(list_blocks(content)):
            yield from _check_block(f"messages.{index}.content.{place}", message.get("role"), block)


def _sets_output(message: Mapping[str, Any]) -> bool:
    """Say whether a ``system`` message only sets the effort from here on (beta mid-conversation-output-config)."""
    return message.get("role") == "system" and isinstance(message.get("output_config"), Mapping)


def _check_block(where: str, role: Any, block: Block) -> Iterator[ApiError]:
    kind = block.get("type")
    if not isinstance(kind, str):
        yield refuse(f"{where}.type: Field required")
    if kind == "text" and not block.get("text"):
        yield refuse("messages: text content blocks must be non-empty")
    if kind == "document" and role == "assistant":
        yield refuse(f"{where}: document blocks are not permitted in assistant messages")
    if kind == "text" and role == "user" and block.get("citations"):
        yield refuse(f"{where}.citations: citations are not permitted on user text blocks")
    if (kind == "tool_use" or kind in THINKING) and role != "assistant":
        yield refuse(f"{where}: {kind} blocks are only permitted in assistant messages")
    if kind == "tool_result" and role != "user":
        yield refuse(f"{where}: tool_result blocks are only permitted in user messages")
    if kind == "tool_use":
        yield from _check_call(where, block)


def _check_call(where: str, block: Block) -> Iterator[ApiError]:
    if not _CALL_ID.fullmatch(str(block.get("id", ""))):
        yield refuse(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("input"), Mapping):
        yield refuse(f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_calls(messages: Messages) -> Iterator[ApiError]:
    """Check that each call is answered once, at the start of the very next message, and nothing else is."""
    seen: set[str] = set()
    pending: list[str] = []
    for index, message in enumerate(messages):
        blocks = list_blocks(message.get("content"))
        results = _list_leading_results(blocks)
        missing = [call for call in pending if call not in results]
        if missing:
            yield refuse(
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {', '.join(missing)}. Each `tool_use` block must have a corresponding"
                " `tool_result` block in the next message."
            )
        yield from _check_results(index, blocks, pending)
        calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(calls)) < len(calls) or seen.intersection(calls):
            yield refuse("messages: `tool_use` ids must be unique")
        seen.update(calls)
        pending = calls
    if pending:
        yield refuse(
            f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks immediately"
            f" after: {', '.join(pending)}."
        )


def _check_results(index: int, blocks: list[Block], pending: list[str]) -> Iterator[ApiError]:
    answered: set[str] = set()
    for place, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            continue
        call = str(block.get("tool_use_id"))
        if call in answered:
            yield refuse(
                f"messages.{index}.content.{place}: each `tool_use` must have a single result."
                f" Found multiple `tool_result` blocks with id: {call}"
            )
        elif call not in pending:
            yield refuse(
                f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {call}. Each `tool_result` block must have a corresponding `tool_use` block in the"
                " previous message."
            )
        answered.add(call)


def _list_leading_results(blocks: list[Block]) -> list[str]:
    found = []
    for block in blocks:
        if block.get("type") != "tool_result":
            break
        found.append(str(block.get("tool_use_id")))
    return found
