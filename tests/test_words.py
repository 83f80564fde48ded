"""How relay says times, lists and long texts."""

import pytest

from relay.base.words import count_boxes, list_some, render_moment, render_span, shorten

NOON = 1_795_262_400.0  # 2026-11-21 12:00 UTC


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("at", "words"), [(NOON + 60, "13:01"), (NOON + 11 * 3_600, "Sun 22 Nov 00:00"), (NOON - 13 * 3_600, "00:00")]
)
def test_a_moment_is_what_the_clock_on_the_wall_shows(at, words):
    """With the day when it is another one there."""
    assert render_moment(at, now=NOON) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h 0 min"),
        (86_399, "23 h 59 min"),
        (190_800, "2 d 5 h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds, words):
    """Short enough for a line."""
    assert render_span(seconds) == words


def test_a_list_says_how_many_more_there_are():
    """And nothing where all are shown."""
    assert list_some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert list_some(["a", "b"], 2, joint="; ") == "a; b"


def test_a_text_that_is_cut_ends_in_a_mark():
    """Within the length asked for."""
    assert shorten("abcdef", 5) == "abcd…"
    assert shorten("abcde", 5) == "abcde"


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (("done", "open", "optional"), "1/2"),
        (("done", "claimed", "claimed", "open"), "1/4, 2 claimed"),
        (("claimed", "optional"), "0/1, 1 claimed"),
        (("done", "yours"), "1/1"),
    ],
)
def test_a_claim_is_not_counted_as_a_tick(states, words):
    """On the live view and in `relay status` alike."""
    assert count_boxes(states) == words
