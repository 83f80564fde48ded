"""The prompt cache against the documented rules."""

from typing import Any

from relay.rehearsal.answer import PromptUse
from tests.endpoint.prompt import Position, PromptCache, Ttl

FIVE, HOUR = Ttl.FIVE_MINUTES, Ttl.ONE_HOUR


def build(text: str, marks: dict[int, Ttl]) -> tuple[Position, ...]:
    """One block of 100 tokens per character; the key of a block is everything up to it."""
    return tuple(Position(key=text[: i + 1], tokens=100 * (i + 1), ttl=marks.get(i)) for i in range(len(text)))


def run(cache: PromptCache, text: str, marks: dict[int, Ttl], *, now: float = 0.0, **extra: Any) -> PromptUse:
    plan = cache.plan(extra.get("model", "m"), build(text, marks), minimum=extra.get("minimum", 100), now=now)
    cache.commit(plan)
    return plan.use


def use(**tokens: int) -> PromptUse:
    return PromptUse(**({"input_tokens": 0} | tokens))


def test_a_growing_conversation_reads_what_the_last_request_wrote_and_only_marked_blocks_are_written() -> None:
    """Automatic caching's table in the documentation, and its mistake: a mark on a block that changes."""
    cache = PromptCache()
    assert run(cache, "abc", {2: FIVE}) == use(write_5m_tokens=300)
    assert run(cache, "abcde", {4: FIVE}) == use(read_tokens=300, write_5m_tokens=200)
    assert run(cache, "abcde", {4: FIVE}, model="n").read_tokens == 0
    assert run(cache, "abcdef", {5: FIVE}, minimum=601) == use(input_tokens=600)
    assert run(cache, "abcde", {}) == use(input_tokens=500)
    cache = PromptCache()
    assert run(cache, "abcde1", {5: FIVE}) == run(cache, "abcde2", {5: FIVE}) == use(write_5m_tokens=600)
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


def test_lifetime_counts_from_the_start_of_the_last_use_of_each_mark() -> None:
    cache = PromptCache()
    assert [run(cache, "ab", {1: FIVE}, now=now).read_tokens for now in (0, 299, 598, 898)] == [0, 200, 200, 0]
    cache = PromptCache()
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=0) == use(write_1h_tokens=100, write_5m_tokens=200)
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=3599) == use(read_tokens=100, write_5m_tokens=200)
    assert run(cache, "abc", {0: HOUR, 2: FIVE}, now=7200) == use(write_1h_tokens=100, write_5m_tokens=200)
    cache = PromptCache()
    run(cache, "sab", {0: FIVE, 2: FIVE}, now=0)
    run(cache, "sabcd", {0: FIVE, 4: FIVE}, now=250)
    assert run(cache, "sxy", {0: FIVE, 2: FIVE}, now=500).read_tokens == 100


def test_mixed_lifetimes_are_billed_at_three_positions() -> None:
    """Read up to A, 1-hour writes up to B, 5-minute writes up to C, the rest is input."""
    cache = PromptCache()
    run(cache, "ab", {1: HOUR})
    mixed = run(cache, "abcdefgh", {1: HOUR, 3: HOUR, 5: FIVE})
    assert mixed == use(read_tokens=200, write_1h_tokens=200, write_5m_tokens=200, input_tokens=200)
