"""Whole numbers divided so that the parts add up."""

from collections.abc import Sequence


def share(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide a whole number by weights; the parts add up to it, by largest remainder, the first of equals first.

    Args:
        total: At least 0.
        weights: None below 0; where all are 0 the parts are as equal as they can be.

    Returns:
        One part for each weight; nothing where there is no weight.
    """
    if not weights:
        return ()
    whole = sum(weights)
    if not whole:
        return share(total, [1] * len(weights))
    parts = [total * weight // whole for weight in weights]
    rest = total - sum(parts)
    if rest:
        order = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), n))
        for n in order[:rest]:
            parts[n] += 1
    return tuple(parts)
