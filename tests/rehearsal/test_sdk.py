"""The real SDK over real HTTP against a scripted conversation."""

import anthropic
import pytest

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve

MODEL = "claude-opus-5-5"
TOOLS = [{"name": "read", "description": "Read a file", "input_schema": {"type": "object"}}]
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


@pytest.fixture
def rehearsal():
    with serve(parse_script(SCRIPT)) as running:
        yield running


@pytest.fixture
def client(rehearsal):
    with anthropic.Anthropic(api_key="k", base_url=rehearsal.base_url, max_retries=0) as client:
        yield client


def ask(client, messages, **extra):
    fields = {"model": MODEL, "max_tokens": 4000, "tools": TOOLS, "system": "You are a test."}
    with client.messages.stream(messages=messages, **fields, **extra) as stream:
        for _ in stream:
            pass
        return stream.get_final_message(), stream.response


def answer(message, text="def main"):
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": text}
        for block in message.content
        if block.type == "tool_use"
    ]
    return [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def test_a_conversation_streams_turn_by_turn(client, rehearsal):
    """Text, tool calls and results go through the SDK's own accumulation."""
    messages = [{"role": "user", "content": "Begin."}]
    first, response = ask(client, messages)
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert first.content[1].text == "I will look around first."
    assert first.content[2].input == {"path": "app.py", "limit": 20}
    assert first.stop_reason == "tool_use"
    assert response.headers["relay-rehearsal"] == "1"
    second, _ = ask(client, messages + answer(first))
    assert second.content[-1].text == "Done."
    assert second.stop_reason == "end_turn"
    assert rehearsal.errors == []
    assert rehearsal.unplayed == ()


def test_plain_and_streamed_answers_are_the_same(client):
    """The same request without streaming gets the same message, with the same call ids."""
    messages = [{"role": "user", "content": "Begin."}]
    streamed, _ = ask(client, messages)
    plain = client.messages.create(
        messages=messages, model=MODEL, max_tokens=4000, tools=TOOLS, system="You are a test."
    )
    assert [b.to_dict() for b in plain.content] == [b.to_dict() for b in streamed.content]
    assert plain.usage.output_tokens == streamed.usage.output_tokens


def test_each_prompt_is_the_last_prompt_plus_its_output_plus_what_was_appended(client):
    """Usage adds up over a conversation, so a gauge can rely on it."""
    messages = [{"role": "user", "content": "Begin."}]
    first, _ = ask(client, messages)
    more = messages + answer(first)
    counted = client.messages.count_tokens(
        messages=more, model=MODEL, tools=TOOLS, system="You are a test."
    ).input_tokens
    second, _ = ask(client, more)
    results = 2 * (3 + 6)
    assert second.usage.input_tokens == counted
    assert counted == first.usage.input_tokens + first.usage.output_tokens + results
    assert first.usage.output_tokens_details.thinking_tokens > 0


def test_thinking_is_empty_unless_a_summary_is_asked_for(client):
    """Thinking blocks carry a signature in any case."""
    messages = [{"role": "user", "content": "Begin."}]
    omitted, _ = ask(client, messages)
    shown, _ = ask(client, messages, thinking={"type": "adaptive", "display": "summarized"})
    assert omitted.content[0].thinking == ""
    assert shown.content[0].thinking == "The file first."
    assert omitted.content[0].signature


def test_models_say_that_they_are_rehearsed(client):
    """The Models API pages, filters by lifecycle and resolves aliases."""
    models = list(client.models.list(limit=4))
    assert len({model.id for model in models}) == len(models) > 10
    assert all(model.display_name.endswith("(rehearsed)") for model in models)
    retired = list(client.models.list(lifecycle=["deprecated"]))
    assert [model.id for model in retired] == ["claude-sonnet-4-5-20250929"]
    card = client.models.retrieve("claude-haiku-4-5")
    assert (card.id, card.max_input_tokens, card.max_tokens) == ("claude-haiku-4-5-20251001", 200_000, 64_000)
    assert card.lifecycle == "active"
    assert card.capabilities.thinking.types.enabled.supported


def test_raw_responses_carry_the_headers_of_the_api(client):
    """`with_raw_response` shows request id and rate limits."""
    raw = client.messages.with_raw_response.create(
        messages=[{"role": "user", "content": "Begin."}], model=MODEL, max_tokens=100
    )
    assert raw.headers["request-id"].startswith("req_")
    assert raw.headers["anthropic-ratelimit-requests-limit"]
    assert raw.parse().usage.input_tokens == 5


def test_unknown_models_and_paths_are_not_found(client):
    """404 comes in the API's error shape."""
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(client, [{"role": "user", "content": "x"}], extra_body={"model": "claude-9"})
    assert caught.value.type == "not_found_error"
    assert caught.value.request_id
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude-9")
