"""Draw the plots of the page with lets-plot, and reduce its SVG to known shapes in the page's colours.

The only texts in a plot are ids and numbers.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import lets_plot as lp
from markupsafe import Markup

from relay.base.words import render_tokens, shorten
from relay.insight.figures.values import HEALTHY_CACHE, SessionFigures, TurnFigures, thin
from relay.insight.report.blocks import Bar, Ink, Span, dye, find_ink

_SHAPES = frozenset({"g", "path", "line", "rect", "circle", "text", "tspan", "defs", "clipPath"})
_DRAWN = frozenset({"path", "line", "circle"})
_KEPT = frozenset({
    "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "d", "width", "height", "transform", "text-anchor",
    "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity",
})  # fmt: skip
_DEFAULT_ONE = frozenset({"stroke-width", "stroke-opacity", "fill-opacity"})
_NUMBER = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")
_LOCAL = re.compile(r"\{[^}]*\}")


def fit_svg(drawn: str, *, name: str, label: str) -> Markup:
    """Return a drawing as an SVG element for the page.

    The element is built anew from harmless parts: no script, no style, no link, no reference but to its own ids.

    Args:
        name: Unique on the page; the prefix of its ids.
        label: Description for readers who cannot see it.

    Raises:
        ValueError: It is not a drawing, as when the library wrote an error into it.
    """
    try:
        found = ET.fromstring(drawn)  # noqa: S314  # made in this process, and expat has its own limit on entities
    except ET.ParseError as error:
        raise ValueError(f"the drawing {name!r} is no XML: {error}") from error
    try:
        size = f"0 0 {float(found.get('width', '')):g} {float(found.get('height', '')):g}"
    except ValueError:
        raise ValueError(f"{name!r} was not drawn: {' '.join(''.join(found.itertext()).split())}") from None
    ids = {element.get("id", ""): f"{name}-{n}" for n, element in enumerate(found.iter("*"))}
    kept = ET.Element("svg", {"viewBox": size, "role": "img", "aria-label": label})
    kept.extend(_keep(found, ids))
    return Markup(ET.tostring(kept, encoding="unicode"))  # noqa: S704  # of shapes and attributes that are listed here


def _keep(parent: ET.Element, ids: dict[str, str]) -> Iterator[ET.Element]:
    for child in parent:
        shape = _LOCAL.sub("", child.tag)
        if shape not in _SHAPES or (shape in _DRAWN and not (_has_fill(child) or _has_line(child))):
            continue
        kept = ET.Element(shape, dict(_keep_attributes(child, ids)))
        kept.text = (child.text or "").strip()
        kept.extend(_keep(child, ids))
        if shape != "g" or len(kept):
            yield kept


def _has_fill(element: ET.Element) -> bool:
    return element.get("fill", "none") != "none" and element.get("fill-opacity") != "0.0"


def _has_line(element: ET.Element) -> bool:
    return element.get("stroke", "none") != "none" and element.get("stroke-width") != "0.0"


def _keep_attributes(element: ET.Element, ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    unseen = () if _has_line(element) else ("stroke", "stroke-width", "stroke-opacity")
    for name, value in element.attrib.items():
        if name in unseen or (name in _DEFAULT_ONE and value == "1.0"):
            continue
        if name in _KEPT:
            yield name, _NUMBER.sub(_round, value)
        elif name in {"fill", "stroke"}:
            ink = find_ink(value)
            yield name, f"var(--{ink})" if ink else "none" if value == "none" else "currentColor"
        elif name == "id":
            yield name, ids[value]
        elif name == "clip-path" and (target := ids.get(value.removeprefix("url(#").removesuffix(")"))):
            yield name, f"url(#{target})"


def _round(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"


MOST_POINTS = 1_500
"""Points of one plot; more are thinned, and the highest are kept."""
_WIDTH = 760
_HEIGHT = 240
_MOST_LABELS = 14
"""Labels below a plot, so that they do not touch where the page is narrow."""
_LABEL_CHARS = 8
_ROOM = 22
"""Font size for which the library leaves room; the style sheet uses it on narrow screens only."""
_MANY = 60
"""From this number of sessions on, lines are thinner."""
_ENDS = {"done": (Ink.GOOD, 16), "handoff": (Ink.SOFT, 17)}
_CUT_OFF = (Ink.BAD, 4)
"""Ink and shape of the end of a session: disc, triangle, and a cross for all other ends."""


def draw_contexts(
    sessions: Sequence[SessionFigures], marks: Sequence[tuple[int, str]], *, name: str, label: str, most: float = 0
) -> Markup:
    """Draw the tokens in context turn by turn, one line per session, with the reset line and the hard line.

    Args:
        marks: Positions of sessions with their labels below the plot.
        most: The least height in tokens.
    """
    starts = _find_starts(sessions)
    each = max(2, MOST_POINTS // max(1, len(sessions)))
    points = [
        (start + turn, fill, n)
        for n, (session, start) in enumerate(zip(sessions, starts, strict=True))
        for turn, fill in _find_fills(session, each)
    ]
    lines = _find_lines(sessions, starts)
    most = max(
        [
            most,
            *(line[3] for line in lines),
            *(point[1] for point in points),
            *(session.peak_tokens or 0 for session in sessions),
        ]
    )
    plot = (
        lp.ggplot()
        + _make_theme()
        + _mark_x([(starts[n] + 1, text) for n, text in marks])
        + _mark_amounts(most, dollars=False)
    )
    for column, ink, style in ((2, Ink.SOFT, "dashed"), (3, Ink.HARD, "solid")):
        data = {
            "x": [line[0] for line in lines],
            "e": [line[1] for line in lines],
            "y": [line[column] for line in lines],
        }
        plot += lp.geom_segment(lp.aes("x", "y", xend="e", yend="y"), data=data, color=dye(ink), size=1, linetype=style)
    drawn = {"x": [t[0] for t in points], "y": [t[1] for t in points], "n": [f"session {t[2]}" for t in points]}
    plot += lp.geom_line(lp.aes("x", "y", group="n"), data=drawn, color=dye(Ink.FILL), size=_choose_size(sessions))
    return _finish(plot + _mark_ends(sessions, starts), name, label)


def draw_bars(bars: Sequence[Bar], *, dollars: bool, name: str, label: str, most: float = 0) -> Markup:
    """Draw bars side by side.

    Args:
        dollars: They measure USD; else tokens.
        most: The least height.
    """
    most = max([most, *(sum(size for _, size in bar.parts) for bar in bars)])
    plot = lp.ggplot() + _make_theme() + _mark_x(list(enumerate(bar.label for bar in bars)))
    plot += _mark_amounts(most, dollars=dollars)
    boxes: dict[Ink, list[tuple[float, float, float]]] = {}
    for n, bar in enumerate(bars):
        bottom = 0.0
        for ink, size in bar.parts:
            boxes.setdefault(ink, []).append((n, bottom, bottom + size))
            bottom += size
    for ink, found in (boxes or {Ink.S1: [(0, 0.0, 0.0)]}).items():  # a plot without a layer is not drawn
        data = {
            "a": [n - 0.35 for n, *_ in found],
            "b": [n + 0.35 for n, *_ in found],
            "c": [low for _, low, _ in found],
            "d": [high for *_, high in found],
        }
        corners = lp.aes(xmin="a", xmax="b", ymin="c", ymax="d")
        plot += lp.geom_rect(corners, data=data, fill=dye(ink), color=dye(ink), size=0)
    return _finish(plot, name, label)


def draw_cache(
    sessions: Sequence[SessionFigures], marks: Sequence[tuple[int, str]], *, name: str, label: str
) -> Markup:
    """Draw the share of each prompt that came from the cache, with the line of a healthy share."""
    starts = _find_starts(sessions)
    each = max(2, MOST_POINTS // max(1, len(sessions)))
    points = [
        (start + point.turn, min(1.0, point.cache_read_tokens / point.prompt_tokens))
        for session, start in zip(sessions, starts, strict=True)
        for point in _thin(session.series, each)
        if point.prompt_tokens > 0
    ]
    plot = lp.ggplot() + _make_theme() + _mark_x([(starts[n] + 1, text) for n, text in marks])
    plot += lp.scale_y_continuous(breaks=[0, 0.5, 1], labels=["0%", "50%", "100%"], limits=[0, 1])
    plot += lp.geom_hline(yintercept=HEALTHY_CACHE, color=dye(Ink.SOFT), size=1, linetype="dashed")
    data = {"x": [x for x, _ in points], "y": [y for _, y in points]}
    return _finish(plot + lp.geom_point(lp.aes("x", "y"), data=data, color=dye(Ink.FILL), size=1.6), name, label)


def draw_spans(spans: Sequence[Span], rows: Sequence[str], *, name: str, label: str) -> Markup:
    """Draw intervals, one line per row, in minutes since the first began; the shortest are lengthened to be visible."""
    first = min((span.begin for span in spans), default=0.0)
    length = max((span.end - first for span in spans), default=0.0) or 1.0
    kept = sorted(spans, key=lambda span: span.end - span.begin, reverse=True)[:MOST_POINTS]
    kept.sort(key=lambda span: span.begin)
    place = {row: len(rows) - n for n, row in enumerate(rows)}
    plot = lp.ggplot() + _make_theme() + _mark_minutes(length / 60)
    plot += lp.scale_y_continuous(
        breaks=list(place.values()), labels=[_plain(row, 12) for row in rows], limits=[0.5, len(rows) + 0.5]
    )
    for ink in dict.fromkeys(span.ink for span in kept):
        drawn = [span for span in kept if span.ink is ink]
        data = {
            "x": [(span.begin - first) / 60 for span in drawn],
            "e": [max(span.end - first, span.begin - first + length / 400) / 60 for span in drawn],
            "y": [place[span.row] for span in drawn],
        }
        plot += lp.geom_segment(lp.aes("x", "y", xend="e", yend="y"), data=data, color=dye(ink), size=6)
    return _finish(plot, name, label, height=60 + 34 * len(rows))


def _find_starts(sessions: Sequence[SessionFigures]) -> list[int]:
    starts = [0]
    for session in sessions:
        starts.append(starts[-1] + max(1, session.totals.turns))
    return starts[:-1]


def _find_fills(session: SessionFigures, most: int) -> list[tuple[int, int]]:
    """Return turns and the tokens in context; nothing for fewer than two, of which the library makes no line."""
    found = [(point.turn, point.fill_tokens) for point in _thin(session.series, most) if point.fill_tokens is not None]
    return found if len(found) > 1 else []


def _find_lines(sessions: Sequence[SessionFigures], starts: Sequence[int]) -> list[tuple[float, float, int, int]]:
    """Return the two lines as (from, to, soft, hard), one piece for all consecutive sessions with equal lines."""
    lines: list[tuple[float, float, int, int]] = []
    for session, start in zip(sessions, starts, strict=True):
        if session.soft_tokens is None or session.hard_tokens is None:
            continue
        first, last = start + 0.5, start + max(1, session.totals.turns) + 0.5
        if lines and lines[-1][1:] == (first, session.soft_tokens, session.hard_tokens):
            first = lines.pop()[0]
        lines.append((first, last, session.soft_tokens, session.hard_tokens))
    return lines


def _choose_size(sessions: Sequence[SessionFigures]) -> float:
    return 1 if len(sessions) < _MANY else 0.5


def _thin(points: tuple[TurnFigures, ...], most: int) -> tuple[TurnFigures, ...]:
    """Thin the turns of a session; the first turn stays, since the line begins there."""
    first, points = points[:1], thin(points, lambda point: point.fill_tokens or 0, most=max(1, most))
    return points if points[:1] == first else first + points


def _mark_ends(sessions: Sequence[SessionFigures], starts: Sequence[int]) -> Any:
    found: dict[tuple[Ink, int], list[tuple[int, int]]] = {}
    for session, start in zip(sessions, starts, strict=True):
        if session.series and (fill := session.series[-1].fill_tokens) is not None:
            found.setdefault(_ENDS.get(session.result, _CUT_OFF), []).append((start + session.series[-1].turn, fill))
    layers: Any = lp.theme()
    for (ink, shape), points in found.items():
        data = {"x": [x for x, _ in points], "y": [y for _, y in points]}
        layers += lp.geom_point(
            lp.aes("x", "y"), data=data, color=dye(ink), shape=shape, size=3 * _choose_size(sessions)
        )
    return layers


def _mark_x(marks: Iterable[tuple[float, str]]) -> Any:
    """Label the x axis, with no more labels than can be read."""
    found = list(marks)
    width = (found[-1][0] - found[0][0]) / _MOST_LABELS if found else 0.0
    kept: list[tuple[float, str]] = []
    for at, text in found:
        if not kept or at - kept[-1][0] >= width:
            kept.append((at, _plain(text, _LABEL_CHARS)))
    return lp.scale_x_continuous(breaks=[at for at, _ in kept], labels=[text for _, text in kept])


def _mark_minutes(most: float) -> Any:
    ticks = _list_ticks(most, _find_step(most, 6))
    return lp.scale_x_continuous(breaks=ticks, labels=[f"{tick:g} min" for tick in ticks])


def _mark_amounts(most: float, *, dollars: bool) -> Any:
    step = _find_step(most, 4)
    ticks = _list_ticks(most, step if dollars else max(1, round(step)))
    labels = [f"${tick:.3g}" if dollars else render_tokens(round(tick)) for tick in ticks]
    return lp.scale_y_continuous(breaks=ticks, labels=labels, limits=[0, most * 1.05])


def _list_ticks(most: float, step: float) -> list[float]:
    return [n * step for n in range(int(most / step) + 1)]


_LEAST = 1e-9


def _find_step(most: float, ticks: int) -> float:
    """Return a round distance, 1, 2 or 5 times a power of ten, with at most `ticks` of them up to `most`."""
    # Smaller amounts cannot be seen, and their power of ten is 0.
    step = 10.0 ** (math.ceil(math.log10(most)) - 6) if most > _LEAST else 1.0
    for factor in (2, 2.5, 2) * 6:
        if most / step <= ticks:
            break
        step *= factor
    return step


def _plain(text: str, most_chars: int) -> str:
    """Return a label without characters that XML cannot hold or that reorder text."""
    return shorten("".join(char if char.isprintable() else "?" for char in text), most_chars)


def _make_theme() -> Any:
    blank = lp.element_blank()
    return lp.theme_minimal() + lp.theme(
        panel_grid_major_y=lp.element_line(color=dye(Ink.GRID), size=0.8),
        panel_grid_major_x=blank,
        panel_grid_minor=blank,
        axis_text=lp.element_text(size=_ROOM),
        axis_title=blank,
        axis_ticks=blank,
        axis_line_x=lp.element_line(color=dye(Ink.GRID), size=1),
        plot_background=blank,
        panel_background=blank,
        plot_margin=[4, 8, 0, 0],
        legend_position="none",
    )


def _finish(plot: Any, name: str, label: str, *, height: int = _HEIGHT) -> Markup:
    return fit_svg((plot + lp.ggsize(_WIDTH, height)).to_svg(), name=name, label=label)
