"""When a prompt is worth keeping in the cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.events import GateFinished, GateStarted, RunPaused, RunResumed, TextShown, ToolFinished, ToolStarted
from relay.session.prices import PRICES, Rates
from relay.session.warmth import LEAST_USD, Waits, find_saving_usd

RATES = Rates(input=4, output=20, write_5m=5, write_1h=8, read=0.2)
TOOL = ToolFinished(
    call_id="c", name="bash", is_error=False, result_sha256="", duration_s=1.0, changed_paths=()
)  # fmt: skip


def gate(*, passed, baseline=False):
    """A gate's two events."""
    return (
        GateStarted(phase_id="1", baseline=baseline, commands=("make",)),
        GateFinished(phase_id="1", baseline=baseline, passed=passed, summary="", duration_s=1.0),
    )


@pytest.mark.parametrize(
    ("tokens", "hour", "chance", "nth", "usd"),
    [
        (100_000, False, 1.0, 1, 0.22),  # half of 0.48, less 0.02
        (100_000, False, 1.0, 2, 0.14),
        (100_000, False, 0.5, 1, 0.10),
        (100_000, True, 1.0, 1, 0.37),
        (100_000, False, 1.0, 23, 0.0),  # where it no longer pays, whatever the size
        (100_000, False, 0.0, 1, -0.02),
        (0, False, 1.0, 1, 0.0),
    ],
)
def test_what_a_refresh_saves(tokens, hour, chance, nth, usd):
    assert find_saving_usd(tokens, RATES, hour=hour, chance=chance, nth=nth) == pytest.approx(usd)


@given(st.sampled_from([price.rates for price in PRICES]), st.integers(0, 10**6), st.booleans(), st.floats(0, 1))
def test_all_refreshes_of_a_wait_cost_less_than_the_miss(rates, tokens, hour, chance):
    """And each saves less than the one before, so there is a last one."""
    savings = [find_saving_usd(tokens, rates, hour=hour, chance=chance, nth=n) for n in range(1, 100)]
    assert savings == sorted(savings, reverse=True)
    assert savings[-1] <= 0
    made = sum(saving >= LEAST_USD for saving in savings)
    assert made * tokens * rates.read <= tokens * (rates.write_1h if hour else rates.write_5m)


def test_the_chance_that_the_session_is_asked_again():
    """Certain behind a tool and a pause; behind a gate as often as gates were red; never while nothing runs."""
    waits, seen = Waits(), []
    settled: list[bool] = []
    waits.settle = lambda: settled.append(True)
    started = ToolStarted(call_id="c", name="bash", summary="make")
    paused, resumed = RunPaused(reason="lunch"), RunResumed(waited_s=60.0)
    events = [started, TOOL, paused, TextShown(text="x"), resumed]
    for event in (
        *events,
        *gate(passed=True, baseline=True),
        *gate(passed=False),
        *gate(passed=False),
        *gate(passed=True),
    ):
        waits.observe(event)
        seen.append(round(waits.chance, 3))
    assert seen == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.667, 0.0, 0.75, 0.0]
    assert settled == [True]  # before what was spent goes into a commit


def test_nobody_is_disturbed_while_nothing_runs():
    waits, asked = Waits(), []
    waits.attend = lambda: asked.append(waits.chance)
    waits.look()
    waits.observe(RunPaused(reason=""))
    waits.look()
    assert asked == [1.0]
    assert waits.check_budget(1, 1) is None
    Waits().look()
    Waits(chance=1.0).look()
    Waits().observe(gate(passed=True)[1])
