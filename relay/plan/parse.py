"""Parse the text of a plan into a `Plan`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter

from relay.base.errors import PlanError
from relay.plan.check import (
    HOW_TO_ADD,
    describe_conditions,
    describe_unboxed,
    list_conditions,
    list_unboxed,
)
from relay.plan.model import Item, Phase, Plan, fold_number, number_items, number_phases
from relay.plan.near_boxes import find_near_boxes
from relay.plan.outline import ITEM_LEVEL, Box, Extent, Outline, Section, find_ancestors, read_outline
from relay.plan.statements import (
    WISHES,
    find_paths,
    read_after_lines,
    read_file_list,
    read_tools,
    read_validation_commands,
    read_verify_lines,
    read_wish_lines,
)
from relay.plan.text import parse_number

_HOW = "put `- [ ] …` below a heading, or have a session make a plan of this text: relay plan --plan NEW.md - < FILE"
_EXAMPLE = "a phase is a heading with items such as `- [ ] Add the table — db/schema.py` under it"


@lru_cache(maxsize=8)  # the file's text and HEAD's, and those of jobs, which a run asks for again and again
def parse_plan(text: str) -> Plan:
    """Read a plan file.

    Linear in the length of the text; 10,000 items take well under a second (``benchmarks/parse_plan.py``).

    Raises:
        PlanError: There is no phase in it, its front matter is not usable, or it is nested or quoted so that it cannot
            be read safely. The line is known, the path is not: see `errors.within`.
    """
    outline = read_outline(text)
    sections, extents = outline.sections, outline.extents
    if not extents:
        raise _no_phase(outline)
    heads = [parse_number(sections[extent.head].title) for extent in extents]
    ids = number_phases(heads)
    boxes = [[box for section in sections[extent.head : extent.stop] for box in section.boxes] for extent in extents]
    item_ids = number_items(ids, [[box.text for box in own] for own in boxes])
    known = {fold_number(phase_id): phase_id for phase_id in ids}
    gates, phases = _Gates(outline), list[Phase]()
    for extent, head, phase_id, items in zip(extents, heads, ids, map(_read_items, item_ids, boxes), strict=True):
        section = sections[extent.head]
        phases.append(
            Phase(
                id=phase_id,
                title=head.title,
                heading=section.heading,
                line=section.line,
                start=section.start,
                end=sections[extent.stop - 1].end,
                items=items,
                verify=gates.find(extent),
                own_verify=gates.find_own(extent),
                files=_read_files(sections[extent.head : extent.stop]),
                after=_find_after(section, known, phases[-1].id if phases else None),
                wishes=tuple(_read_wishes(section)),
                tool_lines=read_tools(section),
                in_list=section.level == ITEM_LEVEL,
            )
        )
    first = extents[0].head
    return Plan(
        text=outline.text,
        title=sections[1].title if first > 1 else "",
        preamble=outline.text[sections[0].start : sections[first].start],
        phases=tuple(phases),
        outline=outline,
        settings=outline.front.settings,
    )


def find_plan_in(text: str) -> Plan | None:
    """Return the plan in a text; None if it is none."""
    try:
        return parse_plan(text)
    except PlanError:
        return None


def _read_items(ids: Sequence[str], boxes: Sequence[Box]) -> tuple[Item, ...]:
    return tuple(
        Item(
            id=item_id,
            text=box.text,
            done=box.done,
            optional=box.optional,
            line=box.line,
            mark=box.mark,
            depth=box.depth,
            paths=found.named,
            targets=found.targets,
            symbols=found.symbols,
        )
        for item_id, box in zip(ids, boxes, strict=True)
        for found in (find_paths(box.prose),)
    )


def _read_wishes(section: Section) -> Iterator[tuple[str, str, int]]:
    for word in WISHES:
        named = (line for line in read_wish_lines(section, word) if line.names)
        yield from ((word, line.names[0], line.line) for line in islice(named, 1))


def _read_files(sections: Sequence[Section]) -> tuple[str, ...]:
    listed = (path for section in sections if not section.is_notes for path in read_file_list(section))
    return tuple(dict.fromkeys(listed))


def _find_after(section: Section, known: Mapping[str, str], above: str | None) -> tuple[str, ...]:
    stated = [line for line in read_after_lines(section) if not line.prose]
    if not stated:
        return () if above is None else (above,)
    named = (known.get(fold_number(number), number) for line in stated for number in line.names)
    return tuple(dict.fromkeys(named))


class _Gates:
    """The verify commands of each phase: its own, inherited ones and the document's."""

    def __init__(self, outline: Outline) -> None:
        self._sections = outline.sections
        self._ancestors = find_ancestors(outline.sections)
        self._phase_of = {at: extent.head for extent in outline.extents for at in range(extent.head, extent.stop)}
        self._own = {0: [*outline.front.verify]}
        self._collect_validation()
        title = 1 if outline.extents[0].head > 1 else 0
        self._shared = (0, title) if title else (0,)

    def find(self, extent: Extent) -> tuple[str, ...]:
        """Return a phase's commands, the widest scope first."""
        above = [at for at in self._ancestors[extent.head] if not self._sections[at].is_notes]
        commands = []
        for at in dict.fromkeys((*self._shared, *above)):
            commands += [*self._own.get(at, ()), *_read_commands(self._sections[at])]
        return tuple(dict.fromkeys((*commands, *self.find_own(extent))))

    def find_own(self, extent: Extent) -> tuple[str, ...]:
        """Return the commands in the phase itself."""
        commands = [*self._own.get(extent.head, ())]
        for at in range(extent.head, extent.stop):
            if not self._is_in_notes(at, extent.head):
                commands += _read_commands(self._sections[at])
        return tuple(dict.fromkeys(commands))

    def _collect_validation(self) -> None:
        """Give ``Validation Commands`` to the phase it stands in, else to the heading it stands under."""
        for at, section in enumerate(self._sections):
            commands = read_validation_commands(section)
            if commands:
                scope = self._phase_of.get(at, self._ancestors[at][-1])
                self._own.setdefault(scope, []).extend(commands)

    def _is_in_notes(self, at: int, head: int) -> bool:
        inside = (*(a for a in self._ancestors[at] if a > head), *((at,) if at > head else ()))
        return any(self._sections[a].is_notes for a in inside)


def _read_commands(section: Section) -> list[str]:
    return [command for line in read_verify_lines(section) for command in line.commands]


def _no_phase(outline: Outline) -> PlanError:
    if units := list_unboxed(outline):
        return PlanError(f"no phase found: {describe_unboxed(units)}", line=units[0].line, hint=HOW_TO_ADD)
    if conditions := list_conditions(outline):
        return PlanError(f"no phase found: {describe_conditions(conditions)}", line=conditions[0].line, hint=_HOW)
    loose = outline.sections[0].boxes
    if loose:
        return PlanError(f"an item above any heading, and no phase; {_EXAMPLE}", line=loose[0].line)
    if near := next(iter(sorted(find_near_boxes(outline), key=attrgetter("line"))), None):
        return PlanError(f"no phase found: {near.message}", line=near.line)
    line = outline.front.body + 1
    return PlanError(f"no phase found; {_EXAMPLE}", line=line, hint=_HOW)
