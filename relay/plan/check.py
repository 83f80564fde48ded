"""Check that a plan says what its author meant. Pure: `Plan` in, violations out.

A plan that parses can still lead to a stall, a skipped item or a missing gate. A fault that loses work or stops a run
is an error; one that weakens it is a warning.

A run works through boxes. It would pass over a task under a heading of its own, or in a ``<task>`` of GSD's, that has
no box, and would pay for boxes below ``Success criteria`` as for work.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.words import HIDING, list_some, shorten
from relay.plan.excerpt import check_excerpts
from relay.plan.model import Phase, Plan, Violation
from relay.plan.outline import PUT_OFF_SIGNS, Entry, EntryKind, Outline, Section, find_ancestors, find_end
from relay.plan.statements import (
    WISHES,
    find_statement,
    is_validation,
    read_statements,
    read_validation_commands,
)
from relay.plan.text import (
    Lines,
    describe_outside,
    find_unit_numbers,
    is_condition,
    is_unit,
    parse_number,
    render_plain,
)

_HIDDEN_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]+\S", re.MULTILINE)
_SHOWN_CHARS = 60
_SHOWN_NAMES = 8
_MAX_COMMAND_CHARS = 4_000
_UNSEEN = re.compile(rf"[\0-\x08\x0b-\x1f\x7f-\x9f\u200c\u200d\u2028\u2029\ufffd{HIDING}]")
"""Control characters but tab and line feed, characters that hide or reorder text, joiners, and the sign for NUL."""
_LONE_RETURN = re.compile(r"\r(?!\n)")


def check_plan(plan: Plan) -> tuple[Violation, ...]:
    """Return the faults of a plan in line order; warnings are marked."""
    outline = plan.outline
    heads = {extent.start for extent in outline.extents}
    found = [
        *_check_numbers(plan),
        *check_order(plan),
        *_check_gates(plan, outline),
        *_check_items(plan, outline),
        *_check_headings(outline, heads),
        *(found for section in outline.sections for entry in section.entries for found in _check_entry(entry)),
        *check_coverage(outline),
        *check_excerpts(plan),
        *find_near_boxes(outline),
        *_check_foreign(plan),
        *_check_line_ends(plan.text),
    ]
    return tuple(sorted(found, key=lambda violation: violation.line))


def _check_foreign(plan: Plan) -> Iterator[Violation]:
    """Warn of a plan of another tool whose few boxes are not its work."""
    if len(plan.phases) == 1 and (words := describe_foreign(plan.text)):
        first = plan.phases[0]
        message = f"this looks like {words}; its boxes are read as phase {first.id}"
        yield Violation(line=first.line, message=message, warning=True, hint=MAKE_PLAN)


def _check_numbers(plan: Plan) -> Iterator[Violation]:
    sections = plan.outline.sections
    parents = {one.line: above[-1] for one, above in zip(sections, find_ancestors(sections), strict=True)}
    ids = {phase.id for phase in plan.phases}
    seen: dict[str, Phase] = {}
    other: list[tuple[int, str]] = []
    for phase in plan.phases:
        number = parse_number(render_plain(phase.heading)).number.casefold()
        first = seen.setdefault(number, phase) if number else phase
        if first is not phase and parents[first.line] == parents[phase.line]:
            yield _error(phase.line, f"phase number {number} is taken by line {first.line}; give each phase its own")
        elif number and number != phase.id.casefold() and (not phase.done or (not plan.done and number in ids)):
            # Whoever asks for the phase by that number gets another phase, or none.
            other.append((phase.line, f"{number}, but relay counts it as phase {phase.id}"))
    why = "because not every phase carries a number of its own; number all of them or none"
    yield from _join(other, f"this heading says {{}}, {why}", f"these headings say {{}}, {why}")


def check_order(plan: Plan) -> Iterator[Violation]:
    """Yield errors in the order of phases; at least one if no open phase can begin and not all are done."""
    waits = {phase.id: phase.after for phase in plan.phases}
    places = {phase_id: at for at, phase_id in enumerate(waits)}
    for phase in plan.phases:
        for target in (target for target in phase.after if target not in waits):
            words = f"which is no phase; there are {list_some(list(waits))}"
            yield _error(phase.line, f"phase {phase.id} comes after {target}, {words}")
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        way = error.args[1][:0:-1]
        begin = min(range(len(way)), key=lambda at: places[way[at]])
        words = " → ".join((*way[begin:], *way[:begin], way[begin]))
        line = plan.phases[places[way[begin]]].line
        rule = "change an `After:` line (the default is the phase above)"
        yield _error(line, f"phases wait for each other: {words}; {rule}")


def _check_gates(plan: Plan, outline: Outline) -> Iterator[Violation]:
    bare = [(phase.line, phase.id) for phase in plan.phases if not phase.verify and not phase.done]
    why = "no `Verify:` line; a run refuses that unless the settings have verify commands or --unchecked is typed"
    yield from _join(bare, f"phase {{}} has {why}", f"phases {{}} have {why}")
    seen: set[str] = set()
    for phase in plan.phases:
        for command in (command for command in phase.verify if command not in seen):
            if words := find_obscurity(command):  # nobody can review it
                yield _error(phase.line, f"a verify command of phase {phase.id} {words}")
        seen.update(phase.verify)
    heads = {extent.start for extent in outline.extents}
    done = {section.line for phase, sections in plan.parts if phase.done for section in sections}
    for at, section in enumerate(outline.sections):
        yield from _check_statements(section, is_head=at in heads, is_done=section.line in done)
        if section.line not in done:
            yield from _check_validation(section)


def _check_validation(section: Section) -> Iterator[Violation]:
    if not is_validation(section):
        return
    ways = "list the commands as `- `command`` or in one code block"
    if section.boxes:
        yield _warning(section.line, f"the boxes here make this section a phase, and no gate; {ways}, without boxes")
    elif not read_validation_commands(section):
        yield _warning(section.line, f"nothing in this section is read as a command; {ways}")


def find_obscurity(command: str) -> str:
    """Return why a person who reads a command does not see what it does; empty if nothing is hidden."""
    found = _UNSEEN.search(command)
    if found:
        return f"holds the character U+{ord(found[0]):04X}, which a screen does not show; take it out"
    if len(command) > _MAX_COMMAND_CHARS:
        return f"has {len(command):,} characters; {_MAX_COMMAND_CHARS:,} are allowed, put the rest into a script"
    return ""


def _check_statements(section: Section, *, is_head: bool, is_done: bool) -> Iterator[Violation]:
    """Warn of lines that have no effect, or hardly the one that is meant."""
    first = dict[str, int]()
    for one in read_statements(section):
        word, shown = one.word, shorten(one.prose, _SHOWN_CHARS)
        if word == "verify" and not is_done:
            if not one.values:
                yield _warning(one.line, "`Verify:` names no command; put it in backticks on the same line or below")
        elif word == "after" and one.prose and not is_done:
            rule = "because it names no phase by number; write `After: 1, 3` or `After: none`"
            yield _warning(one.line, f"`After: {shown}` is read as prose, {rule}")
        elif word in WISHES and one.prose:
            # Plans estimate the effort of people, and describe models.
            if word in {"runner", "in"} or (word == "model" and " " not in one.prose):
                title, named = word.capitalize(), "directory" if word == "in" else word
                yield _warning(one.line, f"`{title}: {shown}` is read as prose, because that names no {named}")
        elif word in WISHES and not is_head:
            rule = f"the front matter says it for all phases: `relay: {{{word}: {one.values[0]}}}`"
            yield _warning(one.line, f"`{word.capitalize()}:` counts below a phase's own heading only; {rule}")
        elif word == "in" and (words := describe_outside(one.values[0])):
            yield _error(one.line, words)
        elif word in WISHES and first.setdefault(word, one.line) != one.line:
            yield _error(one.line, f"this phase has a {word} in line {first[word]} already; keep one of them")


def _check_items(plan: Plan, outline: Outline) -> Iterator[Violation]:
    for box in outline.sections[0].boxes:
        yield _error(box.line, "this item stands above the first heading, so it is in no phase; put a heading above it")
    for phase in plan.phases:
        yield from _check_repeats(phase)
    items = [(phase, item) for phase in plan.phases for item in phase.open_items]
    out = [(item.line, f"`{shorten(path, _SHOWN_CHARS)}`") for _, item in items for path in item.refused]
    rule = "out of the repository; paths are relative to its root"
    yield from _join(out, f"{{}} leads {rule}", f"{{}} lead {rule}")
    bare = [
        (item.line, item.id)
        for phase, item in items
        if not item.paths and not phase.files and not (phase.in_list and item is phase.items[0] and phase.items[1:])
    ]
    rule = "no file or folder; add it at the end, as in ` — src/keys.py`"
    yield from _join(bare, f"item {{}} names {rule}", f"items {{}} name {rule}")
    yield from _check_signs(plan)


def _check_signs(plan: Plan) -> Iterator[Violation]:
    """Warn of boxes that are neither blank nor ticked, of items for a person, and of phases without work for relay."""
    signs = [(item, plan.text[item.mark]) for phase in plan.phases for item in phase.items if not item.done]
    begun = [(item.line, item.id) for item, sign in signs if sign != " " and not item.optional]
    rule = "neither blank nor `x` in its box, and is open for relay"
    yield from _join(
        begun, f"item {{}} has {rule}", f"items {{}} have {rule.replace('its box, and is', 'their boxes, and are')}"
    )
    put_off = [(item.line, item.id) for item, sign in signs if sign in PUT_OFF_SIGNS and item.optional]
    rule = "put off (`[>]`, `[-]`), so relay passes over"
    yield from _join(
        put_off,
        f"item {{}} is {rule} it; write `[ ]` if it is work",
        f"items {{}} are {rule} them; write `[ ]` if they are work",
    )
    manual = [(item.line, item.id) for phase in plan.phases for item in phase.items if item.state == "yours"]
    rule = "for a person: no session ticks"
    yield from _join(manual, f"item {{}} is {rule} it", f"items {{}} are {rule} them")
    for phase in plan.phases:
        if phase.done and not any(item.done for item in phase.items):
            words = "are optional (`[ ]*`), put off or for a person, so relay passes over it"
            yield _warning(phase.line, f"all items of phase {phase.id} {words}")


_NEAR_BOX = re.compile(
    r"(?:(?:[-*+•–—]|\d{1,9}[.)])\s*+)?\[\s*+(?:(?:[xX_]|[^\w\s\[\]()])\ufe0f?\s*+)?\](?![(\[:])"
    r"|(?P<word>\[[^\W_]\])\s+(?=\S)"
)


def find_near_boxes(outline: Outline) -> Iterator[Violation]:
    """Yield lines that look like an item and are none, as ``- []`` and ``- [!] text``: a run would pass over them.

    A letter or digit marks a source in a list of sources as well: it is an error beside boxes, else a warning.

    In 192 plans with 5,375 boxes of five public repositories there was none of the first form. A line with a box and no
    bullet is left alone: the one that there was held three choices. So is ``- ( )``: of four public lists three were
    choices. Of ten public ``- [/]`` all were tasks that somebody had begun.
    """
    for section, entry in ((one, entry) for one in outline.sections for entry in one.entries):
        found = _NEAR_BOX.match(entry.text)
        if found and (entry.kind is EntryKind.BULLET or (entry.kind is EntryKind.PROSE and found[0][0] != "[")):
            shown = shorten(entry.text.partition("\n")[0], _SHOWN_CHARS)
            is_source = found["word"] is not None and not section.boxes
            words = "; write `- [ ] text` or `- [x] text`, or `- [>] text` to put it off"
            yield Violation(
                line=entry.line,
                message=f"`{shown}` is no item{words}{' if it is work' * is_source}",
                warning=is_source,
            )


def _join(found: Sequence[tuple[int, str]], one: str, many: str) -> Iterator[Violation]:
    """Yield one warning for several places, at the first line; beyond `_SHOWN_NAMES` they are counted."""
    if found:
        words = [name for _, name in found]
        yield _warning(found[0][0], (many if found[1:] else one).format(list_some(words, _SHOWN_NAMES)))


def _check_repeats(phase: Phase) -> Iterator[Violation]:
    """Refuse two items of the same text under the same parent: nobody can tell them apart."""
    above: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for item in phase.items:
        del above[item.depth :]
        parent = above[-1] if above else ""
        first = seen.setdefault((parent, item.text), item.id)
        if first != item.id:
            yield _error(item.line, f"item {item.id} says the same as item {first}; say what is different")
        above += [item.id] * (item.depth + 1 - len(above))


def _check_headings(outline: Outline, heads: set[int]) -> Iterator[Violation]:
    for at, section in enumerate(outline.sections[1:], start=1):
        if section.underlined and find_statement(section.title):
            yield _error(
                section.line,
                "this line is a heading, because the line below underlines it; put a blank line between them",
            )
        if at in heads and not section.title:
            yield _error(section.line, "this phase's heading is empty; give it a title")
        if at in heads and section.is_notes:
            yield _warning(
                section.line, "this Notes section has boxes, so it is a phase of its own; notes are `- text`"
            )


def _check_entry(entry: Entry) -> Iterator[Violation]:
    match entry.kind:
        case EntryKind.CODE if entry.unclosed:
            yield _error(entry.line, "this code fence is not closed, so all that follows is code; close it")
        case EntryKind.HTML if entry.text.lstrip().startswith("<!--") and "-->" not in entry.text:
            yield _error(entry.line, "this comment is not closed, so all that follows is hidden; close it with `-->`")
        case EntryKind.HTML if not entry.text.lstrip().startswith("<!--") and _HIDDEN_ITEM.search(entry.text):
            yield _warning(entry.line, "boxes inside this HTML do not count; put a blank line after the opening tag")
        case _:
            pass


def _check_line_ends(text: str) -> Iterator[Violation]:
    """Refuse a lone carriage return among other line ends: a terminal overwrites the line with the text behind it."""
    lone = _LONE_RETURN.search(text)
    if lone and "\n" in text:
        yield _error(Lines.of(text).index_at(lone.start()) + 1, "this line ends in a lone carriage return; take it out")


def _error(line: int, message: str) -> Violation:
    return Violation(line=line, message=message)


def _warning(line: int, message: str) -> Violation:
    return Violation(line=line, message=message, warning=True)


_DONE = re.compile(r"(?i)[✅✓✔☑]|[(\[—–:-]\s*(?:done|completed?|finished)\W*$")
_TASK = re.compile(r"^[ \t]{0,3}<task(?:\s(?![^<>]*\"checkpoint)[^<>]*)?>(?:\s*<name>([^<]*)</name>)?", re.MULTILINE)
_SEVERAL = 2
MAKE_PLAN = "have a session make a plan of this text: relay plan --plan NEW.md - < FILE"
_FRONT = r"\A\ufeff?---\r?\n(?:(?!---).*\n)*?"
_FOREIGN: Mapping[str, tuple[str, ...]] = {
    "a plan of Cursor: its work stands in `todos` of the front matter": (_FRONT + r"todos:[ \t]*(?:\r?\n|\[)",),
    "a prd.json: its work is a list of stories": (r'\A\s*\{(?s:.){0,10000}?"(?:userStories|stories)"\s*:',),
    "a task of Backlog.md: a goal with criteria, without steps": (
        _FRONT + r"id:[ \t]*\S", _FRONT + "status:", "^## Acceptance Criteria",
    ),
    "an ExecPlan: its `Progress` is a log of what was done": (
        r"\bExecPlan\b|^## Purpose / Big Picture\b", "^## Progress",
    ),
    "a plan of Claude Code's plan mode: steps in prose": (
        r"^#{1,3} (?:Context|Approach|Implementation(?: Plan| Steps)?)\s*$", r"^#{1,3} Verification\b",
    ),
}  # fmt: skip
"""What to call a text that another tool wrote as a plan, and the patterns that are all found in it."""


def describe_foreign(text: str) -> str:
    """Return what a text of another tool is, of those whose work stands in no box; empty for other texts."""
    found = (words for words, known in _FOREIGN.items() if all(re.search(one, text, re.MULTILINE) for one in known))
    return next(found, "")


HOW_TO_ADD = (
    "put `- [ ] …` below each heading of work, or have a session make a plan of this text: "
    "relay plan --plan NEW.md - < FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of work without a box."""

    line: int
    title: str
    """Of the heading, or the element's name; may be empty."""


def list_unboxed(outline: Outline) -> tuple[Unit, ...]:
    """Return the headings such as ``Task 3: Keys`` and the ``<task>`` elements that no phase holds, in order.

    Left out are units below another, units whose number an item names, and units whose heading says that they are done.
    """
    sections, held = outline.sections, _find_held(outline)
    texts = (render_plain(box.text) for section in sections if not section.is_overview for box in section.boxes)
    named = {number for text in texts for number in find_unit_numbers(text)}
    found: list[Unit] = []
    end = 0
    for at, section in enumerate(sections):
        if at in held or at < end:
            continue
        title = section.title
        if is_unit(title) and not _DONE.search(title) and parse_number(title).number not in named:
            stop = find_end(sections, at)
            if held.isdisjoint(range(at, stop)):
                end = stop
                found.append(Unit(line=section.line, title=title))
                continue
        for entry in (entry for entry in section.entries if entry.kind is EntryKind.HTML):
            for task in _TASK.finditer(entry.text if not entry.text.lstrip().startswith("<!--") else ""):
                line = entry.line + entry.text.count("\n", 0, task.start())
                found.append(Unit(line=line, title=" ".join((task[1] or "").split())))
    return tuple(found)


def _find_held(outline: Outline) -> set[int]:
    """Return the indexes of the sections of phases."""
    return {at for extent in outline.extents for at in extent}


def list_conditions(outline: Outline) -> tuple[Section, ...]:
    """Return the sections outside of phases that have open boxes; these are conditions and no items."""
    held = _find_held(outline)
    return tuple(
        section
        for at, section in enumerate(outline.sections)
        if at not in held and is_condition(section.title) and any(not box.done for box in section.boxes)
    )


def check_coverage(outline: Outline) -> Iterator[Violation]:
    """Yield work that a run would pass over; an error if that is more than the work that it would do."""
    if units := list_unboxed(outline):
        phases = [outline.sections[extent.start].title for extent in outline.extents]
        is_error = len(units) >= _SEVERAL and len(units) > sum(map(is_unit, phases))
        words = f"{describe_unboxed(units)}, so relay would pass over {'them' if units[1:] else 'it'}"
        only = f" and run only {_list_titles(phases)}" if is_error else ""
        yield Violation(line=units[0].line, message=f"{words}{only}", warning=not is_error, hint=HOW_TO_ADD)
    for section in (section for section in outline.sections if section.is_overview):
        words = "each item of this list names a phase that has a heading of its own: it is read as an overview, no work"
        yield Violation(line=section.line, message=words, warning=True)
    if conditions := list_conditions(outline):
        yield Violation(line=conditions[0].line, message=describe_conditions(conditions), warning=True)


def require_covered(outline: Outline) -> None:
    """Refuse a plan if a run would pass over most of its work.

    Raises:
        PlanError: It would.
    """
    for found in check_coverage(outline):
        if not found.warning:
            raise PlanError(found.message, line=found.line, hint=found.hint)


def describe_unboxed(units: tuple[Unit, ...]) -> str:
    """Return words about pieces of work without a box."""
    return f"{_list_titles([unit.title or '<task>' for unit in units])} {'hold' if units[1:] else 'holds'} no box"


def describe_conditions(conditions: tuple[Section, ...]) -> str:
    """Return words about how relay treats boxes that are conditions."""
    names = _list_titles([section.title for section in conditions])
    return (
        f"the boxes below {names} are read as conditions, which you look at in the end: no session works on them and "
        "none is ticked; a command that shows one belongs behind `Verify:`, and a number in the heading, "
        "as `Phase 9 — …`, makes it work"
    )


def _list_titles(titles: list[str]) -> str:
    return list_some([f"`{shorten(title, _SHOWN_CHARS)}`" for title in titles], _SHOWN_NAMES)
