"""How often the intervals of `relay lab compare` hold, by how many repeats: 1,000 experiments drawn for each row.

    python benchmarks/intervals.py [--draws N]        writes benchmarks/results/intervals.md

Each experiment has n pairs. ``holds`` is the share of intervals that hold the true difference (95 % is what they say),
``shown`` the share of experiments in which a difference is shown, which is wrong where there is none. Pairs are drawn
as trials come: costs of which a few are much dearer, held-out checks of twenty, red gates.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from random import Random

from relay.lab.statistics import find_mean_difference

REPEATS = (3, 4, 5, 6, 8, 10, 15, 20, 30)
RESULT = Path(__file__).parent / "results/intervals.md"
SPREAD = 0.5
"""Of the logarithm of a cost: one run in forty costs 2.7 times the median."""

Draw = Callable[[Random], float]


def draw_cost(times: float) -> Draw:
    """Return how a run's cost is drawn."""
    return lambda dice: times * dice.lognormvariate(0, SPREAD)


def draw_checks(chance: float) -> Draw:
    """Return how the passed checks of twenty are drawn."""
    return lambda dice: float(sum(dice.random() < chance for _ in range(20)))


def draw_gates(mean: float) -> Draw:
    """Return how red gates are drawn: Poisson's distribution."""

    def draw(dice: Random) -> float:
        left, hits = dice.random(), 0
        while left > math.exp(-mean):
            left *= dice.random()
            hits += 1
        return float(hits)

    return draw


MEAN = math.exp(SPREAD**2 / 2)
CASES: tuple[tuple[str, Draw, Draw, float], ...] = (
    ("cost, the same", draw_cost(1), draw_cost(1), 0.0),
    ("cost, half as much again", draw_cost(1), draw_cost(1.5), 0.5 * MEAN),
    ("cost, twice as much", draw_cost(1), draw_cost(2), MEAN),
    ("19 of 20 checks in both", draw_checks(0.95), draw_checks(0.95), 0.0),
    ("18 and 15 of 20 checks", draw_checks(0.9), draw_checks(0.75), -3.0),
    ("18 and 10 of 20 checks", draw_checks(0.9), draw_checks(0.5), -8.0),
    ("1 red gate in both", draw_gates(1), draw_gates(1), 0.0),
    ("1 and 3 red gates", draw_gates(1), draw_gates(3), 2.0),
)


def measure(one: Draw, other: Draw, truth: float, repeats: int, draws: int) -> tuple[float, float]:
    """Return how often an interval holds, and how often a difference is shown."""
    dice, held, shown = Random(f"{truth} {repeats}"), 0, 0
    for _ in range(draws):
        found = find_mean_difference([other(dice) - one(dice) for _ in range(repeats)])
        assert found
        held += found.low <= truth <= found.high
        shown += found.excludes_zero
    return held / draws, shown / draws


def main() -> None:
    """Draw all cases and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1_000)
    draws = parser.parse_args().draws
    head = " | ".join(f"n = {n}" for n in REPEATS)
    lines = [
        "# How often the intervals of `relay lab compare` hold",
        "",
        f"`python benchmarks/intervals.py --draws {draws}`",
        "",
        (__doc__ or "").partition("intervals.md\n\n")[2].strip(),
        "",
        "One comparison; with several the intervals are wider, so that all hold at once.",
    ]
    found = {name: [measure(one, other, truth, n, draws) for n in REPEATS] for name, one, other, truth in CASES}
    for which, title in enumerate(("holds", "shown")):
        lines += ["", f"## {title}", "", f"| | {head} |", f"|---|{'---|' * len(REPEATS)}"]
        lines += [f"| {name} | {' | '.join(f'{one[which]:.0%}' for one in row)} |" for name, row in found.items()]
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
