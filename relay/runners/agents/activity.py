"""What an agent does, as events: its words, and its tools from their beginning to their end."""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.base.words import count
from relay.runners.agents.acp import Text, ToolUpdate, Update
from relay.runners.turns import render_summary, show_tool_end, show_tool_start
from relay.session.events import Noticed, Observe, TextShown, ToolStarted
from relay.session.values import ToolCall, ToolResult

MOST_CHARS = 100_000
"""Of what is said, and of what is thought, between two boundaries: the rest is counted."""
MOST_TOOLS = 500
"""Calls that are followed at a time; updates of further ones are counted."""

_NAME = re.compile(r"([\w.-]{1,60})(?:: .*| · .*)?", re.DOTALL)
"""A title that is a name, or begins with one: ``run_commands: make``. Others say what is done: ``Editing files``."""
_LOOKING = frozenset({"read", "search", "fetch", "think"})
"""Kinds of tools that change nothing."""


@dataclass(slots=True, kw_only=True)
class _Words:
    """What the model says, until it is shown. Mutable: it comes piece by piece."""

    thinking: bool
    pieces: list[str] = field(default_factory=list)
    room: int = MOST_CHARS
    """Characters that are still kept before the next boundary."""
    more: int = 0
    """Characters that were not."""

    def add(self, text: str) -> bool:
        """Keep what there is room for; say whether that is anything."""
        kept = text[: self.room]
        self.pieces.append(kept)
        self.room -= len(kept)
        self.more += len(text) - len(kept)
        return bool(kept)

    def take(self) -> str:
        """Return what was kept since the last call."""
        text = "".join(self.pieces).strip()
        self.pieces.clear()
        return text


@dataclass(slots=True, kw_only=True)
class _Tool:
    """One call of a tool of the agent's. Mutable: its updates come one by one."""

    told: ToolUpdate
    """All that they said by now."""
    shown: bool = False
    late: bool = False
    """A boundary has passed since it began: its end is told after it, if at all."""
    begun: float = field(default_factory=time.monotonic)

    @property
    def started(self) -> ToolStarted:
        """With one line for a person: the title where it says more than the name, else what it was given."""
        told = self.told
        said = told.title if told.title and told.title != told.name else _find_text(told.input)
        return ToolStarted(call_id=told.id, name=told.name or "tool", summary=render_summary(said))


def _compile(names: Iterable[str]) -> re.Pattern[str]:
    """Match relay's tools in the names that agents give them: ``mcp__relay__tick``, ``relay: tick``, ``relay_tick``."""
    words = "|".join(map(re.escape, names)) or "(?!)"
    return re.compile(rf"(?:mcp[\W_]*)?(?:relay[\W_]*)?(?:{words})(?: \(relay MCP Server\))?", re.IGNORECASE)


def _find_text(given: str) -> str:
    try:
        found = json.loads(given)
    except ValueError:
        return ""  # it was cut
    return next((value for value in found.values() if isinstance(value, str)), "") if isinstance(found, dict) else ""


class AgentActivity:
    """Turns updates into events. Mutable: knows the tools that run.

    Args:
        observe: Told of them.
        root: The repository; paths of events are relative to it.
        own: Names of the tools that are relay's, which are shown when they run.
    """

    def __init__(self, observe: Observe, root: Path, own: Iterable[str]) -> None:
        self._own = _compile(own)
        self._observe = observe
        self._root = root
        self._tools: dict[str, _Tool] = {}
        self._over: dict[str, None] = {}
        self._more = 0
        """Updates of calls that are not followed."""
        self._is_told = False
        self._words = {thinking: _Words(thinking=thinking) for thinking in (True, False)}
        self.last_text = ""
        """What the model said last."""

    @property
    def is_busy(self) -> bool:
        """Whether a tool runs."""
        return any(not tool.told.ended for tool in self._tools.values())

    def take(self, update: Update) -> bool:
        """Take an update in; say whether it tells anything new."""
        if isinstance(update, Text):
            return self._words[update.thinking].add(update.text)
        if update.id in self._over:
            return False
        if update.id not in self._tools and len(self._tools) >= MOST_TOOLS:
            self._more += 1
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
        """Return the name that a title says; else the kind of tool, empty where that is not told."""
        title = update.title.strip()
        if self._own.fullmatch(title):
            return title
        found = _NAME.fullmatch(title)
        return found[1] if found else update.kind

    def begin_turn(self) -> tuple[tuple[ToolCall, ToolResult], ...] | None:
        """Show what the last turn said and did, at the boundary where all of its tools have ended.

        Returns:
            The calls that are over now: agents tell that a tool has ended just before the boundary, or after it.
            None when there was no sign of any tool.
        """
        self._flush()
        self._tell_more()
        seen, self._is_told = self._is_told, False
        over = [tool for tool in self._tools.values() if tool.told.ended or tool.late]
        for tool in self._tools.values():
            tool.late = True
        for tool in over:
            del self._tools[tool.told.id]
        self._over = dict.fromkeys((*self._over, *(tool.told.id for tool in over))[-2 * MOST_TOOLS :])
        return tuple(self._finish(tool) for tool in over if not self._is_own(tool)) if seen or over else None

    def close(self) -> None:
        """Show the rest, when nothing more is going to come."""
        for _ in range(2):
            self.begin_turn()

    def _finish(self, tool: _Tool) -> tuple[ToolCall, ToolResult]:
        told = tool.told
        call = ToolCall(id=told.id, name=told.name or "tool", input={"title": told.title, "input": told.input})
        if not tool.shown:
            self._observe(tool.started)
        result = ToolResult(text=told.result, is_error=told.failed, changed_paths=self._find_changed(told))
        show_tool_end(self._observe, call, result, duration_s=time.monotonic() - tool.begun)
        return call, result

    def _find_changed(self, told: ToolUpdate) -> tuple[str, ...] | None:
        if told.kind in _LOOKING:
            return ()
        if told.kind != "edit":
            return None
        places = (self._root / path for path in told.paths)
        return tuple(str(place.relative_to(self._root)) for place in places if place.is_relative_to(self._root)) or None

    def _flush(self) -> None:
        for words in self._words.values():
            if text := words.take():
                self._observe(TextShown(text=text, thinking=words.thinking))
                self.last_text = self.last_text if words.thinking else text

    def _tell_more(self) -> None:
        """Say how much there was that is not shown, and begin to count anew."""
        for words in self._words.values():
            if words.more:
                self._observe(TextShown(text=f"… {words.more:,} more characters", thinking=words.thinking))
            words.room, words.more = MOST_CHARS, 0
        if self._more:
            self._observe(Noticed(text=f"… {count(self._more, 'more update')} of its tools, which are not shown"))
        self._more = 0

    def run_own(self, call: ToolCall, run: Any) -> ToolResult:
        """Run a tool of relay's, and show it."""
        begun = time.monotonic()
        show_tool_start(self._observe, call)
        result: ToolResult = run(call)
        show_tool_end(self._observe, call, result, duration_s=time.monotonic() - begun)
        return result
