"""How a context decays: each figure from events whose numbers can be checked by hand, and what a call names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.database import Row
from relay.insight.figures import read_figures
from relay.insight.report.blocks import THRESHOLDS, is_crossed
from relay.lab.tuning import measure_use
from relay.session.events import Event
from relay.session.recall import LARGE_TOKENS, MOST_NAMES, MOST_THINGS, Recall, find_names, hash_call
from tests.figures.streams import call, log, over, parts, session, start, turn


def measure(*events: Event, **begun: Any) -> Row:
    """Return the state of the one session of these events."""
    (only,) = read_figures(log([start(), session(**begun), *events, over()])).sessions
    return only


def test_history_distance_and_growth() -> None:
    """The prompt is 4,000, of which 1,000 stand behind the rules; three turns later 10,000 stand in the context."""
    prompt = parts(system=1_500, tools=1_000, rules=500, plan=1_000)
    one = measure(
        *turn(1, 4_000, 200), *call("bash", "make", 2_000), *turn(2, 6_200, 300), *turn(3, 9_900, 100), prompt=prompt
    )
    assert one.history_tokens == 6_000
    assert one.history_share == pytest.approx(6_000 / (80_000 - 4_000))
    assert one.distance_tokens == 10_000 - 3_000
    assert one.growth_tokens == 2_000
    assert one.turns_left == 35


def test_before_an_answer_and_in_a_room_without_size_nothing_is_known() -> None:
    nothing = measure()
    unknown = ("history_tokens", "history_share", "distance_tokens", "growth_tokens", "turns_left", "signal")
    assert [vars(nothing)[name] for name in unknown] == [None] * len(unknown)
    assert (nothing.superseded_tokens, nothing.unused_tokens, nothing.cut_tokens, nothing.retrieved) == (0, 0, 0, [])
    full = measure(*turn(1, 4_000, soft_tokens=4_000), *turn(2, 5_000, soft_tokens=4_000))
    assert (full.history_share, full.turns_left) == (None, 0)


def test_large_results_that_no_call_names_are_no_signal() -> None:
    """22,000 tokens of `yes` are 2 % of signal; the answers are the rest."""
    one = measure(
        *turn(1, 4_000, 100), *call("bash", "yes", 9_000),
        *turn(2, 13_100, 100), *call("bash", "yes again", 9_000, cut_bytes=60_000),
        *turn(3, 22_200, 100), *call("bash", "yes more", 4_000),
        *turn(4, 26_300, 149),
    )  # fmt: skip
    assert (one.unused_tokens, one.superseded_tokens, one.cut_tokens) == (22_000, 0, 15_000)
    assert one.history_tokens == 22_449
    assert one.signal == pytest.approx(449 / 22_449)


def test_a_result_counts_as_unused_one_answer_after_the_model_saw_it() -> None:
    """While the session works nobody knows yet whether the newest will be used."""
    events = [start(), session(), *turn(1, 1_000), *call("bash", "a", 3_000), *turn(2, 4_000), *turn(3, 4_010)]
    seen = [read_figures(log(events[:n])).sessions[0].unused_tokens for n in range(2, len(events) + 1)]
    assert seen == [0, 0, 0, 0, 0, 0, 0, 0, 3_000][-len(seen) :]


def test_a_result_that_a_call_names_is_used_and_one_made_again_is_superseded() -> None:
    again: Any = {"call_sha256": "same"}
    one = measure(
        *turn(1, 1_000), *call("bash", "log", 3_000),
        *turn(2, 4_000), *call("edit", "a.py", 10, uses=("log",)),
        *turn(3, 4_010), *call("bash", "make", 5_000, **again),
        *turn(4, 9_010), *call("bash", "make", 2_500, content="passed", **again),
        *turn(5, 11_510),
    )  # fmt: skip
    assert (one.unused_tokens, one.superseded_tokens) == (2_500, 5_000)
    assert one.signal == pytest.approx(1 - 7_500 / 10_510)


def test_a_file_read_again_by_the_same_call_is_superseded_once() -> None:
    same: Any = {"call_sha256": "read", "lines": (1, 9)}
    one = measure(
        *turn(1, 1_000), *call("read", "a.py", 3_000, **same), *turn(2, 4_000), *call("read", "a.py", 3_000, **same),
        *turn(3, 7_000),
    )  # fmt: skip
    assert (one.superseded_tokens, one.unused_tokens) == (3_000, 3_000)


def test_what_was_retrieved_and_used() -> None:
    """Two of four files, one of two claims, the preload."""
    claims: Any = tuple({"id": f"c{n}", "tokens": 45, "paths": [f"{n}.py"]} for n in (1, 2))
    steps = (
        *turn(1, 1_000),
        *(e for n in "abcd" for e in call("read", f"{n}.py", 100, content=n, lines=(1, 9))),
        *turn(2, 1_400), *call("edit", "b.py", 5, changed_paths=("b.py", "2.py")),
        *call("bash", "pytest d.py", 5, uses=("d.py", "preload app.py")),
        *turn(3, 1_410),
    )  # fmt: skip
    files, ledger, preloads = measure(*steps, claims=claims, preloads=("app.py",), prompt=parts(preload=700)).retrieved
    assert (files.shown, files.used, files.tokens) == (4, 2, 400)
    assert (ledger.kind, ledger.shown, ledger.used, ledger.tokens) == ("ledger", 2, 1, 90)
    assert (preloads.shown, preloads.used, preloads.tokens) == (1, 1, 700)


def test_tune_adds_up_what_was_used() -> None:
    def read(path: str, **more: Any) -> tuple[Event, ...]:
        return (*turn(1, 1_000), *call("read", path, 100, lines=(1, 9)), *turn(2, 1_100), *call("edit", "x", 5, **more))

    events = [
        start(),
        session("s1"),
        *read("a.py", uses=("a.py",)),
        over("s1"),
        session("s2"),
        *read("b.py"),
        over("s2"),
    ]
    files, history = measure_use([read_figures(log(events))])
    assert (files.kind, files.shown, files.used, files.tokens) == ("file", 2, 1, 200)
    assert files.rate
    assert (history.kind, history.shown, history.used, history.rate) == ("history", 200, 200, None)
    assert measure_use([read_figures([])]) == []


@pytest.mark.parametrize(
    ("name", "within", "beyond"),
    [("history", 0.8, 0.81), ("distance", 150_000, 150_001), ("turns left", 10, 9), ("signal", 0.7, 0.6)],
)
def test_a_threshold_has_a_source_and_an_unknown_figure_crosses_none(name: str, within: float, beyond: float) -> None:
    assert THRESHOLDS[name][-1]
    assert [is_crossed(name, figure) for figure in (within, beyond, None)] == [False, True, False]


LARGE = "\n".join(f"the line of number {n}" for n in range(LARGE_TOKENS))


@pytest.mark.parametrize(
    ("given_", "used"),
    [
        ({"path": "src/app/web.py"}, True),
        ({"command": "sed -n 1,9p ./src/app/web.py:12"}, True),
        ({"edits": [{"old": "  the line of number 7\n", "new": ""}]}, True),
        ({"command": "ls src"}, False),
        ({"old": "the line", "offset": 3, "path": None}, False),
    ],
)
def test_a_call_uses_what_it_names(given_: Any, *, used: bool) -> None:
    recall = Recall()
    recall.show("c1", f"src/app/web.py:3: found\n{LARGE}")
    recall.show("c2", "src/app/web.py:3: too small to be followed")
    assert recall.find_uses(given_) == (("c1",) if used else ())
    assert recall.find_uses(given_) == ()


def test_a_listing_shows_last_parts_and_showing_a_file_again_uses_nothing_of_it() -> None:
    recall = Recall()
    recall.show("ls", f"web.py\n{LARGE}")
    assert recall.find_uses({"path": "src/app/web.py"}) == ("ls",)
    recall.show("r1", "pass", path="a.py")
    assert recall.find_uses({"path": "a.py", "offset": 9}, path="a.py") == ()
    assert recall.find_uses({"command": "pytest a.py"}) == ("r1",)


def test_preloads_are_followed_from_the_first_message() -> None:
    recall = Recall([("app/web.py", "import flask_of_old"), ("Makefile", "all:")])
    assert recall.find_uses({"path": "app/web.py"}, path="app/web.py") == ()
    assert recall.find_uses({"path": "app/web.py", "old": "import flask_of_old"}) == ("preload app/web.py",)
    assert recall.find_uses({"path": "Makefile"}) == ("preload Makefile",)


def test_what_is_followed_has_a_bound() -> None:
    recall = Recall()
    for n in range(MOST_THINGS + 1):
        recall.show(f"c{n}", "", path=f"file{n}.py")
    assert recall.find_uses({"command": "cat file0.py file1.py"}) == ("c1",)
    recall.show("many", "\n".join(f"a{n}.py" for n in range(MOST_NAMES + 9)), path="big")
    assert recall.find_uses({"path": f"a{MOST_NAMES + 5}.py"}) == ()
    assert recall.find_uses({"path": "a5.py"}) == ("many",)


@given(st.text())
def test_any_text_has_names_and_any_call_a_hash(text: str) -> None:
    assert all(find_names(text))
    assert hash_call("bash", {"a": text, "b": 1}) == hash_call("bash", {"b": 1, "a": text})


def test_names_of_a_hostile_text_are_found_in_linear_time() -> None:
    for text in ("/" * 100_000, "a." * 50_000, "-" * 100_000, "a/" * 50_000):
        assert len(list(find_names(text))) <= 2
