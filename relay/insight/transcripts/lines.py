"""Lines of JSON of any length and origin, one at a time, and what was met on the way."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Of one line; a longer one is passed over and counted. Images and whole requests make lines of megabytes."""
MOST_KINDS = 200
"""Kinds of lines that are told apart."""
MOST_NOTES = 20


@dataclass(slots=True, kw_only=True)
class Reading:
    """What was met while a transcript was read. Mutable: it grows with each line."""

    lines: int = 0
    size_bytes: int = 0
    torn: int = 0
    """Lines that are no JSON objects, or too long."""
    sent_bytes: int = 0
    """Of lines whose content is in some prompt; all others cost disk and no tokens."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Kinds that the reader does not know, with their lines."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what this transcript is."""
    own_cost_usd: float | None = None
    """What the agent itself counted for the session; None where it does not say."""

    def count_unknown(self, kind: str) -> None:
        """Count a kind that the reader does not know."""
        name = kind[:60] if kind[:60] in self.unknown or len(self.unknown) < MOST_KINDS else "others"
        self.unknown[name] = self.unknown.get(name, 0) + 1

    def note(self, text: str) -> None:
        """Keep a sentence, once."""
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)


def read_lines(path: Path, reading: Reading) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield each object of a file with the bytes of its line, and count the others.

    Raises:
        OSError: It is no regular file that can be read.
    """
    with open_folder(path.parent, ()) as folder:
        descriptor = open_regular(path.name, folder)
    with os.fdopen(descriptor, "rb") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            size = len(line)
            while not line.endswith(b"\n") and (more := stream.readline(MAX_LINE_BYTES)):
                line, size = more, size + len(more)
            reading.lines += 1
            reading.size_bytes += size
            found = parse_object(line) if size == len(line) else None
            if found is None:
                reading.torn += bool(line.strip())
            else:
                yield found, size


def parse_object(line: bytes | str) -> Mapping[str, Any] | None:
    """Read one JSON object; None for anything else, however it is nested."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def get_map(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys; an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def get_text(value: Any, key: str) -> str:
    """Return a text of an object; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def get_list(value: Any, key: str) -> list[Any]:
    """Return a list of an object; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def find_count(value: Any, key: str) -> int | None:
    """Return a number of tokens, lines or milliseconds; None where there is none that can be true."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _MOST else None


def find_dollars(value: Any, key: str) -> float | None:
    """Return an amount of dollars; None where there is none that can be true."""
    found = value.get(key) if isinstance(value, dict) else None
    return float(found) if isinstance(found, int | float) and 0 <= found < _MOST else None


def read_moment(seconds: Any) -> float:
    """Return seconds since the epoch; 0 for what is no moment that a calendar has."""
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < _LAST_MOMENT else 0.0


_MOST = 10**15
_LAST_MOMENT = 250_000_000_000
"""In the year 9892."""
