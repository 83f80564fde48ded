"""One cap for all jobs: what a phase may spend is set aside before it starts. Pure."""

import math

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is set aside for one job."""

    amount: float
    is_all: bool
    """Whether that is all that was left, nothing being set aside for another."""


def count_places(free: int, *, ready: int, waiting: int, is_alone: bool) -> int:
    """Return for how many jobs what is left has to do when one of them starts.

    Args:
        free: How many more may be at work.
        ready: How many can start now, this one included.
        waiting: How many are not done and not at work, this one included.
        is_alone: Nobody is at work; else the landing of one makes others ready, and they find their part.
    """
    return min(free, ready if is_alone else waiting)


class SharedCap:
    """Money, or tokens, of one plan. Mutable: shares are taken from it and what is left of them comes back.

    Args:
        cap: The most that the plan may cost; None: no cap.
    """

    def __init__(self, cap: float | None, spent: float) -> None:
        self._cap = cap
        self._spent = spent
        self._shares: dict[str, float] = {}

    @property
    def left(self) -> float | None:
        """What is neither spent nor set aside; None without a cap."""
        return None if self._cap is None else max(0.0, self._cap - self._spent - sum(self._shares.values()))

    def offer(self, places: int) -> float:
        """Return what a job would be given now; infinite without a cap."""
        return math.inf if (left := self.left) is None else left / max(1, places)

    def take(self, name: str, places: int) -> Share | None:
        """Set a share aside for a job; None without a cap.

        Args:
            places: How many jobs, this one included, could start now: what is left is for all of them.
        """
        if self._cap is None:
            return None
        alone = not self._shares
        share = self.offer(places)
        self._shares[name] = share
        return Share(amount=share, is_all=alone and places <= 1)

    def give_back(self, name: str, spent: float | None) -> None:
        """Take back what a job that has ended did not spend; None: it did not say, and may have spent all of it."""
        share = self._shares.pop(name, 0.0)
        self._spent += share if spent is None else spent
