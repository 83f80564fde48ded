"""Transcripts of Codex: JSON lines below ``~/.codex/sessions/``, as versions up to 0.166 write them.

Each line is ``{timestamp, type, payload}``. An answer's usage comes after its calls, as ``token_usage_record`` or, in
older versions, as ``event_msg`` / ``token_count``, which is also repeated without a new answer. Cumulative counts
(``total_token_usage``) are never the size of a context. Edits and exit codes come as events of their own before the
result. Sub-agents have transcripts of their own.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.insight.transcripts.conversation import Role
from relay.insight.transcripts.emitter import (
    IMAGE_BYTES,
    EventEmitter,
    Loose,
    Reading,
    ToolReply,
    describe_compaction,
    find_head,
    parse_object,
    parse_time,
    read_lines,
)
from relay.session.events import SizedPart
from relay.session.records import LoggedEvent
from relay.session.usage import Usage, estimate_size_tokens

MOST_DETAILS = 1_000
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.{1,1000})$", re.MULTILINE)
_EXIT = re.compile(r"(?:exited with code|Exit code:?) (-?\d{1,4})")
_QUIET = frozenset({"world_state", "ghost_snapshot", "response_item_metadata"})


@dataclass(slots=True, kw_only=True)
class _Details:
    """Facts about a call from events before its result. Mutable: there may be several."""

    exit_code: int | None = None
    duration_s: float | None = None
    changed: tuple[str, ...] | None = None


class _Thread:
    """Follows a thread. Mutable."""

    def __init__(self, emitter: EventEmitter, reading: Reading) -> None:
        self._emitter, self._reading = emitter, reading
        self._at = 0.0
        self._model = ""
        self._details: dict[str, _Details] = {}
        self._has_records = False
        self._total: Any = None
        self._before: int | None = None
        self._metas = 0
        self._parts: tuple[SizedPart, ...] = ()
        self._handlers: Mapping[str, Callable[[Loose], None]] = {
            "session_meta": self._meet,
            "turn_context": self._turn,
            "response_item": self._take_item,
            "event_msg": self._take_event,
            "token_usage_record": self._count_record,
            "compacted": self._compact,
        }
        self._items: Mapping[str, Callable[[Loose], None]] = {
            "message": self._take_message,
            "reasoning": self._hold,
            **dict.fromkeys(("function_call", "custom_tool_call", "local_shell_call"), self._call),
            **dict.fromkeys(("web_search_call", "tool_search_call"), self._hold),
            **dict.fromkeys(("function_call_output", "custom_tool_call_output"), self._answer),
        }

    def read(self, line: Loose) -> None:
        kind = line.text("type")
        self._at = parse_time(line.text("timestamp"), self._at)
        handle = self._handlers.get(kind)
        if handle is not None:
            payload = line.part("payload")
            if not self._emitter.is_open:
                self._parts = _measure_parts(payload)
                self._emitter.open(self._at, title="from its beginning", reason="", parts=self._parts)
            handle(payload)
        elif kind not in _QUIET:
            self._reading.count_unknown(kind or "without a type")

    def _meet(self, payload: Loose) -> None:
        self._metas += 1
        if self._metas > 1 or payload.text("forked_from_id"):
            self._reading.note("it begins with turns of the session that it was forked from; they are counted here too")

    def _turn(self, payload: Loose) -> None:
        self._model = payload.text("model") or self._model

    def _take_item(self, payload: Loose) -> None:
        kind = payload.text("type")
        handle = self._items.get(kind)
        if handle is None:
            self._reading.count_unknown(f"response_item {kind}")
        else:
            handle(payload)

    def _take_message(self, payload: Loose) -> None:
        if payload.text("role") == "assistant":
            self._emitter.hold(self._at)
            self._emitter.say(self._at, Role.AGENT, payload.words("content"))
        else:
            self._emitter.last_at = self._at

    def _hold(self, _: Loose) -> None:
        self._emitter.hold(self._at)

    def _call(self, payload: Loose) -> None:
        self._emitter.hold(self._at)
        raw = payload.text("arguments") or payload.text("input")
        given = Loose(parse_object(raw) or payload.part("action") or {"description": raw})
        command = given.get("command")
        if isinstance(command, list):  # ["bash", "-lc", "…"]
            given["command"] = str(command[-1]) if command else ""
        name, call_id = payload.text("name") or "local_shell", payload.text("call_id")
        self._emitter.call(self._at, call_id, name, given)
        if patched := _PATCHED.findall(raw if name == "apply_patch" else ""):
            self._get_details(call_id).changed = tuple(patched)

    def _answer(self, payload: Loose) -> None:
        call_id = payload.text("call_id")
        details = self._details.pop(call_id, _Details())
        text, images = _read_output(payload)
        code = details.exit_code
        if code is None and (found := _EXIT.search(text[:2_000])):
            code = int(found[1])
        answered = ToolReply(
            text=text,
            is_error=bool(code),
            extra_bytes=images * IMAGE_BYTES,
            changed=() if code and details.changed else details.changed,
            duration_s=details.duration_s,
        )
        self._emitter.answer(self._at, call_id, answered)

    def _take_event(self, payload: Loose) -> None:
        kind = payload.text("type")
        if kind == "task_started":
            self._emitter.window_tokens = payload.count("model_context_window") or self._emitter.window_tokens
        elif kind == "token_count":
            self._count_event(payload.part("info"))
        elif kind == "item_completed":
            item = payload.part("item")
            self._detail(item, item.text("id"))
            if item.text("type") == "UserMessage":
                self._emitter.say(self._at, Role.USER, item.words("content"))
        elif kind == "user_message":
            self._emitter.say(self._at, Role.USER, payload.text("message"))
        elif kind in {"exec_command_end", "patch_apply_end"}:
            self._detail(payload, payload.text("call_id"))

    def _detail(self, item: Loose, call_id: str) -> None:
        changes = item.part("changes")
        if not call_id or ("exit_code" not in item and not changes):
            return
        details = self._get_details(call_id)
        code, took = item.get("exit_code"), item.part("duration")
        details.exit_code = code if isinstance(code, int) else details.exit_code
        if took:
            details.duration_s = (took.count("secs") or 0) + (took.count("nanos") or 0) / 1e9
        if changes:
            details.changed = tuple(map(str, changes))

    def _get_details(self, call_id: str) -> _Details:
        if len(self._details) >= MOST_DETAILS:
            self._details.clear()
        return self._details.setdefault(call_id, _Details())

    def _count_record(self, payload: Loose) -> None:
        self._has_records = True
        self._respond(payload.part("usage"))

    def _count_event(self, info: Loose) -> None:
        window, total = info.count("model_context_window"), info.get("total_token_usage")
        self._emitter.window_tokens = window or self._emitter.window_tokens
        if not self._has_records and total != self._total:
            self._respond(info.part("last_token_usage"))
        self._total = total

    def _respond(self, counts: Loose) -> None:
        usage = _read_usage(counts)
        self._before = usage.context_tokens if usage else self._before
        self._emitter.respond(self._at, model=self._model, usage=usage, stop="")

    def _compact(self, payload: Loose) -> None:
        self._emitter.compact(self._at, describe_compaction("by Codex", self._before, None), parts=self._parts)
        summary = payload.text("message")
        known = [one.words("content") for one in payload.parts("replacement_history") if one.text("role") == "user"]
        kept = [f"kept of the user's words: {text}" for text in known if text != summary and not text.startswith("<")]
        self._emitter.say(self._at, Role.SUMMARY, "\n".join([summary, *kept]))


def read_codex(path: Path, reading: Reading) -> Iterator[LoggedEvent]:
    """Yield the events of a transcript.

    Raises:
        OSError: The file cannot be read.
    """
    head = find_head(path, is_line)
    meta = head.part("payload")
    agent = f"Codex {meta.text('cli_version')}".strip()
    emitter = EventEmitter(agent, meta.text("id") or path.stem, meta.text("cwd"), reading)
    emitter.begin(parse_time(head.text("timestamp"), 0.0), branch=head.part("payload", "git").text("branch"))
    reader = _Thread(emitter, reading)
    for line in read_lines(path, reading):
        reader.read(line)
        yield from emitter.take()
    emitter.end()
    yield from emitter.take()


def is_line(line: Loose) -> bool:
    """Return whether an object is the head of a transcript of Codex."""
    return line.text("type") == "session_meta" and "payload" in line


def _measure_parts(meta: Loose) -> tuple[SizedPart, ...]:
    """Return the size of the system prompt from the head of a transcript; the tools' size is unknown."""
    size = len(meta.part("base_instructions").text("text").encode("utf-8", "replace"))
    return (SizedPart(source="system", bytes=size, tokens=estimate_size_tokens(size)),) if size else ()


def _read_usage(counts: Loose) -> Usage | None:
    """Return the usage; None if it was not counted. Codex counts cached tokens as input too."""
    prompt = counts.count("input_tokens")
    if not prompt:
        return None
    read = min(prompt, counts.count("cached_input_tokens") or 0)
    written = min(prompt - read, counts.count("cache_write_input_tokens") or 0)
    return Usage(
        input_tokens=prompt - read - written,
        cache_read_tokens=read,
        cache_write_5m_tokens=written,
        output_tokens=counts.count("output_tokens") or 0,
        thinking_tokens=counts.count("reasoning_output_tokens") or 0,
    )


def _read_output(payload: Loose) -> tuple[str, int]:
    """Return the text of a result, and the number of its images."""
    if output := payload.text("output"):
        inner = parse_object(output) if output.startswith("{") else None
        return (inner and inner.text("output")) or output, 0
    blocks = payload.parts("output") or payload.part("output").parts("content")
    images = sum(block.text("type") == "input_image" for block in blocks)
    return "\n".join(block.text("text") for block in blocks), images
