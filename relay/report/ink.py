"""The colours of the page by name. The style sheet says what each is in light and in dark."""

import re
from enum import StrEnum


class Ink(StrEnum):
    """A colour; its value is the name of the CSS variable."""

    TEXT = "text"
    GRID = "grid"
    FILL = "fill"
    SOFT = "soft"
    HARD = "hard"
    GOOD = "good"
    BAD = "bad"
    S1 = "s1"
    S2 = "s2"
    S3 = "s3"
    S4 = "s4"
    S5 = "s5"
    S6 = "s6"
    S7 = "s7"
    S8 = "s8"


SERIES = (Ink.S1, Ink.S2, Ink.S3, Ink.S4, Ink.S5, Ink.S6, Ink.S7, Ink.S8)
_INKS = tuple(Ink)
_DYE = re.compile(r"rgb\(0,0,(?P<whole>\d{1,2})\)|#0000(?P<hex>[0-9a-f]{2})")


def dye(ink: Ink) -> str:
    """Return the colour that stands for an ink in a drawing until `find_ink` reads it back."""
    return f"#0000{_INKS.index(ink) + 1:02x}"


def find_ink(colour: str) -> Ink | None:
    """Return which ink a colour of a drawing stands for; None for any other colour."""
    match = _DYE.fullmatch(colour)
    number = 0 if not match else int(match["whole"]) if match["whole"] else int(match["hex"], 16)
    return _INKS[number - 1] if 0 < number <= len(_INKS) else None
