"""The endpoint as its clients see it: the SDK with its retries off, and raw sockets."""

import contextlib
import copy
import http.client
import json
import threading
from typing import Any

import httpx2
import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.endpoint.table import HEADERS, answer
from tests.sdks import anthropic
from tests.waiting import wait_until

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


STATUSES = [
    ("{kind: status, status: 401}", "AuthenticationError", "authentication_error"),
    ("{kind: status, status: 404}", "NotFoundError", "not_found_error"),
    ("status", "InternalServerError", "api_error"),
    ("{kind: status, body: html}", "InternalServerError", None),
    ("{kind: status, status: 502, body: empty}", "InternalServerError", None),
    ("overloaded", "OverloadedError", "overloaded_error"),
    ("rate_limit", "RateLimitError", "rate_limit_error"),
    ("spend_limit", "EnforcedSpendLimitReachedError", "rate_limit_error"),
    ("overflow", "BadRequestError", "invalid_request_error"),
]


def test_a_status_comes_with_its_type_once_and_then_the_answer(play: Any) -> None:
    for fault, error, kind in STATUSES:
        table = play(script(fault))
        with pytest.raises(anthropic.APIStatusError) as caught:
            table.ask(OPENING)
        assert (type(caught.value).__name__, caught.value.type) == (error, kind), fault
        assert caught.value.request_id, fault
        assert table.player.requests[0].fault, fault
        assert_then_answers(table, fault)


def test_faults_play_in_order_and_as_often_as_they_say(play: Any) -> None:
    table = play(script("[{kind: overloaded, times: 2}, rate_limit, {kind: overloaded, times: always}]"))
    kinds = []
    for _ in range(5):
        with pytest.raises(anthropic.APIStatusError) as caught:
            table.ask(OPENING)
        kinds.append(caught.value.status_code)
    assert kinds == [529, 529, 429, 529, 529]


BROKEN: list[tuple[str, str | type[Exception]]] = [
    ("{kind: drop, how: rst}", "APIConnectionError"),
    ("{kind: drop, how: fin}", "APIConnectionError"),
    ("{kind: cut, how: rst}", httpx2.ReadError),
    ("{kind: cut, how: fin}", httpx2.RemoteProtocolError),
    ("{kind: cut, how: fin, after_bytes: 700}", httpx2.RemoteProtocolError),
    ("{kind: cut, how: end, after_events: 0}", AssertionError),
    ("garbage", json.JSONDecodeError),
    ("bad_json", ValueError),
    ("{kind: error_event, type: overloaded_error}", "APIStatusError"),
    ("{kind: stall, before_headers: true}", "APITimeoutError"),
    ("stall", httpx2.ReadTimeout),
]


def test_a_broken_stream_is_an_exception_and_then_the_answer(play: Any) -> None:
    """Connections that end and data that is not JSON raise what the SDK was measured to raise."""
    for fault, error in BROKEN:
        table = play(script(fault), timeout=0.3 if "stall" in fault else 10.0)
        with pytest.raises(getattr(anthropic, error) if isinstance(error, str) else error):
            table.ask(OPENING)
        assert_then_answers(table, fault)


ODD: list[tuple[str, str | None, list[str]]] = [
    ("{kind: cut, how: end, after_events: 5}", None, ["thinking"]),
    ("{kind: refusal, category: cyber}", "refusal", []),
    ("{kind: unknown_stop, reason: sunset}", "sunset", ["thinking", "text", "tool_use"]),
    ("{kind: unknown_block, type: hologram}", "tool_use", ["thinking", "hologram", "text", "tool_use"]),
    ("empty", "end_turn", []),
    ("pause_turn", "pause_turn", ["thinking", "text"]),
    ("max_tokens", "max_tokens", ["thinking", "text", "tool_use"]),
    ("window_exceeded", "model_context_window_exceeded", ["thinking", "text", "tool_use"]),
    ("{kind: stall, seconds: 0.05}", "tool_use", ["thinking", "text", "tool_use"]),
]


def test_odd_answers_arrive_as_they_are(play: Any) -> None:
    """Stop reasons and blocks pass through the SDK; the same request then gets the answer."""
    for fault, stop, kinds in ODD:
        table = play(script(fault))
        message = table.ask(OPENING)
        assert (message.stop_reason, [block.type for block in message.content]) == (stop, kinds), fault
        if "stall" not in fault:
            assert_then_answers(table, fault)


def test_plain_answers_break_too(play: Any) -> None:
    for fault in ("drop", "cut", "{kind: cut, how: rst}", "{kind: cut, how: end}", "garbage", "error_event"):
        table = play(script(fault))
        with pytest.raises((anthropic.APIError, httpx2.HTTPError, ValueError)):
            table.client.messages.create(model="claude-opus-5-5", max_tokens=99, messages=OPENING)
        assert_then_answers(table, fault)


def test_usage_may_be_zero_or_missing(play: Any) -> None:
    table = play(script("[{kind: usage, report: zero}, {kind: usage, report: missing}]"))
    usage = table.ask(OPENING).usage
    assert (usage.input_tokens, usage.cache_creation_input_tokens, usage.output_tokens) == (0, 0, 0)
    assert "usage" not in table.post(OPENING)[1]


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


@pytest.mark.timeout(60)
def test_a_stall_does_not_hold_up_the_end() -> None:
    """A client that waits is cut off when the server stops."""
    for fault in ("stall", "{kind: stall, ping_s: 0.01}", "{kind: stall, before_headers: true}"):
        played = parse_script(f"sessions: [{{turns: [{{fault: {fault}, text: x}}]}}]")
        with contextlib.ExitStack() as stack, serve(played) as server:
            connection = http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=60)
            stack.enter_context(contextlib.closing(connection))
            body = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": OPENING, "stream": True}
            connection.request("POST", "/v1/messages", json.dumps(body), HEADERS)
            wait_until(lambda: server.unplayed == ())  # called at once
        wait_until(lambda: not any(thread.name.startswith("relay-rehearsal") for thread in threading.enumerate()))


def test_who_asks_needs_a_key_and_a_version_and_neither_is_kept(play: Any) -> None:
    table = play("sessions: [{turns: [{text: Hello., repeat: forever}]}]")
    version, body = {"anthropic-version": "2026-10-21"}, {"model": "claude-opus-5-5", "max_tokens": 99}
    for headers, status in [
        ({"x-api-key": "k", **version}, 200),
        ({"authorization": "Bearer k", "anthropic-version": "2023-06-01"}, 200),
        (version, 401),
        ({"authorization": "Bearer ", **version}, 401),
        ({"x-api-key": "k"}, 400),
        ({"x-api-key": "k", "anthropic-version": "2024-01-01"}, 400),
    ]:
        sent = {**headers, "content-type": "application/json", "anthropic-beta": "x-2026-01-01"}
        said = table.send("POST", "/v1/messages?beta=true", {**body, "messages": OPENING}, headers=sent)
        assert (said[0], said[1]["relay-rehearsal"]) == (status, "1"), headers
    kept = table.player.requests
    assert (kept[0].headers["x-api-key"], kept[0].body["max_tokens"]) == ("***", 99)
    assert kept[1].headers["authorization"] == "***"


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


def test_thinking_can_be_off_or_scripted_and_older_models_do_not_look_at_the_prefix(play: Any) -> None:
    for model, config, thinks in [
        ("claude-haiku-5-5", {"type": "disabled"}, False),
        ("claude-haiku-5-5", {"type": "adaptive"}, True),
        ("claude-haiku-4-5", None, False),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 2000}, True),
    ]:
        given = {"thinking": config} if config else {}
        message = play("thinking: scripted\n" + THOUGHT).ask(OPENING, model=model, **given)
        assert (message.content[0].type == "thinking") is thinks, (model, config)
    scripted = "thinking: scripted\nsessions: [{turns: [{text: A.}]}]"
    assert [block.type for block in play(scripted).ask(OPENING).content] == ["text"]
    table = play(THOUGHT)
    first = table.ask(OPENING, model="claude-opus-5", system="one")
    assert table.ask(OPENING + answer(first), model="claude-opus-5", system="two").content[0].text == "B."


# Which turn answers, after a fault and beside all conversations


def last_text(message: Any) -> str:
    return str(next(block.text for block in message.content if block.type == "text"))


def test_after_a_pause_and_after_a_cut_the_client_goes_on_as_it_likes(play: Any) -> None:
    """The paused answer is sent back and the next turn comes; a hint behind a cut answer is another try of its turn."""
    table = play("sessions: [{turns: [{text: Wait., fault: pause_turn}, {fault: max_tokens, text: A long answer.}]}]")
    paused = table.ask(OPENING)
    more = [*OPENING, answer(paused)[0], {"role": "user", "content": [{"type": "text", "text": "go"}]}]
    assert (paused.stop_reason, table.ask(more).stop_reason) == ("pause_turn", "max_tokens")
    more[-1]["content"].append({"type": "text", "text": "Write in parts."})
    assert last_text(table.ask(more)) == "A long answer."


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
