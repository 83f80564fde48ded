"""Which hosts commands asked for, and what became of it."""

import threading

from relay.base.values import dataclass

NETWORK = "`network = { hosts = [...] }`"
"""The setting that names hosts for commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A host that a command asked for."""

    host: str
    """As it was asked for, with its port where that is not 443; what cannot be a name is cut and made printable."""
    refused: str = ""
    """Why it was not let through; empty when it was."""

    @property
    def words(self) -> str:
        """A sentence for whoever ran the command."""
        return f"{self.host} was refused: {self.refused}" if self.refused else f"{self.host} was reached"


MOST = 10_000
"""Of one run; a command that asks for more is not told about the rest."""


class Inquiries:
    """All that was asked for, in order. Mutable: threads write it, the run reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: list[Inquiry] = []
        self._told = 0
        self._taken = 0

    def note(self, asked: Inquiry) -> None:
        """Take one down."""
        with self._lock:
            if len(self._asked) < MOST:
                self._asked.append(asked)

    def take_refusals(self) -> tuple[str, ...]:
        """Return a sentence for each host that was refused since this was called last, for who runs commands."""
        with self._lock:
            new = self._asked[self._told :]
            self._told = len(self._asked)
        return tuple(dict.fromkeys(asked.words for asked in new if asked.refused))

    def take(self) -> tuple[Inquiry, ...]:
        """Return all that was asked for since this was called last, for who keeps the log."""
        with self._lock:
            new = tuple(self._asked[self._taken :])
            self._taken = len(self._asked)
        return new
