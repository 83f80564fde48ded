"""What looks like an item and is none, as people and other tools write it. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from operator import itemgetter

from relay.base.words import list_some, shorten
from relay.plan.model import Violation
from relay.plan.outline import Entry, EntryKind, Outline, Section

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
_SHOWN_CHARS = 60
_SHOWN_LINES = 5


def find_near_boxes(outline: Outline) -> Iterator[Violation]:
    """Yield what is no item though its author may think so; the lines of one kind are named together."""
    found = [*_find_in_headings(outline), *_find_in_entries(outline)]
    found.sort(key=itemgetter(1, 0))
    for words, lines in groupby(found, key=itemgetter(1)):
        same = [(line, shown, warning) for line, _, shown, warning in lines]
        line, shown, warning = same[0]
        more = f" (also line {list_some([str(other) for other, _, _ in same[1:]], _SHOWN_LINES)})" if same[1:] else ""
        message = f"`{shorten(shown, _SHOWN_CHARS)}` {words}; {_ALLOWED}{more}"
        yield Violation(line=line, message=message, warning=warning)


_Found = tuple[int, str, str, bool]
"""Line, what is wrong, the text, whether it is a warning."""


def _find_in_headings(outline: Outline) -> Iterator[_Found]:
    for at, section in enumerate(outline.sections):
        if _IN_HEADING.match(section.heading) and not _holds_boxes(outline.sections, at):
            yield section.line, "is a heading, so its box does not count", section.heading.split("\n")[0], False


def _holds_boxes(sections: Sequence[Section], at: int) -> bool:
    below = takewhile(lambda section: section.level > sections[at].level, sections[at + 1 :])
    return bool(sections[at].boxes) or any(section.boxes for section in below)


def _find_in_entries(outline: Outline) -> Iterator[_Found]:
    for section in outline.sections:
        for entry in section.entries:
            shown = entry.text.partition("\n")[0]
            if found := _judge(entry, outline.lines.at(entry.line - 1)):
                words, warning = found
                yield entry.line, words, shown, warning


def _judge(entry: Entry, line: str) -> tuple[str, bool] | None:
    """Say what is wrong with a line and whether that is only a warning; None where nothing is."""
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
    """Name the first character that looks like one of a box and is another."""
    odd = next((char for char in text if not char.isascii()), "")
    return f" (it has U+{ord(odd):04X}, {unicodedata.name(odd, 'unnamed').lower()})" if odd else ""
