"""The bands of a session's fill, as words; not in `relay.words`, since most commands need no gauge."""

from relay.meters.gauge import BAND_EDGES, Band
from relay.words import UNKNOWN


def find_band(fill_tokens: int | None, soft_tokens: int) -> Band | None:
    """Return the band of a fill; None while the fill is unknown."""
    if fill_tokens is None:
        return None
    return next((band for edge, band in BAND_EDGES if fill_tokens < edge * soft_tokens), Band.HAND_OFF)


def render_band(band: Band | None) -> str:
    """Write a band's name as a word of the screen."""
    return UNKNOWN if band is None else band.value.capitalize()
