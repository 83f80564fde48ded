"""The text of a plan for the session of one phase: the phase, the plan's goal, and what stands beside all phases.

A section without boxes that no phase holds (``## Risks`` behind the last phase, the prose between ``## Phase 2`` and
``### 2.1``) belongs to the phases under its heading, else to those under the nearest heading above that has phases.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from relay.base.values import dataclass
from relay.plan.model import Phase, Plan, Violation
from relay.plan.outline import Section, find_ancestors
from relay.plan.text import find_printed_number, is_unit

MAX_CHARS = 40_000
"""Most characters of each of the three texts, about 13,000 tokens; a session reads the rest in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The text for one session, verbatim and within `MAX_CHARS` each."""

    goal: str
    """The text above the first phase."""
    phase: str
    beside: str
    """The text of sections that no phase holds; may be empty."""
    left_chars: int = 0
    """Characters that did not fit."""

    @property
    def chars(self) -> int:
        return len(self.goal) + len(self.phase) + len(self.beside)


def cut_excerpts(plan: Plan) -> tuple[Excerpt, ...]:
    """Return the excerpt of each phase; linear in the length of the plan, and in `MAX_CHARS` for each phase."""
    outline = plan.outline
    ancestors = find_ancestors(outline.sections)
    beside = _group_beside(plan, ancestors)
    goal, left_goal = _cut(plan, outline.sections[0].start, plan.phases[0].start)
    joined: dict[tuple[int, ...], tuple[str, int]] = {}
    found = []
    for phase, extent in zip(plan.phases, outline.extents, strict=True):
        own, left = _cut_phase(plan, phase)
        owners = tuple(sorted(beside.keys() & {0, *ancestors[extent.start], extent.start}))
        if owners not in joined:  # most phases share the text
            joined[owners] = _join(plan, sorted(chain(*map(beside.__getitem__, owners)), key=attrgetter("start")))
        around, left_around = joined[owners]
        found.append(Excerpt(goal=goal, phase=own, beside=around, left_chars=left_goal + left + left_around))
    return tuple(found)


def cut_excerpt(plan: Plan, phase: Phase, claimed: Collection[str]) -> Excerpt:
    """Return the excerpt of one phase of the plan, each of its items with its id and a claim as ``[~]``."""
    found = next(cut for cut, one in zip(cut_excerpts(plan), plan.phases, strict=True) if one.id == phase.id)

    def show(part: slice) -> str:
        pieces, done = list[str](), part.start
        for item in (item for item in phase.items if part.start <= item.mark < part.stop):
            sign = "~" if item.id in claimed else plan.text[item.mark]
            label = "" if find_printed_number(item.text) == item.id else f" {item.id}"
            pieces += [plan.text[done : item.mark], sign, "]", "*" * item.optional, label]
            star = plan.text[item.mark + 2 : item.mark + 4]
            done = item.mark + 2 + (2 if star == "\\*" else star.startswith("*"))
        return "".join((*pieces, plan.text[done : part.stop]))

    return replace(found, phase=_cut_phase(plan, phase, show)[0])


def check_excerpts(plan: Plan) -> Iterator[Violation]:
    """Warn of more text around the boxes than the first message of a session holds."""
    for phase, excerpt in zip(plan.phases, cut_excerpts(plan), strict=True):
        if excerpt.left_chars and not phase.done:
            words = f"{excerpt.left_chars:,} characters of what the plan says to phase {phase.id} do not fit into the"
            rule = f"goal, phase and the text beside the phases have {MAX_CHARS:,} characters each there"
            message = f"{words} first message of its sessions, which find them in the file: {rule}"
            yield Violation(line=phase.line, message=message, warning=True)


def _group_beside(plan: Plan, ancestors: Sequence[tuple[int, ...]]) -> Mapping[int, Sequence[Section]]:
    """Return the sections that no phase holds, by the index of the heading whose phases they are for.

    Left out are boxes, which are conditions for the user, and pieces of work without a box: nobody asks for them.
    """
    outline = plan.outline
    heads = [extent.start for extent in outline.extents]
    held = {at for extent in outline.extents for at in extent}
    above = {at for head in heads for at in ancestors[head]}
    owners = above | {0, *heads}
    loose: set[int] = set()
    found: dict[int, list[Section]] = {}
    for at in range(heads[0], len(outline.sections)):
        section = outline.sections[at]
        is_work = at not in above and (is_unit(section.title) or not loose.isdisjoint(ancestors[at]))
        if at in held:
            continue
        if is_work:
            loose.add(at)
        elif section.entries and not section.boxes:
            owner = at if at in above else next((up for up in reversed(ancestors[at]) if up in owners), 0)
            found.setdefault(owner, []).append(section)
    return found


def _join(plan: Plan, sections: Sequence[Section]) -> tuple[str, int]:
    pieces, left, room = list[str](), 0, MAX_CHARS
    for section in sections:
        text, missing = _cut(plan, section.start, section.end, room=room)
        pieces.append(text)
        left, room = left + missing, max(0, room - len(text))
    return "\n\n".join(piece for piece in pieces if piece), left


def _cut_phase(plan: Plan, phase: Phase, show: Callable[[slice], str] | None = None) -> tuple[str, int]:
    """Return a phase's text; where it is too long, all its items and verify commands are in it all the same."""
    show = show or plan.text.__getitem__
    text, left = _cut(plan, phase.start, phase.end, show=show)
    if not left:
        return text, 0
    lines = plan.outline.lines
    later = (item.line for item in phase.items if item.mark >= phase.end - left)
    items = (show(slice(lines.offset(line - 1), lines.offset(line))).rstrip("\r\n") for line in later)
    gate = (f"Verify: `{command}`" for command in phase.own_verify if command not in text)
    return "\n".join((text, *gate, *items)), left


def _cut(
    plan: Plan, start: int, end: int, *, room: int = MAX_CHARS, show: Callable[[slice], str] | None = None
) -> tuple[str, int]:
    """Return a part of the plan's text, at most `room` characters, and how many were left out.

    It ends with a whole line, unless a long line would then leave half of the room empty.

    Args:
        show: Returns a part of the text; None: as it is.
    """
    stop, words, lines = end, "", plan.outline.lines
    if end - start > room:
        stop = max(start, lines.offset(lines.index_at(start + room)))
        stop = stop if 2 * (stop - start) >= room else start + room
        last = lines.index_at(end - 1) + 1
        words = f"\n[cut by relay: read lines {lines.index_at(stop) + 1} to {last} of the plan's file]"
    text = (show or plan.text.__getitem__)(slice(start, stop))
    return f"{text.strip()}{words}".strip(), end - stop
