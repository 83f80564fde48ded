"""The real SDK, and raw HTTP, against a scripted conversation."""

from typing import Any

import pytest

from tests.endpoint.table import answer
from tests.sdks import anthropic

OPENING = [{"role": "user", "content": "Begin."}]
FIELDS: dict[str, Any] = {
    "tools": [{"name": "read", "description": "Read a file", "input_schema": {"type": "object"}}],
    "system": "You are a test.",
}
SCRIPT = """
sessions:
  - name: one
    turns:
      - thinking: The file first.
        text: I will look around first.
        tools:
          - {name: read, input: {path: app.py, limit: 20}}
          - {name: read, input: {path: b.py}}
      - expect: {last_result_contains: "def main"}
        text: Done.
"""


def test_a_conversation_streams_turn_by_turn(play: Any) -> None:
    """Text, tool calls and results go through the SDK's own accumulation."""
    table = play(SCRIPT)
    first = table.ask(OPENING, **FIELDS)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert first.content[1].text == "I will look around first."
    assert first.content[2].input == {"path": "app.py", "limit": 20}
    assert first.stop_reason == "tool_use"
    second = table.ask(OPENING + answer(first, "def main"), **FIELDS)
    assert second.content[-1].text == "Done."
    assert second.stop_reason == "end_turn"
    assert table.player.errors == []
    assert table.player.unplayed == ()
    assert [bill["output_tokens"] for bill in table.player.state.bills] == [
        message.usage.output_tokens for message in (first, second)
    ]


def test_events_come_in_the_documented_order(play: Any) -> None:
    """Raw events: input usage first, several deltas per block, cumulative usage last."""
    table = play(SCRIPT)
    request = {"model": "claude-opus-5-5", "max_tokens": 4000, "messages": OPENING, "stream": True}
    with table.client.messages.with_streaming_response.create(**request) as response:
        assert response.headers["relay-rehearsal"] == "1"
        lines = [line for line in response.iter_lines() if line.startswith("event: ")]
    kinds = [line.removeprefix("event: ") for line in lines]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [kind for i, kind in enumerate(kinds) if kind != kinds[i - 1]] == [
        "message_start",
        "ping",
        *(block * 4),
        "message_delta",
        "message_stop",
    ]
    assert kinds.count("content_block_delta") > 6


def test_large_bodies_are_not_cut_into_too_many_deltas(play: Any) -> None:
    """Clients parse a tool's input again at each delta."""
    table = play(f"sessions: [{{turns: [{{tools: [{{name: w, input: {{content: '{'x' * 200_000}'}}}}]}}]}}]")
    request = {"model": "claude-opus-5-5", "max_tokens": 128_000, "messages": OPENING, "stream": True}
    with table.client.messages.with_streaming_response.create(**request) as response:
        deltas = [line for line in response.iter_lines() if "partial_json" in line]
    assert 10 < len(deltas) < 60


def test_plain_and_streamed_answers_are_the_same(play: Any) -> None:
    """The same request without streaming gets the same message, with the same call ids."""
    table = play(SCRIPT)
    streamed = table.ask(OPENING, **FIELDS)
    plain = table.client.messages.create(messages=OPENING, model="claude-opus-5-5", max_tokens=4000, **FIELDS)
    assert [b.to_dict() for b in plain.content] == [b.to_dict() for b in streamed.content]
    assert plain.usage.output_tokens == streamed.usage.output_tokens
    assert plain.id != streamed.id


def test_each_prompt_is_the_last_prompt_plus_its_output_plus_what_was_appended(play: Any) -> None:
    """Usage adds up over a conversation, so a gauge can rely on it; what was read before comes from the cache."""
    table = play(SCRIPT.replace("thinking: The file first.", "delay_s: 0"))
    cache = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    first = table.ask(OPENING, **FIELDS, **cache)
    more = OPENING + answer(first, "def main")
    counted = table.client.messages.count_tokens(messages=more, model="claude-opus-5-5", **FIELDS)
    second = table.ask(more, **FIELDS, **cache).usage
    prompt = first.usage.cache_creation.ephemeral_1h_input_tokens
    results = 2 * (3 + 3 + 3)
    assert counted.input_tokens == prompt + first.usage.output_tokens + results
    assert (second.cache_read_input_tokens, second.input_tokens) == (prompt, 0)
    assert second.cache_creation.ephemeral_1h_input_tokens == first.usage.output_tokens + results
    plain = table.client.messages.create(messages=more, model="claude-opus-5-5", max_tokens=99, **FIELDS).usage
    assert (plain.input_tokens, plain.cache_read_input_tokens) == (counted.input_tokens, 0)


def test_scripted_sizes_stay_in_the_context(play: Any) -> None:
    """Padding of input and claimed output count in every later prompt, and are cached like text."""
    table = play(
        """
sessions:
  - turns:
      - {tools: [{name: read, input: {path: a}}], usage: {output_tokens: 5000, input_padding_tokens: 20000}}
      - text: Done.
"""
    )
    cache = {"cache_control": {"type": "ephemeral"}}
    first = table.ask(OPENING, **cache)
    assert first.usage.cache_creation_input_tokens == 20_000 + 5
    assert first.usage.output_tokens == 5000
    second = table.ask(OPENING + answer(first), **cache)
    assert second.usage.cache_read_input_tokens == 20_005
    assert second.usage.cache_creation_input_tokens == 5000 + 7


def test_a_prompt_beyond_the_window_is_refused(play: Any) -> None:
    table = play("model: {id: claude-opus-5-5, window: 500}\n" + SCRIPT)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 575 tokens > 500 maximum"):
        table.ask([{"role": "user", "content": "x" * 2000}])


def test_thinking_can_be_off(play: Any) -> None:
    message = play(SCRIPT).ask(OPENING, thinking={"type": "disabled"})
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]


def test_thinking_is_empty_unless_a_summary_is_asked_for(play: Any) -> None:
    """Thinking blocks carry a signature in any case."""
    table = play(SCRIPT)
    omitted = table.ask(OPENING)
    shown = table.ask(OPENING, thinking={"type": "adaptive", "display": "summarized"})
    assert omitted.content[0].thinking == ""
    assert shown.content[0].thinking == "The file first."
    assert omitted.content[0].signature
    assert omitted.usage.output_tokens == shown.usage.output_tokens


def test_models_say_that_they_are_rehearsed(play: Any) -> None:
    """The Models API lists all models."""
    client = play("model: {id: my-model, window: 9000, max_tokens: 500}\n" + SCRIPT).client
    models = list(client.models.list())
    assert len({model.id for model in models}) == len(models) > 10
    assert all(model.display_name.endswith("(rehearsed)") for model in models)
    card = client.models.retrieve("claude-haiku-4-5")
    assert (card.max_input_tokens, card.max_tokens) == (200_000, 64_000)
    own = client.models.retrieve("my-model")
    assert (own.max_input_tokens, own.max_tokens) == (9000, 500)


def test_unknown_models_are_not_found(play: Any) -> None:
    """404 comes in the API's error shape."""
    table = play(SCRIPT)
    with pytest.raises(anthropic.NotFoundError) as caught:
        table.ask(OPENING, model="claude-9")
    assert caught.value.type == "not_found_error"
    assert caught.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        table.client.models.retrieve("claude-9")


def test_paths_and_bodies_that_make_no_sense_are_refused(play: Any) -> None:
    """404, 413 and 400 in the API's shape, without a traceback anywhere."""
    table = play(SCRIPT)
    assert table.send("GET", "/v1/files")[0] == 404
    assert table.send("GET", "/v1/messages")[0] == 404
    assert table.send("POST", "/v1/messages", b"{")[0] == 400
    assert table.send("POST", "/v1/messages", b"[" * 100_000)[0] == 400
    assert table.send("POST", "/v1/messages", [1])[0] == 400
    model: dict[str, Any] = {"model": "claude-opus-5-5"}
    odd: list[dict[str, Any]] = [
        {"messages": 5},
        {"messages": [5, {"content": [7]}]},
        {"thinking": "x"},
        {"tools": {}, "system": 3},
    ]
    assert {table.send("POST", "/v1/messages/count_tokens", model | body)[0] for body in odd} == {200, 400}
    assert table.send("POST", "/v1/messages", model | odd[2])[0] == 400
    bad: dict[str, Any] = {"messages": [{"tool_calls": [{"function": "x"}]}], "tools": [{"function": 5}], **model}
    assert table.send("POST", "/v1/chat/completions", bad)[0] == 400
    assert table.send("POST", "/v1/responses", {"input": [{"type": "function_call", "call_id": 5}], **model})[0] == 400
    status, _, body = table.send("POST", "/v1/messages", b" " * (33 * 1024 * 1024))
    assert (status, body["error"]["type"]) == (413, "request_too_large")
