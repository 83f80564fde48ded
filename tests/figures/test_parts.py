"""The pieces that figures are made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.figures.tallies import MOST_PARTS, MOST_PATHS, Composition, Results, find_strayed, has_fallen, share
from relay.insight.figures.values import Series
from relay.session.recall import LARGE_TOKENS
from relay.session.values import Shown


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [(10, [1, 1, 1], (4, 3, 3)), (7, [0, 2, 1], (0, 5, 2)), (5, [0, 0], (3, 2)), (0, [3], (0,)), (9, [], ())],
)
def test_shares(total: int, weights: list[int], parts: tuple[int, ...]) -> None:
    assert share(total, weights) == parts


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**9), min_size=1, max_size=9))
def test_shares_add_up_and_are_fair(total: int, weights: list[int]) -> None:
    parts = share(total, weights)
    assert sum(parts) == total
    if whole := sum(weights):
        assert all(abs(part - total * weight / whole) < 1.01 for part, weight in zip(parts, weights, strict=True))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(0, 10**4)), max_size=9))
def test_a_prompt_is_divided_without_rest(turns: list[tuple[int, int, int]]) -> None:
    context = Composition()
    for prompt, appended, output in turns:
        context.append("a", appended)
        context.append("b", appended // 3)
        assert sum(context.divide(prompt).values()) == prompt
        taken = context.measure(prompt)
        assert len(taken) == 2
        assert context.tokens == prompt
        assert min(context.held.values(), default=0) >= 0
        context.answer(output, output // 2)
        assert context.tokens == prompt + output


@pytest.mark.parametrize(
    ("before", "after", "fallen"),
    [(40_000, 20_000, True), (40_000, 31_000, False), (12_000, 4_000, False), (9, 90, False)],
)
def test_a_fall_is_relative_and_not_tiny(before: int, after: int, *, fallen: bool) -> None:
    assert has_fallen(before, after) is fallen


def test_files_that_no_item_names_have_strayed() -> None:
    declared = ("api/keys.py", "docs/", "conf/*.toml", "db.py")
    touched = (
        "api/keys.py", "docs/a/b.md", "conf/x.toml", "AGENTS.md", "tests/test_keys.py", "api/keys_test.go",
        "api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md",
    )  # fmt: skip
    assert find_strayed(touched, declared) == ("api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md")
    assert find_strayed(touched, (".",)) == ()


def test_what_was_read_has_a_bound() -> None:
    results = Results()
    for n in range(MOST_PARTS + 1):
        results.show(n, Shown(path="a", first_line=n, last_line=n), "x", 1)
    results.show(0, Shown(path="a", first_line=3, last_line=3), "x", 1)
    assert (results.duplicates, results.superseded_tokens) == (0, 0)
    results.files.update(dict.fromkeys(map(str, range(MOST_PATHS)), 0))
    results.show(0, Shown(path="new", first_line=1, last_line=1), "x", 1)
    assert "new" not in results.files
    for n in range(MOST_PARTS + 1):
        results.place(n, LARGE_TOKENS + 1, turn=1)
        results.answer(n, str(n), 1)
    results.answer(0, str(MOST_PARTS), 1)
    assert results.superseded_tokens == 0
    assert results.find_unused_tokens(2) == MOST_PARTS * (LARGE_TOKENS + 1)


def test_a_thinned_series_keeps_its_peaks() -> None:
    series = Series[int](float, most=8)
    for n in range(100):
        series.add(1_000 if n == 50 else n)
    assert 1_000 in series.points
    assert len(series.points) <= 8
    assert series.points[-1] == 99
