"""What the model claimed and did in one leg. Claims, not facts: relay checks before anything is ticked."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import field

from relay.base.tree import Look
from relay.base.values import dataclass
from relay.ledger import Kind, Ledger, Source
from relay.plan.model import Phase, Plan
from relay.session.events import QuestionAsked

Keep = Callable[[str], bool]
"""Told before a tool replaces the file at a path: keeps what nothing else keeps. Returns whether the file is not as
relay's last look at it found it."""
LookFirst = Callable[[], Callable[[], object]]
"""Told when a command is asked for; what it returns is called before that begins, and keeps what nothing else keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A finding that the model wants kept for later sessions."""

    claim: str
    because: str
    kind: Kind = Kind.DECISION
    replaces: tuple[str, ...] = ()
    """Ids of claims; each was in the ledger."""
    sources: tuple[Source, ...]
    """Relative to the root; each existed when it was recorded. Which content it had then is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """A change to an open phase that the model asks for."""

    phase_id: str
    items: tuple[str, ...]
    """Texts of new items, without bullet and box; empty when it is a note."""
    note: str
    """One line; empty when only items are added."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOff:
    """What the model passes on to the next session of its phase."""

    next_step: str
    learned: tuple[str, ...]
    dead_ends: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class LegNotes:
    """Filled by the tools while the session runs, read by the loop when it ends. Mutable: the tools fill it."""

    plan: Plan
    """As the session's amendments leave it, without its own ticks; new items can be ticked at once."""
    phase: Phase
    """The phase of this leg in `plan`; only its items can be ticked."""
    ledger: Ledger = field(default_factory=Ledger)
    """With what the session recorded."""
    find_beside: Callable[[], Collection[str]] = frozenset
    """Says which phases have a work tree of their own beside this one: what is amended there is not seen there."""
    claims: dict[str, str] = field(default_factory=dict)
    """Item id to evidence, in the order they came. The caller puts claims of earlier legs in first."""
    records: list[Record] = field(default_factory=list)
    amendments: list[Amendment] = field(default_factory=list)
    questions: list[QuestionAsked] = field(default_factory=list)
    """Left to the user; each stands in the plan's notes."""
    hand_off: HandOff | None = None
    blocked: str | None = None
    """The reason given to `block`; None when it was not called."""
    seen: dict[str, Look] = field(default_factory=dict)
    """What files looked like when the model last saw at least a part of them, or wrote them."""
    touched_paths: dict[str, None] = field(default_factory=dict)
    """Files that edit and write changed, in the order they came; what commands changed is not known here."""
    last_errors: dict[str, str] = field(default_factory=dict)
    """Tool name to the text of its last failure, until it succeeds again."""
    counts: Counter[str] = field(default_factory=Counter)
    """Calls by tool name, unknown names included."""

    def open_ids(self) -> tuple[str, ...]:
        """Return the items of the phase that are neither ticked nor claimed, in order."""
        return tuple(item.id for item in self.phase.open_items if item.id not in self.claims)
