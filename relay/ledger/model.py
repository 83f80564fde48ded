"""Claims, later entries about them, and the ledger of all."""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from relay.base.values import dataclass

_ID_CHARS = 6
"""30 bits: of two branches with a thousand claims each, one pair in two thousand gives out the same id, and is told so.
"""


class Kind(StrEnum):
    """The kind of a claim. When claims contradict each other, the earlier kinds are given up last."""

    CONSTRAINT = "constraint"
    WARNING = "warning"
    DECISION = "decision"
    OBSERVATION = "observation"
    DEAD_END = "dead end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in a file on which a claim is based."""

    path: str
    lines: str = ""
    """``12`` or ``12-40``; empty for the whole file. With a symbol, where it stood."""
    symbol: str = ""
    """A name in the file, such as ``Client.send``; empty without one."""
    blob: str = ""
    """Hex id of the file's content then, or its beginning; empty if unknown."""
    text: str = ""
    """The same for the cited lines or the symbol; empty if unknown, and for the whole file."""
    copies: str = ""
    """Number of times that text stood in the file then; empty for once."""

    def __str__(self) -> str:
        """Write ``path``, ``path:12-40`` or ``path::Client.send``."""
        if self.symbol:
            return f"{self.path}::{self.symbol}"
        return f"{self.path}:{self.lines}" if self.lines else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The author and the time of an entry."""

    phase: str = ""
    """Empty outside of a phase."""
    session: str = ""
    """Empty for a person, and in the ledgers of older relays."""
    at: str = ""
    """UTC, such as ``2026-11-20T10:00:00Z``; empty in the ledgers of older relays."""

    @property
    def is_persons(self) -> bool:
        """Whether a person said it, by ``relay ledger``."""
        return bool(self.at) and not self.session


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A finding or a decision, with its reason."""

    id: str
    claim: str
    because: str
    kind: Kind = Kind.DECISION
    rests_on: tuple[str, ...] = ()
    """Ids of the claims that it follows from."""
    replaces: tuple[str, ...] = ()
    """Ids of the claims that it replaces, as long as it is not retracted."""
    sources: tuple[Source, ...] = ()
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """A claim was taken back."""

    of: str
    because: str
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A session or person checked that a claim holds; that ends an earlier retraction too."""

    of: str
    because: str
    sources: tuple[Source, ...] = ()
    """With their content at that time."""
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nogood:
    """Claims that cannot all hold."""

    id: str
    claims: tuple[str, ...]
    because: str
    stamp: Stamp = field(default_factory=Stamp)


Entry = Claim | Retraction | Confirmation | Nogood


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All entries, in the order of the file; `relay.ledger.parse` appends to it."""

    text: str = field(default="", compare=False)
    """The file's text; empty when there is no file yet."""
    entries: tuple[Entry, ...] = ()

    @property
    def claims(self) -> dict[str, Claim]:
        return {entry.id: entry for entry in self.entries if isinstance(entry, Claim)}

    @property
    def nogoods(self) -> tuple[Nogood, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Nogood))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source, each once."""
        return tuple(dict.fromkeys(source for entry in self.entries for source in get_sources(entry)))

    def make_id(self, letter: str, words: Iterable[str]) -> str:
        """Return a new id such as ``c4mzq7a``, a hash of the entry's words."""
        taken = {entry.id for entry in self.entries if isinstance(entry, Claim | Nogood)}
        digest = hashlib.sha256("\0".join(words).encode("utf-8", "replace")).digest()
        name = base64.b32encode(digest).decode().lower().rstrip("=")
        lengths = range(_ID_CHARS, len(name) + 1)
        return next(made for length in lengths if (made := f"{letter}{name[:length]}") not in taken)

    def make_time(self, now: str, of: Iterable[str] = ()) -> str:
        """Return the time of an entry about claims: after all entries about them, whatever the clocks say.

        Args:
            now: In the form of `Stamp.at`.
        """
        about = set(of)
        said = ((e.id if isinstance(e, Claim | Nogood) else e.of, e.stamp.at) for e in self.entries)
        last = max((at for subject, at in said if subject in about), default="")
        if now > last:
            return now
        return render_stamp_time(datetime.fromisoformat(last) + timedelta(seconds=1))


def render_stamp_time(moment: datetime) -> str:
    """Write a moment in the form of `Stamp.at`, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_sources(entry: Entry) -> tuple[Source, ...]:
    """Return the sources of an entry."""
    return entry.sources if isinstance(entry, Claim | Confirmation) else ()
