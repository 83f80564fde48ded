"""Find work that no box covers: tasks without a box, boxes that are conditions, and near misses of a box. Pure.

A run works through boxes. It would pass over a task under a heading of its own, or in a ``<task>`` of GSD's, that has
no box, and would pay for boxes below ``Success criteria`` as for work.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from operator import itemgetter

from relay.base.errors import PlanError
from relay.base.hints import Command, Hint
from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.plan.model import Violation
from relay.plan.outline import Entry, EntryKind, Outline, Section, read_outline
from relay.plan.spans import Lines, find_unit_numbers, is_condition, is_unit, parse_number, render_plain

_ALLOWED = "write `- [ ] text` or `- [x] text`"
_BLANKS = "[ \\t\\xa0\\u2000-\\u200d\\u202f\\u2060\\u3000\\ufeff]*+"
_LOOSE = (
    rf"[*_]{{0,3}}(?:[\[［]{_BLANKS}(?:[xXхХｘＸ✓✔]{_BLANKS}|[^\w\s\[\]\\^!@#])?[\]］](?![(\[:])"
    "|[☐☑☒])"
)
_BOX = re.compile(_LOOSE)
_ITEM = re.compile(rf"(?:[-*+•‣–—・]|\d{{1,9}}[.)]){_BLANKS}{_LOOSE}")
_WITH_TEXT = re.compile(rf"{_LOOSE}[*_]{{0,3}}{_BLANKS}\S")
_IN_HEADING = re.compile(rf"(?:[-*+]{_BLANKS})?[*_]{{0,3}}[\[［]{_BLANKS}[\]］]{_BLANKS}[^\s(\[:]")
_AS_CODE = re.compile(r"[\s>]*(?:[-*+]|\d{1,9}[.)])(?: {5,}|\t\s+)\[[ xX]\][ \t]")
_STRICT = re.compile(r"\[[ xX]\](?![ \t]|\Z)")
_SHOWN_BOX_CHARS = 60
_SHOWN_BOX_LINES = 5


def find_near_boxes(outline: Outline) -> Iterator[Violation]:
    """Yield lines that are no items though their author may think so, one violation per kind."""
    found = sorted((*_find_in_headings(outline), *_find_in_entries(outline)), key=itemgetter(1, 0))
    for words, lines in groupby(found, key=itemgetter(1)):
        (line, _, shown, warning), *rest = lines
        more = f" (also line {list_some([str(other) for other, *_ in rest], _SHOWN_BOX_LINES)})" if rest else ""
        message = f"`{shorten(shown, _SHOWN_BOX_CHARS)}` {words}; {_ALLOWED}{more}"
        yield Violation(line=line, message=message, warning=warning)


_Found = tuple[int, str, str, bool]
"""Line, what is wrong, the text, whether it is a warning."""


def _find_in_headings(outline: Outline) -> Iterator[_Found]:
    for at, section in enumerate(outline.sections):
        below = takewhile(lambda other, level=section.level: other.level > level, outline.sections[at + 1 :])  # type: ignore[misc]
        if _IN_HEADING.match(section.heading) and not any(other.boxes for other in (section, *below)):
            yield section.line, "is a heading, so its box does not count", section.heading.split("\n")[0], False


def _find_in_entries(outline: Outline) -> Iterator[_Found]:
    for entry in (entry for section in outline.sections for entry in section.entries):
        if found := _judge(entry, outline.lines.at(entry.line - 1)):
            yield entry.line, found[0], entry.text.partition("\n")[0], found[1]


def _judge(entry: Entry, line: str) -> tuple[str, bool] | None:
    """Return why a line looks like an item and is none, and whether that is only a warning; else None."""
    match entry.kind:
        case EntryKind.BULLET if found := _BOX.match(entry.text):
            if _STRICT.match(entry.text):
                odd = _name_odd(entry.text[len("[ ]")])
                return f"is not a box without a blank after `]`{odd}, so this is no item", False
            return f"is not a box{_name_odd(found[0] + line.partition(entry.text)[0])}, so this is no item", False
        case EntryKind.PROSE if found := _ITEM.match(entry.text):
            return f"is not a list item{_name_odd(found[0])}, so its box does not count", False
        case EntryKind.PROSE if _WITH_TEXT.match(entry.text):
            return "has no bullet, so its box does not count", True
        case EntryKind.CODE if _AS_CODE.match(line):
            return "is code, because more than four blanks stand behind its bullet", False
        case _:
            return None


def _name_odd(text: str) -> str:
    """Name the first character that is not ASCII."""
    odd = next((char for char in text if not char.isascii()), "")
    return f" (it has U+{ord(odd):04X}, {unicodedata.name(odd, 'unnamed').lower()})" if odd else ""


_DONE = re.compile(r"(?i)[✅✓✔☑]|[(\[—–:-]\s*(?:done|completed?|finished)\W*$")
_TASK = re.compile(r"[ \t]{0,3}<task(?:\s(?![^<>]*\"checkpoint)[^<>]*)?>")
_CHECKPOINT = re.compile(r"^[ \t]{0,3}<task\s[^<>]*\"checkpoint", re.MULTILINE)
_END = re.compile(r"[ \t]{0,3}</tasks?>")
_LAST = re.compile(r"[ \t]{0,3}</tasks>")
_PART = re.compile(r"<(name|files|automated)>\s*([^<]*?)\s*</\1>")
_PATH = re.compile(r"[^\s,;`]+")
_HEAD_LINES = 4
_TASK_LINES = 400
"""Lines of a ``<task>`` that are read for its name, and for all of it."""
_SEVERAL = 2
_SHOWN_NAMES = 8
_SHOWN_CHARS = 60
HOW_TO_ADD: Hint = ("put `- [ ] …` below each; `", Command(words=("check", "--fix")), "` does it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of work without a box."""

    line: int
    title: str
    """Of the heading, or the element's name; may be empty."""
    level: int
    """Of the heading; 0 for a ``<task>``."""


def list_unboxed(outline: Outline) -> tuple[Unit, ...]:
    """Return the headings such as ``Task 3: Keys`` and the ``<task>`` elements that no phase holds, in order.

    Left out are units below another, units whose number an item names, and units whose heading says that they are done.
    """
    sections, held = outline.sections, _find_held(outline)
    texts = (render_plain(box.text) for section in sections for box in section.boxes)
    named = {number for text in texts for number in find_unit_numbers(text)}
    found: list[Unit] = []
    whole: Unit | None = None
    end = 0
    for at, section in enumerate(sections):
        if at in held or at < end:
            continue
        title = section.title
        if is_unit(title) and not _DONE.search(title) and parse_number(title).number not in named:
            unit = Unit(line=section.line, title=title, level=section.level)
            stop = _find_end(sections, at)
            if section.level == 1 and stop == len(sections):
                whole = unit  # the document's title: what stands below it counts
            elif held.isdisjoint(range(at, stop)):
                end = stop
                found.append(unit)
                continue
        found += _list_tasks(outline, section)
    return tuple(found) or ((whole,) if whole and not held else ())


def _find_held(outline: Outline) -> set[int]:
    """Return the indexes of the sections of phases."""
    return {at for extent in outline.extents for at in range(extent.head, extent.stop)}


def _find_end(sections: Sequence[Section], head: int) -> int:
    """Return the index past the sections below a heading."""
    rest = range(head + 1, len(sections))
    return next((at for at in rest if sections[at].level <= sections[head].level), len(sections))


def _list_tasks(outline: Outline, section: Section) -> Iterator[Unit]:
    if "<task" not in outline.text[section.start : section.end]:
        return
    hidden = {
        line
        for entry in section.entries
        if entry.kind is EntryKind.CODE or entry.text.lstrip().startswith("<!--")
        for line in range(entry.line, entry.line + Lines.of(entry.text).count + 1)
    }
    lines = outline.lines
    for index in range(lines.index_at(section.start), lines.index_at(max(section.end - 1, section.start)) + 1):
        if index + 1 not in hidden and _TASK.match(lines.at(index)):
            name = " ".join(_read_task(lines, index, _HEAD_LINES).get("name", "").split())
            yield Unit(line=index + 1, title=name, level=0)


def _read_task(lines: Lines, index: int, most: int) -> dict[str, str]:
    """Return the name, files and ``automated`` command of a ``<task>``, by tag."""
    rest = takewhile(lambda at: not _END.match(lines.at(at)), range(index, min(index + most, lines.count)))
    found: dict[str, str] = {}
    for part in _PART.finditer("\n".join(map(lines.at, rest))):
        found.setdefault(part[1], part[2])
    return found


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
        phases = [outline.sections[extent.head].title for extent in outline.extents]
        is_error = len(units) >= _SEVERAL and len(units) > sum(map(is_unit, phases))
        words = f"{describe_unboxed(units)}, so relay would pass over {'them' if units[1:] else 'it'}"
        only = f" and run only {_list(phases)}" if is_error else ""
        yield Violation(line=units[0].line, message=f"{words}{only}", warning=not is_error, hint=HOW_TO_ADD)
    if found := _CHECKPOINT.search(outline.text):
        words = "this checkpoint is for a person, and no run stops there; `relay run --approve` asks between two phases"
        yield Violation(line=outline.lines.index_at(found.start()) + 1, message=words, warning=True)
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
    """Say which pieces of work have no box."""
    return f"{_list([unit.title or '<task>' for unit in units])} {'hold' if units[1:] else 'holds'} no box"


def describe_conditions(conditions: tuple[Section, ...]) -> str:
    """Say how relay treats boxes that are conditions."""
    names = _list([section.title for section in conditions])
    return (
        f"the boxes below {names} are read as conditions, which you look at in the end: no session works on them and "
        "none is ticked; a command that shows one belongs behind `Verify:`, and a number in the heading, "
        "as `Phase 9 — …`, makes it work"
    )


def _list(titles: list[str]) -> str:
    return list_some([f"`{shorten(title, _SHOWN_CHARS)}`" for title in titles], _SHOWN_NAMES)


def add_boxes(text: str) -> str:
    """Return a plan's text with a box below each heading of work that has none, and a phase above each ``<task>``.

    Lines are inserted; none is changed or removed.
    """
    outline = read_outline(text)
    headings = {section.line: section for section in outline.sections}
    units = list_unboxed(outline)
    tasks = [unit for unit in units if not unit.level]
    added = [_box_heading(outline.lines, headings[unit.line]) for unit in units if unit.level]
    added += (_box_task(outline.lines, unit, number) for number, unit in enumerate(tasks, start=1))
    added += _end_tasks(outline.lines, tasks)
    return outline.lines.insert(*sorted(added))


def _box_heading(lines: Lines, section: Section) -> tuple[int, list[str]]:
    at = section.line + section.heading.count("\n") + section.underlined
    below = [] if at < lines.count and lines.is_blank(at) else [""]
    return at, ["", f"- [ ] {parse_number(section.title).title}", *below]


def _box_task(lines: Lines, unit: Unit, number: int) -> tuple[int, list[str]]:
    said = _read_task(lines, unit.line - 1, _TASK_LINES)
    title = parse_number(unit.title).title if is_unit(unit.title) else unit.title or "Task"
    files = ", ".join(_PATH.findall(said.get("files", ""))[:_SHOWN_NAMES])
    command = said.get("automated", "")
    gate = ["", f"Verify: `{command}`"] if command and not {"\n", "`"} & set(command) else []
    box = f"- [ ] {title}{f' — {files}' if files else ''}"
    return unit.line - 1, ["", f"## Task {number}: {title}", *gate, "", box, ""]


def _end_tasks(lines: Lines, tasks: Sequence[Unit]) -> Iterator[tuple[int, list[str]]]:
    """Yield a heading behind the last task, so that the text after it belongs to no task."""
    last = tasks[-1].line if tasks else lines.count
    if end := next((at + 1 for at in range(last, lines.count) if _LAST.match(lines.at(at))), 0):
        yield end, ["", "## Success criteria", ""]
