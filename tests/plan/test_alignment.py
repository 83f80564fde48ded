"""Parts that are matched one to one, and the place where they cannot be."""

import pytest

from relay.plan.transitions import Run, align

A, B, C = ("a",), ("b",), ("c",)


@pytest.mark.parametrize(
    ("old", "new", "free", "broken"),
    [
        ([A], [A, B], [False], (1, 1)),
        ([A, B], [A], [False, False], (1, 1)),
        ([A, B], [A, C], [False, False], (1, 1)),
        ([A, B], [C, C, A], [True, False], (1, 2)),
        ([A, B], [], [True, False], (1, 0)),
    ],
)
def test_what_cannot_be_lined_up_says_where_it_differs_first(old, new, free, broken):
    assert align(old, new, free=free).broken == broken


def test_free_parts_become_whatever_stands_between_fixed_ones():
    found = align([A, B, C], [A, B, B, C], free=[False, True, False])

    assert found.broken is None
    assert found.pairs == ((0, 0), (2, 3))
    assert found.runs == (Run(before=range(1, 2), after=range(1, 3)),)
