"""The plots: paths in the page's colours, with texts as texts, and no more of both than can be seen."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import relay.insight.report
from relay.cli.screen import clean_line
from relay.insight.database import Row
from relay.insight.report.blocks import Chapter, Ink, Page, Plot
from relay.insight.report.page import render_page
from relay.insight.report.plots import draw_contexts
from tests.report.reading import fold
from tests.report.runs import play

CSS = (Path(relay.insight.report.__file__).parent / "page.css").read_text()


def show(plot: Plot) -> str:
    """Return the SVG of a plot, as the page has it."""
    page = Page(title="t", facts=(), answers=(), sections=(Chapter(name="n", title="t", lead="l", plots=(plot,)),))
    [svg] = re.finditer(r"<svg.*?</svg>", render_page(page, clean=clean_line), re.DOTALL)
    return svg[0]


def list_texts(plot: Plot) -> list[str]:
    return [text for *_, text in plot.texts]


def find_shape(plot: Plot, ink: Ink, style: str) -> list[list[float]]:
    """Return the numbers of each piece of the one path of an ink and a style."""
    [numbers] = [numbers for drawn, kind, numbers in plot.paths if (drawn, kind) == (ink, style)]
    return [[float(number) for number in re.findall(r"-?[0-9.]+", piece)] for piece in numbers.split("M")[1:]]


def test_a_plot_is_in_the_pages_colours_with_its_labels_as_text():
    plot, styles = draw_contexts(fold(play(phases=3)).sessions), set(re.findall(r"\.([a-z][a-z0-9-]*)", CSS))
    svg = ET.fromstring(show(plot))
    assert svg.attrib == {"viewBox": f"0 0 {plot.size}", "role": "img", "aria-label": plot.label}
    assert {element.tag for element in svg.iter()} == {"svg", "path", "text"}
    for path in svg.iter("path"):
        style, ink = path.attrib["class"].split(" ink-")
        assert set(path.attrib) == {"class", "d"}
        assert re.fullmatch(r"[MLahlmvz0-9. -]+", path.attrib["d"])
        assert {style, f"ink-{Ink(ink)}"} <= styles
    width, height = map(float, plot.size.split())
    assert all(0 <= x <= width and 0 <= y <= height for x, y, *_ in plot.texts)
    assert {"1", "2", "3", "20k"} <= set(list_texts(plot))
    assert list_texts(draw_contexts([])) == ["0"]


def test_a_plot_of_contexts_shows_each_session_its_lines_and_how_it_ended():
    sessions = fold(play(phases=3)).sessions
    plot = draw_contexts(sessions)
    assert len(find_shape(plot, Ink.FILL, "line")) == len(sessions)
    for ink, style in ((Ink.SOFT, "dashed"), (Ink.HARD, "line")):
        [[begin, height, end, same]] = find_shape(plot, ink, style)
        assert (height, begin < end) == (same, True), ink
    [[_, soft, *_]], [[_, hard, *_]] = find_shape(plot, Ink.SOFT, "dashed"), find_shape(plot, Ink.HARD, "line")
    assert hard < soft  # more tokens are higher up
    results = [session.result for session in sessions]
    assert len(find_shape(plot, Ink.GOOD, "area")) == results.count("done") > 0
    assert len(find_shape(plot, Ink.SOFT, "area")) == results.count("handoff") > 0
    cut_off = draw_contexts([*fold(list(play(phases=1, sessions=1))[:-4]).sessions])
    assert len(find_shape(cut_off, Ink.BAD, "line")) == 1


def test_labels_below_a_plot_do_not_touch():
    [session] = fold(play(phases=1, sessions=1)).sessions
    many = [Row(**{**vars(session), "phase_id": f"phase-{number:05}", "turns": 1}) for number in range(200)]
    below = [(x, text) for x, _, anchor, text in draw_contexts(many).texts if anchor == "middle"]
    assert {text for _, text in below} == {"phase-0…"}
    assert 5 <= len(below) <= 10
    assert min(b - a for (a, _), (b, _) in pairwise(below)) >= 96


def read_colours(css: str) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(int(value[n : n + 2], 16) / 255 for n in (0, 2, 4))
        for name, value in re.findall(r"--(\w+): #([0-9a-f]{6})", css)
    }


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """WCAG 2.2, relative luminance and contrast ratio."""

    def shine(colour: tuple[float, ...]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((shine(one), shine(other)))
    return (high + 0.05) / (low + 0.05)


def test_everything_can_be_read_in_light_and_in_dark():
    """Texts have 4.5 : 1, what is drawn 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    light, dark = CSS.split("@media (prefers-color-scheme: dark)")
    for mode in (light, dark.split("* { box-sizing")[0]):
        colours = read_colours(mode)
        texts = ("ink", "muted", "text", "link", "soft", "good", "bad")
        pairs = [(text, ground, 4.5) for text in texts for ground in ("page", "card")]
        pairs += [(drawn, "card", 3) for drawn in ("fill", "hard")]
        assert [pair for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < pair[2]] == []
        assert set(Ink) <= set(colours)
