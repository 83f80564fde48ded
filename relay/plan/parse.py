"""Parse the text of a plan into a `Plan`."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from relay.base.errors import PlanError
from relay.plan.check import (
    HOW_TO_ADD,
    MAKE_PLAN,
    describe_conditions,
    describe_foreign,
    describe_unboxed,
    find_near_boxes,
    list_conditions,
    list_unboxed,
)
from relay.plan.model import Phase, Plan, number_items, number_phases
from relay.plan.outline import ITEM_LEVEL, Outline, find_ancestors, read_outline
from relay.plan.statements import (
    WISHES,
    Statement,
    read_file_list,
    read_statements,
    read_validation_commands,
)
from relay.plan.text import fold_number, parse_number

_EXAMPLE = "a phase is a heading with items such as `- [ ] Add the table — db/schema.py` under it"

_Commands = tuple[str, ...]


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
    heads = [parse_number(sections[extent.start].title) for extent in extents]
    ids = number_phases(heads)
    boxes = [[box for at in extent for box in sections[at].boxes] for extent in extents]
    item_ids = number_items(ids, [[box.text for box in own] for own in boxes])
    known = {fold_number(phase_id): phase_id for phase_id in ids}
    said = [tuple(read_statements(section)) for section in sections]
    phases = list[Phase]()
    read = zip(extents, heads, ids, boxes, item_ids, _find_gates(outline, said), strict=True)
    for extent, head, phase_id, items, named, (verify, own_verify) in read:
        section, own = sections[extent.start], said[extent.start]
        wishes, tools = dict[str, tuple[str, str, int]](), dict[str, int]()
        for one in own:
            for value in one.values if one.word in WISHES else ():
                wishes.setdefault(one.word, (one.word, value, one.line))
            for name in one.values if one.word == "tools" else ():
                tools.setdefault(name, one.line)
        listed = (path for at in extent if not sections[at].is_notes for path in read_file_list(sections[at]))
        phases.append(
            Phase(
                id=phase_id,
                title=head.title,
                heading=section.heading,
                line=section.line,
                start=section.start,
                end=sections[extent.stop - 1].end,
                items=tuple(replace(item, id=item_id) for item, item_id in zip(items, named, strict=True)),
                verify=verify,
                own_verify=own_verify,
                files=tuple(dict.fromkeys(listed)),
                after=_find_after(own, known, phases[-1].id if phases else None),
                wishes=tuple(wishes[word] for word in WISHES if word in wishes),
                tool_lines=tuple(tools.items()),
                folder=outline.front.folder,
                in_list=section.level == ITEM_LEVEL,
            )
        )
    first = extents[0].start
    return Plan(
        text=outline.text,
        title=sections[1].title if first > 1 else "",
        preamble=outline.text[sections[0].start : sections[first].start],
        phases=tuple(phases),
        outline=outline,
        reader=parse_plan,
        settings=outline.front.settings,
    )


def find_plan_in(text: str) -> Plan | None:
    """Return the plan in a text; None if it is none."""
    try:
        return parse_plan(text)
    except PlanError:
        return None


def _find_after(said: Sequence[Statement], known: Mapping[str, str], above: str | None) -> tuple[str, ...]:
    stated = [one for one in said if one.word == "after" and not one.prose]
    if not stated:
        return () if above is None else (above,)
    named = (known.get(fold_number(number), number) for one in stated for number in one.values)
    return tuple(dict.fromkeys(named))


def _find_gates(outline: Outline, said: Sequence[Sequence[Statement]]) -> Iterator[tuple[_Commands, _Commands]]:
    """Yield each phase's verify commands, the widest scope first, and those in the phase itself.

    ``Validation Commands`` are of the phase that they stand in, else of the heading that they stand under.
    """
    sections, extents, ancestors = outline.sections, outline.extents, find_ancestors(outline.sections)
    phase_of = {at: extent.start for extent in extents for at in extent}
    given = defaultdict[int, list[str]](list, {0: [*outline.front.verify]})
    for at, section in enumerate(sections):
        if commands := read_validation_commands(section):
            given[phase_of.get(at, ancestors[at][-1])] += commands
    stated = [[command for one in own if one.word == "verify" for command in one.values] for own in said]
    shared = (0, 1) if extents[0].start > 1 else (0,)
    for extent in extents:
        head = extent.start
        parts = (at for at in extent if not any(sections[n].is_notes for n in (*ancestors[at], at) if n > head))
        own = tuple(dict.fromkeys((*given[head], *(command for at in parts for command in stated[at]))))
        wide = dict.fromkeys((*shared, *(at for at in ancestors[head] if not sections[at].is_notes)))
        above = (command for at in wide for command in (*given[at], *stated[at]))
        yield tuple(dict.fromkeys((*above, *own))), own


def _no_phase(outline: Outline) -> PlanError:
    near = min(find_near_boxes(outline), key=attrgetter("line"), default=None)
    if near and not near.warning:
        return PlanError(f"no phase found: {near.message}", line=near.line)
    if units := list_unboxed(outline):
        return PlanError(f"no phase found: {describe_unboxed(units)}", line=units[0].line, hint=HOW_TO_ADD)
    if foreign := describe_foreign(outline.text):
        return PlanError(f"no phase found: this looks like {foreign}", line=1, hint=MAKE_PLAN)
    if conditions := list_conditions(outline):
        return PlanError(f"no phase found: {describe_conditions(conditions)}", line=conditions[0].line, hint=HOW_TO_ADD)
    if loose := outline.sections[0].boxes:
        return PlanError(f"an item above any heading, and no phase; {_EXAMPLE}", line=loose[0].line)
    if near:
        return PlanError(f"no phase found: {near.message}", line=near.line)
    return PlanError(f"no phase found; {_EXAMPLE}", line=outline.front.body + 1, hint=HOW_TO_ADD)
