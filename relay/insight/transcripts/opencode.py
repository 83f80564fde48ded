"""Sessions of OpenCode: the SQLite database ``~/.local/share/opencode/opencode.db``, as version 1.18 writes it.

A message is a row of ``message``, its parts are rows of ``part``; both keep their content as JSON. Each step of an
answer ends with a ``step-finish`` part, which has its tokens and the agent's own price. A compaction is a user message
with a ``compaction`` part, answered by the summary; later turns know only the summary. A sub-agent is a session whose
parent is this one. Versions before 1.2 kept files below ``storage/``; those are not read.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from relay.insight.transcripts.conversation import Role
from relay.insight.transcripts.emitter import (
    IMAGE_BYTES,
    MAIN,
    SIDE,
    EventEmitter,
    Loose,
    Reading,
    ToolReply,
    describe_compaction,
    parse_object,
    read_moment,
)
from relay.session.records import LoggedEvent
from relay.session.usage import Usage
from relay.session.values import Shown

TABLES = frozenset({"session", "message", "part"})
MOST_SUBAGENTS = 2_000
_WRITES = frozenset({"edit", "write", "multiedit"})
_QUIET = frozenset(
    {"text", "reasoning", "file", "step-start", "snapshot", "patch", "agent", "subtask", "retry", "compaction"}
)
_MS = 1000


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database for reading only; not even its log is written.

    Raises:
        sqlite3.Error: It is none.
    """
    # Without a write-ahead log nobody is writing: then only the file is opened, and no log is made beside it.
    quiet = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{quiet}", uri=True)
    base.text_factory = lambda text: text.decode("utf-8", "replace")
    base.execute("PRAGMA query_only = 1")
    base.execute("PRAGMA trusted_schema = 0")
    return base


def is_database(path: Path) -> bool:
    """Return whether a file is a database with OpenCode's tables."""
    try:
        with closing(open_database(path)) as base:
            rows = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN (?, ?, ?)", [*TABLES])
            return {str(name) for (name,) in rows} == TABLES
    except sqlite3.Error:
        return False


def list_sessions(path: Path, most: int) -> list[tuple[str, str, str, float]]:
    """Return id, directory, title and time of conversations, the latest first; empty if there is no such database."""
    sql = "SELECT id, directory, title, time_updated FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC"
    try:
        with closing(open_database(path)) as base:
            rows = base.execute(f"{sql} LIMIT ?", [most])
            return [(str(name), str(folder), str(title), _to_seconds(updated)) for name, folder, title, updated in rows]
    except sqlite3.Error:
        return []


class _Messages:
    """Follows a session. Mutable."""

    def __init__(self, emitter: EventEmitter, reading: Reading, phase: str) -> None:
        self._emitter, self._reading, self._phase = emitter, reading, phase
        self._at = 0.0
        self._model = ""
        self._before: int | None = None
        self._role = Role.USER

    def read(self, data: str, parts: Iterator[str], created: float) -> None:
        message = parse_object(data) or Loose()
        self._at = created
        self._model = message.text("modelID") or self._model
        self._role = Role.AGENT
        if message.text("role") != "assistant":
            self._role = Role.USER
            self._take_all(parts)
            self._emitter.last_at = created
        elif message.get("summary") is True:
            self._summarize(parts)
        else:
            self._answer(parts)

    def _summarize(self, parts: Iterator[str]) -> None:
        """Emit the request for a summary as a context of its own, then begin a new context."""
        words = describe_compaction("by OpenCode", self._before, None)
        self._emitter.cut(self._at, words)
        self._role = Role.SUMMARY if self._phase == MAIN else Role.AGENT
        self._emitter.open(self._at, title="request for a summary", reason="", phase=SIDE)
        self._answer(parts)
        self._emitter.open(self._at, title="after a compaction", reason=words, phase=self._phase)

    def _answer(self, parts: Iterator[str]) -> None:
        self._emitter.hold()
        self._take_all(parts)
        self._emitter.release(self._at)

    def _take_all(self, parts: Iterator[str]) -> None:
        for raw in parts:
            part = parse_object(raw) or Loose()
            kind = part.text("type")
            if kind == "text" and part.get("synthetic") is not True:
                self._emitter.say(self._at, self._role, part.text("text"))
            elif kind == "tool":
                self._use(part)
            elif kind == "step-finish":
                self._respond(part)
            elif kind not in _QUIET:
                self._reading.count_unknown(f"part {kind}")

    def _respond(self, counted: Loose) -> None:
        usage = _read_usage(counted.part("tokens"))
        self._before = usage.context_tokens if usage else self._before
        self._emitter.respond(
            self._at, model=self._model, usage=usage, stop="", own_usd=counted.dollars("cost") or None
        )
        self._emitter.hold()  # a further step of the same message

    def _use(self, part: Loose) -> None:
        state, name, call_id = part.part("state"), part.text("tool"), part.text("callID")
        given, took = state.part("input"), state.part("time")
        begun, ended = took.count("start"), took.count("end")
        at = _to_seconds(begun) or self._at
        self._emitter.call(at, call_id, name, given)
        if state.text("status") not in {"completed", "error"}:
            return
        self._at = _to_seconds(ended) or at
        self._emitter.answer(self._at, call_id, _read_result(name, state))


def read_opencode(path: Path, session: str, reading: Reading) -> Iterator[LoggedEvent]:
    """Yield the events of a session and of its sub-agents.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    with closing(open_database(path)) as base:
        row = base.execute("SELECT directory, version, time_created FROM session WHERE id = ?", [session]).fetchone()
        directory, version, created = row or ("", "", 0)
        emitter = EventEmitter(f"OpenCode {version}".strip(), session, str(directory), reading)
        emitter.begin(_to_seconds(created), branch="")
        yield from _follow(base, session, emitter, reading, title="from its beginning", phase=MAIN)
        below = base.execute("SELECT id, title FROM session WHERE parent_id = ? ORDER BY time_created", [session])
        for name, title in below.fetchmany(MOST_SUBAGENTS):
            yield from _follow(base, str(name), emitter, reading, title=f"sub-agent {title}", phase=SIDE)
        emitter.end()
        yield from emitter.take()


def _follow(
    base: sqlite3.Connection, session: str, emitter: EventEmitter, reading: Reading, *, title: str, phase: str
) -> Iterator[LoggedEvent]:
    reader = _Messages(emitter, reading, phase)
    messages = base.execute(
        "SELECT id, CAST(data AS text), time_created FROM message WHERE session_id = ? ORDER BY time_created, id",
        [session],
    )
    is_first = True
    for name, data, created in messages:
        if is_first:
            emitter.open(_to_seconds(created), title=title, reason="", phase=phase)
            is_first = False
        reading.lines += 1
        parts = base.execute("SELECT CAST(data AS text) FROM part WHERE message_id = ? ORDER BY id", [str(name)])
        reader.read(data or "", (part or "" for (part,) in parts), _to_seconds(created))
        yield from emitter.take()
    emitter.close(emitter.last_at)
    yield from emitter.take()


def _to_seconds(moment: Any) -> float:
    return read_moment(moment / _MS if isinstance(moment, int | float) else None)


def _read_usage(tokens: Loose) -> Usage | None:
    """Return the usage; None if it was not counted. OpenCode counts thinking beside the output."""
    cache = tokens.part("cache")
    thinking = tokens.count("reasoning") or 0
    found = Usage(
        input_tokens=tokens.count("input") or 0,
        cache_read_tokens=cache.count("read") or 0,
        cache_write_5m_tokens=cache.count("write") or 0,
        output_tokens=(tokens.count("output") or 0) + thinking,
        thinking_tokens=thinking,
    )
    return found if found.prompt_tokens else None


def _read_result(name: str, state: Loose) -> ToolReply:
    known, given = state.part("metadata"), state.part("input")
    failed = state.text("status") == "error" or bool(known.get("exit"))
    path = given.text("filePath") or known.part("filediff").text("file")
    changed: tuple[str, ...] | None = None
    if path:
        changed = (path,) if name in _WRITES and not failed else ()
    return ToolReply(
        text=state.text("output") or state.text("error"),
        is_error=failed,
        extra_bytes=len(state.parts("attachments")) * IMAGE_BYTES,
        changed=changed,
        shown=_find_shown(known.part("display")),
    )


def _find_shown(display: Loose) -> Shown | None:
    path, first, last = display.text("path"), display.count("lineStart"), display.count("lineEnd")
    if not path or first is None or last is None or display.text("type") != "file":
        return None
    return Shown(path=path, first_line=first, last_line=last)
