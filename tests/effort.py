"""How much is tried: `make test` takes a part of what repeats itself, `make test-nightly` all of it."""

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

from hypothesis import settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def take_turns(*columns: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations; where a part is tried, each value of the longest column with the others in turn."""
    lists = [list(column) for column in columns]
    rows = range(max(map(len, lists)))
    return list(product(*lists)) if NIGHTLY else [tuple(one[at % len(one)] for one in lists) for at in rows]


def take_each(step: int, cases: Iterable[Any]) -> list[Any]:
    """Return every so manieth case, where they differ in their words and not in the way that they take; or all."""
    return list(cases)[:: 1 if NIGHTLY else step]


def try_each() -> settings:
    """Return a fifth of the examples, for a property of each of dozens of kinds."""
    return settings(max_examples=max(2, settings().max_examples // 5))


def is_left_out(test: object) -> bool:
    """Whether a test is marked nightly: `make test` does not even make its cases, which are a third of all."""
    return any(mark.name == "nightly" for mark in getattr(test, "pytestmark", ()))
