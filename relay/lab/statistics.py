"""Rates and differences with their intervals, for `relay lab`; the standard library is enough.

A difference whose interval holds zero is not shown. Several that are looked at together have wider intervals, which all
hold at once.
"""

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist, fmean, stdev, variance

from relay.base.values import dataclass

CONFIDENCE = 0.95
POWER = 0.8
LEAST_REPEATS = 3
"""An interval of fewer pairs is not trusted."""
MOST_NEEDED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval, at `CONFIDENCE`."""

    estimate: float
    low: float
    high: float
    n: int
    """Size of the sample."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign of the true value is known."""
        return self.low > 0 or self.high < 0


def find_rate(hits: int, n: int) -> Interval | None:
    """Return a rate with its interval; None without a sample. Source: Wilson 1927, the score interval."""
    if n <= 0:
        return None
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    part = hits / n
    middle = (part + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(part * (1 - part) / n + z * z / (4 * n * n))
    low = middle - half if hits else 0.0  # 0 and 1 are exact, whatever rounding makes of them
    high = middle + half if hits < n else 1.0
    return Interval(estimate=part, low=min(low, part), high=max(high, part), n=n)


def find_mean_difference(differences: Sequence[float], *, among: int = 1) -> Interval | None:
    """Return the mean of paired differences with its interval; None of fewer than `LEAST_REPEATS`.

    Equal pairs of counts hide their spread: the spread of two pairs that are one off is added.

    Args:
        among: Number of differences that are looked at together; their intervals all hold at once with `CONFIDENCE`.

    Source: Student 1908, Bonferroni 1936; `benchmarks/intervals.py` counts how often they hold.
    """
    n = len(differences)
    if n < LEAST_REPEATS:
        return None
    hidden = 2.0 if all(float(one).is_integer() for one in differences) else 0.0
    error = math.sqrt((variance(differences) + hidden / (n - 1)) / n)
    mean, half = fmean(differences), _find_quantile(among, n - 1) * error
    return Interval(estimate=mean, low=mean - half, high=mean + half, n=n)


@cache
def _find_quantile(among: int, freedom: int) -> float:
    """Return how many standard errors hold the truth, by Student's t; of more than 1,000 degrees that of 1,000.

    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4, whose sums are exact for whole degrees of freedom.
    """
    freedom = min(freedom, 1_000)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _find_part(angle, freedom) < 1 - (1 - CONFIDENCE) / among else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _find_part(angle: float, freedom: int) -> float:
    """Return the probability of Student's t between -t and t, where t is sqrt(freedom) tan(angle)."""
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(1, (freedom - odd) // 2 + 1):
        total += term
        term *= math.cos(angle) ** 2 * (2 * k - 1 + odd) / (2 * k + odd)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def count_needed(differences: Sequence[float], *, among: int = 1) -> int | None:
    """Return the pairs needed to see a difference as large as theirs, with `POWER`; None if there is none.

    Args:
        among: As in `find_mean_difference`.

    Source: the usual sample size of a paired comparison, ((z_confidence + z_power) sd / mean)².
    """
    if len(differences) < 2 or not fmean(differences):  # noqa: PLR2004  # a spread needs two
        return None
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / among) + NormalDist().inv_cdf(POWER)
    needed = (z * stdev(differences) / fmean(differences)) ** 2
    return min(MOST_NEEDED, max(LEAST_REPEATS, math.ceil(needed)))
