"""The lines of a text, and the parts of one line of Markdown: code spans, plain words, paths, a leading number.

Lines are those that CommonMark counts. ``str.splitlines`` also splits at form feeds, ``U+0085``, ``U+2028`` and more;
such a character in an item would put every later offset on the wrong line.

Every function is linear in the length of the line: a plan may hold a line of a megabyte.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Self

from relay.base.values import dataclass

BOM = "\ufeff"
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"[ \t]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A text cut at line feeds, carriage returns and pairs of them; line indexes are 0-based here."""

    text: str
    starts: tuple[int, ...]
    """Offset of each line; a byte-order mark stands before the first. One more entry: the text's length."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Cut a text, without changing it."""
        first = len(BOM) if text.startswith(BOM) else 0
        starts = [first, *(end.end() for end in _LINE_END.finditer(text))]
        if starts[-1] < len(text):
            starts.append(len(text))
        return cls(text=text, starts=tuple(starts) if len(starts) > 1 else (first, first))

    @property
    def count(self) -> int:
        """Number of lines; an empty text has one empty line."""
        return len(self.starts) - 1

    def at(self, index: int) -> str:
        """Return one line without its ending."""
        return self.text[self.starts[index] : self.starts[index + 1]].rstrip("\r\n")

    def ending(self, index: int) -> str:
        """Return the ending of one line; empty if the text ends without one."""
        line = self.text[self.starts[index] : self.starts[index + 1]]
        return line[len(line.rstrip("\r\n")) :]

    def offset(self, index: int) -> int:
        """Return where a line starts; past the last line, the end of the text."""
        return self.starts[min(index, self.count)]

    def find_ending(self, near: int) -> str:
        """Return the line ending in use at a line, else at the first line, else a line feed."""
        return self.ending(min(near, self.count) - 1) or self.ending(0) or "\n"

    def insert(self, *added: tuple[int, Sequence[str]]) -> str:
        """Return the text with lines inserted before the given ones, which are in order; the rest stays as it is."""
        pieces, done = list[str](), 0
        for at, lines in added:
            ending, offset = self.find_ending(at), self.offset(at)
            missing = "" if not at or self.ending(at - 1) else ending
            pieces += [self.text[done:offset], missing, *(f"{line}{ending}" for line in lines)]
            done = offset
        return "".join((*pieces, self.text[done:]))

    def index_at(self, offset: int) -> int:
        """Return the line that holds an offset."""
        return min(max(bisect_right(self.starts, offset) - 1, 0), self.count - 1)

    def put(self, offsets: Collection[int], character: str) -> Self:
        """Return the lines with `character` at each offset; none of them is at a line end."""
        ends = (*sorted(offsets), len(self.text))
        starts = (0, *(offset + 1 for offset in ends[:-1]))
        text = character.join(self.text[start:end] for start, end in zip(starts, ends, strict=True))
        return replace(self, text=text)

    def is_blank(self, index: int) -> bool:
        """Whether a line holds only spaces and tabs, as CommonMark sees it."""
        return _BLANK.match(self.at(index)) is not None


_TICKS = re.compile(r"`+")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARKUP = re.compile(
    r"<!--[^<]*?-->"  # comment
    r"|!?\[(?P<link>[^\[\]]*)\]\([^()\s]*\)"  # link or image
    r"|(?<![\s*])\*++|(?<!\*)\*++(?!\s)|~~"  # emphasis and strike-through; a star between blanks is a star
    r"|(?<!\w)_++(?=\w)|(?<=[^\W_])_++(?!\w)"
)
_KEYWORDS = "phase|task|step|iteration|milestone|stage|part|sprint|wave"
_NUMBER = r"\d{1,9}(?:\.\d{1,9})*[a-z]?"
_NUMBERED = re.compile(
    rf"(?:\W*(?:{_KEYWORDS})\s+\#?(?P<word>{_NUMBER})(?=$|[\s—–:.)]|-(?!\d))"
    rf"|(?P<bare>{_NUMBER})(?=[.):](?:\s|$)|\s+[—–-](?:\s|$))"
    r"|(?P<dotted>\d{1,9}(?:\.\d{1,9})+)(?=\s))"
    r"\s*[—–:.)-]{0,3}\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSpan:
    """One code span; offsets include the backticks."""

    start: int
    end: int
    content: str
    """Without the one blank that may pad each side."""


def find_code_spans(text: str) -> tuple[CodeSpan, ...]:
    """Return the code spans of a line: backtick runs of equal length pair up, as in CommonMark."""
    runs = [m.span() for m in _TICKS.finditer(text)]
    if not runs:
        return ()
    partner: dict[int, int] = {}
    seen: dict[int, int] = {}
    for index in range(len(runs) - 1, -1, -1):
        length = runs[index][1] - runs[index][0]
        if length in seen:
            partner[index] = seen[length]
        seen[length] = index
    return tuple(_pair_up(text, runs, partner))


def _pair_up(text: str, runs: list[tuple[int, int]], partner: dict[int, int]) -> Iterator[CodeSpan]:
    index = 0
    while index < len(runs):
        start, end = runs[index]
        if index not in partner or _is_escaped(text, start):
            index += 1
            continue
        close = runs[partner[index]]
        content = text[end : close[0]]
        if content.startswith(" ") and content.endswith(" ") and content.strip(" "):
            content = content[1:-1]
        yield CodeSpan(start=start, end=close[1], content=content)
        index = partner[index] + 1


def _is_escaped(text: str, offset: int) -> bool:
    start = offset
    while start > 0 and text[start - 1] == "\\":
        start -= 1
    return (offset - start) % 2 == 1


def render_plain(text: str) -> str:
    """Return a heading's words without their markup, on one line."""
    parts = []
    done = 0
    for span in find_code_spans(text):
        parts += [_strip_markup(text[done : span.start]), span.content]
        done = span.end
    parts.append(_strip_markup(text[done:]))
    return " ".join("".join(parts).split())


def _strip_markup(text: str) -> str:
    escaped = _ESCAPE.split(text)
    plain = [part if at % 2 else _MARKUP.sub(r"\g<link>", part) for at, part in enumerate(escaped)]
    return "".join(plain)


_UNIT = re.compile(rf"\W*(?:phase|task|step|iteration)\s+\#?{_NUMBER}(?=$|[\s—–:.)]|-(?!\d))", re.IGNORECASE)
_UNIT_NUMBER = re.compile(rf"\b(?:phase|task|step|iteration)\s+\#?({_NUMBER})", re.IGNORECASE)
_ENUMERATED = re.compile(
    rf"\W*(?:(?:[a-z]+\s+){{0,2}}\#?\d|(?:{_KEYWORDS})\s+[a-z]\b|[a-z]{{1,4}}-?\d+(?:\.\d+)*\s*[:.)—–-]|[a-z][.):]\s)",
    re.IGNORECASE,
)


def is_unit(plain: str) -> bool:
    """Whether a heading names one numbered piece of work: ``Phase 2: Keys``, ``Task 2.1``."""
    return _UNIT.match(plain) is not None


def find_unit_numbers(plain: str) -> tuple[str, ...]:
    """Return the numbers of the pieces of work that a text names: ``2`` and ``3`` of ``Task 2, then step 3``."""
    return tuple(_UNIT_NUMBER.findall(plain))


def is_enumerated(plain: str) -> bool:
    """Whether a heading is numbered: ``1.2 Keys``, ``Week 3``, ``T4: Keys``, ``User Story 1``."""
    return _ENUMERATED.match(plain) is not None


_CONDITION = re.compile(
    r"\W*(?:(?:overall|final|global|project|feature|general|key|measurable|plan)\s+)?"
    r"(?:(?:success|acceptance|completion|exit|done|quality)\s+(?:criteri(?:a|on)|conditions?|gates?|checks?|checklist)"
    r"|definition\s+of\s+(?:done|ready)|done\s+when|dod"
    r"|(?:(?:plan|spec)\s+)?self[- ]?(?:review|check)(?:\s+checklist)?|constitution\s+check"
    r"|(?:final\s+)?(?:verification|validation|review|sign-?off|pre-?(?:merge|commit|flight))\s+checklist"
    r"|验收标准|成功标准|完成标准|完成定义|验证清单|自检清单|自查清单)"
    r"\s*(?:[:：(（—–-].*)?",
    re.IGNORECASE,
)


def is_condition(plain: str) -> bool:
    """Whether a heading announces conditions for the end: ``Success criteria``, ``Definition of Done``.

    A numbered one (``Phase 7: Acceptance criteria``) is work.
    """
    return _CONDITION.fullmatch(plain) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The number and the title in a heading."""

    number: str
    """``1``, ``2a``, ``2.1``; empty without one."""
    title: str


def parse_number(plain: str) -> Numbered:
    """Split ``Phase 2a — Keys`` into number and title; a title that is only a number is kept whole."""
    found = _NUMBERED.match(plain)
    if not found:
        return Numbered(number="", title=plain)
    number = found["word"] or found["bare"] or found["dotted"]
    return Numbered(number=number, title=plain[found.end() :] or plain)
