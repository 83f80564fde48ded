"""The outline of a plan file: headings, boxes, and the lines that may say `Verify:` or `After:`.

All knowledge of Markdown is here; the modules above read values and offsets.

markdown-it-py against a hand-written reader: fences, comments, lazy lines, tabs and setext headings each have made a
checkbox reader of a peer loop or stall, and CommonMark has a specification and test suite for all of them. Only the
block stage runs: three times faster than the whole, and the inline stage is not needed to find boxes. Its task list
plugin is quadratic, and its default nesting limit silently drops what is deeper than ten lists *and all that follows*.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from enum import StrEnum, auto
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.plan.text import (
    FrontMatter,
    Lines,
    is_condition,
    is_enumerated,
    is_unit,
    parse_front_matter,
    parse_number,
    render_plain,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

from functools import cache

MAX_NESTING = 100
"""Levels of containers; a list takes two (the list and its item), a quote one."""
_SCANS_PER_LINE = 10
_SPARE_SCANS = 50_000
_CONTAINERS = frozenset({"list_item_open", "blockquote_open"})


class _TooTangledError(Exception):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


def parse_blocks(text: str, *, line: int) -> "list[Token]":
    """Return the block tokens of a text.

    Args:
        text: CommonMark without byte-order mark and front matter, any line endings.
        line: 0-based line of the file that the text starts at, for messages.

    Raises:
        PlanError: It is nested or quoted so that it cannot be read safely.
    """
    try:
        tokens = _parser().parse(text)
    except _TooTangledError as error:
        message = "block quotes are broken up so often that they cannot be read; put a blank line after each"
        raise PlanError(message, line=line + error.index + 1) from None
    except RecursionError:
        raise PlanError("lists and quotes are nested too deeply to be read", line=line + 1) from None
    deep = next((t for t in tokens if t.level >= MAX_NESTING - 1 and t.type in _CONTAINERS), None)
    if deep is not None:
        at = line + 1 + (deep.map[0] if deep.map else 0)
        allowed = f"at most {MAX_NESTING // 2 - 1} lists in one another are read"
        raise PlanError(f"lists and quotes are nested too deeply; {allowed}", line=at)
    return tokens


@cache
def _parser() -> "MarkdownIt":
    """Make the block parser; markdown_it is never imported at start-up."""
    from markdown_it import MarkdownIt
    from markdown_it.parser_block import ParserBlock

    class BoundedBlocks(ParserBlock):
        """Counts the lines that block quotes look ahead over, and stops at a bound.

        A quote scans on over lazy lines even where its content has ended (``> ``` `` and ``b`` in turn), so that
        hostile text makes the parser quadratic. Nothing else in it was found to be.
        """

        def tokenize(self, state: "StateBlock", startLine: int, endLine: int) -> None:  # noqa: N803  # markdown_it's names
            if state.parentType == "blockquote":
                scans = state.env.setdefault("scans", 0) + endLine - startLine
                state.env["scans"] = scans
                if scans > _SPARE_SCANS + _SCANS_PER_LINE * len(state.bMarks):
                    raise _TooTangledError(startLine)
            super().tokenize(state, startLine, endLine)

    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING})
    blocks = BoundedBlocks()
    blocks.ruler.enableOnly(parser.block.ruler.get_active_rules())
    parser.block = blocks
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


MAX_CHARS = 4 * 1024 * 1024
"""A plan file longer than this is refused; 10,000 items of 100 characters are a quarter of it."""
OPEN_SIGNS = " -~?"
"""Characters in a box that is not ticked. The last three are Kiro's: begun, queued, in doubt."""
_BOX = re.compile(rf"\[([xX{re.escape(OPEN_SIGNS)}])\](\\?\*)?[ \t]+(?=[^ \t\n])")
_SIGNED_BOX = re.compile(r"\[.\](?:\\?\*)?")
_TEXT_OPENERS = frozenset({"paragraph_open", "heading_open"})
ITEM_LEVEL = 7
"""Level of a section that a numbered item of a list opens; no heading is as deep."""
_WHOLE = re.compile(r"\d{1,9}(?:\.0)?[a-z]?")
_REQUIREMENTS = re.compile(r"[*_]{0,3}Requirements?:[*_]{0,3}[ \t]*[*_]{0,3}\d", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(?:final[ \t]+)?checkpoint\b", re.IGNORECASE)
_SEVERAL = 2
_OPEN_FENCE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})[ \t]*")


class EntryKind(StrEnum):
    """The kind of a line in a section."""

    PROSE = auto()
    BULLET = auto()
    """First line of a list item that is no task."""
    TASK = auto()
    CODE = auto()
    """A fenced or indented block, all its lines."""
    HTML = auto()
    """A block of HTML, all its lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a section, or a whole block."""

    kind: EntryKind
    line: int
    text: str
    """Without container markup (quotes, bullets, indentation), and without a task's box."""
    depth: int
    """Number of list items around it, its own included."""
    unclosed: bool = False
    """It is a code fence without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A checkbox with text behind it, first in a list item."""

    line: int
    mark: int
    """Offset of the character between the brackets."""
    done: bool
    optional: bool
    """A star follows the box, as in ``- [ ]* 2.1``."""
    text: str
    prose: str
    """The item's whole first paragraph, line ends as ``\\n``."""
    depth: int
    """Number of task items around it."""
    stop: int
    """0-based line just past the list item and its nested items."""


_Placed = TypeVar("_Placed", Entry, Box)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the text up to the next heading; the first section has no heading.

    If the phases are numbered items of a list, as Kiro writes them, each such item is a section with a heading's role.
    """

    level: int
    """1 to 6; 0 above the first heading, `ITEM_LEVEL` for an item of a list, one more for its notes."""
    heading: str
    title: str
    """The heading without markup."""
    line: int
    start: int
    end: int
    underlined: bool = False
    """It has a setext heading."""
    entries: tuple[Entry, ...] = ()
    boxes: tuple[Box, ...] = ()
    is_overview: bool = False
    """Its items name phases that have headings of their own; none of them is work, and `boxes` is empty."""

    @property
    def is_notes(self) -> bool:
        """Whether relay appends amendments and decisions here."""
        return self.title.strip(" :").casefold() == "notes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The sections of one phase, as indexes: ``sections[head:stop]``."""

    head: int
    stop: int
    holds_parts: bool = False
    """The phase includes boxes of deeper sections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A plan file cut into sections, which together are all of its Markdown."""

    lines: Lines
    front: FrontMatter
    sections: tuple[Section, ...]
    extents: tuple[Extent, ...]
    """One per phase, in order."""

    @property
    def text(self) -> str:
        """The file's text."""
        return self.lines.text

    def mark(self, marks: Collection[int], sign: str) -> "Outline":
        """Return the outline with `sign`, ``x`` or a blank, in the boxes at these offsets, without parsing again.

        The sign in a box does not affect how Markdown is parsed, so the rest stays as parsing would find it.
        """
        sections = tuple(
            replace(
                section,
                boxes=tuple(replace(box, done=sign != " ") if box.mark in marks else box for box in section.boxes),
            )
            if any(box.mark in marks for box in section.boxes)
            else section
            for section in self.sections
        )
        return replace(self, lines=self.lines.put(marks, sign), sections=sections)


def _strip_box(text: str) -> str:
    return _SIGNED_BOX.sub("", text, count=1).strip(" \t")


def read_outline(text: str) -> Outline:
    """Read the outline of a plan file.

    Raises:
        PlanError: The text is too long or too tangled to be read, or its front matter is not usable.
    """
    if len(text) > MAX_CHARS:
        raise PlanError(f"a plan of {len(text):,} characters; at most {MAX_CHARS:,} are read", line=1)
    lines = Lines.of(text)
    front = parse_front_matter(lines)
    reader = _Reader(lines=lines, first=front.body)
    reader.read(parse_blocks(text[lines.offset(front.body) :], line=front.body))
    sections = tuple(_cut_lists(_mark_overviews(reader.finish()), lines))
    return Outline(lines=lines, front=front, sections=sections, extents=_find_extents(sections))


def _mark_overviews(sections: Sequence[Section]) -> Sequence[Section]:
    """Take the boxes from each list that repeats the headings of phases: `- [ ] **Phase 1: Keys**`, as gsd writes it.

    Some of these phases have boxes of their own; else the list is the work.
    """
    units, has_boxes = dict[str, str](), set[str]()
    above: list[Section] = []
    for section in sections:
        above = [*(other for other in above if other.level < section.level), section]
        if is_unit(section.title):
            said = parse_number(section.title)
            units.setdefault(said.number, said.title.casefold())
        if section.boxes:
            has_boxes.update(parse_number(other.title).number for other in above if is_unit(other.title))

    def is_overview(section: Section) -> bool:
        names = [plain for box in section.boxes if is_unit(plain := render_plain(box.text))]
        heads = [parse_number(plain) for plain in names] if len(names) == len(section.boxes) else []
        is_repeated = all(one.title.casefold().startswith(units.get(one.number, "\0")) for one in heads)
        return is_repeated and any(one.number in has_boxes for one in heads)

    return [replace(one, boxes=(), is_overview=True) if is_overview(one) else one for one in sections]


def _cut_lists(sections: Sequence[Section], lines: Lines) -> Iterator[Section]:
    """Make sections of numbered items: `- [ ] 2. Keys`, with `- [ ] 2.1 …` or `_Requirements: 1.2_` below some of them.

    Only a section's own text decides that, and a section below a numbered heading is never cut: so text that is added
    elsewhere never changes a phase's id.
    """
    titles = sum(section.level == 1 for section in sections)
    above: list[Section] = []
    for section in sections:
        above = [*(other for other in above if other.level < section.level), section]
        counted = any(is_enumerated(other.title) for other in above if other.level > 1 or titles > 1)
        heads = [] if counted or section.is_notes or is_condition(section.title) else _find_heads(section)
        if not heads:
            yield section
            continue
        ends = [*(head.line for head in heads[1:]), lines.index_at(section.end) + 2]
        yield _narrow(section, lines, section.line, heads[0].line)
        for head, end in zip(heads, ends, strict=True):
            item = replace(
                section, level=ITEM_LEVEL, heading=head.text, title=render_plain(head.text), underlined=False
            )
            yield from _cut_notes(_narrow(item, lines, head.line, end), lines)


def _find_heads(section: Section) -> list[Box]:
    """Return the boxes that each open a phase; a checkpoint belongs to the phase above it."""
    numbers = [parse_number(render_plain(box.text)) for box in section.boxes]
    tops = [
        (box, said)
        for box, said in zip(section.boxes, numbers, strict=True)
        if not box.depth and _WHOLE.fullmatch(said.number)
    ]
    wholes = {said.number.removesuffix(".0") for _, said in tops}
    is_outline = any(
        said.number and not _WHOLE.fullmatch(said.number) and said.number.partition(".")[0] in wholes
        for said in numbers
    )
    if len(tops) < _SEVERAL or not (is_outline or any(_REQUIREMENTS.match(entry.text) for entry in section.entries)):
        return []
    return [box for at, (box, said) in enumerate(tops) if not at or not _CHECKPOINT.match(said.title)]


def _cut_notes(section: Section, lines: Lines) -> Iterator[Section]:
    """Split off a numbered item's notes: a last bullet `Notes` in it or behind it, with bullets of its own."""
    last, least = section.boxes[-1].line, _SEVERAL + 1
    for entry in reversed(section.entries):
        is_above = entry.kind is EntryKind.BULLET and entry.line > last and entry.depth < least
        if is_above and render_plain(entry.text).strip(" :").casefold() == "notes":
            notes = replace(section, level=ITEM_LEVEL + 1, heading="Notes", title="Notes")
            end = lines.index_at(section.end) + (2 if section.end == len(lines.text) else 1)
            yield _narrow(section, lines, section.line, entry.line)
            yield _narrow(notes, lines, entry.line, end, own=1)
            return
        least = min(least, entry.depth)
    yield section


def _narrow(section: Section, lines: Lines, first: int, end: int, *, own: int = 0) -> Section:
    """Return the part of a section from line `first` to before line `end`; the `own` first lines make no entry."""
    return replace(
        section,
        line=first,
        start=section.start if first == section.line else lines.offset(first - 1),
        end=min(lines.offset(end - 1), section.end),
        entries=_take(section.entries, first + own, end),
        boxes=_take(section.boxes, first, end),
    )


def _take(found: tuple[_Placed, ...], first: int, end: int) -> tuple[_Placed, ...]:
    """Return the entries or boxes from line `first` to before line `end`; they are sorted by line."""
    line = attrgetter("line")
    return found[bisect_left(found, first, key=line) : bisect_left(found, end, key=line)]


def _find_extents(sections: Sequence[Section]) -> tuple[Extent, ...]:
    """Return the phases: sections with boxes, each with the deeper sections after it that have none or are conditions.

    Conditions of the whole document (``Success criteria``) are no phase: nobody works on them.
    A heading such as ``Phase 2`` holds the boxes of its deeper sections too, up to the first numbered one.
    """
    extents: list[Extent] = []
    final = _find_final(sections)
    for index, section in enumerate(sections):
        last = extents[-1] if extents else None
        if not section.level or (last and last.holds_parts and index < last.stop):
            continue
        end = _find_whole(sections, index)
        if not end and (not section.boxes or index in final):
            continue
        if last and last.stop > index:
            extents[-1] = replace(last, stop=index)
        extents.append(Extent(head=index, stop=end or _find_stop(sections, index), holds_parts=end > 0))
    return tuple(extents)


def find_end(sections: Sequence[Section], head: int) -> int:
    """Return the index past the sections below a heading."""
    rest = range(head + 1, len(sections))
    return next((at for at in rest if sections[at].level <= sections[head].level), len(sections))


def find_ancestors(sections: Sequence[Section]) -> tuple[tuple[int, ...], ...]:
    """Return for each section the indexes of its headings, outermost first; 0 is the text above all headings."""
    stack: list[int] = []
    found = []
    for at, section in enumerate(sections):
        while stack and sections[stack[-1]].level >= section.level:
            stack.pop()
        found.append(tuple(stack) or (0,))
        stack.append(at)
    return tuple(found)


def _find_final(sections: Sequence[Section]) -> frozenset[int]:
    """Return the sections whose conditions are about more than the heading above them."""
    above: list[int] = []
    working: set[int] = set()
    conditions: list[tuple[int, int]] = []
    for at, section in enumerate(sections):
        above = [other for other in above if sections[other].level < section.level]
        if section.boxes and is_condition(section.title):
            conditions.append((at, above[-1] if above else 0))
        elif section.boxes:
            working.update((*above, at))
        above.append(at)
    return frozenset(at for at, over in conditions if sections[over].level <= 1 or over in working)


def _find_whole(sections: Sequence[Section], head: int) -> int:
    """Return the end of a phase that holds the boxes of deeper sections; 0 if the heading holds none.

    It ends before the first numbered heading, as ``Task 3`` in ``Phase 2`` or ``1.2``: those are phases of their own,
    as are all headings below the document's title.
    """
    level = sections[head].level
    stop = find_end(sections, head)
    if not is_unit(sections[head].title) or (level == head == 1 and stop == len(sections)):
        return 0
    above: list[int] = []
    holds = False
    for at in range(head + 1, stop):
        above = [*(other for other in above if sections[other].level < sections[at].level), at]
        if sections[at].boxes:
            counted = (other for other in above if sections[other].is_notes or is_enumerated(sections[other].title))
            if first := next(counted, 0):
                return first if holds else 0
            holds = True
    return stop if holds else 0


def _find_stop(sections: Sequence[Section], head: int) -> int:
    level = sections[head].level
    stop = head + 1
    while stop < len(sections) and _belongs(sections[stop], level):
        if sections[stop].boxes and not is_condition(sections[stop].title):
            break
        stop += 1
    return stop


def _belongs(section: Section, level: int) -> bool:
    # The notes of a phase on the sixth level have no seventh.
    return section.level > level or (level == section.level == 6 and section.is_notes)  # noqa: PLR2004  # h6


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Walks the block tokens once. Mutable: it collects while it walks."""

    lines: Lines
    first: int
    """0-based line of the file that token line 0 is."""
    sections: list[Section] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    items: list[bool] = field(default_factory=list)
    """The open list items, outermost first: whether each is a task."""

    def read(self, tokens: "Sequence[Token]") -> None:
        self._open(0, "", self.first)
        for at, token in enumerate(tokens):
            match token.type:
                case "list_item_open":
                    self._open_item(token, tokens[at + 1 : at + 3])
                case "list_item_close":
                    self.items.pop()
                case "heading_open" if not self.items:
                    self._close(self.lines.offset(self._index(token)))
                    self._open(int(token.tag[1]), tokens[at + 1].content, self._index(token), token.markup)
                case "paragraph_open":
                    self._add_paragraph(token, tokens[at - 1] if at else None, tokens[at + 1].content)
                case "fence" | "code_block" | "html_block":
                    self._add_block(token)
                case _:
                    pass

    def finish(self) -> tuple[Section, ...]:
        self._close(len(self.lines.text))
        return tuple(self.sections)

    def _open(self, level: int, heading: str, index: int, markup: str = "") -> None:
        start = self.lines.offset(index)
        self.sections.append(
            Section(
                level=level,
                heading=heading,
                title=render_plain(heading),
                line=index + 1,
                start=start,
                end=start,
                underlined=markup in {"=", "-"},
            )
        )

    def _close(self, end: int) -> None:
        entries, boxes = tuple(self.entries), tuple(self.boxes)
        self.sections[-1] = replace(self.sections[-1], end=end, entries=entries, boxes=boxes)
        self.entries.clear()
        self.boxes.clear()

    def _open_item(self, token: "Token", following: "Sequence[Token]") -> None:
        box = self._find_box(token, following)
        if box is not None:
            self.boxes.append(box)
        self.items.append(box is not None)

    def _find_box(self, item: "Token", following: "Sequence[Token]") -> Box | None:
        """Return the item's box; it must open the text on the item's own first line."""
        if len(following) < 2 or following[0].type not in _TEXT_OPENERS:  # noqa: PLR2004  # opener and its text
            return None
        found = _BOX.match(following[1].content)
        index = self._index(item)
        if found is None or self._index(following[0]) != index:
            return None
        # Only container markup stands before the text of an item, and it has no bracket. markdown-it-py also strips
        # all white space of Python, so that it would see a box in `- \u2028[ ] text`.
        line = self.lines.at(index)
        bracket = line.find("[")
        if bracket < 1 or line[bracket - 1] not in " \t":
            return None
        return Box(
            line=index + 1,
            mark=self.lines.offset(index) + bracket + 1,
            done=found[1] not in OPEN_SIGNS,
            optional=found[2] is not None,
            text=_strip_box(line[bracket:]),
            prose=following[1].content[found.end() :],
            depth=sum(self.items),
            stop=self.first + (item.map[1] if item.map else index + 1),
        )

    def _add_paragraph(self, token: "Token", before: "Token | None", content: str) -> None:
        index = self._index(token)
        opens = before is not None and before.type == "list_item_open"
        for offset, text in enumerate(content.split("\n")):
            kind = EntryKind.PROSE
            if opens and not offset:
                kind = EntryKind.TASK if self.items[-1] else EntryKind.BULLET
            words = _strip_box(text) if kind is EntryKind.TASK else text.strip(" \t")
            self.entries.append(Entry(kind=kind, line=index + offset + 1, text=words, depth=len(self.items)))

    def _add_block(self, token: "Token") -> None:
        index = self._index(token)
        kind = EntryKind.HTML if token.type == "html_block" else EntryKind.CODE
        unclosed = token.type == "fence" and not self._is_closed(token)
        self.entries.append(
            Entry(kind=kind, line=index + 1, text=token.content, depth=len(self.items), unclosed=unclosed)
        )

    def _is_closed(self, token: "Token") -> bool:
        start, stop = token.map or (0, 0)
        return stop - start > 1 and _OPEN_FENCE.fullmatch(self.lines.at(self.first + stop - 1)) is not None

    def _index(self, token: "Token") -> int:
        return self.first + (token.map[0] if token.map else 0)
