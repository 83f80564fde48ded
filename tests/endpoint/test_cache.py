"""The prompt cache against the documented rules."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.rehearsal.answer import PromptUse
from tests.endpoint.prompt import Position, PromptCache, Ttl

FIVE, HOUR = Ttl.FIVE_MINUTES, Ttl.ONE_HOUR


def build(text: str, marks: dict[int, Ttl], *, each: int = 100) -> tuple[Position, ...]:
    """One block per character; the key of a block is everything up to it."""
    return tuple(Position(key=text[: i + 1], tokens=each * (i + 1), ttl=marks.get(i)) for i in range(len(text)))


def run(cache: PromptCache, text: str, marks: dict[int, Ttl], *, now: float = 0.0, **extra: Any) -> PromptUse:
    plan = cache.plan(extra.get("model", "m"), build(text, marks), minimum=extra.get("minimum", 100), now=now)
    cache.commit(plan)
    return plan.use


def use(**tokens: int) -> PromptUse:
    return PromptUse(**({"input_tokens": 0} | tokens))


def test_a_growing_conversation_reads_what_the_last_request_wrote() -> None:
    """Automatic caching's table in the documentation, request by request."""
    cache = PromptCache()
    assert run(cache, "abc", {2: FIVE}) == use(write_5m_tokens=300)
    assert run(cache, "abcde", {4: FIVE}) == use(read_tokens=300, write_5m_tokens=200)
    assert run(cache, "abcdefg", {6: FIVE}) == use(read_tokens=500, write_5m_tokens=200)


def test_only_marked_blocks_are_written() -> None:
    """The documented mistake: a mark on a block that changes never leads to a read."""
    cache = PromptCache()
    assert run(cache, "abcde1", {5: FIVE}) == use(write_5m_tokens=600)
    assert run(cache, "abcde2", {5: FIVE}) == use(write_5m_tokens=600)
    assert run(cache, "abcde3", {4: FIVE}) == use(write_5m_tokens=500, input_tokens=100)
    assert run(cache, "abcde4", {4: FIVE}) == use(read_tokens=500, input_tokens=100)


def test_the_lookback_is_twenty_blocks_counting_the_mark() -> None:
    """The documented example: 10, 15, then 35 blocks; a second mark at 15 finds the entry."""
    cache, text = PromptCache(), "".join(chr(0x4E00 + i) for i in range(60))
    run(cache, text[:10], {9: FIVE})
    assert run(cache, text[:15], {14: FIVE}).read_tokens == 1000
    assert cache.plan("m", build(text[:35], {34: FIVE}), minimum=100, now=0).use.read_tokens == 0
    assert run(cache, text[:34], {33: FIVE}).read_tokens == 1500
    other = PromptCache()
    run(other, text[:15], {14: FIVE})
    assert run(other, text[:35], {14: FIVE, 34: FIVE}) == use(read_tokens=1500, write_5m_tokens=2000)


def test_short_prefixes_are_silently_not_cached() -> None:
    """Below the model's minimum nothing is written, read or billed as a write."""
    cache = PromptCache()
    assert run(cache, "abcd", {3: FIVE}, minimum=401) == use(input_tokens=400)
    assert run(cache, "abcd", {3: FIVE}, minimum=401) == use(input_tokens=400)
    assert run(cache, "abcd", {3: FIVE}, minimum=400) == use(write_5m_tokens=400)


def test_lifetime_counts_from_the_start_of_the_last_use() -> None:
    """Five minutes after the request that wrote or read an entry began, it is gone."""
    cache = PromptCache()
    run(cache, "ab", {1: FIVE}, now=0)
    assert run(cache, "ab", {1: FIVE}, now=299).read_tokens == 200
    assert run(cache, "ab", {1: FIVE}, now=598).read_tokens == 200
    assert run(cache, "ab", {1: FIVE}, now=898).read_tokens == 0
    assert run(cache, "ab", {1: FIVE}, now=1197.9).read_tokens == 200


def test_an_hour_lasts_an_hour() -> None:
    """A 1-hour entry outlives the 5-minute one behind it."""
    cache = PromptCache()
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=0) == use(write_1h_tokens=100, write_5m_tokens=200)
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=3599) == use(read_tokens=100, write_5m_tokens=200)
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=7200) == use(write_1h_tokens=100, write_5m_tokens=200)


def test_mixed_lifetimes_are_billed_at_three_positions() -> None:
    """Read up to A, 1-hour writes up to B, 5-minute writes up to C, the rest is input."""
    cache = PromptCache()
    run(cache, "ab", {1: HOUR})
    mixed = run(cache, "abcdefgh", {1: HOUR, 3: HOUR, 5: FIVE})
    assert mixed == use(read_tokens=200, write_1h_tokens=200, write_5m_tokens=200, input_tokens=200)


def test_a_mark_before_the_hit_keeps_its_entry_alive() -> None:
    """The system prompt stays cached as long as the conversation behind it is in use."""
    cache = PromptCache()
    run(cache, "sab", {0: FIVE, 2: FIVE}, now=0)
    run(cache, "sabcd", {0: FIVE, 4: FIVE}, now=250)
    assert run(cache, "sxy", {0: FIVE, 2: FIVE}, now=500).read_tokens == 100


def test_an_entry_is_readable_once_the_first_response_has_begun() -> None:
    """Parallel first requests all miss."""
    cache = PromptCache()
    first = cache.plan("m", build("ab", {1: FIVE}), minimum=100, now=0)
    parallel = cache.plan("m", build("ab", {1: FIVE}), minimum=100, now=1)
    cache.commit(first)
    later = cache.plan("m", build("ab", {1: FIVE}), minimum=100, now=2)
    assert [plan.use.read_tokens for plan in (first, parallel, later)] == [0, 0, 200]


def test_each_model_has_its_own_cache() -> None:
    """Switching the model starts cold, switching back finds the old entry."""
    cache = PromptCache()
    run(cache, "ab", {1: FIVE}, model="m")
    assert run(cache, "ab", {1: FIVE}, model="n").read_tokens == 0
    assert run(cache, "ab", {1: FIVE}, model="m").read_tokens == 200


def test_nothing_marked_is_plain_input() -> None:
    """Caching happens only when it is asked for."""
    cache = PromptCache()
    run(cache, "ab", {1: FIVE})
    assert run(cache, "ab", {}) == use(input_tokens=200)
    assert cache.plan("m", (), minimum=1, now=0).use == use()


@given(
    st.lists(
        st.tuples(
            st.text("ab", min_size=1, max_size=45),
            st.dictionaries(st.integers(0, 44), st.sampled_from(Ttl), max_size=4),
            st.floats(0, 4000),
        ),
        max_size=12,
    ),
    st.integers(0, 2000),
)
def test_the_classes_always_add_up_to_the_prompt(requests: Any, minimum: int) -> None:
    """Whatever was asked before: no class is negative, and none is counted twice."""
    cache, now = PromptCache(), 0.0
    for text, marks, pause in requests:
        now += pause
        got = run(cache, text, marks, now=now, minimum=minimum)
        classes = (got.input_tokens, got.read_tokens, got.write_5m_tokens, got.write_1h_tokens)
        assert min(classes) >= 0
        assert sum(classes) == 100 * len(text)
        if not any(mark < len(text) for mark in marks):
            assert got.input_tokens == sum(classes)
