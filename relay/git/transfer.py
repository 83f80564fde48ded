"""How far a fetch or a push is, of what git and the remote say of it."""

import re
import time
from collections.abc import Callable

_PROGRESS = re.compile(
    rb"(?:remote: )?([A-Z][a-z]+ (?:objects|deltas)): +([0-9]{1,3}% \([0-9]+/[0-9]+\)(?:, [0-9.]+ [KMG]?i?B)?)"
)
"""All that is shown of it: nobody else's words, and nothing for a terminal."""
_UNTOLD_S = 2.0
"""A transfer that takes longer is told of; again when it has taken twice as long."""

_SILENT_S = 30.0
"""So is one of which nothing was heard for so long."""


class Transfer:
    """Tells how far a transfer is, once it takes a while, and ever less often. Mutable: it goes on.

    Args:
        what: The transfer, in words.
        clock: In seconds.
    """

    def __init__(
        self, what: str, tell: Callable[[str], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what, self._tell, self._clock = what, tell, clock
        self._begun_s = clock()
        self._due_s = _UNTOLD_S
        self._last = b""

    @property
    def age_s(self) -> float:
        """How long it has taken so far."""
        return self._clock() - self._begun_s

    def look(self, said: bytes) -> bool:
        """Look at all that was said so far; return whether it has come further since the last look."""
        found = _PROGRESS.findall(said)
        before, self._last = self._last, b": ".join(found[-1]) if found else b""
        took_s = self.age_s
        if took_s >= (self._due_s if self._last else max(self._due_s, _SILENT_S)):
            self._due_s = 2 * took_s
            self._tell(f"{self.what}: {self._last.decode() or 'no answer yet'}")
        return self._last != before


def is_progress(line: str) -> bool:
    """Return whether a line says how far a transfer is, and nothing of how it ended."""
    return _PROGRESS.match(line.encode(errors="replace")) is not None
