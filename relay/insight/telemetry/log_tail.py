"""Reading the log of a run that may still be at work: from its start and on, or from its end. Nothing is written."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from relay.base.walk import open_folder, open_regular
from relay.insight.telemetry.log import FOLDER, SUFFIX, parse_line
from relay.plan.files import STATE_DIR
from relay.session.records import LoggedEvent, Scope, leave_scope

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 32 << 20
"""relay writes none that is longer; what is, is passed over and never held as a whole."""
END_BYTES = 4 << 20
"""Of a log's end; a session of hours is shorter."""
_END_EVENTS = 40
_EVENT = re.compile(rb'^\{"v":\d+,"at":[\d.]+,"event":"(\w+)"')


def list_runs(root: Path) -> tuple[str, ...]:
    """Return the ids of the runs that have a log, the one that was written to last at the end."""
    found: list[tuple[int, str]] = []
    with contextlib.suppress(OSError), open_folder(root, (STATE_DIR, FOLDER)) as folder, os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                if entry.name.endswith(SUFFIX) and stat.S_ISREG(state.st_mode):
                    found.append((state.st_mtime_ns, entry.name.removesuffix(SUFFIX)))
    return tuple(name for _, name in sorted(found))


class LogTail:
    """A log, open for reading; a context manager. Mutable: knows how far it was read.

    It stays readable when its file is removed or another takes its name: relay itself goes on writing to this one.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        """Open it.

        Raises:
            OSError: There is none of that name, or it is no plain file.
        """
        with open_folder(root, (STATE_DIR, FOLDER)) as folder:
            self._descriptor = open_regular(f"{run_id}{SUFFIX}", folder)
        self._begin()

    def _begin(self) -> None:
        self._offset, self._rest, self._scope, self._too_long = 0, b"", Scope(), False

    def read(self) -> Iterator[LoggedEvent]:
        """Yield what was written since the last call; a line that is not whole yet waits, foreign ones are left out."""
        if os.fstat(self._descriptor).st_size < self._offset:
            self._begin()  # somebody emptied it
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, self._offset):
            self._offset += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield from self._take(line)
            if len(self._rest) > _LONGEST_LINE_BYTES:
                self._rest, self._too_long = b"", True

    def _take(self, line: bytes) -> Iterator[LoggedEvent]:
        if self._too_long:  # the end of one
            self._too_long = False
        elif record := parse_line(line, self._scope):
            self._scope = leave_scope(record)
            yield record

    def read_end(self, kinds: frozenset[str], *, until: str, most: int = _END_EVENTS) -> tuple[LoggedEvent, ...]:
        """Return the last events of these kinds, oldest first, behind the last one called `until` and with it.

        However long the log is, it takes a few milliseconds: of the events in between only the last are parsed.

        Args:
            kinds: Names of event types.
            until: Name of the one at which it begins; further back than `END_BYTES` it is not looked for.
            most: How many of them.
        """
        found: list[LoggedEvent] = []
        for line in self._read_backwards(END_BYTES):
            match = _EVENT.match(line)
            kind = match[1].decode() if match else ""
            if kind == until or (kind in kinds and len(found) < most):
                found += [record] if (record := parse_line(line, Scope())) else []
            if kind == until:
                break
        return tuple(reversed(found))

    def _read_backwards(self, most_bytes: int) -> Iterator[bytes]:
        """Yield the last lines, the last first; the first of the log too when so much of it is read."""
        offset = os.fstat(self._descriptor).st_size
        start = max(0, offset - most_bytes)
        rest = b""
        while offset > start:
            before, offset = offset, max(start, offset - _CHUNK_BYTES)
            rest, *lines = (os.pread(self._descriptor, before - offset, offset) + rest).split(b"\n")
            yield from reversed(lines)
        if not start:
            yield rest

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
