"""What a session was shown, and what of it is superseded: noise that every later prompt carries."""

from relay.base.values import dataclass
from relay.session.values import Shown

MOST_PARTS = 5_000
"""Parts of files that are remembered of a session; of more the oldest are forgotten and count as no noise."""
MOST_PATHS = 20_000
"""Files that are remembered by name."""


@dataclass(slots=True, kw_only=True)
class _Excerpt:
    """A part of a file as it stands in the context. Mutable: it is superseded once."""

    first: int
    last: int
    sha256: str
    tokens: int
    superseded: bool = False


class Reads:
    """The reads of one session. Mutable: follows them.

    A result is superseded by a later one that shows the same part again (whatever the file holds by then), and one of
    a failed call by the same call made again. The second page of a file supersedes nothing of the first.
    """

    def __init__(self) -> None:
        self.noise_tokens = 0
        """Superseded tokens that are in context."""
        self.duplicates = 0
        self.duplicate_tokens = 0
        self.shown: set[str] = set()
        """Files that the session was shown a part of."""
        self._parts: dict[str, list[_Excerpt]] = {}
        self._count = 0
        self._failed: dict[tuple[str, str], int] = {}

    def show(self, shown: Shown, sha256: str, tokens: int) -> None:
        """Take a part of a file in."""
        if len(self.shown) < MOST_PATHS:
            self.shown.add(shown.path)
        parts = self._parts.setdefault(shown.path, [])
        for part in parts:
            if part.superseded or not shown.first_line <= part.first <= part.last <= shown.last_line:
                continue
            part.superseded = True
            self.noise_tokens += part.tokens
            if (part.first, part.last, part.sha256) == (shown.first_line, shown.last_line, sha256):
                self.duplicates += 1
                self.duplicate_tokens += tokens
        parts[:] = [part for part in parts if not part.superseded]
        parts.append(_Excerpt(first=shown.first_line, last=shown.last_line, sha256=sha256, tokens=tokens))
        self._count += 1
        if self._count > MOST_PARTS:
            self._forget()

    def answer(self, signature: tuple[str, str], *, is_error: bool, tokens: int) -> None:
        """Take the result of a call in: one that failed is superseded once the same call is made again."""
        self.noise_tokens += self._failed.pop(signature, 0)
        if is_error and len(self._failed) < MOST_PARTS:
            self._failed[signature] = tokens

    def drop(self) -> None:
        """Forget what is in context: it was compacted."""
        self.noise_tokens = 0
        self._failed.clear()
        self._forget()

    def _forget(self) -> None:
        self._parts.clear()
        self._count = 0
