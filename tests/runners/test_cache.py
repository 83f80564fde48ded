"""A cache break is noticed and named; noise is not."""

import pytest

from relay.runners.cache import CacheWatch
from relay.session import ToolSpec, Usage

TOOL = ToolSpec(name="read", description="d", input_schema={})


def check(watch, read, *, system="s", tools=(TOOL,), model="m", at=0.0):
    return watch.check(Usage(input_tokens=1, cache_read_tokens=read), system=system, tools=tools, model=model, at=at)


@pytest.mark.parametrize(
    ("before", "now", "broken"), [(100_000, 94_000, True), (100_000, 96_000, False), (30_000, 28_400, False)]
)
def test_only_a_large_drop_is_a_break(before, now, broken):
    """Vectors of the mechanism: under 5 % or under 2,000 tokens is noise."""
    watch = CacheWatch()
    check(watch, before)

    assert broken == (check(watch, now) is not None)


def test_names_the_part_that_changed():
    """The event says which tool, or that the system text or the model changed."""
    watch = CacheWatch()
    check(watch, 50_000)
    changed = ToolSpec(name="read", description="other", input_schema={})

    event = check(watch, 0, tools=(changed,))

    assert event is not None
    assert event.changed == "tool read"
    assert (event.expected_tokens, event.read_tokens) == (50_000, 0)


def test_a_long_pause_is_no_break():
    """After the cache's lifetime a miss is expected."""
    watch = CacheWatch()
    check(watch, 50_000, at=0.0)

    assert check(watch, 0, at=400.0) is None
