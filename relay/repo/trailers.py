"""What relay writes at the end of its commit messages, and how it is read back.

Trailers are built and parsed as text. ``git interpret-trailers`` and ``git commit --trailer`` execute commands that a
repository's config names. ``%(trailers)`` executes nothing, but ``trailer.*`` and ``core.commentChar`` in a
repository's config make it drop or rename relay's trailers, and with them the state of the run (tested); so it is not
used either. What is written here is what ``%(trailers)`` shows in a repository without such settings.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from relay.repo.git import Git
from relay.usage import Usage

# Of commits on the branch, and where they fit of legs and snapshots.
PLAN = "Relay-Plan"
PHASE = "Relay-Phase"
STATUS = "Relay-Status"
ITEMS = "Relay-Items"
AMENDED = "Relay-Amended"
"""Phases that sessions changed beyond their boxes."""
SESSION = "Relay-Session"
LEG = "Relay-Leg"
"""The number of the session within its phase."""
GATE = "Relay-Gate"
SANDBOX = "Relay-Sandbox"
USAGE = "Relay-Usage"
COST = "Relay-Cost"

# Of an open leg.
BASE = "Relay-Base"
BOOT = "Relay-Boot"
PLACE = "Relay-Place"
OPENED = "Relay-Opened"
"""When its first session began, in nanoseconds since the epoch, by the clock of the file system."""
WIP = "Relay-Wip"
BARREN = "Relay-Barren"
"""Sessions of the phase in a row that passed the line without ticking anything."""
BASELINE = "Relay-Baseline"
"""The gate as it was before the phase."""
CLAIMED = "Relay-Claimed"
"""How many items were claimed when a session began."""
LEFTOVER = "Relay-Leftover"
"""A path that the baseline gate changed; neither the user's nor the leg's."""

# Of a leg's snapshots.
SKIPPED = "Relay-Skipped"
REPLACED = "Relay-Replaced"
ENDED = "Relay-Ended"
"""Of a session's last snapshot: its `SessionEnd`."""
ERROR = "Relay-Error"
"""The item a session was at and the last error it saw and did not overcome."""
DISCARDED = "Relay-Discarded"
"""A file of the session's that somebody took out of the work tree before the next one."""
WAIT_UNTIL = "Relay-Wait-Until"
"""UTC time at which a limit resets, and the model it is a limit of."""

UNKNOWN = "unknown"

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]+")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029]")
_TRAILER = re.compile(r"(?P<key>[A-Za-z0-9-]+)[ \t]*:(?P<value>.*)", re.DOTALL)
_USAGE_PART = re.compile(r"([a-z0-9_]+)=([0-9]{1,18})")
_COST = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) USD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A commit message in its three parts."""

    subject: str
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    """Keys may repeat; the order is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitText:
    """A commit as it is stored."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    time: int
    """Committer date in seconds since the epoch."""
    message: Message
    found: tuple[tuple[str, str], ...] = field(default=())
    """All trailers in order."""

    def get(self, key: str) -> str:
        """Return the last value of a trailer; empty when there is none."""
        return next((value for name, value in reversed(self.found) if name == key), "")

    def get_all(self, key: str) -> tuple[str, ...]:
        """Return all values of a trailer in order."""
        return tuple(value for name, value in self.found if name == key)


def make_line(text: str) -> str:
    """Return `text` as one line that git reads back unchanged: no control characters, no outer blanks."""
    return _CONTROL.sub(" ", text.encode(errors="replace").decode()).strip()


def render_trailers(trailers: Iterable[tuple[str, str]]) -> str:
    """Return one ``Key: value`` line for each pair with a value; a value can never start another trailer."""
    lines = [f"{key}: {make_line(value)}" for key, value in trailers if make_line(value)]
    return "".join(f"{line}\n" for line in lines)


def render_message(message: Message) -> bytes:
    """Return the bytes of a commit message; text from a session is made harmless, not refused."""
    body = message.body.replace("\r\n", "\n").encode(errors="replace").decode()
    body = _CONTROL_BUT_LINES.sub(" ", body).strip("\n")
    parts = [make_line(message.subject) or "relay", body, render_trailers(message.trailers).rstrip("\n")]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


_FORMAT = "--format=tformat:%H%x00%T%x00%P%x00%ct%x00%B"
_FIELDS = 5


def read_texts(git: Git, *args: str, stdin: bytes = b"") -> tuple[CommitText, ...]:
    """Return the commits that ``git log`` lists for `args`, in its order, in one call.

    NUL stands between fields and after each commit: a commit's text cannot contain it.
    """
    out = git.run("log", "-z", "--no-show-signature", "--no-color", "--no-notes", _FORMAT, *args, stdin=stdin)
    parts = out.decode(errors="surrogateescape").split("\0")
    return tuple(_parse_text(parts[n : n + _FIELDS]) for n in range(0, len(parts) - _FIELDS + 1, _FIELDS))


def read_text(git: Git, commit: str) -> CommitText:
    """Return one commit.

    Raises:
        GitError: There is no such commit.
    """
    return read_texts(git, "--no-walk", "--end-of-options", commit, "--")[0]


def read_trailers(git: Git, commit: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of one commit in order."""
    return read_text(git, commit).found


def _parse_text(fields: list[str]) -> CommitText:
    commit, tree, parents, time, text = fields
    message = parse_message(text)
    return CommitText(
        commit=commit,
        tree=tree,
        parents=tuple(parents.split()),
        time=int(time or 0),
        message=message,
        found=message.trailers,
    )


def parse_message(text: str) -> Message:
    """Take a commit message apart.

    Trailers are the last paragraph, if it is not the first one as well, and if each of its lines is ``Key: value``,
    the indented continuation of one, or git's note of a cherry-pick.
    """
    lines = text.rstrip().split("\n")
    start = next((n for n in range(len(lines), 0, -1) if not lines[n - 1].strip()), 0)
    trailers = _parse_block(lines[start:]) if start else ()
    body = lines[1:start] if trailers else lines[1:]
    return Message(subject=lines[0], body="\n".join(body).strip("\n"), trailers=trailers)


def _parse_block(lines: list[str]) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for line in lines:
        match = _TRAILER.fullmatch(line)
        if match:
            pairs.append((match["key"], match["value"].strip()))
        elif pairs and line.startswith((" ", "\t")):
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}".strip())
        elif not line.startswith("(cherry picked from commit "):
            return ()
    return tuple((key, value) for key, value in pairs if value)


def render_usage(usage: Usage | None) -> str:
    """Return ``input=… output=… cache_read=… cache_write=…`` in tokens; ``unknown`` for None.

    ``cache_write`` counts both lifetimes, ``cache_write_1h`` the part of it that lives an hour.
    """
    if usage is None:
        return UNKNOWN
    parts = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
    parts |= {"cache_write_1h": usage.cache_write_1h_tokens} if usage.cache_write_1h_tokens else {}
    parts |= {"thinking": usage.thinking_tokens} if usage.thinking_tokens else {}
    return " ".join(f"{name}={count}" for name, count in parts.items())


def parse_usage(text: str) -> Usage | None:
    """Undo `render_usage`; None when the value is missing, unknown or not relay's."""
    parts = {name: int(count) for name, count in _USAGE_PART.findall(text)}
    if not {"input", "output"} <= parts.keys():
        return None
    one_hour = min(parts.get("cache_write_1h", 0), parts.get("cache_write", 0))
    return Usage(
        input_tokens=parts["input"],
        output_tokens=parts["output"],
        cache_read_tokens=parts.get("cache_read", 0),
        cache_write_5m_tokens=parts.get("cache_write", 0) - one_hour,
        cache_write_1h_tokens=one_hour,
        thinking_tokens=parts.get("thinking", 0),
    )


def render_cost(cost_usd: float | None) -> str:
    """Return ``0.42 USD`` with two to six decimals; ``unknown`` for None and for what is not an amount."""
    if cost_usd is None or not math.isfinite(cost_usd) or cost_usd < 0:
        return UNKNOWN
    whole, _, decimals = f"{cost_usd:.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} USD"


def parse_cost(text: str) -> float | None:
    """Undo `render_cost`; None when the value is missing, unknown or not relay's."""
    match = _COST.fullmatch(text)
    return float(match[1]) if match else None
