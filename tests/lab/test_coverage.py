"""How often the intervals of `relay lab tune` hold, and how often it speaks where there is nothing: by drawing."""

import math
from collections.abc import Callable
from random import Random

import pytest

from relay.insight.figures.read import read_figures
from relay.lab.statistics import find_mean_difference
from relay.lab.tuning import judge_trial
from relay.session.events import Event
from tests.figures.streams import call, commit, end, gate, log, over, session, start, turn

DRAWS = 1_000


def count(dice: Random, mean: float) -> int:
    """Draw from Poisson's distribution: how often something rare happens."""
    left, hits = dice.random(), 0
    while left > math.exp(-mean):
        left *= dice.random()
        hits += 1
    return hits


def is_red(dice: Random, chance: float) -> float:
    return float(dice.random() < chance)


def cost(dice: Random, times: float) -> float:
    """Draw a phase's cost: a few are much dearer than the others."""
    return times * dice.lognormvariate(0, 0.8)


@pytest.mark.parametrize("pairs", [5, 8, 12])
@pytest.mark.parametrize(
    ("draw", "one", "other"),
    [
        (cost, 1, 1), (cost, 1, 2), (is_red, 0.05, 0.05), (is_red, 0.1, 0.3), (is_red, 0.3, 0.6), (is_red, 0.1, 0.9),
        (count, 0.1, 0.1), (count, 0.3, 1), (count, 1, 2), (count, 10, 20),
    ],
)  # fmt: skip
def test_an_interval_of_few_pairs_holds_as_often_as_it_says(
    draw: Callable[[Random, float], float], one: float, other: float, pairs: int
) -> None:
    """In 95 of 100 repositories; in 91 where costs are spread widely and one line costs twice the other."""
    dice, held = Random(29), 0
    truth = (other - one) * (math.exp(0.32) if draw is cost else 1)
    for _ in range(DRAWS):
        found = find_mean_difference([float(draw(dice, other) - draw(dice, one)) for _ in range(pairs)])
        assert found
        held += found.low <= truth <= found.high
    assert held / DRAWS >= 0.91


def make_phase(dice: Random, n: int) -> tuple[Event, ...]:
    """A phase to which it is all the same where its session is reset."""
    name, line = str(n), dice.choice(("60k", "100k", "none"))
    reads = [
        event
        for k in range(count(dice, 3))
        for event in call("read", f"f{dice.randrange(6)}.py", 300, lines=(1, 9), call_id=f"{n}.{k}")
    ]
    repair = (gate(name, passed=False), *turn(3, 9_000, cost_usd=0.2)) if dice.random() < 0.3 else ()
    work = (
        session(name, name, trial=line),
        *turn(1, 2_000, cost_usd=dice.lognormvariate(0, 0.8)),
        *reads,
        *turn(2, 5_000),
    )
    if dice.random() < 0.1:
        return *work, over(name, name, "blocked"), end(exit_code=4), start(f"r{n}")
    return *work, *repair, gate(name, passed=True), commit(name, (f"{n}.1",)), over(name, name)


def test_a_trial_without_an_effect_speaks_in_one_of_twenty_repositories_at_most() -> None:
    """That is what 95 % mean, of all differences between its lines and of dead weight together."""
    spoken = 0
    for seed in range(100):
        dice = Random(seed)
        events = [event for n in range(dice.choice((12, 24, 36))) for event in make_phase(dice, n)]
        trial = judge_trial([read_figures(log((start(), *events, end())))])
        sure = [one for one in trial.differences if one.difference and one.difference.excludes_zero]
        spoken += bool(sure or trial.dead_weight)
    assert spoken <= 5
