"""How often the intervals of a difference of means hold: by drawing."""

import math
from collections.abc import Callable
from random import Random

import pytest

from relay.lab.statistics import find_mean_difference
from tests.effort import take_each

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


@pytest.mark.parametrize("pairs", take_each(5, [5, 8, 12]))
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
