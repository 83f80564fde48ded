"""Find what looks like an item and is none, so that a run would pass over it without a word."""

import re
from collections.abc import Iterator

from relay.base.words import shorten
from relay.plan.model import Violation
from relay.plan.outline import ITEM_LEVEL, EntryKind, Outline, find_end

_SHOWN_CHARS = 60
_NEAR_BOX = re.compile(
    r"(?:(?:[-*+•–—]|\d{1,9}[.)])\s*+)?\[\s*+(?:(?:[xX_]|[^\w\s\[\]()])\ufe0f?\s*+)?\](?![(\[:])"
    r"|(?P<word>\[[^\W_]\])\s+(?=\S)"
)
_BOXED_HEADING = re.compile(r"(?:\W{0,4}[\w.]{1,20}[.):]?\s{1,4}){0,2}\[ \]\s")


def find_near_boxes(outline: Outline) -> Iterator[Violation]:
    """Yield lines that look like an item and are none, as ``- []`` and ``- [!] text``: a run would pass over them.

    A sign such as ``[T]`` or ``[1]`` can be the mark of a list of sources as well: those are warnings.

    In 192 plans with 5,375 boxes of five public repositories there was none of the first form. A line with a box and no
    bullet is left alone: the one that there was held three choices. So is ``- ( )``: of four public lists three were
    choices. Of ten public ``- [/]`` all were tasks that somebody had begun.
    """
    for entry in (entry for section in outline.sections for entry in section.entries):
        found = _NEAR_BOX.match(entry.text)
        if found and (entry.kind is EntryKind.BULLET or (entry.kind is EntryKind.PROSE and found[0][0] != "[")):
            shown = shorten(entry.text.partition("\n")[0], _SHOWN_CHARS)
            words = f"`{shown}` is no item; write `- [ ] text` or `- [x] text`"
            is_word = found["word"] is not None
            yield Violation(line=entry.line, message=f"{words}{' if it is work' * is_word}", warning=is_word)
    for at, section in enumerate(outline.sections):
        if section.level < ITEM_LEVEL and _BOXED_HEADING.match(section.heading):
            below = outline.sections[at : find_end(outline.sections, at)]
            if not any(one.boxes for one in below):
                words = f"the box in the heading `{shorten(section.title, _SHOWN_CHARS)}` is no item"
                yield Violation(line=section.line, message=f"{words}; write `- [ ] text` below it")
