"""The bands of a session's fill, as words; not in `relay.words`, since most commands need no gauge."""

from relay.meters.gauge import Band
from relay.words import UNKNOWN


def render_band(band: Band | None) -> str:
    """Write a band's name as a word of the screen."""
    return UNKNOWN if band is None else band.value.capitalize()
