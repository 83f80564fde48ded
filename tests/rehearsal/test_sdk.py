"""The real SDK, and raw HTTP, against a scripted conversation."""

from typing import Any

import pytest

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


def test_a_conversation_streams_turn_by_turn(play: Any, answer: Any) -> None:
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
    assert table.rehearsal.errors == []
    assert table.rehearsal.unplayed == ()
    assert [(r.session, r.step, r.status) for r in table.rehearsal.requests] == [("one", 1, 200), ("one", 2, 200)]


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


def test_each_prompt_is_the_last_prompt_plus_its_output_plus_what_was_appended(play: Any, answer: Any) -> None:
    """Usage adds up over a conversation, so a gauge can rely on it."""
    table = play(SCRIPT)
    first = table.ask(OPENING, **FIELDS)
    more = OPENING + answer(first, "def main")
    counted = table.client.messages.count_tokens(messages=more, model="claude-opus-5-5", **FIELDS)
    second = table.ask(more, **FIELDS)
    results = 2 * (3 + 3 + 3)
    assert second.usage.input_tokens == counted.input_tokens
    assert second.usage.input_tokens == first.usage.input_tokens + first.usage.output_tokens + results
    assert first.usage.output_tokens_details.thinking_tokens > 0


def test_scripted_sizes_stay_in_the_context(play: Any, answer: Any) -> None:
    """Padding of input and claimed output count in every later prompt, and are cached like text."""
    table = play(
        """
sessions:
  - turns:
      - {tools: [{name: read, input: {path: a}}], usage: {output_tokens: 5000, input_padding_tokens: 20000}}
      - {tools: [{name: read, input: {path: b}}], usage: {thinking_tokens: 700}}
      - text: Done.
"""
    )
    cache = {"cache_control": {"type": "ephemeral"}}
    first = table.ask(OPENING, **cache)
    assert first.usage.cache_creation_input_tokens == 20_000 + 5
    assert first.usage.output_tokens == 5000
    more = OPENING + answer(first)
    second = table.ask(more, **cache)
    assert second.usage.cache_read_input_tokens == 20_005
    assert second.usage.cache_creation_input_tokens == 5000 + 7
    assert second.usage.output_tokens_details.thinking_tokens == 700
    third = table.ask(more + answer(second), **cache)
    assert third.usage.cache_read_input_tokens == 25_012
    assert third.usage.cache_creation_input_tokens == second.usage.output_tokens + 7


def test_thinking_is_empty_unless_a_summary_is_asked_for(play: Any) -> None:
    """Thinking blocks carry a signature in any case."""
    table = play(SCRIPT)
    omitted = table.ask(OPENING)
    shown = table.ask(OPENING, thinking={"type": "adaptive", "display": "summarized"})
    assert omitted.content[0].thinking == ""
    assert shown.content[0].thinking == "The file first."
    assert omitted.content[0].signature
    assert omitted.usage.output_tokens == shown.usage.output_tokens


def test_thinking_can_be_off(play: Any) -> None:
    """Where the model allows it, disabled means no blocks; older models think only on request."""
    table = play("thinking: scripted\n" + SCRIPT)
    for model, config, thinks in [
        ("claude-haiku-5-5", {"type": "disabled"}, False),
        ("claude-haiku-5-5", {"type": "adaptive"}, True),
        ("claude-haiku-4-5", None, False),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 2000}, True),
    ]:
        message = table.ask(OPENING, model=model, **({"thinking": config} if config else {}))
        assert (message.content[0].type == "thinking") is thinks
        table = play("thinking: scripted\n" + SCRIPT)


def test_models_say_that_they_are_rehearsed(play: Any) -> None:
    """The Models API lists all models and resolves aliases."""
    client = play("model: {id: my-model, window: 9000, max_tokens: 500}\n" + SCRIPT).client
    models = list(client.models.list())
    assert len({model.id for model in models}) == len(models) > 10
    assert all(model.display_name.endswith("(rehearsed)") for model in models)
    card = client.models.retrieve("claude-haiku-4-5")
    assert (card.id, card.max_input_tokens, card.max_tokens) == ("claude-haiku-4-5-20251001", 200_000, 64_000)
    own = client.models.retrieve("my-model")
    assert (own.max_input_tokens, own.max_tokens) == (9000, 500)


def test_raw_responses_carry_the_headers_of_the_api(play: Any) -> None:
    """`with_raw_response` shows request id and rate limits."""
    raw = play(SCRIPT).client.messages.with_raw_response.create(
        messages=OPENING, model="claude-opus-5-5", max_tokens=100
    )
    assert raw.headers["request-id"].startswith("req_")
    assert raw.headers["anthropic-ratelimit-requests-limit"]
    assert raw.parse().usage.input_tokens == 5


def test_unknown_models_are_not_found(play: Any) -> None:
    """404 comes in the API's error shape."""
    table = play(SCRIPT)
    with pytest.raises(anthropic.NotFoundError) as caught:
        table.ask(OPENING, model="claude-9")
    assert caught.value.type == "not_found_error"
    assert caught.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        table.client.models.retrieve("claude-9")


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"x-api-key": "k", "anthropic-version": "2026-10-21"}, 200, "message"),
        ({"authorization": "Bearer k", "anthropic-version": "2023-06-01"}, 200, "message"),
        ({"anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        ({"authorization": "Bearer ", "anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        ({"x-api-key": "k"}, 400, "invalid_request_error"),
        ({"x-api-key": "k", "anthropic-version": "2024-01-01"}, 400, "invalid_request_error"),
    ],
)
def test_raw_clients_need_a_key_and_a_version(play: Any, headers: Any, status: int, kind: str) -> None:
    """Both ways of sending a key are taken; beta headers and the query string are no obstacle."""
    table = play(SCRIPT)
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}],
        "system": [{"type": "text", "text": "s"}],
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
        "betas_unknown": 1,
    }
    sent = headers | {"content-type": "application/json", "anthropic-beta": "x-2026-01-01"}
    got, reply, answer = table.send("POST", "/v1/messages?beta=true", body, headers=sent)
    assert got == status
    assert answer["type"] == "message" if status == 200 else answer["error"]["type"] == kind
    assert reply["relay-rehearsal"] == "1"


def test_credentials_are_not_kept(play: Any) -> None:
    """The record of requests can be shown to anybody."""
    table = play(SCRIPT)
    table.ask(OPENING)
    assert table.rehearsal.requests[0].headers["authorization"] == "***"
    assert table.rehearsal.requests[0].body["max_tokens"] == 4000


def test_paths_and_bodies_that_make_no_sense_are_refused(play: Any) -> None:
    """404, 413 and 400 in the API's shape, without a traceback anywhere."""
    table = play(SCRIPT)
    assert table.send("GET", "/v1/files")[0] == 404
    assert table.send("GET", "/v1/messages")[0] == 404
    assert table.send("POST", "/v1/messages", b"{")[0] == 400
    assert table.send("POST", "/v1/messages", b"[" * 100_000)[0] == 400
    assert table.send("POST", "/v1/messages", [1])[0] == 400
    status, _, body = table.send("POST", "/v1/messages", b" " * (33 * 1024 * 1024))
    assert (status, body["error"]["type"]) == (413, "request_too_large")


def test_a_prompt_can_be_warmed(play: Any) -> None:
    """`max_tokens: 0` writes the cache, says nothing, and plays no turn."""
    table = play(SCRIPT)
    system = [{"type": "text", "text": "s" * 4000, "cache_control": {"type": "ephemeral"}}]
    status, body = table.post(OPENING, max_tokens=0, system=system)
    assert (status, body["content"], body["stop_reason"]) == (200, [], "max_tokens")
    assert body["usage"]["cache_creation_input_tokens"] == 1146
    message = table.ask(OPENING, system=system)
    assert message.usage.cache_read_input_tokens == 1146
    assert table.rehearsal.requests[-1].step == 1
