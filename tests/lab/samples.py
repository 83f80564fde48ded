"""Small transcripts, made here line by line, with no text of anybody else's.

Their shape is what Claude Code 2.1.316, Codex 0.166.0 and OpenCode 1.18.33 wrote against the rehearsal server (Codex:
against a scripted Responses endpoint) on 22 November 2026; where an older shape is meant, the test says so.
"""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CWD = "/home/me/x"
MODEL = "claude-sonnet-4-5"
SESSION = "0c0ffee0-0000-4000-8000-000000000001"
BEGAN = 1_795_334_400.0
"""22 November 2026, 08:00 UTC."""


def show_time(second: float) -> str:
    """Write a moment so many seconds after the beginning, as both agents do."""
    return datetime.fromtimestamp(BEGAN + second, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_lines(path: Path, *lines: Any) -> Path:
    """Write objects as lines of JSON, texts as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def entry(kind: str, second: float, **more: Any) -> dict[str, Any]:
    """Make an entry of Claude Code."""
    base = {"parentUuid": "p", "isSidechain": False, "type": kind, "uuid": "u", "timestamp": show_time(second)}
    return {**base, "cwd": CWD, "sessionId": SESSION, "version": "2.1.316", "gitBranch": "main", **more}


def ask(second: float, text: Any = "go on", **more: Any) -> dict[str, Any]:
    """Make a prompt of the user's."""
    return entry("user", second, message={"role": "user", "content": text}, **more)


def say(second: float, name: str, prompt: int, *blocks: Any, read: int = 0, output: int = 10, **more: Any) -> Any:
    """Make a line of an answer; all but `read` tokens of the prompt were written to the cache."""
    usage = {"input_tokens": 0, "cache_read_input_tokens": read, "cache_creation_input_tokens": prompt - read}
    usage |= {"output_tokens": output}
    message = {"id": name, "role": "assistant", "model": MODEL, "content": list(blocks), "usage": usage}
    return entry("assistant", second, message={**message, "stop_reason": "tool_use"}, **more)


def call(call_id: str, tool: str, **given: Any) -> dict[str, Any]:
    """Make a block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": tool, "input": given}


def answer(second: float, call_id: str, text: Any, details: Any = None, **more: Any) -> dict[str, Any]:
    """Make the answer of a tool."""
    failed = {"is_error": more.pop("is_error")} if "is_error" in more else {}
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text, **failed}
    return entry(
        "user", second, message={"role": "user", "content": [block]}, toolUseResult=details or {"stdout": text}, **more
    )


def file_read(path: str, first: int, lines: int) -> dict[str, Any]:
    """Make what Claude Code keeps of a read."""
    return {"type": "text", "file": {"filePath": path, "startLine": first, "numLines": lines, "totalLines": 99}}


def file_edit(path: str) -> dict[str, Any]:
    """Make what Claude Code keeps of an edit."""
    return {"filePath": path, "oldString": "a", "newString": "b", "structuredPatch": []}


def boundary(second: float, before: int, after: int, how: str = "auto") -> dict[str, Any]:
    """Make the mark of a compaction."""
    found = {"trigger": how, "preTokens": before, "postTokens": after}
    return entry("system", second, subtype="compact_boundary", parentUuid=None, compactMetadata=found)


def line(kind: str, second: float, **payload: Any) -> dict[str, Any]:
    """Make a line of Codex."""
    return {"timestamp": show_time(second), "type": kind, "payload": payload}


def meta(**more: Any) -> dict[str, Any]:
    """Make the head of a transcript of Codex."""
    return line("session_meta", 0, id=SESSION, cwd=CWD, cli_version="0.166.0", git={"branch": "main"}, **more)


def counts(prompt: int, cached: int, output: int, thinking: int = 0) -> dict[str, Any]:
    """Make Codex' counts of an answer: its input has what came from the cache in it."""
    return {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": 0,
        "output_tokens": output,
        "reasoning_output_tokens": thinking,
        "total_tokens": prompt + output,
    }


class Base:
    """A database as OpenCode has it, with the columns that are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._numbers = iter(range(1, 10_000))
        with closing(sqlite3.connect(path)) as base:
            base.executescript(
                "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, title text, version text,"
                " time_created integer, time_updated integer);"
                "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);"
                "CREATE TABLE part (id text PRIMARY KEY, message_id text, data text);"
            )

    def _put(self, sql: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as base, base:
            base.execute(sql, values)

    def add_session(self, name: str, parent: str | None = None, second: float = 0, cwd: str = CWD) -> None:
        """Add a conversation."""
        at = int((BEGAN + second) * 1000)
        self._put("INSERT INTO session VALUES (?, ?, ?, ?, '1.18.33', ?, ?)", name, parent, cwd, "keys", at, at)

    def add(self, session: str, second: float, message: dict[str, Any], *parts: Any) -> None:
        """Add a message and its parts; a text is put in as it is."""
        name, at = f"msg_{next(self._numbers):05}", int((BEGAN + second) * 1000)
        self._put("INSERT INTO message VALUES (?, ?, ?, ?)", name, session, at, json.dumps(message))
        for part in parts:
            data = part if isinstance(part, str) else json.dumps(part)
            self._put("INSERT INTO part VALUES (?, ?, ?)", f"prt_{next(self._numbers):05}", name, data)


def tokens(prompt: int, read: int, output: int, thinking: int = 0) -> dict[str, Any]:
    """Make OpenCode's counts of a step."""
    return {"input": 0, "output": output, "reasoning": thinking, "cache": {"write": prompt - read, "read": read}}


def finish(prompt: int, read: int, output: int, cost: float = 0.0, thinking: int = 0) -> dict[str, Any]:
    """Make the end of a step."""
    return {"type": "step-finish", "tokens": tokens(prompt, read, output, thinking), "cost": cost}


def tool(name: str, second: float, output: str = "done", status: str = "completed", **more: Any) -> dict[str, Any]:
    """Make a tool's call and answer; `metadata` aside, the rest is its input."""
    at = int((BEGAN + second) * 1000)
    state = {"status": status, "input": {k: v for k, v in more.items() if k != "metadata"}, "output": output}
    state |= {"metadata": more.get("metadata", {}), "time": {"start": at, "end": at + 500}}
    return {"type": "tool", "tool": name, "callID": f"call{second}{name}", "state": state}
