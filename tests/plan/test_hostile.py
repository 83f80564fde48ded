"""Text made to hang, to overflow or to mislead ends in a plan or in an error that names a line."""

import sys

import pytest

from relay.base.errors import PlanError
from relay.plan.check import check_plan
from relay.plan.outline import MAX_CHARS
from relay.plan.parse import parse_plan
from tests.effort import take_each

PHASE = "# P\n- [ ] a\n\n"

pytestmark = pytest.mark.processor(30)
"""Far above what is needed, also beside coverage on a slow machine; far below what the quadratic ways take."""


def count_frames() -> int:
    """How deep the caller is; `inspect.stack` looks for the source of each frame."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def read(text: str) -> int:
    plan = parse_plan(text)
    check_plan(plan)
    return sum(len(phase.items) for phase in plan.phases)


REFUSED = [
    ("- " * 5000 + "[ ] a", "lists and quotes are nested too deeply"),
    ("> " * 5000 + "- [ ] a", "lists and quotes are nested too deeply"),
    ("> - " * 3000 + "[ ] a", "lists and quotes are nested too deeply"),
    ("\n".join(f"{'  ' * depth}- [ ] a" for depth in range(200)), "lists and quotes are nested too deeply"),
    # Text below a nest that is too deep is not dropped in silence.
    ("\n".join(f"{'  ' * depth}- [ ] a" for depth in range(60)) + "\n\n# Q\n- [ ] b\n", "lists and quotes"),
    ("> ```\nb\n" * 1_200, "block quotes are broken up so often"),
    ("x" * MAX_CHARS, r"a plan of 4,194,\d+ characters; at most"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=lambda text: text[:20])
def test_what_cannot_be_read_safely_is_refused_by_line(text, words):
    with pytest.raises(PlanError, match=rf"^line \d+: {words}"):
        parse_plan(PHASE + text)


@pytest.mark.parametrize(
    ("text", "items"),
    take_each(
        5,
        [
            pytest.param("- [ ] a `b/c.py` — d/e.py\n" * 1_500, 1_501, id="items"),
            pytest.param("".join(f"## Phase {n}\n- [ ] a\n" for n in range(1500)), 1501, id="phases"),
            pytest.param("- [ ] " + "a — b (c " * 30_000, 2, id="line of dashes"),
            pytest.param("- [ ] " + "`a" * 60_000, 2, id="line of ticks"),
            pytest.param("- [ ] " + "a" * 300_000 + "/b.py", 2, id="long word"),
            pytest.param("- [ ] a" + " " * 100_000 + "b — c" + " " * 30_000 + "and d", 2, id="blanks"),
            pytest.param("- [ ] `" + "./" * 90_000 + "a.py`", 2, id="here"),
            pytest.param("- [ ] a" + " /b.c" * 30_000, 2, id="absolute"),
            pytest.param("- [ ] — " + "\\" * 150_000 + "`", 2, id="backslashes"),
            pytest.param("## " + "_a *b [c](d <!-- " * 15_000 + "\n- [ ] a", 2, id="heading of markup"),
            pytest.param("## " + "_" * 90_000 + "a" + "*" * 90_000 + "\n- [ ] a", 2, id="heading of runs"),
            pytest.param("Verify: " + "*" * 90_000 + "\nAfter: " + "1, " * 30_000, 1, id="statements"),
            pytest.param("After: " + " " * 90_000 + "1" + " " * 90_000 + "x", 1, id="statement of blanks"),
            pytest.param("- [" + " " * 90_000 + "y\n- [ ]" + "\xa0" * 90_000 + "y", 1, id="box of blanks"),
            pytest.param("<div>\n" + (" " * 1000 + ">- [") * 500, 1, id="html"),
            pytest.param("<a" + " a" * 30_000 + "\n", 1, id="attributes"),
            pytest.param("[" * 90_000, 1, id="brackets"),
            pytest.param("[a]: <b> '\n" * 3_000, 1, id="definitions"),
            pytest.param("<!-- \n\n" * 3_000, 1, id="comments"),
            pytest.param("> a\nb\n" * 3_000, 1, id="lazy lines"),
            pytest.param("\n" * 150_000, 1, id="blank lines"),
            pytest.param("- a\n\n\n\n* b\n" * 3_000, 1, id="list after list"),
            pytest.param("\r" * 30_000 + "\r\n" * 30_000, 1, id="line endings"),
        ],
    ),
)
def test_long_text_is_read_in_linear_time(text, items):
    assert read(PHASE + text) == items


def test_a_caller_so_deep_that_there_is_no_room_to_read_gets_an_error_of_the_plan():
    def call_from(depth: int) -> object:
        return call_from(depth - 1) if depth else parse_plan(PHASE + "> " * 40 + "- [ ] a")

    with pytest.raises(PlanError, match="nested too deeply to be read"):
        call_from(sys.getrecursionlimit() - count_frames() - 80)
