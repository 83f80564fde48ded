"""The gauge: estimates, the reset line, fill, zones and bands."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.gauge import (
    DEFAULT_RESET_AT,
    LARGEST_RESULT_TOKENS,
    RESET_AT_GRAMMAR,
    Band,
    Gauge,
    ResetAt,
    Zone,
    find_band,
    open_gauge,
    parse_reset_at,
    render_band,
)
from relay.session.usage import Usage, estimate_tokens, pad_tokens

DEFAULT = parse_reset_at(DEFAULT_RESET_AT)


def test_estimates_follow_the_vectors_rounded_up() -> None:
    """Bytes count where a character has several; JSON is twice as dense."""
    rows = {0: (0, 0), 3: (1, 2), 10: (3, 4), 1_000: (250, 334), 40_000: (10_000, 13_334)}
    found = {chars: estimate_tokens("x" * chars) for chars in rows}
    assert {chars: (tokens, pad_tokens(tokens)) for chars, tokens in found.items()} == rows
    assert [estimate_tokens(text) for text in ("漢字漢字", "🙂", "\udc80" * 4)] == [3, 1, 3]
    assert estimate_tokens('{"a":1}', json=True) == 4


LINES = (
    ("45%", 200_000, 90_000),
    ("45%", 1_000_000, 450_000),
    ("80k", 200_000, 80_000),
    ("100_000", 200_000, 100_000),
    ("1.5K", 200_000, 1_500),
    ("0.1M", 200_000, 100_000),
    ("12.5%", 200_000, 25_000),
    ("min(45%,100k)", 200_000, 90_000),
    ("min(45%,100k)", 1_000_000, 100_000),
    (" MIN( 50% , 90k, 80000 ) ", 1_000_000, 80_000),
    ("100%", 50, 50),
    ("29%", 100, 29),
)
REFUSED: tuple[object, ...] = (
    *("", "0.45", "0", "0%", "101%", "-5%", "45 percent", "80kb", "min()", "min(45%,)", "max(1%,2k)", "٤٥%", "1e5"),
    *("100,000", "min(min(1%,2k))", "0.0001k", True, 1.5, []),
)


def test_a_reset_line_is_read_as_written_and_anything_else_is_refused_with_what_is_allowed() -> None:
    assert [row for row in LINES if parse_reset_at(row[0]).line_tokens(row[1]) != row[2]] == []
    assert [ResetAt.read(value).line_tokens(200_000) for value in (100_000, "45%")] == [100_000, 90_000]
    for value in REFUSED:
        with pytest.raises(ValueError, match=re.escape(RESET_AT_GRAMMAR)):
            ResetAt.read(value)


def test_lines_are_the_lower_of_a_share_and_a_number_and_one_that_was_moved_says_so() -> None:
    rows = (
        (200_000, DEFAULT, (90_000, 100_000), ""),
        (1_000_000, DEFAULT, (100_000, 110_000), ""),
        (200_000, parse_reset_at("100%"), (170_000, 180_000), "170,000 instead of 200,000"),
        (200_000, parse_reset_at("10"), (1_000, 11_000), "instead of 10 tokens"),
        (8_000, DEFAULT, (2_000, 4_000), "2,000 instead of 3,600 tokens: a window of 8,000"),
    )
    for window, reset_at, lines, words in rows:
        gauge = open_gauge(window_tokens=window, reset_at=reset_at)
        assert (gauge.soft_tokens, gauge.hard_tokens) == lines, window
        assert words in gauge.limited, window
        assert bool(gauge.limited) == bool(words), window


@given(
    st.integers(4, 3_000_000),
    st.one_of(st.integers(1, 100).map("{}%".format), st.integers(1, 2_000_000).map(str)),
    st.integers(0, 300_000),
)
def test_lines_keep_their_order_below_the_room_for_an_answer(window: int, text: str, room: int) -> None:
    reset_at = parse_reset_at(text)
    gauge = open_gauge(window_tokens=window, reset_at=reset_at, room_tokens=room)
    assert 0 < gauge.soft_tokens <= gauge.hard_tokens < window
    assert gauge.hard_tokens <= window - min(room, window // 2)
    if not gauge.limited:
        assert gauge.soft_tokens == reset_at.line_tokens(window)
        assert gauge.hard_tokens <= gauge.soft_tokens + LARGEST_RESULT_TOKENS


def make_gauge() -> Gauge:
    return open_gauge(window_tokens=200_000, reset_at=parse_reset_at("100k"))


def test_every_token_class_of_a_response_is_in_the_fill() -> None:
    usage = Usage(
        input_tokens=1, cache_read_tokens=20, cache_write_5m_tokens=300, cache_write_1h_tokens=4_000,
        output_tokens=50_000, thinking_tokens=49_000,
    )  # fmt: skip
    gauge = make_gauge().append(77).measure(usage)
    assert gauge.fill_tokens == 54_321


def test_a_response_without_usage_falls_back_to_what_is_known() -> None:
    gauge = make_gauge().measure(Usage(input_tokens=1_000)).append(30)
    for usage in (None, Usage(), Usage(output_tokens=40)):
        after = gauge.measure(usage)
        assert after.fill_tokens == gauge.fill_tokens, usage
        assert after.measure(Usage(input_tokens=5)).fill_tokens == 5, usage


def test_an_endpoint_that_never_counts_still_meets_both_lines() -> None:
    gauge = make_gauge().append(75_000).measure(None)
    assert (gauge.fill_tokens, gauge.zone) == (None, Zone.SOFT)
    assert gauge.append(7_500).zone is Zone.HARD


BANDS = (
    (1, Zone.CLEAR, Band.ORIENT),
    (19_999, Zone.CLEAR, Band.ORIENT),
    (20_000, Zone.CLEAR, Band.EXPLORE),
    (50_000, Zone.CLEAR, Band.EXECUTE),
    (64_999, Zone.CLEAR, Band.EXECUTE),
    (65_000, Zone.CONSOLIDATE, Band.CONSOLIDATE),
    (80_000, Zone.CONSOLIDATE, Band.HAND_OFF),
    (99_999, Zone.CONSOLIDATE, Band.HAND_OFF),
    (100_000, Zone.SOFT, Band.HAND_OFF),
    (109_999, Zone.SOFT, Band.HAND_OFF),
    (110_000, Zone.HARD, Band.HAND_OFF),
)


def test_zones_and_bands_begin_at_their_edges() -> None:
    """What is not measured is unknown, and not 0."""
    gauges = [make_gauge().measure(Usage(input_tokens=fill)) for fill, *_ in BANDS]
    found = [(gauge.fill_tokens, gauge.zone, find_band(gauge.fill_tokens, gauge.soft_tokens)) for gauge in gauges]
    assert found == list(BANDS)
    nothing = make_gauge()
    assert (nothing.fill_tokens, nothing.zone, find_band(None, nothing.soft_tokens)) == (None, Zone.CLEAR, None)
    assert (render_band(None), render_band(Band.HAND_OFF)) == ("unknown", "Hand-off")


def test_what_is_taken_out_is_not_in_the_fill_any_more() -> None:
    """It comes off what was appended before the first response, and off what was measured after it; never below 0."""
    gauge = make_gauge().append(300)

    assert gauge.release(200).appended_tokens == 100
    assert gauge.release(400).appended_tokens == 0
    measured = gauge.measure(Usage(input_tokens=5_000))
    assert measured.release(1_000).measured_tokens == 4_000
    assert measured.release(6_000).measured_tokens == 0
