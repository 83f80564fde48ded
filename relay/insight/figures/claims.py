"""Which claims of the ledger a session used, of those that its first message had."""

import re
from collections.abc import Iterable

from relay.base.values import dataclass
from relay.session.events import ShownClaim

MOST_CLAIMS = 1_000
"""Claims of one first message that are followed; relay shows far fewer."""
_WORD = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUse:
    """A claim that a session was shown. Reading or changing a cited file is no proof that the claim was the reason."""

    id: str
    tokens: int
    """Estimated size of its line."""
    named: bool
    """The session named its id, in its words or in what it recorded."""
    read: bool
    """It read a file that the claim cites."""
    changed: bool
    """It changed one, by name."""

    @property
    def used(self) -> bool:
        return self.named or self.read or self.changed


class ClaimTally:
    """The claims that a session was shown. Mutable."""

    def __init__(self, shown: Iterable[ShownClaim]) -> None:
        self._shown = tuple(shown)[:MOST_CLAIMS]
        self._ids = {claim["id"] for claim in self._shown}
        self._paths = {path for claim in self._shown for path in claim["paths"]}
        self._named: set[str] = set()
        self._read: set[str] = set()
        self._changed: set[str] = set()

    def hear(self, text: str) -> None:
        """Note the session's words."""
        if self._ids:
            self._named |= self._ids.intersection(_WORD.findall(text))

    def touch(self, read: Iterable[str], changed: Iterable[str]) -> None:
        """Note files that it read and changed."""
        self._read |= self._paths.intersection(read)
        self._changed |= self._paths.intersection(changed)

    @property
    def uses(self) -> tuple[ClaimUse, ...]:
        """Each claim, in the order in which it was shown."""
        return tuple(
            ClaimUse(
                id=claim["id"],
                tokens=claim["tokens"],
                named=claim["id"] in self._named,
                read=not self._read.isdisjoint(claim["paths"]),
                changed=not self._changed.isdisjoint(claim["paths"]),
            )
            for claim in self._shown
        )
