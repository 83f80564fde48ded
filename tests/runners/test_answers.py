"""From stream events to an answer, and never from half a stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.answers import AnswerBuilder, StreamBrokenError, parse_api_usage
from relay.session.usage import Usage


def stream(*blocks, stop_reason="tool_use"):
    """The events of an answer; a block is its start and its deltas."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}
    yield {"type": "message_start", "message": {"id": "m", "model": "claude-x", "content": [], "usage": usage}}
    yield {"type": "ping"}
    for index, (start, *deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


def build(events):
    builder = AnswerBuilder()
    for event in events:
        builder.feed(event)
    return builder.build()


COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
TOOL = {"type": "tool_use", "id": "t1", "name": "write", "input": {}}


def test_input_that_is_not_a_whole_object_is_a_broken_call():
    """A cut input must never look like an input."""
    for json in ('{"path": "a.py"', '"text"', "[1]", "nonsense"):
        answer = build(stream((TOOL, {"type": "input_json_delta", "partial_json": json}), stop_reason="max_tokens"))
        assert list(answer.broken_calls) == ["t1"], json
        assert answer.content[0]["input"] == {}


def test_a_reason_to_stop_of_another_dialect_is_understood():
    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "moonrise": "moonrise"}
    for said, meant in reasons.items():
        assert build(stream(({"type": "text", "text": "x"},), stop_reason=said)).stop_reason == meant


def test_a_call_of_the_endpoints_own_goes_back_as_an_object():
    """Its input comes in pieces like that of any call, and the API takes no text in its place."""
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"query": "re', 'lay"}')]

    assert build(stream((call, *pieces))).content == ({**call, "input": {"query": "relay"}},)
    with pytest.raises(StreamBrokenError, match="the input of a block is no JSON"):
        build(stream((call, pieces[0])))


@given(st.lists(st.dictionaries(st.sampled_from(COUNTS), st.none() | st.integers(0, 99)), min_size=1, max_size=4))
def test_counts_of_usage_never_fall(reports):
    """They are totals so far: what is less later, zero, null or left out says nothing.

    What is said of the answer counts at its end: the first count is of its beginning, and none before the end is final.
    """
    builder = AnswerBuilder()
    builder.feed({"type": "message_start", "message": {"usage": reports[0]}})
    for usage in reports[1:]:
        builder.feed({"type": "message_delta", "usage": {**usage, "cache_creation": {"x": usage.get("input_tokens")}}})

    most = {name: max(report.get(name) or 0 for report in reports) for name in COUNTS}
    assert builder.usage == parse_api_usage({**most, "output_tokens": 0})
    builder.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    said = max((report.get("output_tokens") or 0 for report in reports[1:]), default=0)
    assert builder.usage == parse_api_usage({**most, "output_tokens": said})


def test_an_unknown_delta_breaks_the_stream():
    """A block that cannot be rebuilt faithfully must not be sent back."""
    with pytest.raises(StreamBrokenError, match="unknown delta type 'ray_delta'"):
        build(stream(({"type": "hologram"}, {"type": "ray_delta"})))


def test_usage_that_reports_nothing_is_unknown():
    """Unknown is not zero."""
    assert parse_api_usage({}) is None
    assert parse_api_usage({"input_tokens": 0, "output_tokens": 0}) is None
    assert parse_api_usage({"output_tokens": 5}) == Usage(output_tokens=5)  # what was said is kept


def test_cache_writes_are_split_by_lifetime():
    """Without the split, writes count as five-minute ones."""
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 4}}

    assert Usage(input_tokens=1, cache_write_5m_tokens=5, cache_write_1h_tokens=4) == parse_api_usage(usage)
    assert Usage(input_tokens=1, cache_write_5m_tokens=9) == parse_api_usage(usage | {"cache_creation": None})
    split = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}
    assert Usage(cache_write_5m_tokens=3, cache_write_1h_tokens=4) == parse_api_usage({"cache_creation": split})
