"""Transcripts of Claude Code: JSON lines below ``~/.claude/projects/``, as versions up to 2.1.316 write them.

A line is an entry of a tree; only ``user``, ``assistant`` and ``attachment`` entries are ever in a prompt, except
attachments that repeat whole requests (``prompt_snapshot``). An answer is one line for each of its blocks, all with
the same message id and usage; in older versions only the last has the output that was billed. Sub-agents have files of
their own (``<session>/subagents/agent-<id>.jsonl``); side chains in the same file, as older versions wrote them, are
passed over. A fork begins with a copy of the turns that it goes on from. Requests for a summary or a title are in no
transcript; their cost is in the agent's own sum (``cost-state``).
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from relay.base.values import dataclass
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
    find_head,
    parse_time,
    read_lines,
)
from relay.session.events import SizedPart
from relay.session.records import LoggedEvent
from relay.session.usage import Usage, estimate_size_tokens
from relay.session.values import Shown

MOST_SUBAGENTS = 2_000
MOST_IDS = 10_000
"""Answers that are remembered, so that a copy is not counted again."""
FORK_S = 2.0
"""Seconds. An entry that is older than the one above it by more was copied from another session."""
_QUIET = frozenset(
    {
        "agent-name", "agent-setting", "ai-title", "api-request", "api-request-blob", "api-request-shape", "atis-latch",
        "cost-state", "custom-title", "file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link",
        "progress", "queue-operation", "summary", "tag", "task-summary", "tools-used", "worktree-state",
    }
)  # fmt: skip
"""Known entries that are in no prompt."""


@dataclass(slots=True, kw_only=True)
class _Answer:
    """An answer of which lines may still come. Mutable: each adds to it."""

    id: str
    at: float
    model: str
    usage: Usage | None
    stop: str


class _Chain:
    """Follows one chain of entries. Mutable."""

    def __init__(self, emitter: EventEmitter, reading: Reading, *, side: bool) -> None:
        self._emitter, self._reading, self._side = emitter, reading, side
        self._at = 0.0
        self._answer: _Answer | None = None
        self._known: OrderedDict[str, None] = OrderedDict()
        self._is_compacted = False
        """A mark of a compaction came, and no answer since: a summary behind it is that one's, however long it took."""
        self._phase = SIDE if side else MAIN
        self._begun: tuple[float, str] | None = None
        """When and as what the next context begins; None where one is open, or nothing was said yet."""
        self._parts: tuple[SizedPart, ...] = ()
        self._handlers: Mapping[str, Callable[[Loose], None]] = {
            "user": self._hear,
            "assistant": self._speak,
            "system": self._note,
            "attachment": self._attach,
        }

    def read(self, entry: Loose) -> None:
        kind = entry.text("type")
        handle = self._handlers.get(kind)
        is_side = entry.get("isSidechain") is True
        if kind == "queue-operation" and not self._at:
            self._at = parse_time(entry.text("timestamp"), 0.0)  # a fork: the next entries are older
        if handle is not None and is_side == self._side:
            self._follow(entry)
            handle(entry)
        if not self._side or is_side:
            self._count(kind, entry)

    def finish(self) -> None:
        """Emit the rest at the end of the chain."""
        self._end_answer()
        self._emitter.close(self._at)

    def _count(self, kind: str, entry: Loose) -> None:
        if kind == "api-request-shape":
            self._parts = _measure_parts(entry.part("shape"))
        elif kind == "cost-state":
            self._reading.own_cost_usd = entry.dollars("totalCostUSD")
        elif kind not in _QUIET and kind not in self._handlers:
            self._reading.count_unknown(kind or "without a type")

    def _follow(self, entry: Loose) -> None:
        at = parse_time(entry.text("timestamp"), self._at)
        if at < self._at - FORK_S and not self._side:
            self._reading.note("it begins with turns of the session that it was forked from; they are counted here too")
        self._at = max(self._at, at) if self._at - at < FORK_S else at
        root = self._side and entry.get("parentUuid") is None
        if root:
            self._end_answer()
            self._emitter.close(self._at)
            self._is_compacted = False
        if root or not (self._emitter.is_open or self._begun):
            agent = entry.text("agentId")
            self._begun = self._at, f"sub-agent {agent}".strip() if self._side else "from its beginning"

    def _open(self) -> None:
        """Begin the context of the next answer; the parts of its first request are known by now."""
        if not self._emitter.is_open:
            at, title = self._begun or (self._at, "")
            self._begun = None
            self._emitter.open(at, title=title, reason="", phase=self._phase, parts=self._parts)

    def _hear(self, entry: Loose) -> None:
        message = entry.part("message")
        if entry.get("isCompactSummary") is True and not self._is_compacted:
            self._compact("summary", None, None)
        if not self._side:
            self._listen(entry)
        results = [block for block in message.parts("content") if block.text("type") == "tool_result"]
        for block in results:
            details = entry.part("toolUseResult") if len(results) == 1 else Loose()
            self._emitter.answer(self._at, block.text("tool_use_id"), _read_result(block, details))
        if not results:
            self._emitter.last_at = self._at

    def _speak(self, entry: Loose) -> None:
        message = entry.part("message")
        if entry.get("isApiErrorMessage") is True or message.text("model") == "<synthetic>":
            return
        name, usage = message.text("id"), _read_usage(message.part("usage"))
        if self._answer is None or self._answer.id != name:
            self._end_answer()
            if usage is None or name in self._known:
                return  # kept over a compaction or copied: it was counted before
            self._open()
            self._is_compacted = False
            self._emitter.hold(self._at)
            self._answer = _Answer(id=name, at=self._at, model="", usage=None, stop="")
        self._answer.model = message.text("model") or self._answer.model
        self._answer.stop = message.text("stop_reason") or self._answer.stop
        counts = filter(None, (self._answer.usage, usage))  # the output grows while an answer comes
        self._answer.usage = max(counts, key=lambda one: one.output_tokens, default=None)
        for block in message.parts("content"):
            if not self._side:
                self._emitter.say(self._at, Role.AGENT, block.text("text"))
            if block.text("type") == "tool_use":
                self._emitter.call(self._at, block.text("id"), block.text("name"), block.part("input"))

    def _attach(self, entry: Loose) -> None:
        """Hear what the user typed while the agent was at work."""
        found = entry.part("attachment")
        typed = found.text("type") == "queued_command" and found.get("commandMode", "prompt") == "prompt"
        if typed and found.part("origin").text("kind") in {"", "human"} and not self._side:
            self._emitter.say(self._at, Role.USER, found.words("prompt"))

    def _listen(self, entry: Loose) -> None:
        """Hear the user's own words, also an answer and the reason of a refusal, or the summary of a compaction."""
        text = entry.part("message").words("content")
        if entry.get("isCompactSummary") is True:
            self._emitter.say(self._at, Role.SUMMARY, text)
        elif entry.get("isMeta") is not True:
            for said in _find_words(entry, text):
                self._emitter.say(self._at, Role.USER, said)

    def _note(self, entry: Loose) -> None:
        if entry.text("subtype") == "compact_boundary":
            found = entry.part("compactMetadata")
            how = found.text("trigger") or "by itself"
            self._compact(how, found.count("preTokens"), found.count("postTokens"))

    def _compact(self, how: str, before: int | None, after: int | None) -> None:
        self._end_answer()
        self._emitter.compact(self._at, describe_compaction(how, before, after), phase=self._phase, parts=self._parts)
        self._is_compacted = True

    def _end_answer(self) -> None:
        """Emit the answer; all its lines were read."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._known[answer.id] = None
        if len(self._known) > MOST_IDS:
            self._known.popitem(last=False)
        self._emitter.respond(answer.at, model=answer.model, usage=answer.usage, stop=answer.stop)


def read_claude(path: Path, reading: Reading) -> Iterator[LoggedEvent]:
    """Yield the events of a transcript: the conversation, then its sub-agents.

    Raises:
        OSError: A file cannot be read.
    """
    head = find_head(path, is_entry)
    agent = f"Claude Code {head.text('version')}".strip()
    emitter = EventEmitter(agent, head.text("sessionId") or path.stem, head.text("cwd"), reading)
    emitter.begin(parse_time(head.text("timestamp"), 0.0), branch=head.text("gitBranch"))
    yield from _follow(path, _Chain(emitter, reading, side=head.get("isSidechain") is True), emitter, reading)
    folder = path.parent / path.stem / "subagents"
    for file in sorted(folder.glob("agent-*.jsonl"))[:MOST_SUBAGENTS]:
        yield from _follow(file, _Chain(emitter, reading, side=True), emitter, reading)
    emitter.end()
    yield from emitter.take()


def _follow(path: Path, reader: _Chain, emitter: EventEmitter, reading: Reading) -> Iterator[LoggedEvent]:
    for entry in read_lines(path, reading):
        reader.read(entry)
        yield from emitter.take()
    reader.finish()
    yield from emitter.take()


def is_entry(entry: Loose) -> bool:
    """Return whether an object is an entry of a conversation of Claude Code."""
    return "parentUuid" in entry and "sessionId" in entry


def _read_usage(usage: Loose) -> Usage | None:
    """Return the usage; None if it was not counted or is all zeros, which no answer costs."""
    made = usage.part("cache_creation")
    written = usage.count("cache_creation_input_tokens") or 0
    hour = min(written, made.count("ephemeral_1h_input_tokens") or 0)
    found = Usage(
        input_tokens=usage.count("input_tokens") or 0,
        cache_read_tokens=usage.count("cache_read_input_tokens") or 0,
        cache_write_5m_tokens=written - hour,
        cache_write_1h_tokens=hour,
        output_tokens=usage.count("output_tokens") or 0,
        thinking_tokens=usage.part("output_tokens_details").count("thinking_tokens") or 0,
    )
    return found if found.prompt_tokens else None


def _measure_parts(shape: Loose) -> tuple[SizedPart, ...]:
    """Return the prompt parts that are the same in each request; newer versions log their sizes."""
    system = sum(len(block.text("text").encode("utf-8", "replace")) for block in shape.parts("system"))
    tools = len(json.dumps(shape.parts("tools")))
    sizes = (("system", system), ("tools", tools))
    return tuple(SizedPart(source=name, bytes=size, tokens=estimate_size_tokens(size)) for name, size in sizes)


_REASON = "how to proceed, the user said:"
_ASIDE = ("<local-command-", "<task-notification>", "<bash-", "[Request interrupted", "Caveat: ")
"""What stands in the user's place and is not the user's."""
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
_COMMAND = re.compile(r"<command-(name|args)>([^<]*)</command-\1>")


def _find_words(entry: Loose, text: str) -> Iterator[str]:
    """Yield what the user said in an entry."""
    text = _REMINDER.sub("", text).strip()
    parts = dict(_COMMAND.findall(text))
    if parts:
        text = f"{parts.get('name', '')} {parts['args']}" if parts.get("args", "").strip() else ""
    if not text.startswith(_ASIDE):
        yield text
    for question, said in entry.part("toolUseResult", "answers").items():
        yield f"{question} {said}" if isinstance(said, str) else ""
    for block in entry.part("message").parts("content"):
        if block.text("type") == "tool_result" and block.get("is_error") is True:
            yield _read_result(block, Loose()).text.partition(_REASON)[2]


def _read_result(block: Loose, details: Loose) -> ToolReply:
    blocks = block.parts("content")
    text = block.text("content") or "\n".join(part.text("text") for part in blocks)
    others = sum(part.text("type") not in {"", "text"} for part in blocks)
    is_error = block.get("is_error") is True
    return ToolReply(
        text=text,
        is_error=is_error,
        extra_bytes=others * IMAGE_BYTES,
        changed=() if is_error else _find_changed(details),
        shown=_find_shown(details),
    )


def _find_changed(details: Loose) -> tuple[str, ...] | None:
    """Return the file that a tool wrote; None if nothing says whether there was one."""
    path = details.text("filePath") or details.text("notebook_path")
    if path and ("structuredPatch" in details or "newString" in details or "new_source" in details):
        return (path,)
    return () if "file" in details else None


def _find_shown(details: Loose) -> Shown | None:
    file = details.part("file")
    path, first, lines = file.text("filePath"), file.count("startLine"), file.count("numLines")
    if not path or first is None or not lines:
        return None
    return Shown(path=path, first_line=first, last_line=first + lines - 1)
