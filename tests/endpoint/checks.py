"""What the API refuses, as far as a client with a tool loop can do it wrong.

Every check returns the 400 of the API, or None. Unknown fields are accepted: clients send beta features that a
rehearsal does not play.

One rule is stricter than the API, which merges consecutive assistant messages: here they are only accepted after a
``pause_turn``, because no tool loop means them. Consecutive user messages are accepted, as by the API.
"""

import base64
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from relay.rehearsal.wire import ApiError, Body, ContentBlock, list_blocks, refuse
from relay.session.pictures import read_picture
from tests.endpoint.faults import StrictCard
from tests.endpoint.prompt import THINKING, PromptBlock, Signature, Ttl, digest_text, is_markable, read_cache_mark

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ROLES = {"user", "assistant", "system"}
_PICTURE_TYPES = {"image/png", "image/jpeg", "image/webp"}

Messages = list[Mapping[str, Any]]


def check_conversation(body: Mapping[str, Any], card: StrictCard, *, paused: bool) -> ApiError | None:
    """Check ``system`` and ``messages``; `paused`: the history has an answer that was a ``pause_turn``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return refuse("messages: Input should be a valid list")
    if not messages:
        return refuse("messages: at least one message is required")
    for block in list_blocks(body.get("system")):
        if not block.get("text"):
            return refuse("system: text content blocks must be non-empty")
    return next(list_problems(messages, card, paused=paused), None)


def list_problems(messages: Messages, card: StrictCard, *, paused: bool = False) -> Iterator[ApiError]:
    """Yield each refusal of a history with messages."""
    yield from _check_roles(messages, card, paused=paused)
    yield from _check_contents(messages)
    yield from _check_calls(messages)


def _check_roles(messages: Messages, card: StrictCard, *, paused: bool) -> Iterator[ApiError]:
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
            pictures = (part for part in list_blocks(block.get("content")) if part.get("type") == "image")
            if not all(map(_is_picture, pictures)):
                yield refuse(f"messages.{index}.content.{place}: Could not process image")


def _sets_output(message: Mapping[str, Any]) -> bool:
    """Return whether a ``system`` message only sets the effort from here on (beta mid-conversation-output-config)."""
    return message.get("role") == "system" and isinstance(message.get("output_config"), Mapping)


def _check_block(where: str, role: Any, block: ContentBlock) -> Iterator[ApiError]:
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


def _is_picture(block: ContentBlock) -> bool:
    """Return whether an ``image`` block holds a picture of its type; of a PNG, the header's checksum counts too."""
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("media_type") not in _PICTURE_TYPES:
        return True  # an address, a GIF
    try:
        data = base64.b64decode(source["data"], validate=True)
    except (KeyError, TypeError, ValueError):
        return False
    found = read_picture(data)
    is_sound = not data.startswith(b"\x89PNG") or zlib.crc32(data[12:29]) == int.from_bytes(data[29:33], "big")
    return found is not None and is_sound and source["media_type"] == found.media_type


def _check_call(where: str, block: ContentBlock) -> Iterator[ApiError]:
    if not _CALL_ID.fullmatch(str(block.get("id", ""))):
        yield refuse(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("input"), Mapping):
        yield refuse(f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_calls(messages: Messages) -> Iterator[ApiError]:
    """Check that each call is answered once, at the start of the next message, and that nothing else is answered."""
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


def _check_results(index: int, blocks: list[ContentBlock], pending: list[str]) -> Iterator[ApiError]:
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


def _list_leading_results(blocks: list[ContentBlock]) -> list[str]:
    found = []
    for block in blocks:
        if block.get("type") != "tool_result":
            break
        found.append(str(block.get("tool_use_id")))
    return found


MAX_MARKS = 4
SAMPLING = ("temperature", "top_p", "top_k")
_VERSIONS = {"2023-06-01", "2026-10-21"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_version(version: str | None) -> ApiError | None:
    """Check the ``anthropic-version`` header."""
    if version is None:
        return refuse("anthropic-version: header is required")
    return None if version in _VERSIONS else refuse(f'anthropic-version: "{version}" is not a valid version')


REFUSABLE = ("display", "thinking", "ttl", "cache_control", "marks", "system_messages")
"""Fields that `check_refused` can refuse."""


def check_refused(body: Body, refuses: Collection[str]) -> ApiError | None:
    """Refuse fields that this endpoint does not accept, in the words of a gateway that knows an older API."""
    thinking = body.get("thinking")
    roles = enumerate(message.get("role") for message in list_blocks(body.get("messages")))
    found = {
        "thinking": "thinking" if thinking else "",
        "display": "thinking.adaptive.display" if isinstance(thinking, Mapping) and "display" in thinking else "",
        "ttl": next((f"{where}.cache_control.ttl" for where, block in _list_blocks(body) if _has_ttl(block)), ""),
        "cache_control": "cache_control" if "cache_control" in body else "",
        "marks": next(
            (f"{where}.cache_control" for where, block in _list_blocks(body) if "cache_control" in block), ""
        ),
        "system_messages": next((f"messages.{n}.role" for n, role in roles if role == "system"), ""),
    }
    return next((refuse(f"{found[name]}: Extra inputs are not permitted") for name in refuses if found[name]), None)


def _has_ttl(block: Mapping[str, Any]) -> bool:
    mark = block.get("cache_control")
    return isinstance(mark, Mapping) and "ttl" in mark


def check_request(
    body: Body, card: StrictCard, *, version: str, paused: bool = False, counting: bool = False
) -> ApiError | None:
    """Check a request to ``/v1/messages`` or, with `counting`, to ``/v1/messages/count_tokens``.

    Args:
        body: The request body.
        card: The requested model.
        version: The ``anthropic-version``; sampling parameters are refused since 2026-10-21.
        paused: Whether the history has an answer that was a ``pause_turn``.
        counting: Whether ``max_tokens`` may be missing.
    """
    checks: tuple[Callable[[], ApiError | None], ...] = (
        lambda: _check_shapes(body),
        lambda: None if counting else _check_limit(body, card),
        lambda: None if version < "2026" else _check_sampling(body),
        lambda: _check_tools(body, card),
        lambda: _check_thinking(body, card),
        lambda: check_conversation(body, card, paused=paused),
        lambda: _check_marks(body),
    )
    return next((problem for check in checks if (problem := check()) is not None), None)


def check_signatures(
    blocks: tuple[PromptBlock, ...], card: StrictCard, body: Body
) -> tuple[ApiError | None, tuple[Mapping[str, str], ...]]:
    """Check that every thinking block stands where it was produced.

    Returns:
        The refusal or None, and the blocks that the model does not see: ``{type, path, reason}``. A block of another
            model is dropped without an error.
    """
    config = body.get("thinking") or {}
    drops = _read_binding(config).get("prefix_mismatch_behavior") == "drop_block"
    dropped: list[Mapping[str, str]] = []
    for block in blocks:
        if block.body.get("type") != "thinking" or not block.where.startswith("messages"):
            continue
        signature = Signature.decode(str(block.body.get("signature") or ""))
        if signature is None or signature.text != digest_text(str(block.body.get("thinking", ""))):
            return refuse(f"{block.where}: Invalid `signature` in `thinking` block"), ()
        if signature.model != card.id:
            dropped.append(_drop(block.where, "model_binding_mismatch"))
        elif card.binds_thinking and signature.prefix != block.before:
            if not drops:
                return refuse(
                    f"{block.where}: Invalid signature in thinking block. The block is bound to a different"
                    " conversation"
                ), ()
            dropped.append(_drop(block.where, "prefix_binding_mismatch"))
    return None, tuple(dropped)


def _read_binding(config: Mapping[str, Any]) -> Mapping[str, Any]:
    binding = config.get("block_binding")
    return binding if isinstance(binding, Mapping) else {}


def _drop(where: str, reason: str) -> Mapping[str, str]:
    return {"type": "thinking_dropped", "path": where, "reason": reason}


def _check_shapes(body: Body) -> ApiError | None:
    """Check the types of the fields that later checks read."""
    for name in ("thinking", "output_config", "tool_choice", "cache_control", "metadata"):
        if body.get(name) is not None and not isinstance(body[name], Mapping):
            return refuse(f"{name}: Input should be an object")
    if body.get("tools") is not None and not isinstance(body["tools"], list):
        return refuse("tools: Input should be a valid list")
    if body.get("system") is not None and not isinstance(body["system"], str | list):
        return refuse("system: Input should be a string or a list")
    return None


def _check_limit(body: Body, card: StrictCard) -> ApiError | None:
    limit = body.get("max_tokens")
    if limit is None:
        return refuse("max_tokens: Field required")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        return refuse("max_tokens: Input should be greater than or equal to 1")
    if limit > card.output_tokens:
        most = card.output_tokens
        return refuse(
            f"max_tokens: {limit} > {most}, which is the maximum allowed number of output tokens for {card.id}"
        )
    return None


def _check_sampling(body: Body) -> ApiError | None:
    sent = [name for name in SAMPLING if name in body]
    return refuse(f"{sent[0]}: Extra inputs are not permitted") if sent else None


def _check_tools(body: Body, card: StrictCard) -> ApiError | None:
    names = [tool.get("name") for tool in list_blocks(body.get("tools"))]
    for index, name in enumerate(names):
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            return refuse(f"tools.{index}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if len(set(names)) < len(names):
        return refuse("tools: Tool names must be unique.")
    for index, tool in enumerate(list_blocks(body.get("tools"))):
        schema = tool.get("input_schema")
        if tool.get("type", "custom") == "custom" and not isinstance(schema, Mapping):
            return refuse(f"tools.{index}.custom.input_schema: Field required")
        if isinstance(schema, Mapping) and not schema.keys().isdisjoint(("oneOf", "allOf", "anyOf")):
            words = "input_schema does not support oneOf, allOf, or anyOf at the top level"
            return refuse(f"tools.{index}.custom.input_schema: {words}")
    kind = (body.get("tool_choice") or {}).get("type")
    if kind in {"any", "tool"} and not card.forced_tools:
        return refuse(f"tool_choice: '{kind}' is not supported on {card.id}; use 'auto' or 'none'")
    return None


def _check_thinking(body: Body, card: StrictCard) -> ApiError | None:
    kind = (body.get("thinking") or {}).get("type")
    if kind is not None and kind not in card.thinking:
        return refuse(f"thinking.type: '{kind}' is not supported on {card.id}")
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and effort not in card.efforts:
        return refuse(f"output_config.effort: '{effort}' is not supported on {card.id}")
    if kind == "between_tools" and effort in {"xhigh", "max"}:
        return refuse(f"thinking.type: 'between_tools' is not supported with effort '{effort}'")
    return None


def _check_marks(body: Body) -> ApiError | None:
    """Check cache marks: what can carry one, how many, and 1h before 5m."""
    marks: list[tuple[str, Ttl]] = []
    for where, block in _list_blocks(body):
        ttl = read_cache_mark(block)
        if ttl is None:
            continue
        if not is_markable(block):
            kind = "thinking" if block.get("type") in THINKING else "empty text"
            return refuse(f"{where}.cache_control: cache_control cannot be set for {kind} blocks")
        marks.append((where, ttl))
    auto = read_cache_mark({"cache_control": body.get("cache_control")})
    last = [where for where, block in _list_blocks(body) if is_markable(block)][-1:]
    if auto is not None and last:
        explicit = dict(marks).get(last[0])
        if explicit is not None and explicit is not auto:
            return refuse("cache_control: the last block has an explicit cache_control with a different ttl")
        marks = marks if explicit is not None else [*marks, (last[0], auto)]
    if len(marks) > MAX_MARKS:
        return refuse(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
    return _check_order(marks)


def _check_order(marks: list[tuple[str, Ttl]]) -> ApiError | None:
    short = False
    for where, ttl in marks:
        if short and ttl is Ttl.ONE_HOUR:
            return refuse(
                f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'"
                " cache_control block. Blocks are processed in the order: `tools`, `system`, `messages`."
            )
        short = short or ttl is Ttl.FIVE_MINUTES
    return None


def _list_blocks(body: Body) -> Iterator[tuple[str, ContentBlock]]:
    for name in ("tools", "system"):
        yield from ((f"{name}.{i}", block) for i, block in enumerate(list_blocks(body.get(name))))
    for i, message in enumerate(list_blocks(body.get("messages"))):
        blocks = list_blocks(message.get("content"))
        yield from ((f"messages.{i}.content.{j}", block) for j, block in enumerate(blocks))
