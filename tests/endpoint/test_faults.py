"""Every fault, seen from the client's side: the SDK with its retries off, and raw sockets."""

import json
import time
from typing import Any

import httpx2
import pytest

from tests.sdks import anthropic

OPENING = [{"role": "user", "content": "Begin."}]
TURN = """
      text: {text}
      tools: [{{name: write, input: {{path: a.py, content: "{body}"}}}}]
"""


def script(fault: str, text: str = "Now I write the file.", body: str = "x = 1") -> str:
    turn = TURN.format(text=text, body=body)
    return f"sessions:\n  - turns:\n    - fault: {fault}{turn}"


def assert_then_answers(table: Any) -> None:
    """The same request again gets the whole answer."""
    message = table.ask(OPENING)
    assert message.stop_reason == "tool_use"
    assert message.content[-1].input == {"path": "a.py", "content": "x = 1"}
    assert table.player.errors == []


STATUSES = [
    ("{kind: status, status: 401}", "AuthenticationError", "authentication_error"),
    ("{kind: status, status: 402}", "PaymentRequiredError", "billing_error"),
    ("{kind: status, status: 403}", "PermissionDeniedError", "permission_error"),
    ("{kind: status, status: 404}", "NotFoundError", "not_found_error"),
    ("{kind: status, status: 413}", "RequestTooLargeError", "request_too_large"),
    ("status", "InternalServerError", "api_error"),
    ("{kind: status, status: 504}", "InternalServerError", "timeout_error"),
    ("overloaded", "OverloadedError", "overloaded_error"),
    ("rate_limit", "RateLimitError", "rate_limit_error"),
]


@pytest.mark.parametrize(("fault", "error", "kind"), STATUSES)
def test_a_status_comes_with_its_type_and_then_the_answer(play: Any, fault: str, error: str, kind: str) -> None:
    """An HTTP error has the API's shape and request id, and plays once by default."""
    table = play(script(fault))
    with pytest.raises(getattr(anthropic, error)) as caught:
        table.ask(OPENING)
    assert caught.value.type == kind
    assert caught.value.request_id
    assert table.player.requests[0].fault
    assert_then_answers(table)


def test_a_fault_plays_as_often_as_it_says(play: Any) -> None:
    """`times`, and a list of faults one after the other."""
    table = play(script("[{kind: overloaded, times: 2}, rate_limit]"))
    kinds = []
    for _ in range(3):
        with pytest.raises(anthropic.APIStatusError) as caught:
            table.ask(OPENING)
        kinds.append(caught.value.status_code)
    assert kinds == [529, 529, 429]
    assert_then_answers(table)


def test_always_never_ends(play: Any) -> None:
    """`times: always` needs no answer behind it."""
    table = play("sessions:\n  - turns:\n    - fault: {kind: overloaded, times: always}\n")
    for _ in range(4):
        with pytest.raises(anthropic.OverloadedError):
            table.ask(OPENING)


def test_the_spend_cap_is_recognisable(play: Any) -> None:
    """Its error code makes the SDK raise its own class; there is no retry-after."""
    table = play(script("spend_limit"))
    with pytest.raises(anthropic.RateLimitError) as caught:
        table.ask(OPENING)
    assert type(caught.value).__name__ == "EnforcedSpendLimitReachedError"
    assert caught.value.error_code == "enforced_spend_limit_reached"
    assert "retry-after" not in caught.value.response.headers


def test_an_error_may_be_html_or_empty(play: Any) -> None:
    """Gateways answer with pages; the SDK still raises by status."""
    table = play(script("[{kind: status, body: html}, {kind: status, status: 502, body: empty}]"))
    for status in (500, 502):
        with pytest.raises(anthropic.InternalServerError) as caught:
            table.ask(OPENING)
        assert caught.value.status_code == status
        assert caught.value.type is None
    assert_then_answers(table)


def test_overflow_is_the_apis_400(play: Any) -> None:
    """By fault, and by a prompt that really is longer than the window."""
    table = play(script("overflow"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 1000001 tokens > 1000000 max"):
        table.ask(OPENING)
    small = "model: {id: claude-opus-5-5, window: 500}\n"
    table = play(small + script("{kind: overloaded}"))
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 575 tokens > 500 maximum"):
        table.ask([{"role": "user", "content": "x" * 2000}])
    with pytest.raises(anthropic.OverloadedError):
        table.ask(OPENING)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("{kind: drop, how: rst}", None),
        ("{kind: drop, how: fin}", None),
        ("{kind: cut, how: rst}", httpx2.ReadError),
        ("{kind: cut, how: fin}", httpx2.RemoteProtocolError),
        ("{kind: cut, how: fin, after_bytes: 700}", httpx2.RemoteProtocolError),
        ("{kind: cut, how: rst, after_events: 0}", httpx2.ReadError),
        ("garbage", json.JSONDecodeError),
        ("bad_json", ValueError),
    ],
)
def test_a_broken_stream_is_an_exception_and_then_the_answer(play: Any, fault: str, error: Any) -> None:
    """Connections that end and data that is not JSON raise what the SDK was measured to raise."""
    table = play(script(fault))
    with pytest.raises(error or anthropic.APIConnectionError):
        table.ask(OPENING)
    assert_then_answers(table)


@pytest.mark.parametrize("after", [0, 1, 5, 9, 99])
def test_a_stream_may_end_cleanly_anywhere(play: Any, after: int) -> None:
    """Without `message_stop` the SDK raises nothing once the message has begun."""
    table = play(script(f"{{kind: cut, how: end, after_events: {after}}}"))
    if after == 0:
        with pytest.raises(AssertionError):
            table.ask(OPENING)
    else:
        assert table.ask(OPENING).stop_reason == ("tool_use" if after == 99 else None)
    assert_then_answers(table)


def test_an_error_event_has_status_200(play: Any) -> None:
    """The type is in the body; without streaming it is the status that belongs to it."""
    table = play(script("{kind: error_event, type: overloaded_error, times: 2}"))
    with pytest.raises(anthropic.APIStatusError) as caught:
        table.ask(OPENING)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    with pytest.raises(anthropic.OverloadedError):
        table.client.messages.create(model="claude-opus-5-5", max_tokens=4000, messages=OPENING)
    assert_then_answers(table)


def test_a_stall_runs_into_the_read_timeout(play: Any) -> None:
    """Before the headers it is the SDK's timeout, in the stream a raw one."""
    table = play(script("[{kind: stall, before_headers: true}, stall]"), timeout=0.2)
    with pytest.raises(anthropic.APITimeoutError):
        table.ask(OPENING)
    with pytest.raises(httpx2.ReadTimeout):
        table.ask(OPENING)
    assert_then_answers(table)


def test_a_stall_may_end(play: Any) -> None:
    """The rest of the answer follows."""
    table = play(script("{kind: stall, seconds: 0.05}"))
    assert table.ask(OPENING).stop_reason == "tool_use"


def test_pings_alone_never_time_out(play: Any) -> None:
    """The connection is alive, the answer does not come: only a watchdog on progress sees it."""
    table = play(script("{kind: stall, ping_s: 0.02, after_events: 2}"), timeout=0.2)
    request = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": OPENING, "stream": True}
    with table.client.messages.with_streaming_response.create(**request) as response:
        lines = response.iter_lines()
        started = time.monotonic()
        pings = 0
        while time.monotonic() < started + 0.5:
            pings += next(lines) == "event: ping"
    assert pings > 10


def test_max_tokens_inside_a_call_looks_like_success(play: Any) -> None:
    """The SDK returns the part of the input that was complete."""
    table = play(script("{kind: max_tokens, after_chars: 18}"))
    message = table.ask(OPENING)
    assert message.stop_reason == "max_tokens"
    assert message.content[-1].input == {"path": "a.py"}
    assert_then_answers(table)


def test_an_answer_longer_than_max_tokens_is_cut_by_itself(play: Any) -> None:
    """Streamed and plain: the output is the limit, and the same request with room gets everything."""
    table = play(script("{kind: overloaded}", body="y" * 7000).replace("fault: {kind: overloaded}", "delay_s: 0"))
    cut = table.ask(OPENING, max_tokens=100)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 100)
    assert cut.content[-1].type == "tool_use"
    plain = table.client.messages.create(model="claude-opus-5-5", max_tokens=100, messages=OPENING)
    assert plain.content[-1].input == {"path": "a.py"}
    whole = table.ask(OPENING)
    assert whole.content[-1].input["content"] == "y" * 7000
    assert whole.usage.output_tokens > 2000


def test_the_end_of_the_window_stops_an_answer(play: Any) -> None:
    """Input and output together never exceed the window."""
    small = "model: {id: claude-opus-5-5, window: 300}\n"
    text = script("{kind: overloaded}", body="y" * 7000).replace("fault: {kind: overloaded}", "delay_s: 0")
    message = play(small + text).ask(OPENING)
    assert message.stop_reason == "model_context_window_exceeded"
    assert message.usage.input_tokens + message.usage.output_tokens == 300


@pytest.mark.parametrize(
    ("fault", "stop", "kinds"),
    [
        ("{kind: refusal, category: cyber}", "refusal", []),
        ("{kind: unknown_stop, reason: sunset}", "sunset", ["thinking", "text", "tool_use"]),
        ("{kind: unknown_block, type: hologram}", "tool_use", ["thinking", "hologram", "text", "tool_use"]),
        ("empty", "end_turn", []),
        ("pause_turn", "pause_turn", ["thinking", "text"]),
        ("window_exceeded", "model_context_window_exceeded", ["thinking", "text", "tool_use"]),
    ],
)
def test_odd_answers_arrive_as_they_are(play: Any, fault: str, stop: str, kinds: list[str]) -> None:
    """Stop reasons and blocks pass through the SDK; the same request then gets the answer."""
    table = play(script(fault))
    message = table.ask(OPENING)
    assert message.stop_reason == stop
    assert [block.type for block in message.content] == kinds
    if stop == "refusal":
        assert message.stop_details.category == "cyber"
    assert_then_answers(table)


def test_usage_may_be_zero(play: Any) -> None:
    """Zero is reported as zero."""
    message = play(script("{kind: usage, report: zero}")).ask(OPENING)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_creation_input_tokens, usage.output_tokens) == (0, 0, 0)


def test_usage_may_be_missing(play: Any) -> None:
    """Neither the beginning nor the end of the stream carries any."""
    table = play(script("{kind: usage, report: missing, times: 2}"))
    status, body = table.post(OPENING)
    assert status == 200
    assert "usage" not in body
    with table.client.messages.stream(model="claude-opus-5-5", max_tokens=99, messages=OPENING) as stream:
        first = next(iter(stream))
        assert getattr(first.message, "usage", None) is None


@pytest.mark.parametrize("fault", ["drop", "cut", "{kind: cut, how: rst}", "{kind: cut, how: end}", "garbage"])
def test_plain_answers_break_too(play: Any, fault: str) -> None:
    """Without streaming the same faults spoil the body."""
    table = play(script(fault))
    with pytest.raises((anthropic.APIError, httpx2.HTTPError, ValueError)):
        table.client.messages.create(model="claude-opus-5-5", max_tokens=99, messages=OPENING)
    assert_then_answers(table)


def test_other_endpoints_have_faults_of_their_own(play: Any) -> None:
    """A models request may fail while messages work."""
    faults = "faults:\n  - {on: models, fault: [{kind: overloaded, times: 2}, drop]}\n"
    table = play(faults + "  - {on: count_tokens, fault: {kind: stall, seconds: 0.01}}\n" + script("empty"))
    for _ in range(2):
        with pytest.raises(anthropic.OverloadedError):
            table.client.models.retrieve("claude-opus-5-5")
    with pytest.raises(anthropic.APIConnectionError):
        table.client.models.list()
    assert table.client.models.retrieve("claude-opus-5-5").id == "claude-opus-5-5"
    assert table.client.messages.count_tokens(model="claude-opus-5-5", messages=OPENING).input_tokens == 5
