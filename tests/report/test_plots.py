"""The drawings: in the page's colours, of known shapes, with texts as texts."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import relay.insight.report
from relay.insight.report.blocks import Bar, Ink, Span, dye, find_ink
from relay.insight.report.plots import MOST_POINTS, draw_bars, draw_cache, draw_contexts, draw_spans, fit_svg
from tests.report.reading import fold
from tests.report.runs import play

CSS = (Path(relay.insight.report.__file__).parent / "page.css").read_text()
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9.0" height="5.0">{}</svg>'
SERIES = [Ink(f"s{n}") for n in range(1, 9)]


def fit(inner: str) -> str:
    return str(fit_svg(SVG.format(inner), name="n", label="a <b>"))


def test_only_known_shapes_and_attributes_are_left():
    drawn = fit(
        '<style>x</style><script>alert(1)</script><g onclick="x" style="y">'
        '<line x1="1.25" y2="2.04" stroke="rgb(0,0,3)"'
        ' href="z"/></g><foreignObject><div/></foreignObject><image href="u"/><g/><path d="M0 0" fill="none"/>'
        '<a href="x"><text>in</text></a><text>&lt;b&gt;</text><!-- no -->'
    )
    assert drawn == (
        '<svg viewBox="0 0 9 5" role="img" aria-label="a &lt;b&gt;">'
        '<g><line x1="1.2" y2="2" stroke="var(--fill)" /></g>'
        "<text>&lt;b&gt;</text></svg>"
    )


def test_references_lead_to_what_the_drawing_has():
    drawn = fit(
        '<defs><clipPath id="a"/></defs><g clip-path="url(#a)"><text>t</text></g>'
        '<g clip-path="url(http://x)"><text/></g>'
    )
    assert 'clipPath id="n-2"' in drawn
    assert 'g clip-path="url(#n-2)"' in drawn
    assert "http" not in drawn


@pytest.mark.parametrize(
    ("drawn", "why"), [("<p", "no XML"), ("<svg><text>Variable not found</text></svg>", "Variable not found")]
)
def test_an_error_of_the_library_is_no_drawing(drawn, why):
    with pytest.raises(ValueError, match=why):
        fit_svg(drawn, name="n", label="")


@pytest.mark.parametrize("ink", Ink)
def test_an_ink_is_read_back_in_both_ways_of_writing(ink):
    number = int(dye(ink)[-2:], 16)
    assert (find_ink(dye(ink)), find_ink(f"rgb(0,0,{number})")) == (ink, ink)


@pytest.mark.parametrize("colour", ["none", "#000000", "#ffffff", "rgb(0,0,99)", "rgb(1,2,3)", ""])
def test_other_colours_are_no_ink(colour):
    assert find_ink(colour) is None


def test_each_kind_of_plot_is_in_the_pages_colours_with_its_labels_as_text():
    sessions = fold(play(phases=3)).sessions
    marks = [(0, "1"), (2, "2"), (4, "3")]
    drawings = {
        "contexts": draw_contexts(sessions, marks, name="t", label="x"),
        "cache": draw_cache(sessions, marks, name="c", label="x"),
        "bars": draw_bars([Bar(label="1", parts=((Ink.S1, 2.0), (Ink.S2, 1.0)))], dollars=True, name="b", label="x"),
        "spans": draw_spans(
            [Span(row="read", begin=9.0, end=9.1, ink=Ink.S1), Span(row="bash", begin=10.0, end=70.0, ink=Ink.BAD)],
            ["read", "bash"], name="s", label="x",
        ),
    }  # fmt: skip
    for name, drawing in drawings.items():
        assert "currentColor" not in drawing, name
        assert set(re.findall(r"var\(--(\w+)\)", drawing)) <= set(Ink), name
    texts = {name: set(ET.fromstring(drawing).itertext()) for name, drawing in drawings.items()}
    assert {"1", "2", "3", "20k"} <= texts["contexts"]
    assert {"0%", "100%"} <= texts["cache"]
    assert {"$0", "$2", "1"} <= texts["bars"]
    assert {"read", "bash", "0 min"} <= texts["spans"]


def test_a_plot_of_many_sessions_has_a_bound():
    sessions = fold(play(phases=30, sessions=10, turns=8)).sessions
    drawn = draw_contexts(sessions, [(0, "1")], name="t", label="x")
    points = sum(len(re.findall("[ML]", path)) for path in re.findall(r' d="([^"]*)" fill="none"', drawn))
    assert len(sessions) == 300
    assert points <= 2 * MOST_POINTS
    assert drawn.count("var(--soft)") < 320  # one line for all, and an end for each


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50), st.booleans())
def test_bars_of_any_size_have_few_marks(sizes, dollars):
    drawn = draw_bars(
        [Bar(label=str(n), parts=((Ink.S1, size),)) for n, size in enumerate(sizes)],
        dollars=dollars,
        name="b",
        label="x",
    )
    assert 1 <= len(re.findall("<text", drawn)) <= 25


@given(st.text(max_size=30))
def test_any_label_is_text(text):
    drawn = draw_bars([Bar(label=text, parts=((Ink.S1, 1.0),))], dollars=False, name="b", label="x")
    assert {element.tag for element in ET.fromstring(drawn).iter()} <= {
        "svg",
        "g",
        "defs",
        "clipPath",
        "rect",
        "line",
        "text",
        "tspan",
        "path",
    }


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


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_everything_can_be_read_in_light_and_in_dark(mode):
    """Texts have 4.5 : 1, what is drawn 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    light, dark = CSS.split("@media (prefers-color-scheme: dark)")
    colours = read_colours(light if mode == "light" else dark.split("* { box-sizing")[0])
    for ground in ("page", "card"):
        for text in ("ink", "muted", "text", "link", "soft", "good", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for drawn in ("fill", "hard", *SERIES):
        assert contrast(colours[drawn], colours["card"]) >= 3, drawn
    assert set(Ink) <= set(colours)


def test_bars_without_a_size_are_drawn_too():
    """An endpoint that counts nothing: every part of every prompt is 0."""
    assert "<svg" in draw_bars([Bar(label="1", parts=())], dollars=False, name="b", label="x")
