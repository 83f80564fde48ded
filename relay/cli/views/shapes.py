"""Values → screen: the shape in which a run is shown.

Live on a terminal, plain lines elsewhere, ``--json`` one event per line.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from relay.base.interrupts import Urgency
from relay.base.words import shorten
from relay.cli.screen import clean_line, clip, escape_json, has_style, is_utf8
from relay.cli.views.base import ClockedView, SharedView
from relay.cli.views.narrate import LOST, STOPPING, Line, Narrator, tell_job
from relay.session import events
from relay.session.records import LoggedEvent, Recorder, render_record

LONGEST_LINE_CHARS = 2_000
"""Where a plain line is cut; the full text is in the session's event log."""


def make_view(
    *,
    json: bool,
    stream: TextIO,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
    keeps_board: bool = False,
) -> SharedView:
    """Choose the shape: JSON when asked for, live on a terminal that can move its cursor, else plain lines.

    A service that builds (``CI``) may give a terminal, and keeps what is written there as a log.

    Args:
        json: One event per line, for programs.
        stream: Where the view goes; standard output.
        environ: Read for ``TERM``, ``CI`` and ``NO_COLOR``.
        clock: Seconds since the epoch, for the times of what is shown.
        keeps_board: Whether a live view leaves its last picture on the terminal.
    """
    if json:
        return JsonView(stream, clock)
    plain = environ.get("TERM", "dumb") in {"dumb", "unknown"} or environ.get("CI", "false") not in {"", "0", "false"}
    if stream.isatty() and is_utf8(stream) and not plain:
        from relay.cli.views.live import LiveView

        return LiveView(stream, colour=has_style(stream, environ), clock=clock, keeps_board=keeps_board)
    return PlainView(stream, clock)


class _LineView(ClockedView):
    """What plain and JSON share: a stream that is written line by line until it breaks."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._stream: TextIO | None = stream

    def suspended(self) -> AbstractContextManager[object]:
        """Do nothing: lines come only when something happens."""
        return nullcontext()

    def _write(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None  # the reader has gone; the run goes on and its log has everything


class JsonView(_LineView):
    """One event per line of ASCII JSON, in the form that ``.relay/sessions/`` has too.

    What the log leaves out stands here: secrets, and of a plan that is shown again what did not change.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__(stream, clock)
        self._at = 0.0
        self._recorder = Recorder(lambda: self._at)

    def replay(self, at: float, event: events.Event) -> None:
        """Write one event of then."""
        self._at = at
        self._write(escape_json(render_record(self._recorder.record(event))))

    def tell(self, record: LoggedEvent, *, phase_id: str) -> None:  # noqa: ARG002  # which run it is, the line says
        """Pass it on as it is."""
        self._write(escape_json(render_record(record)))

    def note_stop(self, urgency: Urgency) -> None:
        """Say nothing: programs read facts, and the last event tells how the run ended."""

    def note_loss(self) -> None:
        """Say nothing: the last event tells it by being none of an end."""


class PlainView(_LineView):
    """One line per fact with its time, without colours or cursor movement: a log file.

    How it ended, which comes last, has none: it is the answer, and programs look for it.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__(stream, clock)
        self._narrators: dict[str, Narrator] = defaultdict(Narrator)

    def replay(self, at: float, event: events.Event) -> None:
        """Write the lines of one event of then."""
        self._tell("", at, event)

    def tell(self, record: LoggedEvent, *, phase_id: str) -> None:
        """Write the lines of one event of a phase's own run."""
        self._tell(phase_id, record.at, record.event)

    def _tell(self, phase_id: str, at: float, event: events.Event) -> None:
        time_of = "" if isinstance(event, events.RunEnded) else f"{_render_time(at)} "
        for line in tell_job(self._narrators[phase_id], phase_id, event):
            self._write(f"{time_of}{render_line(line)}")

    def note_stop(self, urgency: Urgency) -> None:
        """Write past the stream's buffer, which the run's thread may be in; it is empty between lines."""
        if self._stream is None:
            return
        try:
            os.write(self._stream.fileno(), f"{STOPPING[urgency]}\n".encode())
        except (OSError, ValueError):
            return  # the reader has gone

    def note_loss(self) -> None:
        """Write it as the last line."""
        self._write(LOST)


def _render_time(at: float) -> str:
    """Write a time as the clock on the wall shows it: ``07:05:10``."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def render_line(line: Line, limit_chars: int = LONGEST_LINE_CHARS) -> str:
    """Make a line safe and not longer than a log can bear."""
    hidden = max(0, len(line.text) - 2 * limit_chars)
    text = clip(clean_line(shorten(line.text, 2 * limit_chars)), limit_chars)
    return f"{text} (+{hidden:,} more)" if hidden else text
