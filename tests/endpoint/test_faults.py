"""The endpoint as its clients see it: the SDK with its retries off, and raw sockets."""

import copy
import json
from typing import Any

import httpx2
import pytest

from tests.endpoint.table import answer
from tests.sdks import anthropic

OPENING = [{"role": "user", "content": "Begin."}]
TURN = """
      text: Now I write the file.
      tools: [{{name: write, input: {{path: a.py, content: "{body}"}}}}]
"""


def script(fault: str, body: str = "x = 1") -> str:
    return f"sessions:\n  - turns:\n    - fault: {fault}{TURN.format(body=body)}"


def assert_then_answers(table: Any, fault: str) -> None:
    """The same request again gets the whole answer."""
    message = table.ask(OPENING)
    assert (message.stop_reason, message.content[-1].input) == ("tool_use", {"path": "a.py", "content": "x = 1"}), fault
    assert table.player.errors == [], fault


BROKEN: list[tuple[str, str | type[Exception]]] = [
    ("{kind: drop, how: rst}", "APIConnectionError"),
    ("{kind: drop, how: fin}", "APIConnectionError"),
    ("{kind: cut, how: rst}", httpx2.ReadError),
    ("{kind: cut, how: fin}", httpx2.RemoteProtocolError),
    ("{kind: cut, how: end, after_events: 0}", AssertionError),
    ("garbage", json.JSONDecodeError),
    ("bad_json", ValueError),
    ("{kind: error_event, type: overloaded_error}", "APIStatusError"),
    ("stall", httpx2.ReadTimeout),
]


def test_a_broken_stream_is_an_exception_and_then_the_answer(play: Any) -> None:
    """Connections that end and data that is not JSON raise what the SDK was measured to raise."""
    for fault, error in BROKEN:
        table = play(script(fault), timeout=0.3 if "stall" in fault else 10.0)
        with pytest.raises(getattr(anthropic, error) if isinstance(error, str) else error):
            table.ask(OPENING)
        assert_then_answers(table, fault)


def test_an_answer_ends_at_its_own_limit_and_at_that_of_the_window(play: Any) -> None:
    """Input and output together never exceed the window; with room the same request gets everything."""
    turn = script("", body="y" * 7000).replace("fault: ", "delay_s: 0")
    table = play(turn)
    cut = table.ask(OPENING, max_tokens=100)
    assert (cut.stop_reason, cut.usage.output_tokens, cut.content[-1].type) == ("max_tokens", 100, "tool_use")
    assert table.ask(OPENING).content[-1].input["content"] == "y" * 7000
    table = play("model: {id: claude-opus-5-5, window: 300}\n" + turn)
    message = table.ask(OPENING)
    assert message.stop_reason == "model_context_window_exceeded"
    assert message.usage.input_tokens + message.usage.output_tokens == 300
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 575 tokens > 300 maximum"):
        table.ask([{"role": "user", "content": "x" * 2000}])


# Preserved thinking: a conversation is append-only

FIELDS: dict[str, Any] = {"tools": [{"name": "read", "input_schema": {"type": "object"}}], "system": "Be brief."}
BOUND = "Invalid signature in thinking block. The block is bound to a different conversation"
THOUGHT = """
sessions:
  - turns:
      - {thinking: Look first., text: A., tools: [{name: read, input: {path: a}}]}
      - {text: B., tools: [{name: read, input: {path: b}}]}
      - text: C.
"""
CHANGES: list[tuple[list[Any], str, str]] = [
    (["system"], "Be brief. Today is Monday.", "messages.1.content.0"),
    (["tools", 0, "description"], "reads", "messages.1.content.0"),
    (["messages", 0, "content"], "Begin!", "messages.1.content.0"),
    (["messages", 2, "content", 0, "content"], "[cleared]", "messages.3.content.0"),
    (["messages", 1, "content", 1, "text"], "Rewritten.", "messages.3.content.0"),
    (["messages", 1, "content", 2, "input", "path"], "b", "messages.3.content.0"),
]


def test_where_thinking_is_bound_every_change_of_the_past_is_refused_and_nothing_else(play: Any) -> None:
    """Cache marks are no change; another model, and the beta control, drop what does not fit."""
    table = play(THOUGHT)
    first = table.ask(OPENING, **FIELDS)
    more = OPENING + answer(first)
    messages = more + answer(table.ask(more, **FIELDS))
    for path, value, where in CHANGES:
        request = copy.deepcopy({**FIELDS, "messages": messages})
        place: Any = request
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        with pytest.raises(anthropic.BadRequestError) as caught:
            table.ask(**request)
        assert f"{where}: {BOUND}" in caught.value.message, path
    messages[2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    counts = [
        table.client.messages.count_tokens(model=model, messages=messages, **FIELDS).input_tokens
        for model in ("claude-opus-5-5", "claude-sonnet-5-5")
    ]
    assert counts[0] - counts[1] == 7 + 32
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    _, body = table.post(messages, system="Another one.", thinking=binding)
    assert [item["reason"] for item in body["input_transformations"]] == ["prefix_binding_mismatch"] * 2
    spoiled = copy.deepcopy(messages)
    spoiled[1]["content"][0]["thinking"] = "Something else."
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
        table.ask(spoiled, **FIELDS)
    for message in messages[1::2]:
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
    assert table.ask(messages, system="Another one.").content[-1].text == "C."


# Which turn answers, after a fault and beside all conversations


def last_text(message: Any) -> str:
    return str(next(block.text for block in message.content if block.type == "text"))


def test_an_aside_answers_without_moving_the_conversation_on(play: Any) -> None:
    """A summary asked for in mid-conversation takes no turn of it, as often as it is asked for; its faults play."""
    table = play(
        """
sessions:
  - {name: work, turns: [{tools: [{name: read, input: {path: a}}]}, {text: Done.}]}
  - name: summary
    aside: true
    when: {last_message_contains: summarise}
    turns: [{text: A summary., fault: {kind: overloaded}}]
"""
    )
    history = [*OPENING, *answer(table.ask(OPENING))]
    summary = [*history, {"role": "user", "content": "summarise this"}]
    with pytest.raises(anthropic.APIStatusError):
        table.ask(summary)
    assert [last_text(table.ask(summary)) for _ in range(2)] == ["A summary."] * 2
    assert last_text(table.ask(history)) == "Done."
    assert table.player.unplayed == ()
