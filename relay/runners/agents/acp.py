"""What relay and an agent say to each other: the Agent Client Protocol, version 1, and relay's own tools as MCP.

relay needs six methods of the Agent Client Protocol: initialize, session/new, session/set_mode, session/prompt,
session/cancel, and the answer to session/request_permission. It ignores kinds of updates that it does not know.
`AgentActivity` turns an agent's actions into events.

relay's tools are offered by the Model Context Protocol on a Unix socket, one message in a line. The agent starts
`BRIDGE`, which connects its standard streams to the socket. The official SDK was weighed: it brings pydantic, anyio and
an ASGI server, speaks no Unix sockets, and relay would use four of its methods.
"""

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from relay.base.jsonrpc import MAX_LINE_BYTES, Question, dig, parse_incoming, render_answer, split_lines
from relay.base.values import dataclass
from relay.runners.base import ToolLog, render_summary
from relay.session.events import Observe, TextShown, ToolStarted
from relay.session.usage import Usage
from relay.session.values import ToolCall, ToolResult, ToolSpec

VERSION = 1
_TEXTS = {"agent_message_chunk": False, "agent_thought_chunk": True}
_ENDED = frozenset({"completed", "failed"})
_CLASSES = ("inputTokens", "cachedReadTokens", "cachedWriteTokens", "outputTokens")
_SHOWN_CHARS = 20_000
"""Longest part of a tool's result that relay keeps: it is only compared and counted."""
_FIELD_CHARS = 1_000
_MOST_PATHS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of the model's text."""

    text: str
    thinking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    """What one update, or all so far, says about a tool call; empty for what it does not say."""

    id: str
    name: str = ""
    title: str = ""
    kind: str = ""
    input: str = ""
    """As JSON."""
    result: str = ""
    paths: tuple[str, ...] = ()
    """As the agent writes them."""
    pending: bool = False
    """The call has not begun; more of its input may come."""
    ended: bool = False
    failed: bool = False

    def add(self, later: "ToolUpdate") -> "ToolUpdate":
        """Return both updates as one. The later one takes precedence, except for the name."""
        parts = ("title", "kind", "input", "result", "paths", "ended", "failed")
        known = {part: getattr(later, part) or getattr(self, part) for part in parts}
        return replace(later, name=self.name or later.name, **known)


Update = Text | ToolUpdate


INITIALIZE: dict[str, Any] = {
    "protocolVersion": VERSION,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "relay", "title": "relay", "version": "1"},
}
"""The first request: relay offers neither files nor terminals; the agent has its own in its sandbox."""


def make_system(initialized: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the parameter of session/new that extends the agent's own system prompt; empty if it takes none."""
    if not isinstance(dig(initialized, "agentCapabilities.sessionCapabilities.systemPrompt"), dict):
        return {}
    return {"systemPrompt": {"mode": "append", "content": [{"type": "text", "text": text}]}}


def find_version(initialized: Mapping[str, Any]) -> str:
    """Return the agent's version; empty if it gives no usable one."""
    found = dig(initialized, "agentInfo.version")
    return found[:40] if isinstance(found, str) and found.isprintable() else ""


def has_mode(opened: Mapping[str, Any], mode: str) -> bool:
    """Return whether a session has a mode of this name."""
    modes = dig(opened, "modes.availableModes")
    known = modes if isinstance(modes, list) else []
    return any(isinstance(found, dict) and found.get("id") == mode for found in known)


def choose_option(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a permission request: allow once. It goes by the option's kind: names and order differ.

    Never "always", which changes settings files. The sandbox confines what is allowed here.
    """
    options = params.get("options")
    known = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    chosen = next((option.get("optionId") for option in known if option.get("kind") == "allow_once"), None)
    if chosen is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": chosen}}


def read_update(params: Mapping[str, Any]) -> Update | None:
    """Return what an update says; None if relay does not know or need it."""
    update = params.get("update")
    if not isinstance(update, dict):
        return None
    kind = _find_field(update, "sessionUpdate")
    if kind in _TEXTS:
        text = dig(update, "content.text")
        return Text(text=text, thinking=_TEXTS[kind]) if isinstance(text, str) and text else None
    if kind in {"tool_call", "tool_call_update"} and _find_field(update, "toolCallId"):
        return _read_tool(update)
    return None


def read_fill(params: Mapping[str, Any]) -> int | None:
    """Return the context's fill in tokens, from an update of that kind; else None."""
    update = params.get("update")
    used = update.get("used") if isinstance(update, dict) and update.get("sessionUpdate") == "usage_update" else None
    return used if type(used) is int and used >= 0 else None


def read_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the usage in the answer to a prompt; None if there is no usable one."""
    found = answer.get("usage")
    if not isinstance(found, dict):
        return None
    counts = [int(count) for name in _CLASSES if type(count := found.get(name, 0)) is int and count >= 0]
    if len(counts) < len(_CLASSES) or not any(counts):
        return None
    fresh, read, written, output = counts
    return Usage(input_tokens=fresh, cache_read_tokens=read, cache_write_5m_tokens=written, output_tokens=output)


def _read_tool(update: Mapping[str, Any]) -> ToolUpdate:
    given, status = update.get("rawInput"), _find_field(update, "status")
    places = [update.get("locations"), update.get("content")]
    entries = [entry for place in places if isinstance(place, list) for entry in place if isinstance(entry, dict)]
    found = (entry.get("path") for entry in entries)
    usable = (path for path in found if isinstance(path, str) and 0 < len(path) <= _FIELD_CHARS)
    return ToolUpdate(
        id=_find_field(update, "toolCallId"),
        name=_find_field(update, "name"),
        title=_find_field(update, "title"),
        kind=_find_field(update, "kind"),
        input=_render(given) if given else "",
        result=_render_result(update.get("rawOutput"), update.get("content")) if status in _ENDED else "",
        paths=tuple(dict.fromkeys(usable))[:_MOST_PATHS],
        pending=status == "pending",
        ended=status in _ENDED,
        failed=status == "failed",
    )


def _find_field(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    return value[:_FIELD_CHARS] if isinstance(value, str) else ""


def _render_result(raw: Any, content: Any) -> str:
    """Return what a tool answered as its text; as JSON if there is none."""
    entries = content if isinstance(content, list) else []
    texts = (
        [raw] if isinstance(raw, str) else [dig(entry, "content.text") for entry in entries if isinstance(entry, dict)]
    )
    said = "\n".join(text for text in texts if isinstance(text, str) and text)
    return said[:_SHOWN_CHARS] or _render([raw, content])


def _render(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)[:_SHOWN_CHARS]


MOST_CHARS = 100_000
"""Longest text, and longest thinking, that is shown between two boundaries; the rest is left out."""
MOST_TOOLS = 500
"""Calls that are followed at a time; further ones are left out."""

_NAME = re.compile(r"([\w.-]{1,60})(?:: .*| · .*)?", re.DOTALL)
"""A title that is a name, or begins with one: ``run_commands: make``. Other titles say what is done: ``Editing
files``."""
_LOOKING = frozenset({"read", "search", "fetch", "think"})
"""Kinds of tools that change nothing."""


@dataclass(slots=True, kw_only=True)
class _Tool:
    """One tool call of the agent. Mutable: its updates come one by one."""

    told: ToolUpdate
    """All updates so far."""
    shown: bool = False
    late: bool = False
    """A boundary has passed since the call began, so its end, if it comes, is reported after it."""
    begun: float = field(default_factory=time.monotonic)

    @property
    def started(self) -> ToolStarted:
        """The event, with a one-line summary: the title if it says more than the name, else the input's text."""
        told = self.told
        said = told.title if told.title and told.title != told.name else _find_text(told.input)
        if told.kind != "execute":
            said = said.removeprefix(f"{told.name} ")  # ``Read src/a.py``
        return ToolStarted(call_id=told.id, name=told.name or "tool", summary=render_summary(said))


def _find_text(given: str) -> str:
    try:
        found = json.loads(given)
    except ValueError:
        return ""  # the input was cut
    return next((value for value in found.values() if isinstance(value, str)), "") if isinstance(found, dict) else ""


class AgentActivity:
    """Turns an agent's updates into events. Mutable: knows the running tools.

    Args:
        observe: Receives the events.
        root: The repository; paths of events are relative to it.
        own: Names of relay's own tools, which are shown when they run.
        preloads: As in `SessionSpec`.
    """

    def __init__(
        self, observe: Observe, root: Path, own: Iterable[str], preloads: Sequence[tuple[str, str]] = ()
    ) -> None:
        # Agents give relay's tools names of theirs: ``mcp__relay__tick``, ``relay: tick``.
        words = "|".join(map(re.escape, own)) or "(?!)"
        self._own = re.compile(rf"(?:mcp[\W_]*)?(?:relay[\W_]*)?(?:{words})(?: \(relay MCP Server\))?", re.IGNORECASE)
        self._observe = observe
        self._log = ToolLog(observe, preloads)
        self._root = root
        self._tools: dict[str, _Tool] = {}
        self._over: dict[str, None] = {}
        self._is_told = False
        self._pieces: dict[bool, list[str]] = {True: [], False: []}
        """The model's thinking and its text, until they are shown."""
        self._room = dict.fromkeys(self._pieces, MOST_CHARS)
        """How many more characters of both are kept before the next boundary."""
        self.last_text = ""
        """The model's last text."""

    @property
    def is_busy(self) -> bool:
        """Whether a tool runs."""
        return any(not tool.told.ended for tool in self._tools.values())

    def take(self, update: Update) -> bool:
        """Take an update; return whether it brings news."""
        if isinstance(update, Text):
            kept = update.text[: self._room[update.thinking]]
            self._pieces[update.thinking].append(kept)
            self._room[update.thinking] -= len(kept)
            return bool(kept)
        if update.id in self._over or (update.id not in self._tools and len(self._tools) >= MOST_TOOLS):
            return False
        self._flush()
        self._is_told = True
        tool = self._tools.setdefault(update.id, _Tool(told=ToolUpdate(id=update.id)))
        before = tool.told
        told = tool.told = before.add(replace(update, name=update.name or self._find_name(update)))
        if not self._is_own(tool) and not tool.shown and (told.input or told.ended) and not update.pending:
            tool.shown = True
            self._observe(tool.started)
        return told != before

    def _is_own(self, tool: _Tool) -> bool:
        return self._own.fullmatch(tool.told.name) is not None

    def _find_name(self, update: ToolUpdate) -> str:
        """Return the name in a title; else the kind of tool, which may be empty."""
        title = update.title.strip()
        if self._own.fullmatch(title):
            return title
        found = _NAME.fullmatch(title)
        return found[1] if found else update.kind

    def begin_turn(self) -> tuple[tuple[ToolCall, ToolResult], ...] | None:
        """Show the text and the tools of the last turn, at the boundary where all its tools have ended.

        Returns:
            The calls that are over now: agents report a tool's end just before the boundary, or after it. None if no
            tool was seen.
        """
        self._flush()
        self._room = dict.fromkeys(self._pieces, MOST_CHARS)
        seen, self._is_told = self._is_told, False
        over = [tool for tool in self._tools.values() if tool.told.ended or tool.late]
        for tool in self._tools.values():
            tool.late = True
        for tool in over:
            del self._tools[tool.told.id]
        self._over = dict.fromkeys((*self._over, *(tool.told.id for tool in over))[-2 * MOST_TOOLS :])
        return tuple(self._finish(tool) for tool in over if not self._is_own(tool)) if seen or over else None

    def close(self) -> None:
        """Show the rest, when nothing more will come."""
        for _ in range(2):
            self.begin_turn()

    def _finish(self, tool: _Tool) -> tuple[ToolCall, ToolResult]:
        told = tool.told
        call = ToolCall(id=told.id, name=told.name or "tool", input={"title": told.title, "input": told.input})
        if not tool.shown:
            self._observe(tool.started)
        changed = self._find_changed(told)
        result = ToolResult(text=told.result, is_error=told.failed, changed_paths=changed, cut_bytes=None)
        self._log.end(call, result, duration_s=time.monotonic() - tool.begun)
        return call, result

    def _find_changed(self, told: ToolUpdate) -> tuple[str, ...] | None:
        if told.kind in _LOOKING:
            return ()
        if told.kind != "edit" or told.failed:
            return None
        places = (Path(os.path.normpath(self._root / path)) for path in told.paths)
        return tuple(str(place.relative_to(self._root)) for place in places if place.is_relative_to(self._root)) or None

    def _flush(self) -> None:
        for thinking, pieces in self._pieces.items():
            if text := "".join(pieces).strip():
                self._observe(TextShown(text=text, thinking=thinking))
                self.last_text = self.last_text if thinking else text
            pieces.clear()

    def run_own(self, call: ToolCall, run: Any) -> ToolResult:
        """Run one of relay's tools, and show it."""
        begun = time.monotonic()
        self._log.start(call)
        result: ToolResult = run(call)
        self._log.end(call, result, duration_s=time.monotonic() - begun)
        return result


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
"""The server's command for the agent: ``python -I -S -c BRIDGE SOCKET``."""
MOST_CONNECTIONS = 16
MOST_LATE = 32
"""Unanswered calls that are remembered; an agent has one or two."""
PATIENCE_S = 45.0
"""How long a call waits for its result. Codex, Cline and all clients of the official TypeScript SDK give a call up
after 60 seconds by default; a person, or a server of the user's, may take longer."""
LATE = "There is no result yet. Call it again with exactly the same input: that waits on for it, nothing is done twice."
_VERSION = "2025-06-18"

_THEIRS = frozenset({"read", "edit", "write", "bash"})
"""Tools of a session that every agent has of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of one of relay's tools, which waits for its result."""

    call: ToolCall
    answer: "Future[ToolResult]" = field(default_factory=Future)


@dataclass(slots=True, kw_only=True)
class Offer:
    """The tools that relay offers. Mutable: keeps unanswered calls."""

    tools: tuple[ToolSpec, ...]
    tell: Callable[[Called], bool]
    """Called with each call, on the connection's thread. False: the run is too busy to take it."""
    patience_s: float = PATIENCE_S
    late: "dict[str, Future[ToolResult]]" = field(default_factory=dict)
    """Results of calls that were answered with `LATE`, by a hash of name and input: the same call again takes the
    result."""


def choose_offered(tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the session's tools that an agent does not have itself."""
    return tuple(tool for tool in tools if tool.name not in _THEIRS)


def serve_tools(offer: Offer, peer: socket.socket) -> None:
    """Answer on a connection until the agent closes its end, or sends a line that is too long."""
    with peer.makefile("rb") as stream:
        for line in split_lines(stream):
            if len(line) >= MAX_LINE_BYTES:
                return
            answer = answer_line(line, offer)
            if answer is not None:
                peer.sendall(json.dumps(answer).encode() + b"\n")


def answer_line(line: bytes, offer: Offer) -> dict[str, Any] | None:
    """Return the answer to a line; None for a notification, and for a line that is no message."""
    asked = parse_incoming(line)
    return render_answer(asked, _answer(asked.method, asked.params, offer)) if isinstance(asked, Question) else None


def _answer(method: str, params: Mapping[str, Any], offer: Offer) -> dict[str, Any] | None:
    """Return the result; None for an unknown method: clients hang on an empty result."""
    match method:
        case "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if isinstance(version, str) else _VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "relay", "version": "1"},
                "instructions": f"relay's tools: {', '.join(tool.name for tool in offer.tools)}.",
            }
        case "ping":
            return {}
        case "tools/list":
            # The mark keeps an agent that hides tools behind a search from hiding relay's.
            mark = {"_meta": {"anthropic/alwaysLoad": True}}
            return {
                "tools": [
                    {"name": one.name, "description": one.description, "inputSchema": dict(one.input_schema), **mark}
                    for one in offer.tools
                ]
            }
        case "tools/call":
            return _call(params, offer)
        case _:
            return None


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
    return {"content": [{"type": "text", "text": text.encode("utf-8", "replace").decode()}], "isError": is_error}
