"""The prompt cache over the real SDK: what is read, what is marked, and what breaks it."""

import itertools
import json

from relay.session.events import CacheBroken

READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"


def count(request):
    usage = request.usage
    return usage[READ], usage[WRITTEN], usage["input_tokens"]


def total(request):
    return sum(count(request))


def find_marks(body):
    """Lifetimes of all markers of a request; the automatic one is the last."""
    blocks = [*body["system"], *body["tools"], *(b for m in body["messages"] for b in m["content"]), body]
    return [block["cache_control"].get("ttl", "5m") for block in blocks if "cache_control" in block]


def test_every_request_reads_all_that_the_one_before_it_sent(talk, turns):
    """With thinking and results of ordinary size in between; nothing is paid for in full but what is new."""
    session = talk([{"turns": turns(12)}], result=1_200)

    session.advance()

    assert len(session.requests) == 13
    read, written, plain = (sum(column) for column in zip(*map(count, session.requests), strict=True))
    assert read / (read + written + plain) >= 0.85
    for before, now in itertools.pairwise(session.requests):
        assert count(now)[0] >= total(before)
    assert session.seen(CacheBroken) == []


def test_a_turn_of_many_calls_does_not_lose_the_cache(talk, turns):
    """The cache looks back twenty blocks; where a turn adds more, one more marker reaches what was cached."""
    for parallel in (9, 25):
        session = talk([{"turns": turns(3, parallel=parallel)}], result=400)

        session.advance()

        for before, now in itertools.pairwise(session.requests):
            assert count(now)[0] >= total(before), parallel
        assert max(len(find_marks(r.body)) for r in session.requests) <= 3
        assert session.seen(CacheBroken) == []


def test_the_second_session_of_a_run_reads_tools_role_and_rules(talk, turns):
    """Its first message is another, all that stands before it is warm."""
    session = talk([{"turns": turns(2)}, {"turns": turns(2)}])
    session.advance("Carry out phase 1.")
    opening = len(session.requests)

    session.renew()
    session.advance("Carry out phase 2, which is quite another.")

    first, second = session.requests[0], session.requests[opening]
    message = json.dumps(second.body["messages"])
    assert count(first)[0] == 0
    assert count(second)[0] >= total(second) - len(message) / 2 > 3_000


def test_an_entry_that_was_lost_early_is_a_break_of_unknown_cause(talk, turns):
    """The endpoint's clock runs on, relay's does not: nothing of relay's changed, and it says so."""
    times = itertools.chain([0.0] * 6, itertools.repeat(301.0))
    session = talk([{"turns": turns(8)}], result=2_000, clock=lambda: next(times))

    session.advance()

    (event,) = session.seen(CacheBroken)
    assert event.changed == "unknown"


SCRIPT = """
sessions:
  - turns:
    - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
    - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
    - text: "Commit: Say hello"
"""
