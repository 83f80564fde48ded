"""relay's own tools for an agent: the Model Context Protocol over a Unix socket, one message in a line.

The agent starts `BRIDGE`, which carries its standard streams to the socket. The official SDK was weighed: it brings
pydantic, anyio and an ASGI server, speaks no Unix sockets, and relay would use four methods of it.
"""

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.sandbox.sockets import listen
from relay.sandbox.wire import MAX_LINE_BYTES, Question, parse_incoming, render_answer, split_lines
from relay.session.values import ToolCall, ToolResult, ToolSpec

BRIDGE = """
import os, socket, sys, threading
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
def back():
    while data := there.recv(65536):
        while data:
            data = data[os.write(1, data):]
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""
"""The server as the agent starts it: ``python -I -S -c BRIDGE SOCKET``."""
MOST_CONNECTIONS = 16
MOST_LATE = 32
"""Calls without an answer that are remembered; an agent has one or two."""
PATIENCE_S = 45.0
"""How long a call is left without an answer. Source: Codex, Cline and all that is built on the official TypeScript SDK
give a call up after 60 seconds by default; a person, or a server of the user's, may take longer."""
LATE = "There is no result yet. Call it again with exactly the same input: that waits on for it, nothing is done twice."
_VERSION = "2025-06-18"
_NAME = "relay"
_THEIRS = frozenset({"read", "search", "list", "edit", "write", "bash"})
"""Tools of a session that every agent has of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of a tool of relay's, which waits for its result."""

    call: ToolCall
    answer: "Future[ToolResult]" = field(default_factory=Future)


@dataclass(slots=True, kw_only=True)
class Offer:
    """What is offered. Mutable: it keeps what was called and is not answered yet."""

    tools: tuple[ToolSpec, ...]
    tell: Callable[[Called], bool]
    """Told of each call, on a thread of the connection's own; False: nobody has the time to take it."""
    patience_s: float = PATIENCE_S
    late: "dict[str, Future[ToolResult]]" = field(default_factory=dict)
    """Results of calls that were answered with `LATE`, by a hash of name and input: the same call again takes one."""


def choose_offered(tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools of a session that an agent has not of its own."""
    return tuple(tool for tool in tools if tool.name not in _THEIRS)


def open_toolserver(offer: Offer, place: Path) -> AbstractContextManager[None]:
    """Listen on a new Unix socket until the block ends."""
    return listen(place, lambda peer: _serve(peer, offer), MOST_CONNECTIONS)


def _serve(peer: socket.socket, offer: Offer) -> None:
    """Answer until the agent closes its end, or sends a line that is too long."""
    with peer.makefile("rb") as stream:
        for line in split_lines(stream):
            if len(line) >= MAX_LINE_BYTES:
                return
            answer = answer_line(line, offer)
            if answer is not None:
                peer.sendall(json.dumps(answer).encode() + b"\n")


def answer_line(line: bytes, offer: Offer) -> dict[str, Any] | None:
    """Return the answer to a line; None for a notification, and for what is no message."""
    asked = parse_incoming(line)
    return render_answer(asked, _answer(asked.method, asked.params, offer)) if isinstance(asked, Question) else None


def _answer(method: str, params: Mapping[str, Any], offer: Offer) -> dict[str, Any] | None:
    """Return the result; None for a method that is not known: clients hang on an empty result."""
    match method:
        case "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if isinstance(version, str) else _VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": _NAME, "version": "1"},
                "instructions": f"relay's tools: {', '.join(tool.name for tool in offer.tools)}.",
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [_render(tool) for tool in offer.tools]}
        case "tools/call":
            return _call(params, offer)
        case _:
            return None


def _render(tool: ToolSpec) -> dict[str, Any]:
    # The mark keeps an agent that hides tools behind a search from hiding these.
    shown = {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
    return {**shown, "_meta": {"anthropic/alwaysLoad": True}}


def _call(params: Mapping[str, Any], offer: Offer) -> dict[str, Any]:
    name, given = params.get("name"), params.get("arguments")
    if all(tool.name != name for tool in offer.tools):
        known = ", ".join(tool.name for tool in offer.tools)
        return _say(f"There is no tool {str(name)[:100]!r}. Tools: {known}.", is_error=True)
    call = ToolCall(id="", name=str(name), input=given if isinstance(given, dict) else {})
    key = hashlib.sha256(json.dumps([call.name, call.input], sort_keys=True).encode()).hexdigest()
    answer = offer.late.pop(key, None)
    if answer is None:
        called = Called(call=call)
        if not offer.tell(called):
            return _say(LATE, is_error=False)
        answer = called.answer
    try:
        result = answer.result(offer.patience_s)
    except TimeoutError:
        for old in list(offer.late)[: max(0, len(offer.late) + 1 - MOST_LATE)]:
            offer.late.pop(old, None)
        offer.late[key] = answer
        return _say(LATE, is_error=False)
    except CancelledError:
        return _say("The session has ended.", is_error=True)
    return _say(result.text, is_error=result.is_error)


def _say(text: str, *, is_error: bool) -> dict[str, Any]:
    clean = text.encode("utf-8", "replace").decode()
    return {"content": [{"type": "text", "text": clean}], "isError": is_error}
