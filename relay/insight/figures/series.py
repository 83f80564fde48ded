"""Points to plot, thinned so that their number has a bound whatever is read."""

from collections.abc import Callable
from typing import Generic, TypeVar

LEG_POINTS = 2_000
"""Points of one session at most."""
RUN_POINTS = 20_000
"""Points of all sessions that are over, at most."""

PointT = TypeVar("PointT")


class Series(Generic[PointT]):
    """Points in order. Mutable: when there are too many, one of each two neighbours goes.

    Args:
        weigh: Of two neighbours the one that weighs more is kept, the first of equals.
        most: How many there may be.
    """

    def __init__(self, weigh: Callable[[PointT], float], most: int = LEG_POINTS) -> None:
        self._weigh = weigh
        self._most = most
        self._every = 1
        self._points: list[PointT] = []
        self._best: PointT | None = None
        self._seen = 0

    def add(self, point: PointT) -> None:
        """Take the next point."""
        if self._best is None or self._weigh(point) > self._weigh(self._best):
            self._best = point
        self._seen += 1
        if self._seen < self._every:
            return
        self._points.append(self._best)
        self._best, self._seen = None, 0
        if len(self._points) >= self._most:
            self._points = list(thin(self._points, self._weigh))
            self._every *= 2

    @property
    def points(self) -> tuple[PointT, ...]:
        """What is kept, the last point's group included."""
        return tuple(self._points) if self._best is None else (*self._points, self._best)


def thin(points: list[PointT] | tuple[PointT, ...], weigh: Callable[[PointT], float]) -> tuple[PointT, ...]:
    """Keep one of each two neighbours, the one that weighs more."""
    return tuple(max(points[n : n + 2], key=weigh) for n in range(0, len(points), 2))
