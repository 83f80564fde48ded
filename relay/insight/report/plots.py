"""Turn figures into plots: paths of plain numbers and short texts, which the page's template writes as SVG."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise

from relay.base.words import count, render_tokens, shorten
from relay.insight.database import Row
from relay.insight.report.blocks import NOTHING, Ink, Plot

_WIDTH, _HEIGHT = 760, 240
_CHAR = 12
"""Width of a character in the largest font that the style sheet has for plots, the one of narrow screens."""
_MANY = 60
"""From this number of sessions on, lines are thinner and marks smaller."""

_Point = tuple[float, float]
_Piece = tuple[Sequence[_Point], str]
"""A line through points, in the plot's units, and what the path goes on with in the drawing's: a mark, or its end."""
_Layer = tuple[Ink, str, Sequence[_Piece]]
"""Its style is a class of the style sheet."""
_Marks = Sequence[tuple[float, str]]


def draw_contexts(sessions: Sequence[Row], *, by_session: bool = False, most: float = 0) -> Plot:
    """Draw the tokens in context turn by turn, one line per session, with the reset line and the hard line.

    Args:
        by_session: Each session has its number below the plot; else each phase its id where it begins.
        most: The least height in tokens.
    """
    starts = [*accumulate((max(1, session.turns) for session in sessions), initial=0)]
    lines = [
        [(start + point.turn, point.fill_tokens) for point in session.series if point.fill_tokens is not None]
        for session, start in zip(sessions, starts, strict=False)
    ]
    limits: tuple[list[_Piece], list[_Piece]] = ([], [])
    places = zip(sessions, pairwise(starts), strict=True)
    for amounts, group in groupby(places, lambda place: (place[0].soft_tokens, place[0].hard_tokens)):
        spans = [span for _, span in group]
        for limit, amount in zip(limits, amounts, strict=True):
            if amount is not None:
                limit.append(([(spans[0][0] + 0.5, amount), (spans[-1][1] + 0.5, amount)], ""))
    heights = [y for pieces in (*limits, [(line, "") for line in lines]) for line, _ in pieces for _, y in line]
    size = 5 if len(sessions) < _MANY else 2
    ends: dict[Ink, list[_Piece]] = {Ink.GOOD: [], Ink.SOFT: [], Ink.BAD: []}
    for session, line in zip(sessions, lines, strict=True):
        if line:
            ink, mark = _ENDS.get(session.result, _CUT_OFF)
            ends[ink].append(([line[-1]], mark.format(s=size, d=2 * size)))
    layers: list[_Layer] = [
        (Ink.SOFT, "dashed", limits[0]),
        (Ink.HARD, "line", limits[1]),
        (Ink.FILL, "line" if size > 2 else "thin", [(line, "") for line in lines]),  # noqa: PLR2004  # the smaller
        *((ink, "line" if ink is Ink.BAD else "area", pieces) for ink, pieces in ends.items()),
    ]
    most = max([most, *heights, *(session.peak_tokens or 0 for session in sessions)])
    begun = (by_session or not n or sessions[n - 1].phase_id != session.phase_id for n, session in enumerate(sessions))
    below = [
        (start + 1.0, str(session.number) if by_session else session.phase_id or session.title or NOTHING)
        for start, session, is_marked in zip(starts, sessions, begun, strict=False)
        if is_marked
    ]
    paths, texts = _draw(layers, starts[-1], most, below)
    return Plot(
        label=f"Context of {count(len(sessions), 'session')}, turn by turn; the tables have the figures",
        size=f"{_WIDTH} {_HEIGHT}",
        paths=tuple(paths),
        texts=tuple(texts),
        legend=_LEGEND,
        caption=f"Left to right: turns; the number below is the {'session' if by_session else 'phase'} that begins.",
    )


_LEGEND = (
    (Ink.FILL, "tokens in context"),
    (Ink.SOFT, "hand-off line (dashed); ▲ handed over"),
    (Ink.HARD, "hard line"),
    (Ink.GOOD, "● done"),
    (Ink.BAD, "✕ ended otherwise"),
)


_ENDS = {
    "done": (Ink.GOOD, "m-{s} 0a{s} {s} 0 1 0 {d} 0a{s} {s} 0 1 0-{d} 0z"),
    "handoff": (Ink.SOFT, "m-{s} {s}h{d}l-{s}-{d}z"),
}
_CUT_OFF = (Ink.BAD, "m-{s}-{s}l{d} {d}m0-{d}l-{d} {d}")
"""Ink and mark of the end of a session: disc, triangle, and a cross for all other ends."""


def _mark_amounts(most: float) -> _Marks:
    """Return 0 and up to four further multiples of a round number of tokens: 1, 2 or 5 times a power of ten."""
    if most < 1:
        return [(0, "0")]
    power = 10.0 ** math.floor(math.log10(most / 4))
    step = max(1, power * next(factor for factor in (1, 2, 5, 10, 20) if power * factor * 4 >= most))
    return [(n * step, render_tokens(round(n * step))) for n in range(int(most / step) + 1)]


def _draw(
    layers: Iterable[_Layer], turns: int, most: float, below: _Marks
) -> tuple[list[tuple[Ink, str, str]], list[tuple[float, float, str, str]]]:
    """Draw layers over a grid of tokens up to `most`; labels below the plot are left out where they would touch.

    Returns:
        Paths and texts, as in `Plot`.
    """
    beside = _mark_amounts(most)
    left = 14 + _CHAR * max(len(text) for _, text in beside)
    wide, high = (_WIDTH - left - 8) / (turns or 1), (_HEIGHT - 44) / (most * 1.05 or 1)

    def find(point: _Point) -> str:
        return f"{left + (point[0] - 0.5) * wide:.1f} {_HEIGHT - 30 - point[1] * high:.1f}"

    grid = (Ink.GRID, "thin", [([(0.5, y), (turns + 0.5, y)], "") for y, _ in beside])
    paths = [(ink, style, "".join(f"M{'L'.join(map(find, points))}{rest}" for points, rest in pieces if points))
             for ink, style, pieces in (grid, *layers)]  # fmt: skip
    texts = [(left - 8.0, _HEIGHT - 30 - y * high, "end", text) for y, text in beside]
    taken = -math.inf
    for at, text in ((at, shorten(text, 8)) for at, text in below):
        half = _CHAR * len(text) / 2
        x = min(max(left + (at - 0.5) * wide, half), _WIDTH - half)
        if x - half >= taken:
            taken = x + half + _CHAR / 2
            texts.append((x, _HEIGHT - 11.0, "middle", text))
    return [path for path in paths if path[2]], texts
