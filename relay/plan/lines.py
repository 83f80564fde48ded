"""The lines of a text as CommonMark counts them, with their offsets in the text as it is.

``str.splitlines`` also splits at form feeds, ``U+0085``, ``U+2028`` and more; one of those in an item would put every
later offset on the wrong line.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
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
        """Cut a text; it is not changed."""
        first = len(BOM) if text.startswith(BOM) else 0
        starts = [first, *(end.end() for end in _LINE_END.finditer(text))]
        if starts[-1] < len(text):
            starts.append(len(text))
        return cls(text=text, starts=tuple(starts) if len(starts) > 1 else (first, first))

    @property
    def count(self) -> int:
        """How many lines there are; an empty text has one empty line."""
        return len(self.starts) - 1

    def at(self, index: int) -> str:
        """Return one line without its ending."""
        return self.text[self.starts[index] : self.starts[index + 1]].rstrip("\r\n")

    def ending(self, index: int) -> str:
        """Return the ending of one line; empty at the end of a text that does not end its last line."""
        line = self.text[self.starts[index] : self.starts[index + 1]]
        return line[len(line.rstrip("\r\n")) :]

    def offset(self, index: int) -> int:
        """Return where a line starts; past the last line, the end of the text."""
        return self.starts[min(index, self.count)]

    def find_ending(self, near: int) -> str:
        """Return the line ending in use at a line, else at the first line, else a line feed."""
        return self.ending(min(near, self.count) - 1) or self.ending(0) or "\n"

    def insert(self, *added: tuple[int, Sequence[str]]) -> str:
        """Return the text with lines put in before those named, in their order; everything else stays as it is."""
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
        """Return the lines with one character in the place of another at each offset; neither is a line end."""
        ends = (*sorted(offsets), len(self.text))
        starts = (0, *(offset + 1 for offset in ends[:-1]))
        text = character.join(self.text[start:end] for start, end in zip(starts, ends, strict=True))
        return replace(self, text=text)

    def is_blank(self, index: int) -> bool:
        """Whether a line holds nothing but spaces and tabs, as CommonMark sees it."""
        return _BLANK.match(self.at(index)) is not None
