"""Whole logs, for what they hold in the end."""

from dataclasses import dataclass
from pathlib import Path

from relay.insight.telemetry.log import open_events
from relay.session.records import LoggedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """What could be read of a log."""

    records: tuple[LoggedEvent, ...]
    skipped_lines: int


def read_events(path: Path) -> ReadLog | None:
    """Read a log to its end; None when there is no such file."""
    reader = open_events(path)
    return None if reader is None else ReadLog(records=tuple(reader), skipped_lines=reader.skipped_lines)
