"""Claims, conflicts, later judgements, and the ledger they make up."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from relay.values import dataclass


class ClaimStatus(StrEnum):
    """Where a claim or a conflict stands."""

    IN = "in"
    OUT = "out"
    STALE = "stale"
    """Its source has changed since."""
    OPEN = "open"
    """A conflict that is not settled yet: every conflict begins so, and this status is never written."""
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place that a claim was read from."""

    path: str
    blob: str = ""
    """Hex id of the file's content then; empty when unknown."""
    lines: str = ""
    """``12`` or ``12-40``; empty for the whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Something a session found out, with its reason."""

    id: str
    claim: str
    because: str
    rests_on: tuple[str, ...] = ()
    """Ids of the earlier claims it was concluded from."""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Claims that cannot all hold."""

    id: str
    claims: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A later judgement on a claim or a conflict."""

    id: str
    status: ClaimStatus
    because: str


Entry = Claim | Conflict | StatusChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All entries, in the order of the file; `relay.ledger.append` makes a longer one."""

    text: str = field(default="", compare=False)
    """The file's text; empty when there is no file yet."""
    claims: tuple[Claim, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    changes: Mapping[str, StatusChange] = field(default_factory=dict)
    """The last change of each id."""

    def status_of(self, entry: Claim | Conflict) -> ClaimStatus:
        """Return where an entry stands now."""
        change = self.changes.get(entry.id)
        begin = ClaimStatus.IN if isinstance(entry, Claim) else ClaimStatus.OPEN
        return change.status if change else begin

    def next_id(self) -> str:
        """Return a free id for a claim, such as ``c7``."""
        taken = {claim.id for claim in self.claims} | {conflict.id for conflict in self.conflicts}
        number = len(self.claims) + 1
        while f"c{number}" in taken:
            number += 1
        return f"c{number}"
