"""What relay says and understands of the Agent Client Protocol, version 1. Pure.

Six methods: initialize, session/new, session/set_mode, session/prompt, session/cancel, and the answer to
session/request_permission. What else there is, relay does not need; kinds of updates that it does not know are nothing
to it.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relay.base.values import dataclass
from relay.runners.agents.wire import dig
from relay.session.usage import Usage

VERSION = 1
_TEXTS = {"agent_message_chunk": False, "agent_thought_chunk": True}
_ENDED = frozenset({"completed", "failed"})
_CLASSES = ("inputTokens", "cachedReadTokens", "cachedWriteTokens", "outputTokens")
_SHOWN_CHARS = 20_000
"""Of a tool's result: it is compared with others and counted, no more."""
_FIELD_CHARS = 1_000
_MOST_PATHS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of what the model says."""

    text: str
    thinking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    """What is known of a tool call; empty for what this update does not say."""

    id: str
    name: str = ""
    title: str = ""
    kind: str = ""
    input: str = ""
    """As JSON."""
    result: str = ""
    paths: tuple[str, ...] = ()
    """As the agent gives them."""
    pending: bool = False
    """It has not begun; more of its input may come."""
    ended: bool = False
    failed: bool = False

    def add(self, later: "ToolUpdate") -> "ToolUpdate":
        """Return what both say; the later one counts, but for the name, which is the first that was told."""
        parts = ("title", "kind", "input", "result", "paths", "ended", "failed")
        known = {part: getattr(later, part) or getattr(self, part) for part in parts}
        return replace(later, name=self.name or later.name, **known)


Update = Text | ToolUpdate


def make_initialize() -> dict[str, Any]:
    """Return the first question: relay offers neither files nor terminals, the agent has its own in its sandbox."""
    return {
        "protocolVersion": VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "relay", "title": "relay", "version": "1"},
    }


def make_prompt(session_id: str, text: str) -> dict[str, Any]:
    """Return a prompt, or a text that is steered in."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def takes_system(initialized: Mapping[str, Any]) -> bool:
    """Say whether session/new takes a system prompt."""
    return isinstance(dig(initialized, "agentCapabilities.sessionCapabilities.systemPrompt"), dict)


def make_system(text: str) -> dict[str, Any]:
    """Return the part of session/new that is put behind the agent's own system prompt."""
    return {"systemPrompt": {"mode": "append", "content": [{"type": "text", "text": text}]}}


def find_version(initialized: Mapping[str, Any]) -> str:
    """Return what the agent says of its version; empty when it says nothing usable."""
    found = dig(initialized, "agentInfo.version")
    return found[:40] if isinstance(found, str) and found.isprintable() else ""


def has_mode(opened: Mapping[str, Any], mode: str) -> bool:
    """Say whether a session has a mode of this name."""
    modes = dig(opened, "modes.availableModes")
    known = modes if isinstance(modes, list) else []
    return any(isinstance(found, dict) and found.get("id") == mode for found in known)


def choose_option(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a permission: this once. By the option's kind: names and order differ.

    Never for always, which changes files of settings. The sandbox holds whatever is allowed here.
    """
    options = params.get("options")
    known = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    chosen = next((option.get("optionId") for option in known if option.get("kind") == "allow_once"), None)
    if chosen is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": chosen}}


def read_update(params: Mapping[str, Any]) -> Update | None:
    """Return what an update says; None for what relay does not know or need."""
    update = params.get("update")
    if not isinstance(update, dict):
        return None
    kind = _find_text(update, "sessionUpdate")
    if kind in _TEXTS:
        text = dig(update, "content.text")
        return Text(text=text, thinking=_TEXTS[kind]) if isinstance(text, str) and text else None
    if kind in {"tool_call", "tool_call_update"} and _find_text(update, "toolCallId"):
        return _read_tool(update)
    return None


def read_fill(params: Mapping[str, Any]) -> int | None:
    """Return how full an update says that the context is, in tokens; None for any other update."""
    update = params.get("update")
    used = update.get("used") if isinstance(update, dict) and update.get("sessionUpdate") == "usage_update" else None
    return used if type(used) is int and used >= 0 else None


def read_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return what the answer to a prompt says was used; None when it says nothing usable."""
    found = answer.get("usage")
    if not isinstance(found, dict):
        return None
    counts = [int(count) for name in _CLASSES if type(count := found.get(name, 0)) is int and count >= 0]
    if len(counts) < len(_CLASSES) or not any(counts):
        return None
    fresh, read, written, output = counts
    return Usage(input_tokens=fresh, cache_read_tokens=read, cache_write_5m_tokens=written, output_tokens=output)


def _read_tool(update: Mapping[str, Any]) -> ToolUpdate:
    given, status = update.get("rawInput"), _find_text(update, "status")
    return ToolUpdate(
        id=_find_text(update, "toolCallId"),
        name=_find_text(update, "name"),
        title=_find_text(update, "title"),
        kind=_find_text(update, "kind"),
        input=_render(given) if given else "",
        result=_render([update.get("rawOutput"), update.get("content")]) if status in _ENDED else "",
        paths=tuple(_find_paths(update)),
        pending=status == "pending",
        ended=status in _ENDED,
        failed=status == "failed",
    )


def _find_paths(update: Mapping[str, Any]) -> list[str]:
    places = [update.get("locations"), update.get("content")]
    entries = [entry for place in places if isinstance(place, list) for entry in place if isinstance(entry, dict)]
    found = (entry.get("path") for entry in entries)
    usable = (path for path in found if isinstance(path, str) and 0 < len(path) <= _FIELD_CHARS)
    return list(dict.fromkeys(usable))[:_MOST_PATHS]


def _find_text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    return value[:_FIELD_CHARS] if isinstance(value, str) else ""


def _render(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)[:_SHOWN_CHARS]
