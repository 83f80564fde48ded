"""Emit the turns of another agent as relay's own events of contexts, answers and tool calls.

Transcripts are lines of JSON of any length and origin; they are read one at a time, and unknown lines are counted.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular
from relay.base.words import shorten
from relay.insight.transcripts.conversation import Role, Said
from relay.session.events import (
    Event,
    GaugeCrossed,
    RequestStarted,
    ResponseReceived,
    RunEnded,
    RunStarted,
    SessionEnded,
    SessionStarted,
    SizedPart,
    ToolFinished,
    ToolStarted,
)
from relay.session.gauge import DEFAULT_RESET_AT, LARGEST_RESULT_TOKENS, parse_reset_at
from relay.session.prices import cost_usd, find_limits, find_price
from relay.session.recall import Recall, hash_call
from relay.session.records import LoggedEvent, Recorder
from relay.session.usage import Spent, Usage
from relay.session.values import SessionEnd, Shown

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is skipped and counted. Images and whole requests make lines of megabytes."""
MOST_KINDS = 200
"""Unknown kinds of lines that are counted separately."""
MOST_NOTES = 20


@dataclass(slots=True, kw_only=True)
class Reading:
    """Facts about the reading of a transcript. Mutable: it grows with each line."""

    lines: int = 0
    torn: int = 0
    """Lines that are no JSON objects, or too long."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Unknown kinds, with their number of lines."""
    notes: list[str] = field(default_factory=list)
    """Sentences about the transcript."""
    own_cost_usd: float | None = None
    """The agent's own cost of the session; None if it does not say."""
    cwd: str = ""
    """The agent's directory; empty if unknown."""
    hear: Callable[[Said], None] | None = None
    """Called with each turn of the conversation itself; sub-agents' are left out."""

    def count_unknown(self, kind: str) -> None:
        """Count an unknown kind."""
        name = kind[:60] if kind[:60] in self.unknown or len(self.unknown) < MOST_KINDS else "others"
        self.unknown[name] = self.unknown.get(name, 0) + 1

    def note(self, text: str) -> None:
        """Add a sentence, once."""
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)


class Loose(dict[str, Any]):
    """An object of JSON of which nothing is known: what is asked for, or something empty where that is not there."""

    def part(self, *path: str) -> "Loose":
        """Return the object at a path of keys."""
        found: Any = self
        for key in path:
            found = found.get(key) if isinstance(found, Loose) else None
        return found if isinstance(found, Loose) else Loose()

    def parts(self, key: str) -> "list[Loose]":
        """Return the objects in a list."""
        found = self.get(key)
        return [one for one in found if isinstance(one, Loose)] if isinstance(found, list) else []

    def text(self, key: str) -> str:
        """Return a text."""
        found = self.get(key)
        return found if isinstance(found, str) else ""

    def words(self, key: str) -> str:
        """Return the text of a message, which is one or a list of blocks; results of tools are none."""
        return self.text(key) or "\n".join(filter(None, (one.text("text") for one in self.parts(key))))

    def count(self, key: str) -> int | None:
        """Return a number of tokens, lines or milliseconds; None without a plausible one."""
        found = self.get(key)
        return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _MOST else None

    def dollars(self, key: str) -> float | None:
        """Return an amount of dollars; None without a plausible one."""
        found = self.get(key)
        return float(found) if isinstance(found, int | float) and 0 <= found < _MOST else None


def read_lines(path: Path, reading: Reading) -> Iterator[Loose]:
    """Yield each object of a file, and count the other lines.

    Raises:
        OSError: It is no regular file that can be read.
    """
    with open_folder(path.parent, ()) as folder:
        descriptor = open_regular(path.name, folder)
    with os.fdopen(descriptor, "rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            is_whole = True
            while not line.endswith(b"\n") and (more := stream.readline(MAX_LINE_BYTES)):
                line, is_whole = more, False
            reading.lines += 1
            found = parse_object(line) if is_whole else None
            if found is None:
                reading.torn += bool(line.strip())
            else:
                yield found


def find_head(path: Path, is_head: Callable[[Loose], bool], most: int | None = None) -> Loose:
    """Return the first object of a file that is a head, among the first `most`; empty without one.

    Raises:
        OSError: As `read_lines`.
    """
    return next((line for line in islice(read_lines(path, Reading()), most) if is_head(line)), Loose())


def parse_object(line: bytes | str) -> Loose | None:
    """Read one JSON object; None for anything else, however it is nested."""
    try:
        found = json.loads(line, object_hook=Loose)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Loose) else None


def read_moment(seconds: Any) -> float:
    """Return seconds since the epoch; 0 for a value outside of the calendar."""
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < _LAST_MOMENT else 0.0


_MOST = 10**15
_LAST_MOMENT = 250_000_000_000
"""In the year 9892."""


MAIN, SIDE = "conversation", "sub-agents"
"""Phase ids of the contexts of the conversation itself, and of sub-agents."""
ASSUMED_WINDOW_TOKENS = 200_000
"""Context window if neither the transcript nor relay's table knows it; the reset line is the same above 222,000."""
IMAGE_BYTES = 8_000
"""Size of a picture or a document as text: 2,000 tokens flat, as Claude Code estimates them."""
MOST_CALLS = 1_000
MOST_HELD = 10_000
"""Events of one answer; only a made-up file has more."""
SUMMARY_CHARS = 200
_TOLD = ("file_path", "filePath", "path", "notebook_path", "command", "cmd", "pattern", "query", "url", "description")
"""Keys of a call's input; the first one that is there sums the call up."""
_RANGE = ("offset", "limit", "view_range")
SHELLS = frozenset(
    {"bash", "shell", "exec_command", "shell_command", "local_shell", "local_shell_call", "unified_exec"}
)
_CAT = re.compile(r"(?:cat(?: -n)?|nl(?: -ba)?) ([\w./+@-]+)", re.ASCII)
_SED = re.compile(r"sed -n (['\"]?)(\d{1,9}),(\d{1,9})p\1 ([\w./+@-]+)", re.ASCII)
_HEAD = re.compile(r"head (?:-n ?|-)(\d{1,9}) ([\w./+@-]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """The answer to a tool call."""

    text: str
    is_error: bool
    extra_bytes: int = 0
    """Size of pictures and documents."""
    changed: tuple[str, ...] | None = None
    """Paths as the agent wrote them; None if unknown (a shell command)."""
    shown: Shown | None = None
    duration_s: float | None = None
    """None: from the call to its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    at: float
    name: str
    summary: str
    given: Loose


class EventEmitter:
    """Makes the events of one transcript. Mutable: it follows the conversation.

    Args:
        agent: Name and version, such as ``claude 2.1.316``.
        run_id: The agent's id of the session.
        cwd: The agent's directory; paths below it are shown relative to it.
        reading: Notes each assumption, and hears what is said.
    """

    def __init__(self, agent: str, run_id: str, cwd: str, reading: Reading) -> None:
        self._reading = reading
        self.cwd = reading.cwd = cwd.rstrip("/")
        self.window_tokens: int | None = None
        """As the transcript has it."""
        self.last_at = 0.0
        """Of what was last said or answered: an answer takes its time from then."""
        self._agent, self._run_id = agent, run_id
        self._records: list[LoggedEvent] = []
        self._recorder = Recorder(lambda: self._at)
        self._at = self._latest = 0.0
        self._held: list[tuple[float, Event]] | None = None
        self._held_at: float | None = None
        self._calls: dict[str, _Call] = {}
        self._recall = Recall()
        self._sessions = self._turn = 0
        self._has_crossed = False
        self._spent: Spent | None = None
        self._session = ("", "")
        """Id and phase of the open context."""

    def take(self) -> list[LoggedEvent]:
        """Return the events since the last call."""
        told, self._records = self._records, []
        return told

    @property
    def is_open(self) -> bool:
        return self._spent is not None

    def begin(self, at: float, *, branch: str) -> None:
        """Begin the run."""
        self._tell(
            at,
            RunStarted(
                run_id=self._run_id,
                command=self._agent,
                model="",
                plan_path="",
                branch=branch,
                sandbox="",
                cap_usd=None,
                spent_usd=None,
                rehearsed=False,
                context="compact",
            ),
        )

    def open(self, at: float, *, title: str, reason: str, phase: str = MAIN, parts: tuple[SizedPart, ...] = ()) -> None:
        """Begin a context; an open one is closed.

        Args:
            reason: Why it begins; empty for the first.
            phase: `MAIN` or `SIDE`.
            parts: Parts of its prompts, as in `SessionStarted.prompt`; empty if unknown.
        """
        self.close(at)
        self._sessions += 1
        self._turn, self._spent, self._calls, self._has_crossed = 0, Spent(), {}, False
        self._recall = Recall()
        self._session = (f"{self._sessions}/{self._run_id}", phase)
        self.last_at = max(self.last_at, at) if phase == MAIN else at
        session_id, phase_id = self._session
        self._tell(
            at,
            SessionStarted(
                session_id=session_id,
                phase_id=phase_id,
                title=title,
                number=self._sessions,
                reason=reason,
                prompt=parts,
            ),
        )

    def close(self, at: float, *, result: str = "ended", detail: str = "") -> None:
        """End the open context, if there is one."""
        self.release(at)
        if self._spent is None:
            return
        for call in self._calls.values():
            self._hear(Said(role=Role.TOOL, at=call.at, text=call.summary, tool=call.name, answered=False))
        self._calls = {}
        session_id, phase_id = self._session
        spent, self._spent = self._spent, None
        self._tell(
            at,
            SessionEnded(
                session_id=session_id,
                phase_id=phase_id,
                end=SessionEnd.FINISHED,
                result=result,
                detail=detail,
                usage=spent.usage,
                cost_usd=spent.cost_usd,
            ),
        )

    def end(self) -> None:
        """End the run, at the time of the last event."""
        self.close(self._at)
        self._tell(self._latest, RunEnded(exit_code=0, reason="the transcript ends", next_command="", spent_usd=None))

    def compact(self, at: float, words: str, *, phase: str = MAIN, parts: tuple[SizedPart, ...] = ()) -> None:
        """End the open context and begin one on its summary.

        Args:
            words: From `describe_compaction`.
            phase: As `open`.
            parts: As `open`.
        """
        self.cut(at, words)
        self.open(at, title="after a compaction", reason=words, phase=phase, parts=parts)

    def cut(self, at: float, words: str) -> None:
        """End the open context by a compaction."""
        self.close(at, result="compacted", detail=words)
        self._hear(Said(role=Role.CUT, at=at, text=words))

    def say(self, at: float, role: Role, text: str) -> None:
        """Pass on what was said in the conversation itself; in any other context only a summary."""
        if text.strip():
            self._hear(Said(role=role, at=at, text=text))

    def _hear(self, said: Said) -> None:
        if self._reading.hear is not None and (self._session[1] != SIDE or said.role is Role.SUMMARY):
            self._reading.hear(said)

    def hold(self, at: float | None = None) -> None:
        """Hold further events back until the answer that they belong to is emitted.

        Args:
            at: Time of the answer; None for the time of its first call.
        """
        if self._held is None:
            self._held, self._held_at = [], at

    def release(self, at: float) -> None:
        """Emit the held events; their answer was never counted."""
        if self._held:
            self.respond(at, model="", usage=None, stop="")
        self._held = None

    def respond(self, at: float, *, model: str, usage: Usage | None, stop: str, own_usd: float | None = None) -> None:
        """Emit an answer, then the events held behind it.

        Args:
            at: Time of the answer, if `hold` does not know it.
            model: Empty if unknown.
            usage: As the endpoint counted it; None if unknown.
            stop: Why it stopped; empty if unknown.
            own_usd: The agent's own price, for a model that relay's table lacks.
        """
        held, self._held = self._held or [], None
        at, self._held_at = at if self._held_at is None else self._held_at, None
        if self._spent is None:
            self.open(at, title="", reason="")
        self._turn += 1
        price = find_price(model)
        cost = own_usd if usage is None or price is None else cost_usd(usage, price)
        self._spent = (self._spent or Spent()) + Spent(usage=usage or Usage(), cost_usd=cost)
        window = self.window_tokens or self._find_window(model)
        soft = parse_reset_at(DEFAULT_RESET_AT).line_tokens(window)
        self._tell(at, RequestStarted(turn=self._turn))
        self._tell(
            at,
            ResponseReceived(
                turn=self._turn,
                model=model,
                usage=usage,
                cost_usd=cost,
                fill_tokens=usage.context_tokens if usage else None,
                soft_tokens=soft,
                hard_tokens=soft + LARGEST_RESULT_TOKENS,
                window_tokens=window,
                stop_reason=stop,
                duration_s=max(0.0, at - self.last_at) if self.last_at else 0.0,
            ),
        )
        if usage and usage.context_tokens >= soft and not self._has_crossed:
            self._has_crossed = True
            self._tell(at, GaugeCrossed(line="soft", fill_tokens=usage.context_tokens, line_tokens=soft))
        self.last_at = max([at, *(moment for moment, _ in held)])
        for moment, event in held:
            self._tell(moment, event)

    def call(self, at: float, call_id: str, name: str, given: Loose) -> None:
        """Emit ToolStarted."""
        call = _Call(at=at, name=name, summary=_summarize(given), given=given)
        if len(self._calls) < MOST_CALLS:
            self._calls[call_id] = call
        self._held_at = at if self._held_at is None and self._held is not None else self._held_at
        self._say(at, ToolStarted(call_id=call_id, name=name, summary=call.summary))

    def answer(self, at: float, call_id: str, answered: ToolReply) -> None:
        """Emit ToolFinished. Calls carried over from before a compaction are ignored."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        data = answered.text.encode("utf-8", "replace")
        changed = tuple(map(self.relate, answered.changed or ()))
        self._hear(
            Said(
                role=Role.TOOL,
                at=call.at,
                text=call.summary,
                tool=call.name,
                result=answered.text,
                changed=changed,
                failed=answered.is_error,
                given=call.given,
            )
        )
        shown = answered.shown or _find_shown(call, answered)
        waited, path = max(0.0, at - call.at), self.relate(shown.path) if shown else ""
        uses = self._recall.find_uses(call.given, path=path)
        self._recall.show(call_id, answered.text, path=path)
        self._say(
            at,
            ToolFinished(
                call_id=call_id,
                name=call.name,
                is_error=answered.is_error,
                result_sha256=hashlib.sha256(data).hexdigest(),
                duration_s=waited if answered.duration_s is None else answered.duration_s,
                changed_paths=None if answered.changed is None else changed,
                result_bytes=len(data) + answered.extra_bytes,
                shown=Shown(path=path, first_line=shown.first_line, last_line=shown.last_line) if shown else None,
                call_sha256=hash_call(call.name, call.given),
                uses=uses,
            ),
        )
        if self._held is None:
            self.last_at = max(self.last_at, at)

    def _find_window(self, model: str) -> int:
        limits = find_limits(model) if model else None
        if limits is None and model:
            self._reading.note(
                f"the window of {model} is unknown; a relay's line is that of {ASSUMED_WINDOW_TOKENS:,} tokens"
            )
        return limits.window_tokens if limits else ASSUMED_WINDOW_TOKENS

    def relate(self, path: str) -> str:
        """Return a path relative to the agent's directory."""
        return path[len(self.cwd) + 1 :] if self.cwd and path.startswith(f"{self.cwd}/") else path.removeprefix("./")

    def _say(self, at: float, event: Event) -> None:
        if self._held is None:
            self._tell(at, event)
        elif len(self._held) < MOST_HELD:
            self._held.append((at, event))

    def _tell(self, at: float, event: Event) -> None:
        self._at, self._latest = at, max(self._latest, at)
        self._records.append(self._recorder.record(event))


def _summarize(given: Loose) -> str:
    about = next((v for key in _TOLD if isinstance(v := given.get(key), str)), "")
    part = ",".join(str(given[key]) for key in _RANGE if isinstance(given.get(key), int | list))
    return shorten(" ".join(f"{about}:{part}".split()) if part else " ".join(about.split()), SUMMARY_CHARS)


def _find_shown(call: _Call, answered: ToolReply) -> Shown | None:
    """Return the part of a file that a plain command showed; None for any other command."""
    if answered.is_error or call.name.lower() not in SHELLS:
        return None
    command = (call.given.text("command") or call.given.text("cmd")).strip()
    lines = max(1, answered.text.count("\n"))
    if found := _CAT.fullmatch(command):
        return Shown(path=found[1], first_line=1, last_line=lines)
    if found := _SED.fullmatch(command):
        return Shown(path=found[4], first_line=int(found[2]), last_line=int(found[3]))
    if found := _HEAD.fullmatch(command):
        return Shown(path=found[2], first_line=1, last_line=int(found[1]))
    return None


def describe_compaction(how: str, before: int | None, after: int | None) -> str:
    """Describe how a context was compacted, with the tokens before and after if known."""
    known = [f"{words} {n:,} tokens" for words, n in (("from", before), ("to", after)) if n is not None]
    return " ".join([f"compacted ({how})", *known])


def parse_time(text: str, before: float) -> float:
    """Return seconds since the epoch; `before` if the text is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return before
    return read_moment((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) or before
