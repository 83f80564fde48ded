"""What a command that runs prints, told as it comes: its last line, now and then."""

import time
from collections.abc import Callable

from relay.session.events import Event, GateStarted, Observe, OutputShown, SetupStarted, ToolStarted

EVERY_S = 1.0
"""Shortest time between two lines; a command that says little for less is not told of."""
_SLOWER = 60
"""After n minutes every n seconds: an hour of output is a few hundred lines of the log."""
LONGEST_CHARS = 200


class Progress:
    """Tells the last line of the command that runs. Mutable: knows since when it runs, and what was told.

    Args:
        observe: Told of new lines.
        clock: Steady seconds.
    """

    def __init__(self, observe: Observe, clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._since = self._told_at = clock()
        self._line = ""

    def note(self, event: Event) -> None:
        """Begin anew with each thing that runs commands."""
        if isinstance(event, ToolStarted | GateStarted | SetupStarted):
            self._since = self._told_at = self._clock()
            self._line = ""

    def hear(self, end: bytes) -> None:
        """Take the last bytes of what the command has printed so far."""
        now = self._clock()
        if now - self._told_at < max(EVERY_S, (now - self._since) / _SLOWER):
            return
        line = find_last_line(end)
        if line and line != self._line:
            self._line, self._told_at = line, now
            self._observe(OutputShown(line=line))


def find_last_line(end: bytes) -> str:
    """Return the last line with something in it, as a terminal would leave it: a carriage return begins it anew."""
    text = end.decode("utf-8", "replace").replace("\r", "\n")
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")[-LONGEST_CHARS:]
