"""What logs say of reset lines: rates with intervals, paired differences, and silence where there is too little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.figures.fold import fold_records
from relay.figures.statistics import count_needed, find_mean_difference, find_rate, resample
from relay.figures.tuning import LEAST_LEGS, OUTCOMES, judge_lines, judge_trial
from relay.figures.values import Figures
from relay.meters.reset_trial import assign_line, parse_reset_line
from relay.session.events import Event
from tests.figures.streams import call, commit, end, gate, leg, log, over, start, turn


def test_a_rate_has_wilson_s_interval() -> None:
    """The published example: 10 of 20 are between 0.2993 and 0.7007."""
    rate = find_rate(10, 20)
    assert rate
    assert rate.low == pytest.approx(0.2993, abs=1e-4)
    assert rate.high == pytest.approx(0.7007, abs=1e-4)
    none = find_rate(0, 10)
    assert none
    assert none.low == 0.0
    assert none.high == pytest.approx(0.2775, abs=1e-4)
    assert find_rate(0, 0) is None


@given(st.integers(0, 500), st.integers(1, 500))
def test_a_rate_is_within_its_interval(hits: int, n: int) -> None:
    rate = find_rate(min(hits, n), n)
    assert rate
    assert 0 <= rate.low <= rate.estimate <= rate.high <= 1


def test_differences_of_pairs_have_an_interval_once_there_are_enough() -> None:
    assert find_mean_difference([1.0] * 4) is find_mean_difference([]) is None
    found = find_mean_difference([1.0, 1.2, 0.8, 1.1, 0.9, 1.0])
    assert found
    assert found.excludes_zero
    assert 0.85 < found.low < 1.0 < found.high < 1.15
    unsure = find_mean_difference([1.0, -1.0, 0.5, -0.5, 0.1])
    assert unsure
    assert not unsure.excludes_zero
    assert find_mean_difference([1.0, 1.2, 0.8, 1.1, 0.9, 1.0]) == found
    assert resample([1.0] * 9, lambda _: None) is None


def test_how_many_pairs_it_takes() -> None:
    """(1.96 + 0.84)² sd² / mean²: a mean of half a spread takes 32."""
    differences = [0.5 - 2**0.5 / 2, 0.5 + 2**0.5 / 2]  # mean 0.5, sd 1
    assert count_needed(differences) == 32
    assert (count_needed([1.0]), count_needed([1.0, -1.0]), count_needed([1.0, 1.0])) == (None, None, 5)
    assert count_needed([1e-9, 1.0, -1.0]) == 1_000_000


def work(n: int, *, late_errors: int) -> tuple[Event, ...]:
    """A session of calls that fail more often once it is fuller than half of its line."""
    early = (event for m in range(10) for event in call("read", f"{n}.{m}", 5, lines=(1, 2)))
    late = (
        event
        for m in range(10)
        for event in call("bash", f"x{m}", 5, is_error=m < late_errors, changed_paths=(f"{m}.py",))
    )
    return (
        leg(f"s{n}", str(n)), *turn(1, 10_000), *early, *turn(2, 50_000), *late,
        gate(str(n), passed=False), *turn(3, 70_000), gate(str(n), passed=True), over(f"s{n}", str(n)),
    )  # fmt: skip


def fold(*events: Event) -> Figures:
    return fold_records(log((start(), *events, end())))


def test_a_line_is_advised_where_the_data_carry_it() -> None:
    trouble = fold(*(event for n in range(LEAST_LEGS) for event in work(n, late_errors=6)))
    advice = judge_lines([trouble])
    assert (advice.part, advice.legs_missing, advice.legs) == (0.5, 0, LEAST_LEGS)
    assert advice.difference
    assert advice.difference.low > 0
    rates = {rates.band.value: rates for rates in advice.rates}
    assert rates["orient"].errors
    assert rates["orient"].errors.estimate == 0
    assert rates["execute"].errors
    assert rates["execute"].errors.estimate == pytest.approx(0.6)
    assert rates["execute"].repairs
    assert rates["execute"].repairs.estimate == 1.0
    assert (rates["execute"].legs, rates["explore"].legs, rates["hand-off"].legs) == (LEAST_LEGS, 0, LEAST_LEGS)


def test_no_line_is_advised_without_data_or_without_a_difference() -> None:
    few = judge_lines([fold(*work(1, late_errors=10))])
    assert (few.part, few.legs_missing) == (None, LEAST_LEGS - 1)
    empty = judge_lines([])
    assert (empty.part, empty.legs, empty.legs_missing, empty.difference) == (None, 0, LEAST_LEGS, None)
    calm = [event for n in range(LEAST_LEGS) for event in (leg(f"s{n}"), *turn(1, 70_000), over(f"s{n}"))]
    silent = judge_lines([fold(*calm)])
    assert (silent.part, silent.difference, silent.legs_missing) == (None, None, 0)
    mixed = [
        event
        for n in range(LEAST_LEGS)
        for event in (
            leg(f"s{n}"), *turn(1, 10_000), *call("a", "b", 1, is_error=n % 2 == 0), *turn(2, 70_000),
            *call("c", "d", 1, is_error=n % 2 == 1), over(f"s{n}"),
        )
    ]  # fmt: skip
    even = judge_lines([fold(*mixed)])
    assert even.part is None
    assert even.difference
    assert not even.difference.excludes_zero


def phase(n: int, line: str, usd: float, *, red: bool = False) -> tuple[Event, ...]:
    return (
        leg(f"s{n}", str(n), trial=line), *turn(1, 9_000, cost_usd=usd), gate(str(n), passed=not red),
        *turn(2, 9_100, cost_usd=0.0), commit(str(n), (f"{n}.1",)), over(f"s{n}", str(n)),
    )  # fmt: skip


def test_a_trial_compares_phases_of_the_same_plan_in_pairs() -> None:
    """Ten pairs: resets cost a dollar more each time, and nothing else differs."""
    dearer = [event for n in range(20) for event in phase(n, "60k" if n % 2 else "none", 2.0 + n % 2 + 0.01 * n)]
    several = (
        leg("a", "99", trial="60k"),
        over("a", "99"),
        leg("b", "99", trial="none"),
        commit("99"),
        over("b", "99"),
    )
    trial = judge_trial([fold(*dearer, *several), fold(leg("u"), commit(), over("u"))])
    assert [(arm.reset_at, arm.phases) for arm in trial.arms] == [("none", 10), ("60k", 10)]
    by_outcome = {one.outcome: one for one in trial.differences}
    assert tuple(by_outcome) == OUTCOMES
    cost = by_outcome["cost in USD"]
    assert cost.difference
    assert cost.pairs == 10
    assert cost.difference.estimate == pytest.approx(1.01)
    assert by_outcome["turns"].difference
    assert by_outcome["turns"].difference.estimate == 0
    assert by_outcome["turns"].phases_missing is None
    assert trial.dead_weight == ("60k",)


def test_resets_that_prevent_red_gates_are_no_dead_weight() -> None:
    useful = [
        event for n in range(20) for event in phase(n, "60k" if n % 2 else "none", 2.0 + n % 2, red=n % 2 == 0)
    ]  # fmt: skip
    assert judge_trial([fold(*useful)]).dead_weight == ()
    turned = [event for n in range(20) for event in phase(n, "none" if n % 2 else "60k", 3.0 - n % 2 + 0.001 * n)]
    assert judge_trial([fold(*turned)]).dead_weight == ("60k",)
    few = judge_trial([fold(*phase(1, "60k", 2.0), *phase(2, "none", 1.0), *phase(3, "100k", 1.0))])
    assert few.dead_weight == ()
    assert {one.difference for one in few.differences} == {None}
    unpriced = [event for n in range(20) for event in phase(n, "60k" if n % 2 else "none", 1.0)[:-4]]
    assert judge_trial([fold(*unpriced)]).arms == ()


@given(st.text(max_size=20), st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True))
def test_a_phase_has_one_line_that_nobody_chooses(text: str, lines: list[str]) -> None:
    assert assign_line(lines, text, "c0ffee") == assign_line(lines, text, "c0ffee") in lines


def test_lines_are_spread_over_phases() -> None:
    found = [assign_line(["60k", "none"], f"Phase {n}", "c0ffee") for n in range(200)]
    assert 70 < found.count("none") < 130
    assert len({assign_line(["60k", "none"], "Phase 1", str(n)) for n in range(20)}) == 2


def test_lines_of_a_trial() -> None:
    assert parse_reset_line("none").line_tokens(200_000) == 200_000
    assert parse_reset_line("60k").line_tokens(200_000) == 60_000
    with pytest.raises(ValueError, match="none, or 45%"):
        parse_reset_line("never")
