"""What an experiment says of its arms: pairs by repeat, intervals that hold, and no claim without one."""

import re
from typing import Any

from relay.lab.comparing import OUTCOMES, TrialResult, compare_arms
from relay.lab.experiment import Experiment
from relay.lab.experiment_page import make_experiment_page

ARMS = ("reset", "none")


def make(arm: str, repeat: int, **given: Any) -> TrialResult:
    return TrialResult(number=1, arm=arm, repeat=repeat, exit_code=0, reason="", **given)


def find(results: list[TrialResult], name: str, arms: tuple[str, ...] = ARMS):
    return [one for one in compare_arms(results, arms).differences if one.outcome.name == name]


def make_costs(pairs: list[tuple[float, float]]) -> list[TrialResult]:
    return [make(arm, n, cost_usd=usd) for n, both in enumerate(pairs, 1) for arm, usd in zip(ARMS, both, strict=True)]


def test_trials_are_paired_by_repeat_and_one_without_a_partner_counts_for_nothing() -> None:
    results = [make("none", 2, cost_usd=5.0), make("reset", 1, cost_usd=1.0), make("none", 1, cost_usd=4.0)]
    assert find(results, "cost")[0].pairs == (3.0,)
    assert find([*results, make("reset", 2, cost_usd=None)], "cost")[0].pairs == (3.0,)
    assert find([results[0]], "cost") == []


def test_fewer_than_three_repeats_have_no_interval_and_claim_nothing() -> None:
    found = find(make_costs([(1, 9), (1, 9.1)]), "cost")[0]
    assert (found.interval, found.is_shown) == (None, False)
    assert found.more == 1


def test_a_large_difference_is_shown_and_a_doubtful_one_says_what_it_would_take() -> None:
    sure = find(make_costs([(1, 9), (1.1, 9.3), (0.9, 8.8)]), "cost")[0]
    assert (sure.is_shown, sure.more) == (True, None)
    doubtful = find(make_costs([(1, 2), (1, 0.9), (1, 1.6)]), "cost")[0]
    assert not doubtful.is_shown
    assert doubtful.interval.low < 0 < doubtful.interval.high
    assert doubtful.more > 3


def test_what_never_differed_is_said_so() -> None:
    for repeats, words in ((2, ""), (4, r"; a mean difference below \d+(\.\d+)? is still possible")):
        results = [make(arm, n, hidden_passed=18, hidden_total=20) for n in range(1, repeats + 1) for arm in ARMS]
        experiment = Experiment(
            plan_path="PLAN.md", base="c0ffee", branch="main", arms=ARMS, repeats=repeats, seed=1, cap_usd=1.0
        )
        page = make_experiment_page(experiment, compare_arms(results, ARMS), {})
        said = next(line for line in page.answers[1].lines if line.startswith("held-out"))
        begin = f"held-out checks passed, of 20: none never differed from reset in {repeats} repeats"
        assert re.fullmatch(re.escape(begin) + words, said)
        tables = [table for section in page.sections for table in section.tables if "Interval" in dict(table.columns)]
        row = next(row for row in tables[0].rows if row[0].startswith("held-out"))
        assert row[3] == ("–" if repeats < 3 else "never differed")


def test_equal_counts_of_checks_do_not_hide_that_they_vary() -> None:
    """Three times one more of twenty is no proof: the fourth may be none."""
    results = [
        make(arm, n, hidden_passed=passed, hidden_total=20)
        for n in (1, 2, 3)
        for arm, passed in zip(ARMS, (18, 19), strict=True)
    ]
    found = find(results, "held-out checks")[0]
    assert found.pairs == (1.0, 1.0, 1.0)
    assert not found.is_shown
    broken = make("none", 3, hidden_passed=0, hidden_total=1)  # it could not even be imported
    assert find([*results[:-1], broken], "held-out checks")[0].pairs == (1.0, 1.0, -18.0)


def test_more_arms_make_wider_intervals() -> None:
    """A claim of one of many differences is worth less."""
    costs = make_costs([(1, 2), (1, 2.4), (1, 1.9)])
    many = [*costs, *(make(f"arm{k}", n, cost_usd=k) for k in range(5) for n in (1, 2, 3))]
    one = find(costs, "cost")[0].interval
    other = find(many, "cost", (*ARMS, *(f"arm{k}" for k in range(5))))[0].interval
    assert other.low < one.low < one.high < other.high


def test_no_outcome_mixes_money_and_quality() -> None:
    spent = make("reset", 1, cost_usd=1.0, input_tokens=1, cache_read_tokens=1, cache_write_tokens=1, output_tokens=1)
    assert [one.name for one in OUTCOMES if one.read(spent) is not None] == ["cost", "tokens"]
