"""Choose the view of a run: live on a terminal, plain lines elsewhere, JSON with ``--json``; and the last two."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TextIO

from relay.base.interrupts import Urgency
from relay.cli.screen import escape_json, has_style, is_utf8
from relay.cli.views.base import View
from relay.cli.views.narrate import LOST, STOPPING, Narrator, render_line
from relay.session import events
from relay.session.records import LoggedEvent, render_record


def make_view(
    *,
    json: bool,
    stream: TextIO,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
    keeps_board: bool = False,
) -> View:
    """Return a view: JSON if wanted, live on a terminal that can move its cursor, else plain lines.

    A CI service (variable ``CI``) may offer a terminal but keeps its output as a log: it gets plain lines.

    Args:
        json: One event per line, for programs.
        stream: Standard output.
        environ: ``TERM``, ``CI`` and ``NO_COLOR`` are read from it.
        clock: Seconds since the epoch.
        keeps_board: Whether a live view leaves its last picture on the terminal.
    """
    if json:
        return JsonView(stream, clock)
    plain = environ.get("TERM", "dumb") in {"dumb", "unknown"} or environ.get("CI", "false") not in {"", "0", "false"}
    if stream.isatty() and is_utf8(stream) and not plain:
        from relay.cli.views.live import LiveView

        return LiveView(stream, colour=has_style(stream, environ), clock=clock, keeps_board=keeps_board)
    return PlainView(stream, clock)


class PlainView(View):
    """One line per fact with its time, without colours or cursor movement, as in a log file.

    The lines about the run's end have no time: they are the answer, and programs search for them.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._stream: TextIO | None = stream
        self._narrators: dict[str, Narrator] = defaultdict(Narrator)

    def tell(self, record: LoggedEvent, *, phase_id: str = "") -> None:
        """Write the lines of an event."""
        is_end = isinstance(record.event, events.RunEnded)
        time_of = "" if is_end else time.strftime("%H:%M:%S ", time.localtime(record.at))
        for line in self._narrators[phase_id].tell(record.event, phase_id):
            self._write(f"{time_of}{render_line(line)}")

    def note_stop(self, urgency: Urgency) -> None:
        """Write around the stream's buffer, which the run's thread may be using; it is empty between lines."""
        if self._stream is None:
            return
        try:
            os.write(self._stream.fileno(), f"{STOPPING[urgency]}\n".encode())
        except (OSError, ValueError):
            return  # the reader is gone

    def note_loss(self) -> None:
        """Write the loss as the last line."""
        self._write(LOST)

    def _write(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None  # the reader is gone; the run goes on, and its log has everything


class JsonView(PlainView):
    """One event per line of ASCII JSON, in the form of ``.relay/sessions/``.

    Unlike the log it redacts no secrets, and shows the plan whole each time.
    """

    def tell(self, record: LoggedEvent, *, phase_id: str = "") -> None:  # noqa: ARG002  # the line names its run
        """Write an event."""
        self._write(escape_json(render_record(record)))

    def note_stop(self, urgency: Urgency) -> None:
        """Do nothing: the last event tells a program how the run ended."""

    def note_loss(self) -> None:
        """Do nothing: a program sees that the end event is missing."""
