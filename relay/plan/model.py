"""PLAN.md as a value, and the ids of its phases and items: their numbers in the plan if unique, else ordinals.

Offsets are character offsets into `Plan.text`, which is the file's text with its byte-order mark and line
endings as they are on disk. Line numbers are 1-based and count the lines that CommonMark counts: a line feed, a
carriage return or the two as a pair end a line, and nothing else does.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from relay.base.hints import Hint
from relay.base.values import dataclass
from relay.plan.outline import Item as Item  # noqa: PLC0414  # a part of the model
from relay.plan.outline import Outline, Section
from relay.plan.text import Numbered, find_printed_number, fold_number, parse_number, render_plain


def number_phases(heads: Sequence[Numbered]) -> tuple[str, ...]:
    """Return the phases' ids: the numbers in the headings, or ordinals if those cannot tell phases and items apart.

    ``2`` and ``2.1`` as phases would give two things the id ``2.1``, so such numbers are not used, even if they do not
    collide today: appending an item must never change an id.
    """
    numbers = [head.number for head in heads]
    folded = {number.casefold() for number in numbers}
    unique = len(folded) == len(numbers) and "" not in folded
    if unique and not any(number.rpartition(".")[0] in folded for number in folded):
        return tuple(numbers)
    return tuple(str(ordinal) for ordinal in range(1, len(heads) + 1))


def number_items(phase_ids: Sequence[str], texts: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the ids of each phase's items; no id stands twice, and none is a number that another item prints.

    A number that one item of the plan prints is its id: ``1.2``, and ``1`` if no such whole number repeats. Every
    other item is ``<phase>.<ordinal>``, or ``<phase>/<ordinal>`` if some item prints that.

    Args:
        texts: For each phase, its items' texts.
    """
    printed = [[find_printed_number(text) for text in items] for items in texts]
    counts = Counter(fold_number(number) for numbers in printed for number in numbers if number)
    wholes_differ = all("." in number or count == 1 for number, count in counts.items())
    for phase_id, numbers in zip(phase_ids, printed, strict=True):
        yield tuple(
            number
            if number and counts[fold_number(number)] == 1 and ("." in number or wholes_differ)
            else f"{phase_id}{'/' if fold_number(f'{phase_id}.{ordinal}') in counts else '.'}{ordinal}"
            for ordinal, number in enumerate(numbers, start=1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A heading whose own section (up to the next heading of any level) holds task items."""

    id: str
    """The number in the heading if every phase has a distinct one, else the ordinal from 1."""
    title: str
    """The heading's text without its markup and without the leading ``Phase 1 —``; all of it if nothing else is left.
    """
    heading: str
    """The heading's text as written, without ``##``; a setext heading of several lines keeps its line ends."""
    line: int
    start: int
    """Offset of the heading's line."""
    end: int
    """Offset just past the phase: its section and its sub-sections without items of their own (Notes)."""
    items: tuple[Item, ...]
    verify: tuple[str, ...]
    """Verify commands of this phase: the document's first, then inherited ones, then its own; no repeats."""
    own_verify: tuple[str, ...]
    """The `verify` commands in the phase itself: they must be green at its end, even if they were red before."""
    files: tuple[str, ...]
    """Files and folders that the phase itself lists, below a label such as ``**Files:**``."""
    after: tuple[str, ...]
    """Ids of the phases that must be done first; the phase above by default."""
    wishes: tuple[tuple[str, str, int], ...] = ()
    """What it says of its sessions and its gate: ``runner``, ``model``, ``effort`` or ``in``, the value, and the line;
    each at most once."""
    tool_lines: tuple[tuple[str, int], ...] = ()
    """Names of the tool servers for its sessions, each with its line."""
    folder: str = ""
    """The directory that the front matter names for the verify commands of all phases; empty without one."""
    in_list: bool = False
    """It is a numbered item of a list with its sub-items, and no heading."""

    @property
    def runner(self) -> str:
        """Name of the runner of its sessions; empty if the settings choose."""
        return self.find_wish("runner")[0]

    @property
    def model(self) -> str:
        """The model of its sessions; empty if the settings choose."""
        return self.find_wish("model")[0]

    @property
    def effort(self) -> str:
        """How hard that model thinks; empty if the settings choose."""
        return self.find_wish("effort")[0]

    def find_wish(self, word: str) -> tuple[str, int]:
        """Return the value for ``runner``, ``model``, ``effort`` or ``in`` and its line; empty and 0 without one."""
        return next(((value, line) for name, value, line in self.wishes if name == word), ("", 0))

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.tool_lines)

    @property
    def done(self) -> bool:
        """Whether every box is ticked but the optional ones and those of a person."""
        return not self.open_items

    @property
    def open_items(self) -> tuple[Item, ...]:
        """The unticked items in order, without optional ones and those for a person."""
        return tuple(item for item in self.items if item.state == "open")

    @property
    def open_paths(self) -> tuple[str, ...]:
        """Paths of the phase and its open items, each once."""
        named = (path for item in self.open_items for path in item.paths)
        return tuple(dict.fromkeys((*named, *self.files)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A parsed plan file. It is read once, at the edge, and passed on as this value."""

    text: str
    """The file's text; `relay.plan.text` makes bytes of it."""
    title: str
    """The first heading's text; empty if there is none above the first phase."""
    preamble: str
    """The text between front matter and the first phase: goal, constraints, non-goals."""
    phases: tuple[Phase, ...]
    outline: Outline = field(repr=False, compare=False)
    """Sections of the text; checks and edits start from it instead of parsing again."""
    reader: Callable[[str], "Plan"] = field(repr=False, compare=False)
    """`parse_plan`, which imports this module."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The front matter's ``relay`` mapping, values unchecked; empty when there is none."""

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(item for phase in self.phases for item in phase.items)

    @property
    def done_ids(self) -> frozenset[str]:
        return frozenset(item.id for item in self.items if item.done)

    @property
    def done(self) -> bool:
        return all(phase.done for phase in self.phases)

    @property
    def left_to_person(self) -> tuple[Item, ...]:
        """Open items for a person in phases whose other items are done."""
        return tuple(item for phase in self.phases if phase.done for item in phase.items if item.state == "yours")

    @property
    def parts(self) -> Iterator[tuple[Phase, tuple[Section, ...]]]:
        """Each phase with its sections, its heading's first."""
        sections = self.outline.sections
        for phase, extent in zip(self.phases, self.outline.extents, strict=True):
            yield phase, sections[extent.start : extent.stop]

    def find_phase(self, phase_id: str) -> Phase | None:
        """Return the phase with this id."""
        return next((phase for phase in self.phases if phase.id == phase_id), None)

    def list_saying(self, number: str) -> tuple[Phase, ...]:
        """Return the phases with this number in the heading but another id."""
        wanted = fold_number(number)
        said = ((phase, fold_number(parse_number(render_plain(phase.heading)).number)) for phase in self.phases)
        return tuple(phase for phase, found in said if found == wanted != fold_number(phase.id))

    def find_waits(self) -> Mapping[str, tuple[str, ...]]:
        """Return the phases that each phase waits for: those of its `after` that are open or unknown.

        A phase that comes after the one above it, which is done, waits for what that one waits for: a finished phase
        does not end the order of the others.
        """
        done = {phase.id for phase in self.phases if phase.done}
        waits: dict[str, tuple[str, ...]] = {}
        above = ""
        for phase in self.phases:
            follows = above in done and phase.after == (above,)
            waits[phase.id] = waits[above] if follows else tuple(a for a in phase.after if a not in done)
            above = phase.id
        return waits

    def next_phase(self) -> Phase | None:
        """Return the first open phase that waits for no other."""
        waits = self.find_waits()
        return next((phase for phase in self.phases if not (phase.done or waits[phase.id])), None)

    def tick(self, item_ids: Collection[str]) -> "Plan":
        """Return the plan with these items ticked: one character of the text for each that is open.

        Raises:
            LookupError: It has no such item. Ignoring the claim would lose it.
        """
        if unknown := set(item_ids).difference(item.id for item in self.items):
            raise LookupError(*sorted(unknown))
        return self._mark({item.mark for item in self.items if not item.done and item.id in item_ids}, "x")

    def untick(self, item_ids: Collection[str]) -> "Plan":
        """Return the plan with ``[ ]`` for these items; unknown ids are ignored."""
        return self._mark({item.mark for item in self.items if item.id in item_ids}, " ")

    def _mark(self, marks: Collection[int], sign: str) -> "Plan":
        return self.reader(self.outline.lines.put(marks, sign).text) if marks else self


_NO_WORD = re.compile(r"[\W_]+")

Meaning = tuple[object, ...]


def find_meaning(phase: Phase, *, items: bool = True) -> Meaning:
    """Return what a phase asks for: its id, gates, order, wishes, and its items by id, box, place and paths."""
    said = (phase.id, phase.verify, phase.own_verify, phase.files, phase.after, phase.folder)
    wishes = tuple((word, value) for word, value, _ in phase.wishes)
    boxes = ((i.id, i.done, i.optional, i.manual, i.depth, i.paths, i.targets) for i in phase.items)
    return (*said, wishes, phase.tools, tuple(boxes) if items else ())


def is_reformatted(before: Plan, after: Plan) -> bool:
    """Return whether two plans differ in blanks, marks and line ends only.

    Every letter and digit is in its place, and so is every box, command, path and setting to the last character: a
    formatter must not be able to change the meaning of a plan.
    """
    one, other = (
        (_NO_WORD.sub("", plan.text), plan.settings, [find_meaning(phase) for phase in plan.phases])
        for plan in (before, after)
    )
    return one == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A fault in a plan, or in a change to one."""

    line: int
    """1-based line in the file; 0 when it concerns the whole file."""
    message: str
    """One line: what is wrong, and what is allowed."""
    warning: bool = False
    """A warning is shown but does not stop anything."""
    hint: Hint = ""
    """What to do about it; may be empty."""
