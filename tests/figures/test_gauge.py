"""The gauge: estimates, the reset line, fill, zones and bands."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.gauge import (
    DEFAULT_RESET_AT,
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
SIZES = st.integers(0, 2_000_000)


@pytest.mark.parametrize(
    ("chars", "estimate", "padded"), [(0, 0, 0), (3, 1, 2), (10, 3, 4), (1_000, 250, 334), (40_000, 10_000, 13_334)]
)
def test_estimates_follow_the_vectors_rounded_up(chars: int, estimate: int, padded: int) -> None:
    assert estimate_tokens("x" * chars) == estimate
    assert pad_tokens(estimate) == padded


def test_bytes_count_where_a_character_has_several() -> None:
    assert estimate_tokens("漢字漢字") == 3
    assert estimate_tokens("🙂") == 1
    assert estimate_tokens("\udc80" * 4) == 3  # undecodable bytes of a command's output


def test_json_is_twice_as_dense() -> None:
    assert estimate_tokens('{"a":1}', json=True) == 4


@given(st.text(), st.text())
def test_parts_never_add_up_to_less_than_the_whole(left: str, right: str) -> None:
    assert estimate_tokens(left) + estimate_tokens(right) >= estimate_tokens(left + right)
    assert estimate_tokens(left) <= estimate_tokens(left, json=True)


@given(SIZES)
def test_the_margin_is_the_smallest_that_covers_a_third_more(n: int) -> None:
    assert 3 * pad_tokens(n) >= 4 * n
    assert 3 * (pad_tokens(n) - 1) < 4 * n


@pytest.mark.parametrize(
    ("text", "window", "line"),
    [
        ("45%", 200_000, 90_000),
        ("45%", 1_000_000, 450_000),
        ("80k", 200_000, 80_000),
        ("100000", 200_000, 100_000),
        ("100_000", 200_000, 100_000),
        ("1.5K", 200_000, 1_500),
        ("0.1M", 200_000, 100_000),
        ("12.5%", 200_000, 25_000),
        ("min(45%,100k)", 200_000, 90_000),
        ("min(45%,100k)", 1_000_000, 100_000),
        (" MIN( 50% , 90k, 80000 ) ", 1_000_000, 80_000),
        ("100%", 50, 50),
        ("29%", 100, 29),
    ],
)
def test_a_reset_line_is_read_as_written(text: str, window: int, line: int) -> None:
    assert parse_reset_at(text).line_tokens(window) == line


REFUSED = (
    "",
    "0.45",
    "0",
    "0%",
    "101%",
    "-5%",
    "45 percent",
    "80kb",
    "min()",
    "min(45%,)",
    "max(1%,2k)",
    "٤٥%",
    "1e5",
    "100,000",
    "min(min(1%,2k))",
    "0.0001k",
)


@pytest.mark.parametrize(("value", "line"), [(100_000, 100_000), ("45%", 90_000)])
def test_a_setting_is_a_text_or_a_whole_number_of_tokens(value: object, line: int) -> None:
    assert ResetAt.read(value).line_tokens(200_000) == line


@pytest.mark.parametrize("value", [True, 1.5, []])
def test_a_setting_of_another_type_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(ValueError, match=re.escape(RESET_AT_GRAMMAR)):
        ResetAt.read(value)


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="45%, 80k"):
        parse_reset_at(text)


@pytest.mark.parametrize(("window", "soft", "hard"), [(200_000, 90_000, 100_000), (1_000_000, 100_000, 110_000)])
def test_the_default_line_is_the_lower_of_a_share_and_a_number(window: int, soft: int, hard: int) -> None:
    gauge = open_gauge(window_tokens=window, reset_at=DEFAULT)
    assert (gauge.soft_tokens, gauge.hard_tokens, gauge.limited) == (soft, hard, "")


def test_a_line_too_high_for_its_window_is_lowered_and_says_so() -> None:
    gauge = open_gauge(window_tokens=200_000, reset_at=parse_reset_at("100%"))
    assert (gauge.soft_tokens, gauge.hard_tokens) == (170_000, 180_000)
    assert "170,000 instead of 200,000" in gauge.limited


def test_a_tiny_window_still_has_two_lines_and_a_reason() -> None:
    gauge = open_gauge(window_tokens=8_000, reset_at=DEFAULT)
    assert 0 < gauge.soft_tokens <= gauge.hard_tokens <= 4_000
    assert "one large tool result can pass both lines" in gauge.limited


def test_a_line_below_the_floor_is_raised_and_says_so() -> None:
    gauge = open_gauge(window_tokens=200_000, reset_at=parse_reset_at("10"))
    assert gauge.soft_tokens == 1_000
    assert "instead of 10 tokens" in gauge.limited


def test_no_window_is_no_gauge() -> None:
    with pytest.raises(ValueError, match="holds no session"):
        open_gauge(window_tokens=0, reset_at=DEFAULT)


@given(
    st.integers(4, 3_000_000),
    st.one_of(st.integers(1, 100).map("{}%".format), st.integers(1, 2_000_000).map(str)),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
)
def test_lines_keep_their_order_below_the_room_for_an_answer(window: int, text: str, result: int, room: int) -> None:
    reset_at = parse_reset_at(text)
    gauge = open_gauge(window_tokens=window, reset_at=reset_at, result_tokens=result, room_tokens=room)
    assert 0 < gauge.soft_tokens <= gauge.hard_tokens < window
    assert gauge.hard_tokens <= window - min(room, window // 2)
    if not gauge.limited:
        assert gauge.soft_tokens == reset_at.line_tokens(window)
        assert gauge.hard_tokens == gauge.soft_tokens + result


@given(st.integers(4, 2_000_000), st.integers(4, 2_000_000), st.integers(1, 1_000_000))
def test_a_larger_window_never_lowers_a_line(one: int, other: int, asked: int) -> None:
    small, large = sorted((one, other))
    reset_at = parse_reset_at(f"min(45%,{asked})")
    lower = open_gauge(window_tokens=small, reset_at=reset_at)
    upper = open_gauge(window_tokens=large, reset_at=reset_at)
    assert lower.soft_tokens <= upper.soft_tokens
    assert lower.hard_tokens <= upper.hard_tokens


def make_gauge() -> Gauge:
    return open_gauge(window_tokens=200_000, reset_at=parse_reset_at("100k"))


def test_nothing_measured_is_unknown_and_not_zero() -> None:
    gauge = make_gauge()
    assert (gauge.fill_tokens, gauge.zone, find_band(gauge.fill_tokens, gauge.soft_tokens)) == (
        None,
        Zone.UNKNOWN,
        None,
    )


def test_every_token_class_of_a_response_is_in_the_fill() -> None:
    usage = Usage(
        input_tokens=1, cache_read_tokens=20, cache_write_5m_tokens=300, cache_write_1h_tokens=4_000,
        output_tokens=50_000, thinking_tokens=49_000,
    )  # fmt: skip
    gauge = make_gauge().append(77).measure(usage)
    assert gauge.fill_tokens == 54_321


def test_what_is_appended_is_padded_once_as_a_whole() -> None:
    gauge = make_gauge().measure(Usage(input_tokens=10)).append(1).append(1).append(1)
    assert gauge.fill_tokens == 14


@pytest.mark.parametrize("usage", [None, Usage(), Usage(output_tokens=40)])
def test_a_response_without_usage_falls_back_to_what_is_known(usage: Usage | None) -> None:
    gauge = make_gauge().measure(Usage(input_tokens=1_000)).append(30)
    after = gauge.measure(usage)
    assert after.fill_tokens == gauge.fill_tokens
    assert after.measure(Usage(input_tokens=5)).fill_tokens == 5


def test_an_endpoint_that_never_counts_still_meets_both_lines() -> None:
    gauge = make_gauge().append(75_000).measure(None)
    assert (gauge.fill_tokens, gauge.zone) == (None, Zone.SOFT)
    assert gauge.append(7_500).zone is Zone.HARD


@pytest.mark.parametrize(
    ("fill", "zone", "band"),
    [
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
    ],
)
def test_zones_and_bands_begin_at_their_edges(fill: int, zone: Zone, band: Band) -> None:
    gauge = make_gauge().measure(Usage(input_tokens=fill))
    assert (gauge.zone, find_band(gauge.fill_tokens, gauge.soft_tokens)) == (zone, band)


def test_a_band_is_a_word_and_an_unknown_one_says_so() -> None:
    assert (render_band(None), render_band(Band.HAND_OFF)) == ("unknown", "Hand-off")


@given(SIZES, st.lists(st.integers(0, 100_000)))
def test_appending_never_lowers_the_fill_or_the_zone(measured: int, appended: list[int]) -> None:
    order = list(Zone)
    gauge = make_gauge().measure(Usage(input_tokens=measured))
    for tokens in appended:
        after = gauge.append(tokens)
        assert after.least_tokens >= gauge.least_tokens + tokens * 4 // 3
        assert order.index(after.zone) >= order.index(gauge.zone)
        gauge = after


def test_what_is_taken_out_is_not_in_the_fill_any_more() -> None:
    """It comes off what was appended before the first response, and off what was measured after it; never below 0."""
    gauge = make_gauge().append(300)

    assert gauge.release(200).appended_tokens == 100
    assert gauge.release(400).appended_tokens == 0
    measured = gauge.measure(Usage(input_tokens=5_000))
    assert measured.release(1_000).measured_tokens == 4_000
    assert measured.release(6_000).measured_tokens == 0
