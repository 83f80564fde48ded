"""A cache break is noticed and named; noise is not. The lifetime of entries follows the run's own pace."""

from typing import Any

from relay.runners.messages.context_window import CacheWatch
from relay.session.usage import Usage

TOOL = {"name": "read", "description": "d", "input_schema": {}}
HELLO = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


def make_request(**changes: Any) -> dict[str, Any]:
    return {"system": [{"type": "text", "text": "s"}], "tools": [TOOL], "messages": [HELLO], **changes}


def check(watch, read, *, written=0, model="m", at=0.0, **changes):
    usage = Usage(input_tokens=1, cache_read_tokens=read, cache_write_5m_tokens=written)
    return watch.check(usage, make_request(**changes), model=model, at=at)


def test_only_a_large_drop_is_a_break():
    """Vectors of the mechanism: under 5 % or under 2,000 tokens is noise."""
    for before, now, broken in ((100_000, 94_000, True), (100_000, 96_000, False), (30_000, 28_400, False)):
        watch = CacheWatch()
        check(watch, before)
        assert broken == (check(watch, now) is not None), (before, now)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOL | {"description": "other"}]}, "tool read"),
    ({"tools": [TOOL, {"name": "list", "input_schema": {}}]}, "tool list"),
    ({"system": [{"type": "text", "text": "other"}]}, "system"),
    ({"model": "another"}, "model"),
    ({"output_config": {"effort": "max"}}, "settings"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hello!"}]}]}, "messages"),
    ({"messages": [HELLO, HELLO]}, "unknown"),
    ({"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]}, "unknown"),
]


def test_names_the_part_that_changed():
    """Which tool, the system text, the model, or a message that was sent before; a marker that moves is no change."""
    for changes, named in CHANGES:
        watch = CacheWatch()
        check(watch, 50_000)
        event = check(watch, 0, **changes)
        assert event is not None
        assert event.changed == named


def test_a_long_pause_is_no_break():
    """After an entry's lifetime a miss is expected; entries of an hour live longer."""
    for watch, broken in ((CacheWatch(), False), (CacheWatch(lifetime_s=3_600), True)):
        check(watch, 50_000, at=0.0)
        assert (check(watch, 0, at=400.0) is not None) is broken
