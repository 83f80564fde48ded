"""Rates and differences with their intervals, by the standard library alone; the same data give the same numbers."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean, stdev
from typing import TypeVar

from relay.values import dataclass

CONFIDENCE = 0.95
POWER = 0.8
RESAMPLES = 2_000
SEED = 20_261_122
LEAST_PAIRS = 5
"""Of fewer no interval is believed."""
MOST_NEEDED = 1_000_000

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and where the truth is, with `CONFIDENCE`."""

    estimate: float
    low: float
    high: float
    n: int
    """Of what it was made from."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the data say on which side of 0 the truth is."""
        return self.low > 0 or self.high < 0


def find_rate(hits: int, n: int) -> Interval | None:
    """Return a rate with its interval; None of nothing. Source: Wilson 1927, the score interval."""
    if n <= 0:
        return None
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    part = hits / n
    middle = (part + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(part * (1 - part) / n + z * z / (4 * n * n))
    low = middle - half if hits else 0.0  # what is 0 or 1 is so exactly, whatever rounding makes of it
    high = middle + half if hits < n else 1.0
    return Interval(estimate=part, low=min(low, part), high=max(high, part), n=n)


def resample(items: Sequence[ItemT], measure: Callable[[Sequence[ItemT]], float | None]) -> Interval | None:
    """Return a figure of items with its interval, by drawing them again; None where the figure is not known.

    Items are what is independent: sessions, pairs of phases, never single calls. Source: Efron 1979, percentiles.
    """
    estimate = measure(items) if len(items) >= LEAST_PAIRS else None
    if estimate is None:
        return None
    dice = random.Random(SEED)  # noqa: S311  # draws, not secrets
    drawn = (measure(dice.choices(items, k=len(items))) for _ in range(RESAMPLES))
    found = sorted(value for value in drawn if value is not None)
    edge = int((1 - CONFIDENCE) / 2 * len(found))
    return Interval(estimate=estimate, low=found[edge], high=found[-1 - edge], n=len(items))


def find_mean_difference(differences: Sequence[float]) -> Interval | None:
    """Return the mean of paired differences with its interval; None of fewer than `LEAST_PAIRS`."""
    return resample(differences, fmean)


def count_needed(differences: Sequence[float]) -> int | None:
    """Return how many pairs it takes to see a difference as large as theirs, with `POWER`; None where there is none.

    Source: the usual sample size of a paired comparison, ((z_confidence + z_power) sd / mean)².
    """
    if len(differences) < 2 or not fmean(differences):  # noqa: PLR2004  # a spread needs two
        return None
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) + NormalDist().inv_cdf(POWER)
    needed = (z * stdev(differences) / fmean(differences)) ** 2
    return min(MOST_NEEDED, max(LEAST_PAIRS, math.ceil(needed)))
