"""The Responses API, as `relay.rehearsal.other_apis` has the others."""

from collections.abc import Iterator, Mapping
from typing import Any

from relay.rehearsal.answer import AnswerBlock, PlayedAnswer
from relay.rehearsal.other_apis import (
    Body,
    Rendered,
    Tongue,
    divide,
    list_shown,
    make_result,
    make_text_block,
    make_use,
    read_content,
    render_openai_error,
)
from relay.rehearsal.prompt import list_blocks
from relay.rehearsal.sse import cut_text

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
    """Yield each tool with the name that a script has for it, and its namespace."""
    for tool in list_blocks(body.get("tools")):
        if tool.get("type") == "namespace":
            space = str(tool.get("name"))
            yield from ((one, _spell(space, one.get("name")), space) for one in list_blocks(tool.get("tools")))
        else:
            yield tool, str(tool.get("name") or tool.get("type")), ""


def _spell(space: str, name: Any) -> str:
    """Return what a script calls a tool."""
    return f"{space}{_JOINT}{name}" if space else str(name)


def _make_tool(tool: Body, name: str) -> dict[str, Any]:
    schema = tool.get("parameters") or {}
    return {"name": name, "description": str(tool.get("description", "")), "input_schema": schema}


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
    """Return a tool, its namespace and its name in there; one that is not offered may be an MCP server's, deferred."""
    for tool, shown, space in _list_tools(body):
        if shown == name:
            return tool, space, name.removeprefix(space + _JOINT) if space else name
    space, _, own = name.rpartition(_JOINT)
    return ({}, space, own) if name.startswith("mcp__") else ({}, "", name)


def _message(answer: PlayedAnswer, body: Body) -> Mapping[str, Any]:
    output = [_item(answer, number, block, body) for number, block in enumerate(list_shown(answer))]
    return _render(answer, "completed", output, _usage(answer))


def _events(answer: PlayedAnswer, body: Body) -> Iterator[Rendered]:
    numbered = ((number, *event) for number, event in enumerate(_list_events(answer, body)))
    for number, name, data in numbered:
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
        for piece in cut_text(part["text"]):
            yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
        return
    custom = item["type"] == "custom_tool_call"
    name, text = ("custom_tool_call_input", item["input"]) if custom else ("function_call_arguments", block.raw_input)
    for piece in cut_text(text):
        yield f"response.{name}.delta", {**place, "delta": piece}
    yield f"response.{name}.done", {**place, "input" if custom else "arguments": text, "name": item["name"]}


RESPONSES = Tongue(
    name="responses",
    read=_read,
    limit=lambda body: body.get("max_output_tokens"),
    message=_message,
    events=_events,
    error=render_openai_error,
    error_event=lambda kind, words: {
        "type": "error", "sequence_number": 0, "code": kind, "message": words, "param": None
    },
)  # fmt: skip
