"""The other APIs that a rehearsal speaks: Responses, Chat Completions, Gemini.

A request is translated into the Messages API, on which all checks and counts work, and the answer back. These APIs
cache by themselves: what the last request had is read, nothing counts as written.

Sources: the types of the vendors' SDKs (openai 3.54, google-genai 3.4), 2026-11-22; tests compare with both.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from relay.base.values import dataclass
from relay.rehearsal.answer import AnswerBlock, PlayedAnswer, PromptUse, render_event
from relay.rehearsal.wire import ApiError, Body, dump, find_error_type, list_blocks

Rendered = tuple[str, Mapping[str, Any]]
"""An event's name, empty for none, and its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherApi:
    """How one of these APIs writes requests and answers."""

    name: str
    read: Callable[[Body], dict[str, Any]]
    """A request → system, tools and messages in the Messages API's form."""
    limit: Callable[[Body], Any]
    """The output limit of a request; None if it has none."""
    message: Callable[[PlayedAnswer, Body], Mapping[str, Any]]
    """An answer in one piece."""
    events: Callable[[PlayedAnswer, Body], Iterator[Rendered]]
    """An answer as a stream."""
    error: Callable[[ApiError], Mapping[str, Any]]
    ending: bytes = b""
    """The end of a stream."""


def translate(api: OtherApi, body: Body, model: str, most: int) -> dict[str, Any]:
    """Return a request in the Messages API's form.

    Args:
        api: The API of the request.
        model: The requested model.
        most: The model's longest answer.
    """
    parts = api.read(body)
    limit = api.limit(body)
    return parts | {
        "model": model,
        "max_tokens": most if limit is None else limit,
        "messages": _join(parts["messages"]),
        "cache_control": {"type": "ephemeral"},
    }


def render_stream(api: OtherApi, answer: PlayedAnswer, body: Body) -> list[bytes]:
    """Write a whole answer as server-sent events, one item each."""
    pieces = [render_event(data, name) for name, data in api.events(answer, body)]
    return [*pieces, api.ending] if api.ending else pieces


def _join(messages: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Put blocks of the same role into one message, results first, as the Messages API has them."""
    joined: list[dict[str, Any]] = []
    for role, block in messages:
        if not joined or joined[-1]["role"] != role:
            joined.append({"role": role, "content": []})
        joined[-1]["content"].append(block)
    for message in joined:
        message["content"].sort(key=lambda block: block["type"] != "tool_result")
    return joined


def make_text_block(text: Any) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text if isinstance(text, str) else dump(text)}


def make_use(call_id: Any, name: Any, given: Any) -> dict[str, Any]:
    """Return a tool call; `given` is its input, or the JSON of it."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {"input": given}
    return {"type": "tool_use", "id": str(call_id), "name": str(name), "input": given}


def make_result(call_id: Any, content: Any) -> dict[str, Any]:
    """Return the result of a tool call."""
    return {"type": "tool_result", "tool_use_id": str(call_id), "content": [make_text_block(read_content(content))]}


def read_content(content: Any) -> str:
    """Join the texts of a content with parts of any kind."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in list_blocks(content))
    return content if isinstance(content, str) else dump(content)


def list_shown(answer: PlayedAnswer) -> tuple[AnswerBlock, ...]:
    """List the blocks that these APIs show: no thinking."""
    return tuple(block for block in answer.blocks if block.body.get("type") in {"text", "tool_use"})


def divide(answer: PlayedAnswer) -> tuple[int, int, int]:
    """Return the tokens of the prompt, of its part that came from the cache, and of the output."""
    use = answer.use
    return use.input_tokens + use.read_tokens, use.read_tokens, answer.output_tokens


# Chat Completions


def _read_chat(body: Body) -> dict[str, Any]:
    messages: list[tuple[str, dict[str, Any]]] = []
    for message in list_blocks(body.get("messages")):
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            messages.append(("user", make_result(message.get("tool_call_id"), content)))
            continue
        side = "assistant" if role == "assistant" else "user"
        if content and role != "system":
            messages.append((side, make_text_block(read_content(content))))
        for call in list_blocks(message.get("tool_calls")):
            made = call.get("function") or {}
            messages.append((side, make_use(call.get("id"), made.get("name"), made.get("arguments"))))
    system = [read_content(m.get("content")) for m in list_blocks(body.get("messages")) if m.get("role") == "system"]
    tools = [tool.get("function") or {} for tool in list_blocks(body.get("tools"))]
    return {"system": "\n".join(system), "tools": [_make_tool(tool) for tool in tools], "messages": messages}


def _make_tool(tool: Body, name: str = "") -> dict[str, Any]:
    schema = tool.get("parameters") or tool.get("parametersJsonSchema") or {}
    words = str(tool.get("description", ""))
    return {"name": name or tool.get("name"), "description": words, "input_schema": schema}


_CHAT_REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "refusal": "content_filter"}


def _render_chat(answer: PlayedAnswer, kind: str, choices: list[Any]) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": 0, "model": answer.model, "choices": choices}


def _chat_usage(answer: PlayedAnswer) -> dict[str, Any]:
    prompt, read, output = divide(answer)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
    }


def _chat_choice(answer: PlayedAnswer, kind: str) -> dict[str, Any]:
    """Return all of an answer, as the ``message`` or the one ``delta`` of a choice."""
    texts = [block.body["text"] for block in list_shown(answer) if block.body["type"] == "text"]
    calls = [
        {"index": index, "id": block.body["id"], "type": "function"}
        | {"function": {"name": block.body["name"], "arguments": block.raw_input}}
        for index, block in enumerate(block for block in list_shown(answer) if block.body["type"] == "tool_use")
    ]
    said = {"role": "assistant", "content": "".join(texts) or None} | ({"tool_calls": calls} if calls else {})
    return {"index": 0, kind: said, "finish_reason": _CHAT_REASONS.get(answer.stop_reason, "length")}


def _chat_events(answer: PlayedAnswer, body: Body) -> Iterator[Rendered]:
    choice = _chat_choice(answer, "delta")
    yield "", _render_chat(answer, "chat.completion.chunk", [{**choice, "finish_reason": None}])
    yield "", _render_chat(answer, "chat.completion.chunk", [{**choice, "delta": {}}])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield "", _render_chat(answer, "chat.completion.chunk", []) | {"usage": _chat_usage(answer)}


def render_openai_error(error: ApiError) -> Mapping[str, Any]:
    """Write an error as OpenAI's API does."""
    code = error.error_code or ("context_length_exceeded" if error.message.startswith("prompt is too long") else None)
    kind = error.type or find_error_type(error.status)
    return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


CHAT = OtherApi(
    name="chat",
    read=_read_chat,
    limit=lambda body: body.get("max_completion_tokens") or body.get("max_tokens"),
    message=lambda answer, _: {
        **_render_chat(answer, "chat.completion", [_chat_choice(answer, "message")]),
        "usage": _chat_usage(answer),
    },
    events=_chat_events,
    error=render_openai_error,
    ending=b"data: [DONE]\n\n",
)


# Gemini


def _read_gemini(body: Body) -> dict[str, Any]:
    messages: list[tuple[str, dict[str, Any]]] = []
    open_calls: list[str] = []
    for number, content in enumerate(list_blocks(body.get("contents"))):
        side = "assistant" if content.get("role") == "model" else "user"
        for place, part in enumerate(list_blocks(content.get("parts"))):
            if call := part.get("functionCall"):
                call_id = call.get("id") or f"call_{number}_{place}"
                open_calls.append(call_id)
                messages.append((side, make_use(call_id, call.get("name"), call.get("args") or {})))
            elif result := part.get("functionResponse"):
                first = open_calls.pop(0) if open_calls else ""
                messages.append((side, make_result(result.get("id") or first, result.get("response"))))
            elif not part.get("thought"):
                messages.append((side, make_text_block(part.get("text", ""))))
    tools = [tool for group in list_blocks(body.get("tools")) for tool in group.get("functionDeclarations") or ()]
    system = body.get("systemInstruction")
    parts = system.get("parts") if isinstance(system, Mapping) else system
    return {
        "system": read_content(parts) if parts else "",
        "tools": [_make_tool(tool) for tool in tools],
        "messages": messages,
    }


_GEMINI_REASONS = {"end_turn": "STOP", "tool_use": "STOP", "refusal": "SAFETY"}
_GEMINI_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                  429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}  # fmt: skip


def _gemini_part(block: AnswerBlock) -> dict[str, Any]:
    body = block.body
    if body["type"] == "text":
        return {"text": body["text"]}
    return {"functionCall": {"id": body["id"], "name": body["name"], "args": body["input"]}}


def _gemini_message(answer: PlayedAnswer, _: Body) -> Mapping[str, Any]:
    content = {"role": "model", "parts": [_gemini_part(block) for block in list_shown(answer)] or [{"text": ""}]}
    prompt, read, output = divide(answer)
    usage = {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": read,
        "candidatesTokenCount": output - answer.thinking_tokens,
        "thoughtsTokenCount": answer.thinking_tokens,
        "totalTokenCount": prompt + output,
    }
    reason = _GEMINI_REASONS.get(answer.stop_reason, "MAX_TOKENS")
    candidate = {"content": content, "index": 0, "finishReason": reason}
    return {
        "candidates": [candidate], "usageMetadata": usage, "modelVersion": answer.model, "responseId": answer.id
    }  # fmt: skip


def _gemini_error(error: ApiError) -> Mapping[str, Any]:
    status = 503 if error.status == 529 else error.status  # noqa: PLR2004  # which only Anthropic's API has
    words = error.message
    if words.startswith("prompt is too long"):
        words = "The input token count exceeds the maximum number of tokens allowed."
    return {"error": {"code": status, "message": words, "status": _GEMINI_STATUS.get(status, "UNAVAILABLE")}}


GEMINI = OtherApi(
    name="gemini",
    read=_read_gemini,
    limit=lambda body: (body.get("generationConfig") or {}).get("maxOutputTokens"),
    message=_gemini_message,
    events=lambda answer, body: iter([("", _gemini_message(answer, body))]),
    error=_gemini_error,
)


_GEMINI = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):(?P<stream>streamG|g)enerateContent")
_OUTPUT, _JOINT = "_output", "__"
_REASONS = {"max_tokens": "max_output_tokens", "model_context_window_exceeded": "max_output_tokens",
            "refusal": "content_filter"}  # fmt: skip


def _read(body: Body) -> dict[str, Any]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list_blocks(given)
    tools = [_make_tool(tool, name) for tool, name, _ in _list_tools(body)]
    return {
        "system": str(body.get("instructions") or ""),
        "tools": tools,
        "messages": [part for item in items for part in _read_item(item)],
    }


def _read_item(item: Body) -> Iterator[tuple[str, dict[str, Any]]]:
    kind, call_id = str(item.get("type", "message")), item.get("call_id")
    if kind == "message":
        side = "assistant" if item.get("role") == "assistant" else "user"
        yield side, make_text_block(read_content(item.get("content") or ""))
    elif kind.endswith(_OUTPUT):
        yield "user", make_result(call_id, item.get("output", item.get("tools")))
    elif call_id is not None:
        name = _spell(str(item.get("namespace") or ""), item.get("name") or kind)
        yield "assistant", make_use(call_id, name, item.get("arguments", item.get("input", {})))


def _list_tools(body: Body) -> Iterator[tuple[Body, str, str]]:
    """Yield each tool with its name in scripts, and its namespace."""
    for tool in list_blocks(body.get("tools")):
        if tool.get("type") == "namespace":
            space = str(tool.get("name"))
            yield from ((one, _spell(space, one.get("name")), space) for one in list_blocks(tool.get("tools")))
        else:
            yield tool, str(tool.get("name") or tool.get("type")), ""


def _spell(space: str, name: Any) -> str:
    """Return a tool's name in scripts."""
    return f"{space}{_JOINT}{name}" if space else str(name)


def _usage(answer: PlayedAnswer) -> dict[str, Any]:
    prompt, read, output = divide(answer)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
        "total_tokens": prompt + output,
    }


def _render(answer: PlayedAnswer, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
    reason = _REASONS.get(answer.stop_reason) if usage else None
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if reason else status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def _item(answer: PlayedAnswer, number: int, block: AnswerBlock, body: Body) -> dict[str, Any]:
    """Return a finished item of the output."""
    item_id = f"item_{answer.id}_{number}"
    if block.body["type"] == "text":
        part = {"type": "output_text", "text": block.body["text"], "annotations": [], "logprobs": []}
        return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    tool, space, name = _find_tool(str(block.body["name"]), body)
    call = {"id": item_id, "call_id": block.body["id"], "name": name, "status": "completed"}
    if tool.get("type") == "custom":
        given = block.body["input"]
        return {**call, "type": "custom_tool_call", "input": str(given.get("input", ""))}
    return {**call, "type": "function_call", "arguments": block.raw_input} | ({"namespace": space} if space else {})


def _find_tool(name: str, body: Body) -> tuple[Body, str, str]:
    """Return a tool, its namespace and its name there; a tool that is not offered may be an MCP server's, deferred."""
    for tool, shown, space in _list_tools(body):
        if shown == name:
            return tool, space, name.removeprefix(space + _JOINT) if space else name
    space, _, own = name.rpartition(_JOINT)
    return ({}, space, own) if name.startswith("mcp__") else ({}, "", name)


def _message(answer: PlayedAnswer, body: Body) -> Mapping[str, Any]:
    output = [_item(answer, number, block, body) for number, block in enumerate(list_shown(answer))]
    return _render(answer, "completed", output, _usage(answer))


def _events(answer: PlayedAnswer, body: Body) -> Iterator[Rendered]:
    for number, (name, data) in enumerate(_list_events(answer, body)):
        yield name, {"type": name, "sequence_number": number, **data}


def _list_events(answer: PlayedAnswer, body: Body) -> Iterator[Rendered]:
    yield "response.created", {"response": _render(answer, "in_progress", [], None)}
    yield "response.in_progress", {"response": _render(answer, "in_progress", [], None)}
    for number, block in enumerate(list_shown(answer)):
        item = _item(answer, number, block, body)
        place = {"output_index": number}
        opened = {**item, "status": "in_progress"}
        opened |= {name: type(item[name])() for name in ("content", "arguments", "input") if name in item}
        yield "response.output_item.added", {**place, "item": opened}
        yield from _list_deltas(item, block, {**place, "item_id": item["id"]})
        yield "response.output_item.done", {**place, "item": item}
    whole = _message(answer, body)
    yield f"response.{whole['status']}", {"response": whole}


def _list_deltas(item: Body, block: AnswerBlock, place: dict[str, Any]) -> Iterator[Rendered]:
    if item["type"] == "message":
        part, place = item["content"][0], {**place, "content_index": 0}
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
        return
    custom = item["type"] == "custom_tool_call"
    name, text = ("custom_tool_call_input", item["input"]) if custom else ("function_call_arguments", block.raw_input)
    yield f"response.{name}.delta", {**place, "delta": text}
    yield f"response.{name}.done", {**place, "input" if custom else "arguments": text, "name": item["name"]}


RESPONSES = OtherApi(
    name="responses",
    read=_read,
    limit=lambda body: body.get("max_output_tokens"),
    message=_message,
    events=_events,
    error=render_openai_error,
)


_BY_PATH: Mapping[str, OtherApi] = {"/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}
_OVERLOADED = 529


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRoute:
    """What the path of a request says, if it is not of the Messages API."""

    api: OtherApi
    model: str = ""
    """Empty unless the path names it."""
    streams: bool | None = None
    """None unless the path tells."""


def find_other_api(method: str, path: str) -> OtherRoute | None:
    """Return which other API a request is for; None for the Messages API."""
    if method != "POST":
        return None
    if path in _BY_PATH:
        return OtherRoute(api=_BY_PATH[path])
    found = _GEMINI.fullmatch(path)
    return OtherRoute(api=GEMINI, model=unquote(found["model"]), streams=found["stream"] != "g") if found else None


def count_writes_as_input(use: PromptUse) -> PromptUse:
    """Divide a prompt as an API does whose cache writes count as plain input."""
    written = use.write_5m_tokens + use.write_1h_tokens
    return PromptUse(input_tokens=use.input_tokens + written, read_tokens=use.read_tokens)


def map_error(error: ApiError) -> ApiError:
    """Replace a status that only Anthropic's API has."""
    return replace(error, status=503, type="server_error") if error.status == _OVERLOADED else error
