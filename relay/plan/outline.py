"""The outline of a plan file: headings, boxes, and the lines that may say `Verify:` or `After:`.

All knowledge of Markdown is here; the modules above read values and offsets.

markdown-it-py against a hand-written reader: fences, comments, lazy lines, tabs and setext headings each have made a
checkbox reader of a peer loop or stall, and CommonMark has a specification and test suite for all of them. Only the
block stage runs: three times faster than the whole, and the inline stage is not needed to find boxes. Its task list
plugin is quadratic, and its default nesting limit silently drops what is deeper than ten lists *and all that follows*.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum, auto
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.words import BoxState
from relay.plan.paths import find_paths
from relay.plan.text import (
    FrontMatter,
    Lines,
    find_printed_number,
    is_condition,
    is_enumerated,
    is_for_person,
    is_unit,
    parse_front_matter,
    parse_number,
    render_plain,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

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
OPEN_SIGNS = " -~?>"
"""Characters in a box that is not ticked."""
PUT_OFF_SIGNS = "->"
"""Those of work that is put off; before a number, as Kiro writes it, ``-`` is work that somebody has begun."""
ITEM_LEVEL = 7
"""Level of a section that a numbered item of a list opens; no heading is as deep."""
_BOX = re.compile(rf"\[([xX{re.escape(OPEN_SIGNS)}])\](\\?\*)?[ \t]+(?=[^ \t\n])")
_SIGNED_BOX = re.compile(r"\[.\](?:\\?\*)?")
_BOXED_HEADING = re.compile(
    r"(?:[-*+][ \t]+)?((?:[^\w\n\[\]]{0,4}[\w.]{1,20}[.):]?[ \t]{1,4}){0,2})\[([ xX])\][ \t]+(?=[^ \t\n])"
)
_WHOLE = re.compile(r"\d{1,9}(?:\.0)?[a-z]?")
_REQUIREMENTS = re.compile(r"[*_]{0,3}Requirements?:[*_]{0,3}[ \t]*[*_]{0,3}\d", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(?:final[ \t]+)?checkpoint\b", re.IGNORECASE)
_OPEN_FENCE = re.compile(r"[ \t>]*(?:`{3,}|~{3,})[ \t]*")
_DEEPEST = 6
_SEVERAL = 2


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
class Item:
    """One checkbox: first in a list item, with text behind it; or in a heading that has none below it."""

    id: str = ""
    """``<phase id>.<ordinal>``, ordinals from 1 in document order; stable while items are only appended.

    Empty if no phase holds it.
    """
    text: str
    """The item's first line without bullet and box, as written."""
    done: bool
    """Whether the box holds ``x`` or ``X``."""
    optional: bool = False
    """A star follows the box (``- [ ]* 2.1``) or its sign puts it off (``- [>]``): its phase is done without it."""
    manual: bool = False
    """It is work for a person, who ticks it in the file: no session does, and its phase is done without it."""
    line: int
    mark: int
    """Offset of the one character between the brackets."""
    depth: int = 0
    """0 for a top-level item, 1 for an item nested in it, and so on."""
    stop: int
    """0-based line just past the list item and its nested items."""
    paths: tuple[str, ...]
    """Files and folders the item names: code spans that look like paths, and the tail after `` — ``."""
    targets: tuple[str, ...]
    """The `paths` in the tail, which the item makes or changes. The others may be there to be read."""
    refused: tuple[str, ...]
    """Paths that are absolute or climb out with ``..``; relay works inside the repository only."""
    symbols: tuple[str, ...]
    """Names of the code in code spans: ``load_key``, ``Store.load``."""

    @property
    def state(self) -> BoxState:
        """What its box says; a claim does not stand in a plan."""
        return "done" if self.done else "optional" if self.optional else "yours" if self.manual else "open"


_Placed = TypeVar("_Placed", Entry, Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the text up to the next heading; the first section has no heading.

    If the phases are numbered items of a list, as Kiro writes them, each such item is a section with a heading's role.
    """

    level: int
    """1 to 6; 0 above the first heading, `ITEM_LEVEL` for an item of a list, one more for its notes."""
    heading: str
    title: str
    """The heading without markup and without a box."""
    line: int
    start: int
    end: int = 0
    underlined: bool = False
    """It has a setext heading."""
    box: Item | None = None
    """The box in the heading, whether or not it counts."""
    entries: tuple[Entry, ...] = ()
    boxes: tuple[Item, ...] = ()
    is_overview: bool = False
    """Its items name phases that have headings of their own; none of them is work, and `boxes` is empty."""

    @property
    def is_notes(self) -> bool:
        """Whether relay appends amendments and decisions here."""
        return self.title.strip(" :").casefold() == "notes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A plan file cut into sections, which together are all of its Markdown."""

    lines: Lines
    front: FrontMatter
    sections: tuple[Section, ...]
    extents: tuple[range, ...]
    """The indexes of each phase's sections, its heading's first."""

    @property
    def text(self) -> str:
        """The file's text."""
        return self.lines.text


def read_outline(text: str) -> Outline:
    """Read the outline of a plan file.

    Raises:
        PlanError: The text is too long or too tangled to be read, or its front matter is not usable.
    """
    if len(text) > MAX_CHARS:
        raise PlanError(f"a plan of {len(text):,} characters; at most {MAX_CHARS:,} are read", line=1)
    lines = Lines.of(text)
    front = parse_front_matter(lines)
    reader = _Reader(lines, front)
    reader.read(parse_blocks(text[lines.offset(front.body) :], line=front.body))
    sections = reader.cut(reader.heads)
    if boxed := [*_find_boxed(sections)]:
        reader.boxes = sorted((*reader.boxes, *boxed), key=attrgetter("line"))
        sections = reader.cut(reader.heads)
    sections = _mark_overviews(sections)
    if parts := [*_find_parts(sections, lines)]:
        sections = reader.cut(sorted((*sections, *parts), key=attrgetter("line")))
    return Outline(lines=lines, front=front, sections=tuple(sections), extents=tuple(_find_extents(sections)))


class _Reader:
    """Walks the block tokens once. Mutable: it collects headings, lines and boxes while it walks."""

    def __init__(self, lines: Lines, front: FrontMatter) -> None:
        self.lines = lines
        self.front = front
        self.first = first = front.body
        """0-based line of the file that token line 0 is."""
        self.heads = [Section(level=0, heading="", title="", line=first + 1, start=lines.offset(first))]
        self.entries = list[Entry]()
        self.boxes = list[Item]()
        self.items = list[bool]()
        """The open list items, outermost first: whether each is a task."""

    def read(self, tokens: "Sequence[Token]") -> None:
        for at, token in enumerate(tokens):
            index = self.first + (token.map[0] if token.map else 0)
            match token.type:
                case "list_item_open":
                    box = self._find_box(token, index, tokens[at + 1 : at + 3])
                    self.boxes += [box] if box else []
                    self.items.append(box is not None)
                case "list_item_close":
                    self.items.pop()
                case "heading_open" if not self.items:
                    self._open_section(token, index, tokens[at + 1].content)
                case "paragraph_open":
                    self._add_paragraph(index, tokens[at + 1].content, opens=tokens[at - 1].type == "list_item_open")
                case "fence" | "code_block" | "html_block":
                    kind = EntryKind.HTML if token.type == "html_block" else EntryKind.CODE
                    self._add(kind, index, token.content, unclosed=token.type == "fence" and not self._is_closed(token))
                case _:
                    pass

    def cut(self, heads: Sequence[Section]) -> list[Section]:
        """Return the sections with what stands below each heading."""
        ends = [(head.line, head.start) for head in (*heads[1:],)] + [(self.lines.count + 2, len(self.lines.text))]
        return [
            replace(
                head,
                end=end,
                entries=_take(self.entries, head.line + (head.level > ITEM_LEVEL), line),
                boxes=() if head.is_overview else _take(self.boxes, head.line, line),
            )
            for head, (line, end) in zip(heads, ends, strict=True)
        ]

    def _open_section(self, token: "Token", index: int, heading: str) -> None:
        found = _BOXED_HEADING.match(heading)
        words = heading if found is None else f"{found[1]}{heading[found.end() :]}"
        title, box = render_plain(words), None
        if found:
            text, stop = heading[found.end() :], self.first + (token.map or [0, 0])[1]
            mark = self.lines.text.index("[", self.lines.offset(index) + found.end(1)) + 1
            box = self._make_item(text, text, done=found[2] != " ", line=index + 1, mark=mark, stop=stop)
        self.heads.append(
            Section(
                level=int(token.tag[1]),
                heading=heading,
                title=title,
                line=index + 1,
                start=self.lines.offset(index),
                underlined=token.markup in {"=", "-"},
                box=box,
            )
        )

    def _find_box(self, item: "Token", index: int, following: "Sequence[Token]") -> Item | None:
        """Return the item's box; it must open the text on the item's own first line."""
        opener, *inline = following
        found = _BOX.match(inline[0].content) if opener.type in {"paragraph_open", "heading_open"} else None
        if found is None or opener.map is None or self.first + opener.map[0] != index:
            return None
        # Only container markup stands before the text of an item, and it has no bracket. markdown-it-py also strips
        # all white space of Python, so that it would see a box in `- \u2028[ ] text`.
        line = self.lines.at(index)
        bracket = line.find("[")
        if bracket < 1 or line[bracket - 1] not in " \t":
            return None
        text = _strip_box(line[bracket:])
        is_put_off = found[1] in PUT_OFF_SIGNS and not (found[1] == "-" and find_printed_number(text))
        return self._make_item(
            text,
            inline[0].content[found.end() :],
            done=found[1] not in OPEN_SIGNS,
            optional=bool(found[2]) or is_put_off,
            line=index + 1,
            mark=self.lines.offset(index) + bracket + 1,
            depth=sum(self.items),
            stop=self.first + (item.map[1] if item.map else index + 1),
        )

    def _make_item(self, text: str, prose: str, **fields: Any) -> Item:
        """Return the item with this first line; `prose` is its whole first paragraph."""
        found, manual = find_paths(prose), is_for_person(text, self.front.manual)
        return Item(
            text=text, manual=manual, paths=found.named, targets=found.targets, refused=found.refused,
            symbols=found.symbols, **fields,
        )  # fmt: skip

    def _add_paragraph(self, index: int, content: str, *, opens: bool) -> None:
        kind = EntryKind.PROSE if not opens else EntryKind.TASK if self.items[-1] else EntryKind.BULLET
        for offset, text in enumerate(content.split("\n")):
            words = _strip_box(text) if kind is EntryKind.TASK else text.strip(" \t")
            self._add(kind, index + offset, words)
            kind = EntryKind.PROSE

    def _add(self, kind: EntryKind, index: int, text: str, *, unclosed: bool = False) -> None:
        entry = Entry(kind=kind, line=index + 1, text=text, depth=len(self.items), unclosed=unclosed)
        self.entries.append(entry)

    def _is_closed(self, token: "Token") -> bool:
        start, stop = token.map or (0, 0)
        return stop - start > 1 and _OPEN_FENCE.fullmatch(self.lines.at(self.first + stop - 1)) is not None


def _strip_box(text: str) -> str:
    return _SIGNED_BOX.sub("", text, count=1).strip(" \t")


def _take(found: Sequence[_Placed], first: int, end: int) -> tuple[_Placed, ...]:
    """Return the entries or boxes from line `first` to before line `end`; they are sorted by line."""
    line = attrgetter("line")
    return tuple(found[bisect_left(found, first, key=line) : bisect_left(found, end, key=line)])


def _mark_overviews(sections: Sequence[Section]) -> list[Section]:
    """Take the boxes from each list that repeats the headings of phases: `- [ ] **Phase 1: Keys**`, as gsd writes it.

    Some of these phases have boxes of their own; else the list is the work.
    """
    units, has_boxes = dict[str, str](), set[str]()
    for section, above in zip(sections, find_ancestors(sections), strict=True):
        if is_unit(section.title):
            said = parse_number(section.title)
            units.setdefault(said.number, said.title.casefold())
        if section.boxes:
            titles = (section.title, *(sections[at].title for at in above))
            has_boxes.update(parse_number(title).number for title in titles if is_unit(title))

    def is_overview(section: Section) -> bool:
        names = [plain for box in section.boxes if is_unit(plain := render_plain(box.text))]
        heads = [parse_number(plain) for plain in names] if len(names) == len(section.boxes) else []
        is_repeated = all(one.title.casefold().startswith(units.get(one.number, "\0")) for one in heads)
        return is_repeated and any(one.number in has_boxes for one in heads)

    return [replace(one, boxes=(), is_overview=True) if is_overview(one) else one for one in sections]


def _find_parts(sections: Sequence[Section], lines: Lines) -> Iterator[Section]:
    """Yield heads of numbered items: `- [ ] 2. Keys`, with `- [ ] 2.1 …` or `_Requirements: 1.2_` below some of them.

    Only a section's own text decides that, and a section below a numbered heading is never cut: so text that is added
    elsewhere never changes a phase's id.
    """
    titles = sum(section.level == 1 for section in sections)
    for section, above in zip(sections, find_ancestors(sections), strict=True):
        over = (section, *(sections[at] for at in above))
        counted = any(is_enumerated(one.title) for one in over if one.level > 1 or titles > 1)
        heads = [] if counted or section.is_notes or is_condition(section.title) else _find_heads(section)
        for head, after in zip(heads, (*heads[1:], None), strict=False):
            start = lines.offset(head.line - 1)
            yield Section(
                level=ITEM_LEVEL, heading=head.text, title=render_plain(head.text), line=head.line, start=start
            )
            yield from _find_list_notes(section, lines, head, after)


def _find_heads(section: Section) -> list[Item]:
    """Return the boxes that each open a phase; a checkpoint belongs to the phase above it."""
    numbers = [parse_number(render_plain(box.text)) for box in section.boxes]
    boxes = zip(section.boxes, numbers, strict=True)
    tops = [(box, said) for box, said in boxes if not box.depth and _WHOLE.fullmatch(said.number)]
    wholes = {said.number.removesuffix(".0") for _, said in tops}
    parts = (said.number for said in numbers if said.number and not _WHOLE.fullmatch(said.number))
    is_outline = any(part.partition(".")[0] in wholes for part in parts)
    if len(tops) < _SEVERAL or not (is_outline or any(_REQUIREMENTS.match(entry.text) for entry in section.entries)):
        return []
    return [box for at, (box, said) in enumerate(tops) if not at or not _CHECKPOINT.match(said.title)]


def _find_list_notes(section: Section, lines: Lines, head: Item, after: Item | None) -> Iterator[Section]:
    """Yield a numbered item's notes: a last bullet `Notes` in it or behind it, with bullets of its own."""
    end = after.line if after else lines.count + 2
    last, least = _take(section.boxes, head.line, end)[-1].line, _SEVERAL + 1
    for entry in reversed(_take(section.entries, last + 1, end)):
        is_above = entry.kind is EntryKind.BULLET and entry.depth < least
        if is_above and render_plain(entry.text).strip(" :").casefold() == "notes":
            start = lines.offset(entry.line - 1)
            yield Section(level=ITEM_LEVEL + 1, heading="Notes", title="Notes", line=entry.line, start=start)
            return
        least = min(least, entry.depth)


def _find_boxed(sections: Sequence[Section]) -> Iterator[Item]:
    """Yield the boxes of headings that have none below them; where there are some, these are the work."""
    below = set[int]()
    """Levels of the sections further down that hold boxes, in themselves or below."""
    for section in reversed(sections):
        is_above = any(level > section.level for level in below)
        if section.box and not section.boxes and not is_above:
            yield section.box
        works = is_above or section.boxes or section.box
        below = {level for level in below if level <= section.level} | ({section.level} if works else set())


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


def _find_extents(sections: Sequence[Section]) -> list[range]:
    """Return the phases: sections with boxes, each with the deeper sections after it that have none or are conditions.

    A heading such as ``Phase 2`` holds the boxes of its deeper sections too, up to the first numbered one (``Task 3``,
    ``1.2``), which is a phase of its own; the document's title holds none. Conditions of more than the heading above
    them (``Success criteria``) are no phase: nobody works on them.
    """
    ancestors = find_ancestors(sections)
    work = [at for at, one in enumerate(sections) if one.boxes and not is_condition(one.title)]
    working = {over for at in work for over in (*ancestors[at], at)}
    closed = {1} if [at for at, one in enumerate(sections) if one.level == 1] == [1] else set[int]()
    extents: list[range] = []
    for at, section in enumerate(sections):
        last = extents[-1] if extents else None
        level = sections[last.start].level if last and last.stop == at else _DEEPEST + 2
        # The notes of a phase on the sixth level have no seventh.
        goes_on = section.level > level or (level == section.level == _DEEPEST and section.is_notes)
        chain = [*(over for over in ancestors[at] if over), at]
        over = ancestors[at][-1]
        counted = [n for n in chain if sections[n].is_notes or is_enumerated(sections[n].title)]
        head = -1
        if section.boxes and at:
            low = counted[-1] if counted else 0
            closed.update(n for n in chain if n < low)
            head = next((n for n in chain if n >= low and n not in closed and is_unit(sections[n].title)), at)
            if head == at and is_condition(section.title) and (sections[over].level <= 1 or over in working):
                head = -1
        if last and (head == last.start or (head < 0 and goes_on)):
            extents[-1] = range(last.start, at + 1)
        elif head >= 0:
            if last:
                ends = (*counted, head) if is_unit(sections[last.start].title) else (head,)
                extents[-1] = range(last.start, min(last.stop, next((n for n in ends if n > last.start), head)))
            extents.append(range(head, at + 1))
    return extents
