"""The page: what it says, that no text of a log becomes anything but text, and that its size has a bound."""

import base64
import hashlib
import re
from dataclasses import replace
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.cli.screen import clean_line
from relay.insight.figures import Figures
from relay.insight.report.blocks import THRESHOLDS, is_crossed
from relay.insight.report.chapters import Beliefs
from relay.insight.report.contents import make_page
from relay.insight.report.page import MARK, MOST_BYTES, render_page
from relay.ledger.belief import judge
from relay.ledger.model import Claim, Kind, Ledger, Nogood, Stamp
from relay.session.events import Event, LeftFile, Noticed, ReviewFinished, ShownFinding
from relay.session.usage import Spent
from tests.any_event import any_event
from tests.figures.streams import end, over, session, start, turn
from tests.pictures import make_png, make_webp
from tests.report.reading import Reader, fold
from tests.report.runs import play

HOSTILE = (
    "</td></style></script></svg><script>alert(1)</script>",
    "\"' onload=alert(1) style=x '\"><img src=x onerror=alert(1)><svg onload=alert(1)>",
    "<!--", "-->", "]]>", "<![CDATA[", "{{ 7 * 7 }}{% raw %}", "&lt;b&gt;&amp;#60;", "javascript:alert(1)",
    "\x00\x01\x1b[31mred\x1b[0m\x7f\x9b\ufffe\uffff\ud800", "\u202egpj.exe\u2066\u200f\u061c", "\u2028\u2029\r\n\t",
    "ש" * 9 + "\u0301" * 50, "x" * 100_000,
)  # fmt: skip
MOST_NEEDED = 5
"""Lines of the card that says what needs a person."""
MARKUP = 9
"""So many of them are markup, each of which would act whatever stands beside it."""
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\ud800-\udfff]")
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "role", "tabindex", "scope", "href",
    "aria-label", "aria-labelledby", "aria-hidden", "viewbox", "x", "y", "dy", "d", "width", "height", "text-anchor",
    "type", "src", "alt",
}  # fmt: skip
PICTURE = re.compile(r"data:image/(?:png|jpeg|webp);base64,[A-Za-z0-9+/]+=*")


def render(figures: Figures, beliefs: Beliefs | None = None, **given: int) -> str:
    return render_page(make_page(figures, beliefs), clean=clean_line, **given)


def make_beliefs(text: str) -> Beliefs:
    stamp = Stamp(phase="1", session="1-1", at="2026-11-20T10:00:00Z")
    ledger = Ledger(
        entries=(
            Claim(id="c1", claim=text, because=text, kind=Kind.CONSTRAINT, stamp=stamp),
            Claim(id="c2", claim=text, because=text, stamp=stamp),
            Claim(id="c3", claim=text, because=text, rests_on=("c1",), stamp=replace(stamp, session="2-1")),
            Claim(id="c4", claim=text, because=text, replaces=("c3",), stamp=replace(stamp, at="2026-11-20T11:00:00Z")),
            Nogood(id="n1", claims=("c1", "c2"), because=text, stamp=stamp),
        )
    )
    return Beliefs(ledger=ledger, judgement=judge(ledger, {}))


def require_inert(html: str) -> Reader:
    """Fail where the page holds anything that acts, loads, or cannot be seen."""
    read = Reader(html)
    assert html.startswith(MARK)
    assert read.others == ["doctype html", "made by relay report"]
    assert INVISIBLE.findall(html.replace("\n", "")) == []
    assert {name for _, found in read.elements for name in found} <= ATTRIBUTES
    assert not set(read.tags) & {"script", "iframe", "object", "embed", "link", "base", "form", "image", "use"}
    assert read.tags.count("style") == 1
    assert all(found["href"].startswith("#") for tag, found in read.elements if "href" in found)
    assert all(tag == "img" and PICTURE.fullmatch(found["src"]) for tag, found in read.elements if "src" in found)
    assert not any("url(" in value for _, found in read.elements for value in found.values())
    ids = [found["id"] for _, found in read.elements if "id" in found]
    assert len(ids) == len(set(ids))
    return read


def test_no_text_of_a_log_is_anything_but_text():
    """Whatever it says, the page has the elements that it has with a plain word in its place, in the same order."""

    def show(text: str) -> str:
        kept: dict[str, bytes | str] = {"1": f"    {text}\n{text}", "2": make_png(4, 3)}
        left = tuple(LeftFile(name=text, size_bytes=len(data), sha256=name, why="") for name, data in kept.items())
        figures = fold(play(phases=1, sessions=2, turns=2, text=text, left=left))
        return render_page(make_page(figures, make_beliefs(text), lambda _name, sha256: kept[sha256]), clean=clean_line)

    plain = require_inert(show("plain")).tags
    for text in (" ".join(HOSTILE[:MARKUP]), *HOSTILE[MARKUP:]):
        assert require_inert(show(text)).tags == plain, ascii(text[:200])
    assert re.search(r"<pre tabindex=\"0\">    plain", show("plain"))  # an indentation stays


@settings(max_examples=max(5, settings().max_examples // 5))  # a page takes a quarter of a second
@given(st.data())
def test_any_events_make_a_page(data):
    kinds = st.sampled_from(get_args(Event))
    events = data.draw(st.lists(kinds.flatmap(any_event), max_size=12))
    require_inert(render(fold([*play(phases=1, sessions=1, turns=1), *events])))


def test_only_the_pages_own_style_is_obeyed():
    html = render(fold(play()))
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert [found["content"] for tag, found in Reader(html).elements if "http-equiv" in found] == [policy]


def leave(*files: tuple[str, bytes | str | None]) -> str:
    """Return the page of a run whose gates left these files; None: gone since."""
    kept = {str(number) * 64: data for number, (_, data) in enumerate(files)}
    left = tuple(
        LeftFile(name=name, size_bytes=len(data or "gone"), sha256=str(number) * 64, why="")
        for number, (name, data) in enumerate(files)
    )
    figures = fold(play(phases=2, left=left))
    return render_page(make_page(figures, None, lambda _name, sha256: kept[sha256]), clean=clean_line)


def test_pictures_that_a_gate_left_are_shown_and_nothing_else_is_one():
    """A name, a suffix or a beginning makes no picture; SVG and HTML are text."""
    html = leave(
        ("shot.png", make_png(40, 30)), ("shot.webp", make_webp(b"VP8L", b"\x2f\x27\x40\x07\0")),
        ("svg.png", '<svg onload="alert(1)">'), ("page.jpg", "<img src=x onerror=alert(1)>"),
        ("cut.png", make_png(4, 3)[:-4]), ("wide.png", make_png(9_000, 10)), ("many.png", make_png(8_000, 8_000)),
        ("late.png", None),
    )  # fmt: skip
    read = require_inert(html)
    shown = [(found["alt"], found["width"], found["height"]) for tag, found in read.elements if tag == "img"]
    assert shown == [("shot.png", "40", "30"), ("shot.webp", "40", "30")]
    texts = " | ".join(read.texts)
    assert "shot.png | 40 × 30 pixels, commit" in texts
    assert "svg.png | commit" in texts
    assert '| <svg onload="alert(1)">' in texts
    neither = "neither text nor a picture that is shown here"
    for name, kind in (("cut.png", neither), ("wide.png", neither), ("many.png", neither), ("late.png", "gone")):
        assert re.search(rf"\| {name} \| \d+ \| {kind} \| \d{{64}}", texts), name


def test_pictures_too_large_for_one_page_are_named():
    """The newest come first; of a long text its beginning and its end are shown."""
    large = [(f"{number}.png", make_png(40, 30, body=bytes([number]) * 700_000)) for number in range(3)]
    html = leave(*large, ("long.txt", "begin\n" + "x" * 50_000 + "\nend"))
    read = require_inert(html)
    assert len(html.encode()) < MOST_BYTES
    assert [found["alt"] for tag, found in read.elements if tag == "img"] == ["0.png", "1.png"]
    texts = " | ".join(read.texts)
    assert "2.png: not shown, because the pictures are too large for one page" in texts
    assert "begin" in texts
    assert "end |" in texts
    assert "x" * 4_000 not in texts


def test_the_page_says_what_a_person_asks_and_what_its_tables_promise():
    figures = fold(play(phases=3, text="the gate of phase 3 stayed red"))
    read = Reader(render(figures, make_beliefs("ids are random")))
    texts = " | ".join(read.texts)
    drawn = [found["aria-label"].partition(",")[0] for tag, found in read.elements if tag == "svg"]
    assert drawn == [*["Context of 2 sessions"] * 3, "Context of 6 sessions"]
    for wanted in (
        "What was done | 3 phases done", "Why it stopped | the gate of phase 3 stayed red",
        "What it cost | $0.24 of $20.00", "What needs you",
        "n1: c1 and c2 cannot all hold: ids are random",
        "4 claims", "c4 | decision | ids are random", "replaced by c4",
        "2 (1-2) | next: the gate", "make test | passed | 0 | 3.0 s | ab", "+3 −1 in 2 files",
        "2 | 1 | confirmed | tests, important | the gate of phase 3 stayed red:7 | ",
        "hand-off line (dashed)", "Tokens by source | history ",
        "rules | 12% | 2.2k | 2k | 6 ! | 0 | plan | 4% | 709 | 2k | 0 | 0 |",
        "Turn | read | the gate of phase 3 stayed red | 800 | 1-1 | 1",
        *(f"{tick.commit[:9]} |" for tick in figures.ticks),
    ):  # fmt: skip
        assert wanted in texts, wanted
    assert "0 files that gates left" not in texts


def test_the_page_has_the_money_of_the_book_and_says_what_is_not_known():
    """No log has the answer of a request that was cut off; commits and refs have the most that it can have cost."""
    figures = fold([start("a", spent_usd=1.5, estimated=True), session(), *turn(1, 5_000, cost_usd=0.25), end()])
    booked = Spent(cost_usd=0.65, estimated=True)
    texts = " | ".join(Reader(render(figures.charge(booked, {"1": booked}))).texts)
    assert "What it cost | ~$0.65" in texts
    assert "the plan had cost ~$1.50 before" in texts
    texts = " | ".join(Reader(render(fold([start(), session(), *turn(1, 5_000, cost_usd=None), over()]))).texts)
    assert "What it cost | unknown" in texts
    assert "Its log has no end" in texts
    assert "Why it stopped | The log has no run" in " | ".join(Reader(render(fold([]))).texts)


def test_what_needs_a_person_and_has_no_room_is_counted():
    for number, left in ((MOST_NEEDED, ""), (MOST_NEEDED + 1, "and 1 more, further down")):
        warnings = [Noticed(text=f"warning {n}", warning=True) for n in range(number)]
        texts = " | ".join(Reader(render(fold([start(), session(), *turn(1, 5_000), *warnings, end()]))).texts)
        assert f"warning {MOST_NEEDED - 1}" in texts
        assert ("more, further down" in texts, left in texts) == (bool(left), True), number


def test_a_figure_at_its_threshold_is_not_beyond_it():
    assert [name for name, (line, _, _) in THRESHOLDS.items() if is_crossed(name, line)] == []


def test_what_works_on_no_phase_says_nothing_of_phases():
    finding = ShownFinding(
        file="a.py", line=1, summary="wrong", failure_scenario="x", category="missing", severity="nit",
        verdict="confirmed", reason="",
    )  # fmt: skip
    reviewed = ReviewFinished(phase_id="1", round=1, findings=(finding,), confirmed=1)
    for command, found, words in (
        ("review", [reviewed], "relay reviewed a change | 1 finding, 1 confirmed | "),
        ("plan", [], "relay worked on a plan | "),
    ):
        events = [start(command=command), session(), *turn(1, 5_000), over(), *found]
        assert f"What was done | {words}1 session, 1 turn | " in " | ".join(Reader(render(fold(events))).texts)


def test_a_log_of_huge_texts_makes_no_huge_page():
    html = render(fold(play(phases=10, sessions=2, turns=1, text='"<&\x1b' * 5_000)), most_bytes=100_000)
    assert len(html.encode()) <= 100_000
    assert any("cut shorter" in text for text in require_inert(html).texts)
