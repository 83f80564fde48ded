"""What an attempt's trailer says of the gate before the phase is what the gate found, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.gate.model import CommandCheck, GateResult, Outcome, parse_baseline, render_baseline

CHECKS = st.builds(
    CommandCheck,
    command=st.text(),
    status=st.sampled_from(Outcome),
    exit_code=st.none() | st.integers(0, 255),
    duration_s=st.just(0.0),
    output_tail=st.just(""),
)


@given(st.lists(CHECKS, max_size=3))
def test_a_baseline_is_read_back(checks):
    result = GateResult(commands=tuple(checks))
    assert "\n" not in render_baseline(result)
    assert parse_baseline(render_baseline(result)) == result


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[["a"]]', '[["a", "glowing", 0]]', "7"])
def test_what_is_no_baseline_excuses_nothing(text):
    assert parse_baseline(text) is None
