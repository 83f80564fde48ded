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


def test_a_conversation_goes_turn_by_turn_and_plain_answers_are_the_streamed_ones(play: Any) -> None:
    """Text, calls and results go through the SDK's own accumulation; a retry has the same call ids."""
    table = play(SCRIPT)
    first = table.ask(OPENING, **FIELDS)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert (first.content[1].text, first.stop_reason) == ("I will look around first.", "tool_use")
    assert first.content[2].input == {"path": "app.py", "limit": 20}
    plain = table.client.messages.create(messages=OPENING, model="claude-opus-5-5", max_tokens=4000, **FIELDS)
    assert [b.to_dict() for b in plain.content] == [b.to_dict() for b in first.content]
    assert plain.id != first.id
    with pytest.raises(anthropic.BadRequestError, match=r"script.yaml:10: 'one', step 2: last_result lacks 'def main'"):
        table.ask(OPENING + answer(first), **FIELDS)
    second = table.ask(OPENING + answer(first, "def main"), **FIELDS)
    assert (second.content[-1].text, second.stop_reason) == ("Done.", "end_turn")
    assert (len(table.player.errors), table.player.unplayed) == (1, ())
    billed = [bill["output_tokens"] for bill in table.player.state.bills]
    assert billed == [message.usage.output_tokens for message in (first, plain, second)]


def stream_lines(table: Any, most: int) -> list[str]:
    request = {"model": "claude-opus-5-5", "max_tokens": most, "messages": OPENING, "stream": True}
    with table.client.messages.with_streaming_response.create(**request) as response:
        assert response.headers["relay-rehearsal"] == "1"
        return list(response.iter_lines())


def test_events_come_in_the_documented_order_and_large_bodies_in_few_deltas(play: Any) -> None:
    """Input usage first, several deltas per block, cumulative usage last; clients parse an input anew at each delta."""
    lines = stream_lines(play(SCRIPT), 4000)
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [kind for i, kind in enumerate(kinds) if kind != kinds[i - 1]] == [
        *("message_start", "ping"), *(block * 4), *("message_delta", "message_stop")
    ]  # fmt: skip
    assert kinds.count("content_block_delta") > 6
    large = play(f"sessions: [{{turns: [{{tools: [{{name: w, input: {{content: '{'x' * 200_000}'}}}}]}}]}}]")
    assert 10 < len([line for line in stream_lines(large, 128_000) if "partial_json" in line]) < 60


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


def test_scripted_sizes_stay_in_the_context_up_to_the_window(play: Any) -> None:
    """Padding of input and claimed output count in every later prompt, and are cached like text."""
    table = play(
        """
model: {id: claude-opus-5-5, window: 30000}
sessions:
  - turns:
      - {tools: [{name: read, input: {path: a}}], usage: {output_tokens: 5000, input_padding_tokens: 20000}}
      - text: Done.
"""
    )
    cache = {"cache_control": {"type": "ephemeral"}}
    first = table.ask(OPENING, **cache)
    assert (first.usage.cache_creation_input_tokens, first.usage.output_tokens) == (20_000 + 5, 5000)
    second = table.ask(OPENING + answer(first), **cache)
    assert second.usage.cache_read_input_tokens == 20_005
    assert second.usage.cache_creation_input_tokens == 5000 + 7
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 30011 tokens > 30000 maximum"):
        table.ask(OPENING + answer(first, "x" * 17_500))


def test_thinking_is_empty_unless_a_summary_is_asked_for_and_can_be_off(play: Any) -> None:
    """Thinking blocks carry a signature in any case."""
    table = play(SCRIPT)
    omitted = table.ask(OPENING)
    shown = table.ask(OPENING, thinking={"type": "adaptive", "display": "summarized"})
    assert (omitted.content[0].thinking, shown.content[0].thinking) == ("", "The file first.")
    assert omitted.content[0].signature
    assert omitted.usage.output_tokens == shown.usage.output_tokens
    off = table.ask(OPENING, thinking={"type": "disabled"})
    assert [block.type for block in off.content] == ["text", "tool_use", "tool_use"]


def test_models_say_that_they_are_rehearsed_and_unknown_ones_are_not_found(play: Any) -> None:
    table = play("model: {id: my-model, window: 9000, max_tokens: 500}\n" + SCRIPT)
    models = list(table.client.models.list())
    assert len({model.id for model in models}) == len(models) > 10
    assert all(model.display_name.endswith("(rehearsed)") for model in models)
    cards = [table.client.models.retrieve(name) for name in ("claude-haiku-4-5", "my-model")]
    assert [(card.max_input_tokens, card.max_tokens) for card in cards] == [(200_000, 64_000), (9000, 500)]
    for ask in (lambda: table.ask(OPENING, model="claude-9"), lambda: table.client.models.retrieve("claude-9")):
        with pytest.raises(anthropic.NotFoundError) as caught:
            ask()
        assert caught.value.type == "not_found_error"
        assert caught.value.request_id


def test_paths_and_bodies_that_make_no_sense_are_refused(play: Any) -> None:
    """404, 413 and 400 in the API's shape, without a traceback anywhere."""
    table = play(SCRIPT)
    model: dict[str, Any] = {"model": "claude-opus-5-5"}
    bad: dict[str, Any] = {"messages": [{"tool_calls": [{"function": "x"}]}], "tools": [{"function": 5}], **model}
    rows: list[tuple[str, str, Any, set[int]]] = [
        ("GET", "/v1/files", None, {404}),
        ("GET", "/v1/messages", None, {404}),
        *(("POST", "/v1/messages", body, {400}) for body in (b"{", b"[" * 100_000, [1], {**model, "thinking": "x"})),
        *(
            ("POST", "/v1/messages/count_tokens", {**model, **odd}, {200, 400})
            for odd in ({"messages": 5}, {"messages": [5, {"content": [7]}]}, {"tools": {}, "system": 3})
        ),
        ("POST", "/v1/chat/completions", bad, {400}),
        ("POST", "/v1/responses", {"input": [{"type": "function_call", "call_id": 5}], **model}, {400}),
        ("POST", "/v1/messages", b" " * (33 * 1024 * 1024), {413}),
    ]
    for method, path, body, statuses in rows:
        status, _, said = table.send(method, path, body)
        assert status in statuses, (path, str(body)[:80], status)
        assert (status == 413) == ("request_too_large" in str(said)), path
