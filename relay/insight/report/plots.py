"""Turn figures into plots: paths of plain numbers and short texts, which the page's template writes as SVG."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import TypedDict, TypeVar, Unpack

from relay.base.words import render_tokens, shorten
from relay.insight.database import Row
from relay.insight.figures import HEALTHY_CACHE
from relay.insight.report.blocks import Bar, Ink, Plot

MOST_POINTS = 1_500
"""Points of one plot; more are thinned, and the highest are kept."""
_WIDTH = 760
_CHAR = 12
"""Width of a character in the largest font that the style sheet has for plots, the one of narrow screens."""
_LEAST = 1e-9
"""Smaller amounts cannot be seen, and their power of ten is 0."""
_MANY = 60
"""From this number of sessions on, lines are thinner and marks smaller."""

_Point = tuple[float, float]
_Piece = tuple[Sequence[_Point], str]
"""A line through points, in the plot's units, and what the path goes on with in the drawing's: a mark, or its end."""
_Layer = tuple[Ink, str, Sequence[_Piece]]
"""Its style is a class of the style sheet."""
_Marks = Sequence[tuple[float, str]]


class Words(TypedDict):
    """What stands beside a plot."""

    label: str
    legend: tuple[tuple[Ink, str], ...]
    caption: str


def draw_contexts(
    sessions: Sequence[Row], marks: Sequence[tuple[int, str]], *, most: float = 0, **words: Unpack[Words]
) -> Plot:
    """Draw the tokens in context turn by turn, one line per session, with the reset line and the hard line.

    Args:
        marks: Positions of sessions with their labels below the plot.
        most: The least height in tokens.
    """
    starts, series = _find_starts(sessions), _thin(sessions)
    lines = [[(x, point.fill_tokens) for x, point in turns if point.fill_tokens is not None] for turns in series]
    limits: tuple[list[_Piece], list[_Piece]] = ([], [])
    for amounts, group in groupby(zip(sessions, pairwise(starts), strict=True), lambda pair: _find_limits(pair[0])):
        spans = [span for _, span in group]
        for limit, amount in zip(limits, amounts, strict=False):
            limit.append(([(spans[0][0] + 0.5, amount), (spans[-1][1] + 0.5, amount)], ""))
    heights = [y for pieces in (*limits, [(line, "") for line in lines]) for line, _ in pieces for _, y in line]
    size = 5 if len(sessions) < _MANY else 2
    ends: dict[Ink, list[_Piece]] = {Ink.GOOD: [], Ink.SOFT: [], Ink.BAD: []}
    for session, turns in zip(sessions, series, strict=True):
        if turns and (fill := session.series[-1].fill_tokens) is not None:
            ink, mark = _ENDS.get(session.result, _CUT_OFF)
            ends[ink].append(([(turns[-1][0], fill)], mark.format(s=size, d=2 * size)))
    layers: list[_Layer] = [
        (Ink.SOFT, "dashed", limits[0]),
        (Ink.HARD, "line", limits[1]),
        (Ink.FILL, "line" if size > 2 else "thin", [(line, "") for line in lines]),  # noqa: PLR2004  # the smaller
        *((ink, "line" if ink is Ink.BAD else "area", pieces) for ink, pieces in ends.items()),
    ]
    most = max([most, *heights, *(session.peak_tokens or 0 for session in sessions)])
    below = [(starts[n] + 1.0, text) for n, text in marks]
    return _draw(layers, (0.5, starts[-1] + 0.5), (0, most * 1.05), below, _mark_amounts(most, dollars=False), **words)


_ENDS = {
    "done": (Ink.GOOD, "m-{s} 0a{s} {s} 0 1 0 {d} 0a{s} {s} 0 1 0-{d} 0z"),
    "handoff": (Ink.SOFT, "m-{s} {s}h{d}l-{s}-{d}z"),
}
_CUT_OFF = (Ink.BAD, "m-{s}-{s}l{d} {d}m0-{d}l-{d} {d}")
"""Ink and mark of the end of a session: disc, triangle, and a cross for all other ends."""


def draw_bars(bars: Sequence[Bar], *, dollars: bool, most: float = 0, **words: Unpack[Words]) -> Plot:
    """Draw bars side by side.

    Args:
        dollars: They measure USD; else tokens.
        most: The least height.
    """
    boxes: dict[Ink, list[_Piece]] = {}
    for n, bar in enumerate(bars):
        bottom = 0.0
        for ink, size in bar.parts:
            boxes.setdefault(ink, []).append(_box(n - 0.35, bottom, n + 0.35, bottom + size))
            bottom += size
        most = max(most, bottom)
    below = [(float(n), bar.label) for n, bar in enumerate(bars)]
    layers = [(ink, "area", pieces) for ink, pieces in boxes.items()]
    limits = (-0.5, len(bars) - 0.5)
    return _draw(layers, limits, (0, most * 1.05), below, _mark_amounts(most, dollars=dollars), **words)


def draw_cache(sessions: Sequence[Row], marks: Sequence[tuple[int, str]], **words: Unpack[Words]) -> Plot:
    """Draw the share of each prompt that came from the cache, with the line of a healthy share."""
    starts = _find_starts(sessions)
    dots = [
        ([(x, min(1.0, point.cache_read_tokens / point.prompt_tokens))], "h0")
        for turns in _thin(sessions)
        for x, point in turns
        if point.prompt_tokens > 0
    ]
    limits = (0.5, starts[-1] + 0.5)
    healthy = ([(limits[0], HEALTHY_CACHE), (limits[1], HEALTHY_CACHE)], "")
    layers: list[_Layer] = [(Ink.SOFT, "dashed", [healthy]), (Ink.FILL, "dots", dots)]
    below = [(starts[n] + 1.0, text) for n, text in marks]
    return _draw(layers, limits, (0, 1), below, [(0, "0%"), (0.5, "50%"), (1, "100%")], **words)


def _find_starts(sessions: Sequence[Row]) -> list[int]:
    """Return the turns before each session, and at the end all of them."""
    starts = [0]
    for session in sessions:
        starts.append(starts[-1] + max(1, session.turns))
    return starts


def _find_limits(session: Row) -> tuple[int, ...]:
    soft, hard = session.soft_tokens, session.hard_tokens
    return () if soft is None or hard is None else (soft, hard)


def _thin(sessions: Sequence[Row]) -> list[list[tuple[int, Row]]]:
    """Return the places and turns that are drawn of each session; its first stays, since its line begins there."""
    most, series = max(2, MOST_POINTS // max(1, len(sessions))), []
    for session, start in zip(sessions, _find_starts(sessions), strict=False):
        first, kept = tuple(session.series[:1]), thin(session.series, lambda point: point.fill_tokens or 0, most=most)
        series.append([(start + point.turn, point) for point in (kept if kept[:1] == first else first + kept)])
    return series


_PointT = TypeVar("_PointT")


def thin(points: Sequence[_PointT], weigh: Callable[[_PointT], float], most: int) -> tuple[_PointT, ...]:
    """Keep at most so many points: of each two neighbours the one that weighs more, as often as it takes."""
    while len(points) > most:
        points = [max(points[n : n + 2], key=weigh) for n in range(0, len(points), 2)]
    return tuple(points)


def _box(left: float, low: float, right: float, high: float) -> _Piece:
    return [(left, low), (left, high), (right, high), (right, low)], "z"


def _mark_amounts(most: float, *, dollars: bool) -> _Marks:
    ticks = _list_ticks(most, 4, 0 if dollars else 1)
    return [(tick, f"${tick:.3g}" if dollars else render_tokens(round(tick))) for tick in ticks]


def _list_ticks(most: float, count: int, least: float = 0) -> list[float]:
    """Return the multiples up to `most` of a round step, 1, 2 or 5 times a power of ten: at most so many, and 0."""
    if most <= _LEAST:
        return [0]
    power = 10.0 ** math.floor(math.log10(most / count))
    step = max(least, power * next(factor for factor in (1, 2, 5, 10, 20) if power * factor * count >= most))
    return [n * step for n in range(int(most / step) + 1)]


def _draw(
    layers: Iterable[_Layer], xs: _Point, ys: _Point, below: _Marks, beside: _Marks, *, height: int = 240,
    **words: Unpack[Words],
) -> Plot:  # fmt: skip
    """Draw layers and a grid within limits of both axes; labels below the plot are left out where they would touch."""
    left = 14 + _CHAR * max((len(text) for _, text in beside), default=0)
    wide, high = (_WIDTH - left - 8) / ((xs[1] - xs[0]) or 1), (height - 44) / ((ys[1] - ys[0]) or 1)

    def find(point: _Point) -> str:
        return f"{left + (point[0] - xs[0]) * wide:.1f} {height - 30 - (point[1] - ys[0]) * high:.1f}"

    grid = (Ink.GRID, "thin", [([(xs[0], y), (xs[1], y)], "") for y, _ in beside])
    paths = [(ink, style, "".join(f"M{'L'.join(map(find, points))}{rest}" for points, rest in pieces if points))
             for ink, style, pieces in (grid, *layers)]  # fmt: skip
    texts = [(left - 8.0, height - 30 - (y - ys[0]) * high, "end", text) for y, text in beside]
    taken = -math.inf
    for at, text in ((at, shorten(text, 8)) for at, text in below):
        half = _CHAR * len(text) / 2
        x = min(max(left + (at - xs[0]) * wide, half), _WIDTH - half)
        if x - half >= taken:
            taken = x + half + _CHAR / 2
            texts.append((x, height - 11.0, "middle", text))
    return Plot(size=f"{_WIDTH} {height}", paths=tuple(p for p in paths if p[2]), texts=tuple(texts), **words)
