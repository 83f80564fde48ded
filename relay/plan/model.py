"""PLAN.md as a value.

Offsets are character offsets into `Plan.text`, which is the file's text with its byte-order mark and line
endings as they are on disk. Line numbers are 1-based and count the lines that CommonMark counts: a line feed, a
carriage return or the two as a pair end a line, and nothing else does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One checkbox of a phase."""

    id: str
    """``<phase id>.<ordinal>``, ordinals from 1 in document order; stable while items are only appended."""
    text: str
    """The item's first line without bullet and box, as written."""
    done: bool
    """Whether the box holds ``x`` or ``X``."""
    line: int
    mark: int
    """Offset of the one character between the brackets."""
    depth: int
    """0 for a top-level item, 1 for an item nested in it, and so on."""
    paths: tuple[str, ...]
    """Files and folders the item names: code spans that look like paths, and the tail after `` — ``."""
    targets: tuple[str, ...] = ()
    """Those of `paths` in the tail: what the item makes or changes. Others may be there to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A heading whose own section (up to the next heading of any level) holds task items."""

    id: str
    """The number in the headings where every phase has a distinct one, else the ordinal from 1."""
    title: str
    """The heading's text without its markup and without the leading ``Phase 1 —``; all of it when nothing is left."""
    heading: str
    """The heading's text as written, without ``##``; a setext heading of several lines keeps its line ends."""
    line: int
    start: int
    """Offset of the heading's line."""
    end: int
    """Offset just past the phase: its section and its sub-sections without items of their own (Notes)."""
    items: tuple[Item, ...]
    verify: tuple[str, ...]
    """Gate commands of this phase: the document's first, then inherited ones, then its own; no repeats."""
    own_verify: tuple[str, ...]
    """Those of `verify` that stand in the phase itself: they must be green at its end, whatever was red before."""
    after: tuple[str, ...]
    """Ids of the phases that must be done first; the phase above by default."""

    @property
    def done(self) -> bool:
        """Whether every box is ticked."""
        return all(item.done for item in self.items)

    @property
    def open_items(self) -> tuple[Item, ...]:
        """The items that are not ticked, in order."""
        return tuple(item for item in self.items if not item.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A parsed plan file."""

    text: str
    title: str
    """The first heading's text; empty when there is none above the first phase."""
    preamble: str
    """What stands between front matter and the first phase: goal, constraints, non-goals."""
    phases: tuple[Phase, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The front matter's ``relay`` mapping, values unchecked; empty when there is none."""

    @property
    def done(self) -> bool:
        """Whether every phase is done."""
        return all(phase.done for phase in self.phases)

    def find_phase(self, phase_id: str) -> Phase | None:
        """Return the phase with this id."""
        return next((phase for phase in self.phases if phase.id == phase_id), None)

    def find_item(self, item_id: str) -> Item | None:
        """Return the item with this id."""
        return next((item for phase in self.phases for item in phase.items if item.id == item_id), None)

    def next_phase(self) -> Phase | None:
        """Return the first open phase whose `after` phases are all done."""
        done = {phase.id for phase in self.phases if phase.done}
        return next((p for p in self.phases if not p.done and all(a in done for a in p.after)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something in a plan, or in a change to one, that is not allowed."""

    line: int
    """1-based line in the file; 0 when it concerns the whole file."""
    message: str
    """What was found and what is allowed, one line."""
    warning: bool = False
    """A warning is shown but does not stop anything."""
