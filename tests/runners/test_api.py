"""The endpoint over HTTP: whole answers or faults, nothing in between, and nothing that lasts for ever."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.base.errors import RunnerError
from relay.base.interrupts import Interrupted, Interrupts
from relay.config.model import ModelSettings
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.connection import ApiConnection, Fault, FaultKind, get_model
from relay.runners.messages.endpoint import get_key_name
from relay.runners.messages.reading import LEAST_ANSWER_S, most_answer_bytes
from relay.runners.messages.transport import open_http
from relay.session.usage import Usage

REQUEST: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 32_000,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
}
EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [],
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1},
        },
    },
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm\u2028."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"path": "a",'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ' "n": 12}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
    {"type": "message_stop"},
]


def render(*events: dict[str, Any]) -> bytes:
    """Write a stream as the API does."""
    lines = (f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events)
    return "".join(lines).encode()


WHOLE = render(*EVENTS)


@pytest.fixture(scope="module")
def interrupts() -> Iterator[Interrupts]:
    made = Interrupts(sleep=lambda _: None)
    yield made
    made.close()


def open_api(interrupts, handler=None, *, idle_timeout_s=5.0, clock=time.monotonic, **environ):
    """An endpoint that a function plays, or one at an address."""
    return MessagesApi(
        environ={"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://endpoint.invalid", **environ},
        interrupts=interrupts,
        idle_timeout_s=idle_timeout_s,
        transport=httpx2.MockTransport(handler) if handler else None,
        clock=clock,
    )


class Pieces(httpx2.SyncByteStream):
    """A response's body as an iterator: pieces, waits, errors."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


def stream(pieces) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(iter(pieces)))


def ask(api) -> Answer | Fault:
    found: Answer | Fault = api.send(REQUEST, on_block=lambda _: None)
    return found


ENDINGS = (None, httpx2.ReadError("reset"), httpx2.ReadTimeout("silent"), Interrupted())
"""How a stream may break: cleanly, by a reset, by silence, by a signal."""


def test_a_stream_that_is_cut_at_any_byte_is_never_an_answer(interrupts):
    """However it ends: only the whole is one. Of a part the prompt is known, and behind its last count the answer."""
    sent: list[bytes | BaseException] = []
    api = open_api(interrupts, lambda _: stream(_play(sent)))
    started, ended = WHOLE.index(b"event: ping"), WHOLE.index(b"event: message_stop")
    for cut in range(len(WHOLE)):
        for ending in ENDINGS if WHOLE[cut:].startswith(b"event: ") else ENDINGS[cut % 2 : cut % 2 + 1]:
            sent[:] = [WHOLE[:cut], *([ending] if ending else [])]
            fault = ask(api)
            assert isinstance(fault, Fault)
            assert fault.kind is (FaultKind.INTERRUPTED if isinstance(ending, Interrupted) else FaultKind.INFRA)
            assert fault.may_be_billed
            output = 40 if cut >= ended else 0
            prompt = Usage(input_tokens=10, cache_read_tokens=90, output_tokens=output)
            assert fault.usage == (prompt if cut >= started else None)
    # What follows message_stop is not looked at, whatever it is.
    for after in ([], [httpx2.ReadError("reset")]):
        sent[:] = [WHOLE, *after]
        answer = ask(api)
        assert isinstance(answer, Answer)
        assert [(call.name, call.input) for call in answer.calls] == [("write", {"path": "a", "n": 12})]


def _play(sent: list[bytes | BaseException]) -> Iterator[bytes]:
    for piece in sent:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SPOILED = st.builds(
    lambda at, key, value: [*EVENTS[:at], {**EVENTS[at], key: value}, *EVENTS[at + 1 :]],
    st.integers(0, len(EVENTS) - 1),
    st.sampled_from(["type", "message", "index", "content_block", "delta", "usage", "error"]),
    JSON,
)


@settings(max_examples=2 * settings().max_examples)
@given(st.one_of(SPOILED, st.lists(st.sampled_from(EVENTS), max_size=16), st.lists(JSON, max_size=4)))
def test_nonsense_of_the_right_form_is_a_fault_or_an_answer(interrupts, events):
    """Fields of another type, events out of order, anything that JSON can say: never an exception."""
    raw = "".join(f"event: {_name(e)}\ndata: {json.dumps(e)}\n\n" for e in events).encode()

    found = ask(open_api_once(interrupts, raw))

    assert isinstance(found, Answer | Fault)
    if isinstance(found, Answer):
        assert "message_stop" in [event.get("type") for event in events if isinstance(event, dict)]
        assert all(isinstance(call.input, dict) for call in found.calls)


_SHARED: dict[str, Any] = {}


def open_api_once(interrupts, raw):
    """One client for all examples."""
    _SHARED["raw"] = raw
    if "api" not in _SHARED:
        _SHARED["api"] = open_api(interrupts, lambda _: stream([_SHARED["raw"]]))
    return _SHARED["api"]


def _name(event) -> str:
    kind = event.get("type") if isinstance(event, dict) else None
    return kind if isinstance(kind, str) and kind.isalnum() else "message_delta"


@pytest.mark.parametrize(
    "raw",
    [
        b"data: " + b"[" * 200_000 + b"\n\n",
        b"data: [1]\n\n",
        b"event: error\ndata: {}\n\n",
        b'event: error\ndata: {"error": "x"}\n\n',
        b"event: \xff\ndata: \xff\n\n",
        b"<html>login</html>",
        b"",
        render(EVENTS[0], EVENTS[-1]),
        render(EVENTS[0], EVENTS[0], *EVENTS[1:]),
        render(*EVENTS[2:]),
        render(*EVENTS[:10], EVENTS[11]),
        b'{"choices": [], "usage": {"total_tokens": 7}}',
        b'{"content": [], "usage": ',
        b'{"error": "nothing of that"}',
    ],
)
def test_what_is_no_answer_is_a_fault(interrupts, raw):
    """Nesting without end, other types, other formats, no stop reason, two answers in one."""
    fault = ask(open_api(interrupts, lambda _: stream([raw])))

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.INFRA


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "novel_delta"}},
        {"type": "content_block_stop", "index": 7},
        "[" * 200_000,
        "[1]",
    ],
    ids=["a delta of tomorrow", "no such block", "no JSON", "a list"],
)
def test_what_a_spoiled_answer_has_used_is_read_to_the_end(interrupts, odd):
    """It is billed whole; the same again is likely, so it is not asked for many times."""
    spoiled = f"data: {odd if isinstance(odd, str) else json.dumps(odd)}\n\n".encode()
    fault = ask(open_api(interrupts, lambda _: stream([render(*EVENTS[:8]), spoiled, render(*EVENTS[8:])])))

    assert isinstance(fault, Fault)
    assert fault.usage is not None
    assert (fault.usage.output_tokens, fault.lasting) == (40, True)


@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf \r\n"])
def test_a_finished_message_is_an_answer(interrupts, head):
    """An endpoint that does not stream has answered all the same, and is paid."""
    message = {
        "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 10, "output_tokens": 40},
        "content": [{"type": "text", "text": "Hm."},
                    {"type": "tool_use", "id": "t", "name": "write", "input": {"path": "a"}}],
    }  # fmt: skip
    shown: list[Any] = []
    body = head + json.dumps(message).encode()

    answer = open_api(interrupts, lambda _: stream([body[:5], body[5:]])).send(REQUEST, on_block=shown.append)

    assert isinstance(answer, Answer)
    assert (answer.content, answer.calls[0].input) == (tuple(message["content"]), {"path": "a"})
    assert answer.usage == Usage(input_tokens=10, output_tokens=40)
    assert [block["type"] for block in shown] == ["text", "tool_use"]


@pytest.mark.parametrize(
    ("handler", "billed"),
    [
        (lambda _: stream([b"<html>log in</html>"]), False),
        (lambda _: stream([b""]), True),
        (lambda _: stream(_play([httpx2.ReadError("reset")])), True),
        (lambda _: httpx2.Response(504, text="late"), True),
        (lambda _: httpx2.Response(502, text="nobody"), False),
        (lambda _: httpx2.Response(529), False),
        (lambda _: stream([b'{"error": {"code": 502, "message": "no provider"}}']), False),
        (lambda _: stream([b'data: {"error": {"code": 502, "message": "no provider"}}\n\n']), False),
        (lambda _: stream([render({"type": "error", "error": {"type": "overloaded_error"}})]), False),
    ],
    ids=["a page", "nothing", "a reset", "504", "502", "529", "200: JSON", "200: a stream", "200: an event"],
)
def test_who_may_have_worked_may_bill(interrupts, handler, billed):
    """A request that was taken in and not refused costs what it may have cost; nobody's answer costs nothing."""
    fault = ask(open_api(interrupts, handler))

    assert isinstance(fault, Fault)
    assert (fault.usage, fault.may_be_billed) == (None, billed)


@pytest.mark.parametrize("error", [httpx2.ConnectError("no"), httpx2.ConnectTimeout("late"), httpx2.WriteError("gone")])
def test_who_cannot_be_reached_bills_nothing(interrupts, error):
    """The request never got there, or not whole."""

    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise error

    fault = ask(open_api(interrupts, refuse))

    assert isinstance(fault, Fault)
    assert not fault.may_be_billed


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", FaultKind.INFRA),
        ("rate_limit_error", FaultKind.LIMIT),
        ("authentication_error", FaultKind.USER),
        ("invalid_request_error", FaultKind.INFRA),
        ("tomorrow_error", FaultKind.INFRA),
    ],
)
def test_an_error_in_mid_stream_is_told_by_its_type(interrupts, kind, expected):
    """A request that had begun to be answered was well-formed, so a refusal of it then is the endpoint's own."""
    error = {"type": "error", "error": {"type": kind, "message": "broken"}}

    fault = ask(open_api(interrupts, lambda _: stream([render(*EVENTS[:4], error)])))

    assert isinstance(fault, Fault)
    assert (fault.kind, fault.message) == (expected, f"{kind} in mid-stream: broken")
    assert fault.usage is not None


@pytest.mark.parametrize("text", ["caf\udce9", float("nan")], ids=["half a character", "no number"])
def test_a_request_that_cannot_be_written_is_not_charged_and_not_repeated(interrupts, text):
    """Nothing was sent."""
    asked: list[httpx2.Request] = []

    def answer(request):
        asked.append(request)
        return stream([WHOLE])

    fault = open_api(interrupts, answer).send({**REQUEST, "system": text}, on_block=lambda _: None)

    assert isinstance(fault, Fault)
    assert (fault.kind, fault.may_be_billed, fault.usage, asked) == (FaultKind.REQUEST, False, None, [])
    assert fault.message.startswith("relay cannot write this request as JSON: ")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def endless(clock, step_s, piece):
    """A stream that begins like an answer and goes on for ever."""
    yield render(*EVENTS[:3])
    for n in range(10_000_000):
        clock.now += step_s
        yield piece(n)


PING = render({"type": "ping"})
DELTA = render(EVENTS[3])


@pytest.mark.parametrize(
    ("step_s", "piece", "words", "after_s"),
    [
        pytest.param(1.0, lambda _: PING, "only pings for 900 s", 901, id="only pings"),
        pytest.param(1.0, lambda _: b"x", "no progress for 90 s", 91, id="one byte each second"),
        pytest.param(1.0, lambda _: b": hi\n\n", "no progress for 90 s", 91, id="comments"),
        pytest.param(60.0, lambda _: DELTA, "no end after 1,600 s", 1_620, id="an event each minute"),
        pytest.param(
            1.0, lambda n: DELTA[n % len(DELTA) :][:1], "no progress", 120, id="an event in bytes, too slowly"
        ),
    ],
)
def test_a_stream_that_goes_on_for_ever_ends(interrupts, step_s, piece, words, after_s):
    """Silence is the client's business; this is about streams that say nothing by saying something."""
    clock = Clock()
    api = open_api(interrupts, lambda _: stream(endless(clock, step_s, piece)), idle_timeout_s=90.0, clock=clock)

    fault = ask(api)

    assert isinstance(fault, Fault)
    assert words in fault.message
    assert fault.usage is not None
    assert clock.now <= after_s


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(DELTA, id="deltas"),
        pytest.param(PING, id="pings"),
        pytest.param(b"data: " + b"x" * 1_000, id="a line"),
        pytest.param(b": hi\n", id="comments"),
        pytest.param(render(*EVENTS[-2:]), id="behind its end"),
    ],
)
def test_an_answer_is_not_read_beyond_what_was_asked_for(interrupts, piece):
    """Whatever it sends, and how fast: what is held of it has a bound, and it costs no more than what was asked for."""
    sent = 0

    def play() -> Iterator[bytes]:
        nonlocal sent
        yield render(*EVENTS[: 2 if piece.startswith(b"event: message_delta") else 3])
        while True:
            sent += len(1_000 * piece)
            yield 1_000 * piece

    api = open_api(interrupts, lambda _: stream(play()))
    found = api.send({**REQUEST, "max_tokens": 1_000}, on_block=lambda _: None)

    assert sent < 2 * most_answer_bytes(1_000)
    if isinstance(found, Fault):
        assert "it is longer than the 1,000 tokens that were asked for" in found.message
        assert (found.may_be_billed, found.lasting) == (True, True)
        assert found.usage == Usage(input_tokens=10, cache_read_tokens=90)
    else:
        assert "message_stop" in piece.decode()


@pytest.mark.parametrize("body", [b" " * 65_536, b"[" * 65_536])
def test_a_models_description_without_end_is_not_read_to_it(interrupts, body):
    """Neither is one that is nested without end."""
    api = open_api(interrupts, lambda _: stream(itertools.repeat(body)))

    with pytest.raises(RunnerError, match="does not answer like a Messages API"):
        api.find_model("claude-opus-5-5")


def test_a_long_answer_may_take_its_time(interrupts):
    """A steady stream is not cut before the least time that every answer has."""
    clock = Clock()

    def play() -> Iterator[bytes]:
        yield render(*EVENTS[:3])
        for _ in range(int(LEAST_ANSWER_S / 60) - 1):
            clock.now += 60
            yield DELTA
        yield render(*EVENTS[4:])

    assert isinstance(ask(open_api(interrupts, lambda _: stream(play()), idle_timeout_s=90.0, clock=clock)), Answer)


@contextmanager
def trickle(head: bytes) -> Iterator[str]:
    """A server that sends a beginning and then one byte after the other, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                connection.recv(65_536)
                try:
                    connection.sendall(head)
                    while not stop.wait(0.02):
                        connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(5)


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nx-slow: ", b"HTTP/1.1 500 Oops\r\ncontent-length: 99999\r\n\r\n"],
    ids=["headers", "the body of an error"],
)
def test_what_never_ends_before_the_first_event_ends_too(interrupts, head):
    """Inside the client nothing looks at a clock while bytes come; an alarm does."""
    with trickle(head) as base_url:
        api = open_api(interrupts, ANTHROPIC_BASE_URL=base_url, idle_timeout_s=0.2)
        fault = ask(api)
        api.close()

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.INFRA
    assert "no complete response headers" in fault.message


def test_a_stop_ends_a_request_and_counts_what_came():
    """SIGTERM, or the second Ctrl-C, does not wait for the answer, but what it has cost is known."""
    interrupts = Interrupts(sleep=lambda _: None)

    def play() -> Iterator[bytes]:
        yield render(*EVENTS[:3])
        os.kill(os.getpid(), signal.SIGTERM)
        yield PING

    try:
        with interrupts.installed():
            fault = ask(open_api(interrupts, lambda _: stream(play())))
    finally:
        interrupts.close()

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.INTERRUPTED
    assert fault.usage is not None


def reply(status, **more):
    return lambda _: httpx2.Response(status, **more)


def error_body(kind, message="broken", **more):
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7.5"}, 7.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e300"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        (
            {"anthropic-ratelimit-tokens-reset": "2020-01-01T00:00:00Z", "anthropic-ratelimit-tokens-remaining": "0"},
            0.0,
        ),
        (
            {"anthropic-ratelimit-tokens-reset": "2020-01-01T00:00:00Z", "anthropic-ratelimit-tokens-remaining": "5"},
            None,
        ),
        ({"anthropic-ratelimit-tokens-reset": "tomorrow", "anthropic-ratelimit-tokens-remaining": "0"}, None),
        ({"anthropic-ratelimit-unified-reset": "1577836800"}, 0.0),
        ({"anthropic-ratelimit-unified-reset": "9" * 30}, None),
        ({"anthropic-ratelimit-tokens-reset": "2020-01-01T00:00:00Z"}, 0.0),
        (
            {
                "anthropic-ratelimit-unified-5h-reset": "1577836800",
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-7d-reset": "99999999999",
                "anthropic-ratelimit-unified-7d-status": "allowed",
            },
            0.0,
        ),
        ({}, None),
    ],
)
def test_reads_when_to_come_back(interrupts, headers, expected):
    """Seconds, dates and reset times; nonsense is no time at all."""
    fault = ask(open_api(interrupts, reply(429, headers=headers, json=error_body("rate_limit_error"))))

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.LIMIT
    assert fault.retry_after_s == expected


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ({"code": 429, "message": "slow down"}, FaultKind.LIMIT, "error 429 instead of an answer: slow down"),
        ({"code": 502, "message": "no provider"}, FaultKind.INFRA, "error 502 instead of an answer: no provider"),
        ({"type": "authentication_error", "message": "key"}, FaultKind.USER, "authentication_error instead of"),
        ({"code": "insufficient_quota", "message": "pay"}, FaultKind.USER, "an error instead of an answer: pay"),
        ("gone", FaultKind.INFRA, "an error instead of an answer: gone"),
    ],
)
@pytest.mark.parametrize("form", ["%s", "data: %s\n\n"])
def test_an_error_is_one_whatever_its_status(interrupts, form, error, kind, words):
    """Gateways answer 200 and say what went wrong in the body; nobody has worked on that."""
    fault = ask(open_api(interrupts, lambda _: stream([(form % json.dumps({"error": error})).encode()])))

    assert isinstance(fault, Fault)
    assert (fault.kind, fault.usage, fault.may_be_billed) == (kind, None, False)
    assert fault.message.startswith(words)


def test_an_error_keeps_the_endpoints_words_and_its_id(interrupts):
    """One line, whatever the body is."""
    handler = reply(500, headers={"request-id": "req_1"}, json=error_body("api_error", "two\nlines"))
    fault = ask(open_api(interrupts, handler))
    bare = ask(open_api(interrupts, reply(500)))
    html = ask(open_api(interrupts, reply(502, text="<html>\n" + "x" * 9_000)))

    assert isinstance(fault, Fault)
    assert fault.message == "HTTP 500 api_error: two lines (request req_1)"
    assert isinstance(bare, Fault)
    assert bare.message == "HTTP 500: no body"
    assert isinstance(html, Fault)
    assert len(html.message) < 600


def test_a_spending_cap_is_known_by_its_code(interrupts):
    """It looks like a rate limit, but does not go away."""
    body = error_body("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"})
    fault = ask(open_api(interrupts, reply(429, json=body)))

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.USER


MODEL = {"type": "model", "id": "claude-opus-5-5", "max_input_tokens": 1_000_000, "max_tokens": 128_000}


def test_limits_come_from_the_models_api_or_from_the_table(interrupts):
    """Where the endpoint does not say, or has no Models API, the dated table does."""
    forms = ({"id": "x"}, [MODEL], {"data": MODEL}, {"data": [MODEL]}, {"window": 5}, {"data": None})
    missing = (
        *(reply(200, json=form) for form in forms),
        *(reply(status, text="not here") for status in (404, 405, 501)),
    )
    for handler in (reply(200, json=MODEL), *missing, reply(404, json=error_body("not_found_error"))):
        info = get_model(make_line(open_api(interrupts, handler), []), "claude-opus-5-5")
        assert (info.window_tokens, info.max_output_tokens) == (1_000_000, 128_000)


@pytest.mark.parametrize(
    "handler",
    [
        lambda _: httpx2.Response(404, text="not here"),
        lambda _: httpx2.Response(404, json=error_body("not_found_error")),
        lambda _: httpx2.Response(405),
        lambda _: httpx2.Response(501),
        lambda _: httpx2.Response(200, json={"id": "glm-4.6"}),
        lambda _: httpx2.Response(200, json={"id": "glm-4.6", "max_input_tokens": 8, "max_tokens": 8}),
    ],
    ids=["404", "404, typed", "405", "501", "no limits", "other limits"],
)
def test_limits_of_the_users_own_need_nobody_elses(interrupts, handler):
    """A gateway's model is used with what the settings say of it, whatever the Models API says or does not."""
    own = ModelSettings(window_tokens=200_000, max_output_tokens=16_000)

    info = get_model(make_line(open_api(interrupts, handler), []), "glm-4.6", own)

    assert (info.window_tokens, info.max_output_tokens, info.source) == (200_000, 16_000, "settings")


@pytest.mark.parametrize("window", [None, 3])
def test_the_way_to_use_a_model_that_nobody_knows_is_said(interrupts, window):
    """With the table that its limits belong into."""
    line = make_line(open_api(interrupts, reply(404)), [])
    with pytest.raises(RunnerError) as raised:
        get_model(line, "glm-4.6", ModelSettings(window_tokens=window, max_output_tokens=window))
    assert '[models."glm-4.6"]' in str(raised.value.hint)
    assert window or "http://endpoint.invalid gives no limits for 'glm-4.6', and" in str(raised.value)


def test_a_models_name_that_is_nearly_right_is_put_right(interrupts):
    """Whether the endpoint says that it does not know it, or says nothing."""
    for handler in (reply(404), reply(404, json=error_body("not_found_error")), reply(200, json={})):
        with pytest.raises(RunnerError, match=r"'claude-opus-55' \(did you mean claude-opus-5-5 or claude-opus-5"):
            get_model(make_line(open_api(interrupts, handler), []), "claude-opus-55")


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (reply(200, text="<html>log in</html>"), "does not answer like a Messages API"),
        (reply(200, content=b"\xff"), "does not answer like a Messages API"),
        (reply(401, json=error_body("authentication_error", "bad key")), "HTTP 401 authentication_error: bad key"),
        (reply(400, json=error_body("invalid_request_error")), "HTTP 400"),
        (reply(529, json=error_body("overloaded_error")), "HTTP 529"),
    ],
    ids=["html", "not UTF-8", "bad key", "refused", "overloaded"],
)
def test_what_is_wrong_with_an_endpoint_is_said(interrupts, handler, words):
    """Before anything starts, in words that the user can act on."""
    with pytest.raises(RunnerError, match=words) as raised:
        get_model(make_line(open_api(interrupts, handler), []), "claude-opus-5-5")
    assert raised.value.hint


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9", "http://[::1", "not a url", "ftp://x"])
def test_an_endpoint_that_is_none_is_said(interrupts, base_url):
    """A refused connection, or an address that is none."""
    with pytest.raises(RunnerError, match="cannot be reached"):
        get_model(make_line(open_api(interrupts, ANTHROPIC_BASE_URL=base_url), []), "claude-opus-5-5")


def make_line(api, waits):
    interrupts = Interrupts(sleep=waits.append)
    return ApiConnection(api=api, observe=lambda _: None, interrupts=interrupts, max_wait_s=60.0, jitter=lambda: 0.5)


def test_an_overloaded_endpoint_is_asked_for_the_model_again(interrupts):
    """A run that starts in a bad moment starts a moment later."""
    replies = [
        httpx2.Response(529),
        httpx2.Response(429, headers={"retry-after": "9"}),
        httpx2.Response(200, json=MODEL),
    ]
    waits: list[float] = []
    line = make_line(open_api(interrupts, lambda _: replies.pop(0)), waits)

    assert isinstance(get_model(line, "claude-opus-5-5"), ModelInfo)
    assert waits == [1.0, 9.5]
    line.interrupts.close()


def test_an_endpoint_that_stays_overloaded_is_given_up(interrupts):
    """After as long as relay waits, with the endpoint's words."""
    waits: list[float] = []
    line = make_line(open_api(interrupts, reply(529)), waits)

    with pytest.raises(RunnerError, match="HTTP 529"):
        get_model(line, "claude-opus-5-5")
    assert sum(waits) <= 60
    line.interrupts.close()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_are_not_there_are_the_user_s_to_name(monkeypatch, tmp_path, content):
    """The client reads them when it is made, and says neither which file nor who named it."""
    file = tmp_path / "bundle.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(RunnerError, match=re.escape(f"cannot be read (SSL_CERT_FILE={file}")):
        open_http("https://api.anthropic.com", 5)


def test_certificates_are_not_read_for_an_endpoint_without_tls(monkeypatch, tmp_path):
    """They take a tenth of the way to the first request, in every run on a gateway of this machine."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with open_http("http://127.0.0.1:9", 5) as client:
        assert client.base_url.scheme == "http"
    with pytest.raises(RunnerError, match="cannot be read"):
        open_http("https://127.0.0.1:9", 5)


@pytest.mark.parametrize("key", ["", "s3cret s3cret", "s3cret\n", "“s3cret”"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(key):
    """An HTTP client would print it."""
    with pytest.raises(RunnerError) as raised:
        get_key_name({"ANTHROPIC_API_KEY": key})
    assert "s3cret" not in raised.value.message


SECRETS = {
    "ANTHROPIC_API_KEY": "sk-s3cret-api-key",
    "ANTHROPIC_AUTH_TOKEN": "s3cret-token",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Team: s3cret-our-team\nX-Auth: Bearer s3cret-bearer",
    "ANTHROPIC_BASE_URL": "http://s3cret-user:s3cret%21pw@127.0.0.1:9/v1?key=s3cret-query",
}
ECHO = (
    "you sent sk-s3cret-api-key, s3cret-token, s3cret-our-team, s3cret-bearer, s3cret%21pw, s3cret!pw and s3cret-query"
)


@pytest.mark.parametrize(
    "handler",
    [
        None,
        reply(401, json=error_body("authentication_error", ECHO)),
        reply(400, text=ECHO),
        reply(529, text=ECHO),
        reply(307, headers={"location": f"http://elsewhere.invalid/?{ECHO}"}),
        lambda _: stream([render({"type": "error", "error": {"type": "api_error", "message": ECHO}})]),
        lambda _: stream([f"data: {ECHO}\n\n".encode()]),
    ],
    ids=["unreachable", "401", "400", "529", "307", "error event", "no JSON"],
)
def test_what_the_endpoint_was_told_in_confidence_is_not_shown(interrupts, handler):
    """Neither keys nor parts of the address, whoever says them back, and in whatever words."""
    api = open_api(interrupts, handler, **SECRETS)
    fault = ask(api)
    told = [fault.message if isinstance(fault, Fault) else "an answer"]
    with contextlib.suppress(RunnerError):
        found = api.find_model("claude-opus-5-5")
        told += [found.message] if isinstance(found, Fault) else []
    with pytest.raises(RunnerError) as raised:
        get_model(make_line(api, []), "claude-opus-5-5")
    told += [str(raised.value), str(raised.value.hint), *raised.value.causes]

    assert not [words for words in told if "s3cret" in words]


def test_nobody_is_followed_elsewhere(interrupts):
    """A prompt goes to the endpoint that the user named, and a redirect is the user's to judge."""
    asked = []

    def handler(request):
        asked.append(str(request.url))
        return httpx2.Response(307, headers={"location": "http://elsewhere.invalid/v1/messages"})

    api = open_api(interrupts, handler)
    fault = ask(api)
    with pytest.raises(RunnerError, match=r"it sends us to http://elsewhere\.invalid/v1/messages"):
        get_model(make_line(api, []), "claude-opus-5-5")

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.USER
    assert {httpx2.URL(url).host for url in asked} == {"endpoint.invalid"}


def test_of_a_long_error_the_beginning_is_read(interrupts):
    """Its words are there, and patterns take their time on what is long."""
    read = []

    def pieces():
        for n in range(10_000):
            read.append(n)
            yield b"tokens " * 1_000

    fault = ask(open_api(interrupts, lambda _: httpx2.Response(500, stream=Pieces(pieces()))))

    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.INFRA
    assert len(read) < 12


def test_a_socks_proxy_says_which_package_it_needs(interrupts, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(RunnerError, match="the package socksio is not installed"):
        get_model(make_line(open_api(interrupts), []), "claude-opus-5-5")


def test_a_proxy_on_the_way_is_named(interrupts, monkeypatch):
    """It may be what fails; its password is nobody's."""
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api = open_api(interrupts, ANTHROPIC_BASE_URL="http://endpoint.invalid")

    with pytest.raises(
        RunnerError, match=r"cannot be reached: .*\(through the proxy of HTTP_PROXY=127.0.0.1:9\)$"
    ) as told:
        api.find_model("claude-opus-5-5")
    fault = ask(api)

    assert isinstance(fault, Fault)
    assert fault.message.endswith("(through the proxy of HTTP_PROXY=127.0.0.1:9)")
    assert "secret" not in fault.message + str(told.value)


@pytest.mark.parametrize("proxy", ["http://", "nonsense://x", "http://a:b:c", "not a proxy", "http://h:99999999"])
def test_garbage_in_a_proxys_address_is_called_by_its_name(interrupts, monkeypatch, proxy):
    """The HTTP client would blame the endpoint."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(RunnerError, match="HTTP_PROXY is no address of a proxy"):
        get_model(make_line(open_api(interrupts), []), "claude-opus-5-5")
