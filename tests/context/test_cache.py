"""The prompt cache over the real SDK: what is read, what is marked, and what breaks it."""

import itertools
import json
from dataclasses import replace

import pytest

from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.events import CacheBroken, GateFinished
from relay.session.values import SessionKind, ToolSpec

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


def test_a_change_of_a_tool_is_named(talk, turns):
    """The endpoint reads nothing any more, and the event says which tool it was."""
    session = talk(
        [{"turns": [*turns(3)[:3], {"text": "One."}, {"text": "Two."}]}], result=2_000, model="claude-sonnet-4-6"
    )
    session.advance()
    read, *others = session.spec.tools
    changed = ToolSpec(name="read", description="Read it all.", input_schema=read.input_schema)

    session.session.go_on_for(replace(session.spec, tools=(changed, *others)))
    session.advance("Go on.")

    (event,) = session.seen(CacheBroken)
    assert event.changed == "tool read"
    assert event.read_tokens == 0 < event.expected_tokens


def test_an_entry_that_was_lost_early_is_a_break_of_unknown_cause(talk, turns):
    """The endpoint's clock runs on, relay's does not: nothing of relay's changed, and it says so."""
    times = itertools.chain([0.0] * 6, itertools.repeat(301.0))
    session = talk([{"turns": turns(8)}], result=2_000, clock=lambda: next(times))

    session.advance()

    (event,) = session.seen(CacheBroken)
    assert event.changed == "unknown"


def test_without_the_cache_nothing_is_marked(talk, turns):
    """The ablation: every token is plain input."""
    session = talk([{"turns": turns(3)}], cached=False)

    session.advance()

    assert [find_marks(r.body) for r in session.requests] == [[]] * 4
    assert all(count(r)[:2] == (0, 0) for r in session.requests)


def test_the_lifetime_is_the_same_in_every_request_of_a_session(talk, turns):
    """An hour for all markers, also for the extra one."""
    session = talk([{"turns": turns(3, parallel=15)}], slowest_turn_s=301.0)

    session.advance()

    assert {ttl for r in session.requests for ttl in find_marks(r.body)} == {"1h"}
    assert all(r.usage["cache_creation"]["ephemeral_5m_input_tokens"] == 0 for r in session.requests)


SCRIPT = """
sessions:
  - turns:
    - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
    - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
    - text: "Commit: Say hello"
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("gate_s", "ttl"), [(10.0, "5m"), (290.0, "1h")])
def test_the_lifetime_follows_the_baseline_gate_of_this_run(stage, gate_s, ttl):
    """A gate as slow as an entry lives asks for the longer lifetime."""
    with stage._open(SessionKind.RUN, SCRIPT, flags={}) as ctx:
        ctx.observe(GateFinished(phase_id="0", baseline=True, passed=True, summary="", duration_s=gate_s))
        run(ctx, Selection(all=False))

    sent = [r.body for r in stage.server.requests if r.path == "/v1/messages"]
    assert len(sent) == 3
    assert {mark for body in sent for mark in find_marks(body)} == {ttl}
