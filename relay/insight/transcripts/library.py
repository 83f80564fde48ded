"""Find transcripts, detect their format, and compute the cost of the same conversation in a relay.

relay would have used fresh sessions instead of one context that only grows.
"""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import islice
from pathlib import Path

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.base.walk import list_names
from relay.insight.database import find_table_rates
from relay.insight.transcripts.claude import is_entry, read_claude
from relay.insight.transcripts.codex import is_line, read_codex
from relay.insight.transcripts.conversation import Role, Said
from relay.insight.transcripts.emitter import MAIN, Loose, Reading, find_head, read_lines, read_moment
from relay.insight.transcripts.opencode import is_database, list_sessions, read_opencode
from relay.session.events import ResponseReceived, SessionStarted
from relay.session.prices import Rates
from relay.session.records import LoggedEvent
from relay.session.usage import Usage

LEAST_ORIENTATION_TOKENS, MOST_ORIENTATION_TOKENS = 5_000, 30_000
"""Tokens that a fresh session reads before it goes on, at best and at worst."""
_MILLION = 1_000_000


@dataclass(slots=True, kw_only=True)
class Course:
    """Figures of one way through the same turns. Mutable: it grows turn by turn."""

    resets: int = 0
    peak_tokens: int = 0
    """Largest context."""
    prompt_tokens: int = 0
    """Sum of all prompts."""
    usd: float | None = 0.0
    """None if the price of a model is unknown."""
    context_tokens: int = 0
    """After the last turn."""

    def go(self, usage: Usage, rates: Rates | None, *, prompt: int, read: int) -> None:
        """Add a turn; the first `read` tokens of its prompt come from the cache."""
        self.prompt_tokens += prompt
        self.context_tokens = prompt + usage.output_tokens
        self.peak_tokens = max(self.peak_tokens, self.context_tokens)
        if rates is None or self.usd is None:
            self.usd = None
            return
        cost = read * rates.read + (prompt - read) * rates.write_5m + usage.output_tokens * rates.output
        self.usd += cost / _MILLION


class RelayedTally:
    """Follows a conversation turn by turn: as it `was`, and as a relay whose sessions read little or much. Mutable.

    With P(i) and O(i) the prompt and the output of turn i as the endpoint counted them, C(i) = P(i) + O(i) its context,
    and B = P(1) the fixed prefix (system, tools, task), turn i brings N(i) = max(0, P(i) - C(i - 1)) new tokens, and
    none where it follows a compaction: there the summary stands for what a relay has in its plan and handoff note. Then

        as it was:  cost = C(i - 1) * read + N(i) * write + O(i) * output
                    after a compaction: B * read + (P(i) - B) * write + O(i) * output
        a relay:    S(i) = S(i - 1) + N(i) + O(i), at the same prices; where S(i - 1) >= line, a fresh session:
                    S(i) = B + orientation + N(i) + O(i), all of its prompt written anew

    for prices of the model per token and writes for five minutes. Both have a cache that never breaks, so both are less
    than what was billed. It leans against the relay: its prefix would be warm, and the requests that made summaries,
    each as long as the context, are in no transcript. What a fresh session reads is not known, hence a range. It breaks
    even after 12.5 * (B + orientation) / (C - B - orientation) turns, with writes at 1.25 and reads at 0.1 of the
    price of input.

    Sources: prompt caching's price multiples of the provider; the line is relay's default for the model.

    Args:
        find_rates: Returns the prices of a model; None if unknown.
    """

    def __init__(self, find_rates: Callable[[str], Rates | None] = find_table_rates) -> None:
        self._find_rates = find_rates
        self.was, self.least, self.most = Course(), Course(), Course()
        self.line_tokens: int | None = None
        """A relay's reset line; None without a turn."""
        self._inside = self._fresh = False
        self._first: int | None = None
        self._turns = self._new = self._output = self._window = 0
        self._rates: Rates | None = None
        self.usd: float | None = 0.0
        """Of all answers, sub-agents' too; None if the price of a model is unknown."""

    def take(self, record: LoggedEvent) -> None:
        """Add the next event, of any context; sub-agents count for `usd` alone, a relay has none."""
        event = record.event
        if isinstance(event, SessionStarted):
            self._inside, self._fresh = event.phase_id == MAIN, True
        if not isinstance(event, ResponseReceived):
            return
        self.usd = None if event.cost_usd is None or self.usd is None else self.usd + event.cost_usd
        if event.usage is not None and self._inside:
            self._rates = self._find_rates(event.model) if event.model else None
            self._turn(event.usage, self._rates, event.soft_tokens)
            self._window, self._fresh = event.window_tokens, False

    def estimate_rest(self, turns: int) -> float | None:
        """Return what so many more turns would cost in the same session; None if a price or its turns are unknown.

        Each is an average turn, and the cache is cold at the first. Where the window is full (`MOST_FULL`) a compaction
        leaves what the first prompt had; the request for its summary is not counted.
        """
        if not self._turns or self._rates is None:
            return None
        rest, new = Course(context_tokens=self.was.context_tokens), self._new // self._turns
        for number in range(turns):
            if rest.context_tokens > self._window * MOST_FULL:
                rest.context_tokens = self._first or 0
            known = rest.context_tokens
            usage = Usage(output_tokens=self._output // self._turns)
            rest.go(usage, self._rates, prompt=known + new, read=known if number else 0)
        return rest.usd

    def _turn(self, usage: Usage, rates: Rates | None, line: int) -> None:
        prompt, before = usage.prompt_tokens, self.was.context_tokens
        self.line_tokens = line
        self._turns, self._output = self._turns + 1, self._output + usage.output_tokens
        if self._first is None:
            self._first = prompt
            for course in (self.was, self.least, self.most):
                course.go(usage, rates, prompt=prompt, read=0)
            return
        first = self._first
        new = 0 if self._fresh else max(0, prompt - before)
        self._new += new
        self.was.go(usage, rates, prompt=prompt, read=min(prompt, first if self._fresh else before))
        for course, orientation in (
            (self.least, LEAST_ORIENTATION_TOKENS),
            (self.most, MOST_ORIENTATION_TOKENS),
        ):
            context = course.context_tokens
            is_reset = context >= line
            course.resets += is_reset
            known = first + orientation if is_reset else context
            course.go(usage, rates, prompt=known + new, read=0 if is_reset else context)


MOST_FULL = 0.85
"""Share of the window at which agents compact: 167,000 of 200,000 (Claude Code), 168,000 (OpenCode)."""
MOST_LISTED = 50
MOST_LOOKED_AT = 500
"""Files of an agent, newest first, whose directory is looked up."""
SNIFFED_LINES = 200
"""Lines searched for the format."""
_SQLITE = b"SQLite format 3\0"


class Format(StrEnum):
    """The known formats."""

    CLAUDE = "Claude Code"
    CODEX = "Codex"
    OPENCODE = "OpenCode"


KNOWN = (
    "Claude Code (~/.claude/projects/…/*.jsonl), Codex (~/.codex/sessions/…/rollout-*.jsonl), "
    "OpenCode (~/.local/share/opencode/opencode.db)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A readable conversation."""

    format: Format
    path: Path
    session: str = ""
    """Id of the session in a database; empty for a file of its own."""
    title: str = ""
    """The agent's title; empty without one."""
    updated: float
    size_bytes: int | None = None
    """None for a session of a database."""


@dataclass(slots=True, kw_only=True)
class OpenTranscript:
    """A transcript under reading. Mutable: its reading grows.

    Iterate once; the reading is complete at the end.
    """

    transcript: Transcript
    reading: Reading = field(default_factory=Reading)

    def __iter__(self) -> Iterator[LoggedEvent]:
        """Yield its events.

        Raises:
            ConfigError: It cannot be read any further.
        """
        found = self.transcript
        try:
            match found.format:
                case Format.CLAUDE:
                    yield from read_claude(found.path, self.reading)
                case Format.CODEX:
                    yield from read_codex(found.path, self.reading)
                case Format.OPENCODE:
                    yield from read_opencode(found.path, found.session, self.reading)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{found.path} cannot be read: {error}") from error


def get_transcript(path: Path, session: str) -> Transcript:
    """Return the transcript in a file.

    Args:
        session: Id in a database; empty for the latest.

    Raises:
        ConfigError: It cannot be read, is of no known format, or has no such session.
    """
    try:
        path = path.resolve(strict=True)
        known, size = path.stat(), path.stat().st_size
        if not path.is_file():
            raise ConfigError(f"{path} is no file", hint=f"known are {KNOWN}")
        with path.open("rb") as stream:
            is_sqlite = stream.read(len(_SQLITE)) == _SQLITE
        if is_sqlite:
            return _get_session(path, session)
        found = _sniff(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if session:
        raise ConfigError(f"{path} holds one session only", hint="leave --session out")
    return Transcript(format=found, path=path, updated=read_moment(known.st_mtime), size_bytes=size)


def _sniff(path: Path) -> Format:
    for line in islice(read_lines(path, Reading()), SNIFFED_LINES):
        if is_entry(line):
            return Format.CLAUDE
        if is_line(line):
            return Format.CODEX
        if "v" in line and "event" in line:
            raise ConfigError(f"{path} is a log of relay's own", hint="relay report shows what is in it")
    raise ConfigError(f"{path} is of no format that relay knows", hint=f"known are {KNOWN}")


def _get_session(path: Path, session: str) -> Transcript:
    if not is_database(path):
        raise ConfigError(f"{path} is of no format that relay knows", hint=f"known are {KNOWN}")
    found = next((one for one in _list_stored(path) if not session or one.session == session), None)
    if found is None:
        what = f"no session {session!r}" if session else "no session"
        raise ConfigError(f"{path} has {what}", hint="relay lab inspect lists those of this directory")
    return found


def list_transcripts(root: Path, environ: Mapping[str, str]) -> list[Transcript]:
    """Return the conversations about a directory and those below it, the latest first.

    Args:
        root: The directory.
        environ: For HOME and the agents' own directories.
    """
    home = Path(environ.get("HOME") or "/nonexistent")
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    codex = Path(environ.get("CODEX_HOME") or home / ".codex") / "sessions"
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share") / "opencode/opencode.db"
    name = name_project(root)
    folders = [name, *(found for found in sorted(list_names(claude)) if found.startswith(f"{name}-"))]
    found = [
        *_list_files(Format.CLAUDE, (path for folder in folders for path in _glob(claude / folder, "*.jsonl")), root),
        *_list_files(Format.CODEX, _glob(codex, "*/*/*/rollout-*.jsonl"), root),
        *(_list_stored(data, root) if data.is_file() else ()),
    ]
    return sorted(found, key=lambda one: one.updated, reverse=True)[:MOST_LISTED]


def find_first_words(transcript: Transcript) -> str:
    """Return the first words of the user; empty without any, or if it cannot be read."""
    said: list[str] = []

    def hear(turn: Said) -> None:
        said.extend([turn.text] if turn.role is Role.USER else [])

    with contextlib.suppress(ConfigError):
        for _ in islice(OpenTranscript(transcript=transcript, reading=Reading(hear=hear)), SNIFFED_LINES):
            if said:
                break
    return said[0] if said else ""


def name_project(root: Path) -> str:
    """Return the name of Claude Code's folder for the transcripts of a directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(root))


def _list_files(format_: Format, files: Iterable[Path], root: Path) -> Iterator[Transcript]:
    """Yield the transcripts among files whose conversation was about `root` or a directory below it."""
    for path, updated, size in _rank(files):
        head = Loose()
        with contextlib.suppress(OSError):
            head = find_head(path, is_entry if format_ is Format.CLAUDE else is_line, SNIFFED_LINES)
        if _is_below((head if format_ is Format.CLAUDE else head.part("payload")).text("cwd"), root):
            yield Transcript(format=format_, path=path, updated=updated, size_bytes=size)


def _list_stored(path: Path, root: Path | None = None) -> Iterator[Transcript]:
    """Yield the conversations of OpenCode's database, the latest first; those about `root` or a directory below it."""
    for name, folder, title, updated in list_sessions(path, MOST_LOOKED_AT) if is_database(path) else ():
        if root is None or _is_below(folder, root):
            yield Transcript(format=Format.OPENCODE, path=path, session=name, title=title, updated=updated)


def _is_below(cwd: str, root: Path) -> bool:
    return cwd == str(root) or cwd.startswith(f"{root}/")


def _glob(folder: Path, pattern: str) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from folder.glob(pattern)


def _rank(files: Iterable[Path]) -> list[tuple[Path, float, int]]:
    """Return files with modification time and size, newest first."""
    found = []
    for path in files:
        with contextlib.suppress(OSError):
            known = path.stat()
            found.append((path, read_moment(known.st_mtime), known.st_size))
    return sorted(found, key=lambda one: one[1], reverse=True)[:MOST_LOOKED_AT]
