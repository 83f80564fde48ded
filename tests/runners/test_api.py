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
from relay.runners.messages.answers import Answer, AnswerBuilder, StreamBrokenError
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.connection import ApiConnection, Fault, FaultKind, find_retry_after, get_model
from relay.runners.messages.endpoint import get_key_name
from relay.runners.messages.reading import LEAST_ANSWER_S, Watchdog, most_answer_bytes, read_answer
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


def fail(api, name="") -> Fault:
    """Ask; the answer has to be a fault, or the row of this name is at fault."""
    found = ask(api)
    assert isinstance(found, Fault), name
    return found


ENDINGS = (None, httpx2.ReadError("reset"), httpx2.ReadTimeout("silent"), Interrupted())
"""How a stream may break: cleanly, by a reset, by silence, by a signal."""


def test_a_stream_that_is_cut_at_any_byte_is_never_an_answer(interrupts):
    """However it ends: only the whole is one. Of a part the prompt is known, and behind its last count the answer."""
    started, ended = WHOLE.index(b"event: ping"), WHOLE.index(b"event: message_stop")

    def count(cut):
        usage = Usage(input_tokens=10, cache_read_tokens=90, output_tokens=40 if cut >= ended else 0)
        return usage if cut >= started else None

    for cut in range(len(WHOLE)):
        builder, watchdog = AnswerBuilder(), Watchdog(lambda: 0.0, idle_s=1, output_tokens=1_000)
        assert read_answer(iter([WHOLE[:cut]]), watchdog, builder, lambda _: None) is None, cut
        with pytest.raises(StreamBrokenError):
            builder.build()
        assert builder.usage == count(cut), cut
    sent: list[bytes | BaseException] = []
    api = open_api(interrupts, lambda _: stream(_play(sent)))
    for cut in [cut for cut in range(len(WHOLE)) if WHOLE[cut:].startswith(b"event: ")]:
        for ending in ENDINGS:
            sent[:] = [WHOLE[:cut], *([ending] if ending else [])]
            fault = fail(api, cut)
            assert fault.kind is (FaultKind.INTERRUPTED if isinstance(ending, Interrupted) else FaultKind.INFRA)
            assert (fault.may_be_billed, fault.usage) == (True, count(cut)), cut
    # What follows message_stop is not looked at, whatever it is.
    for after in ([], [httpx2.ReadError("reset")]):
        sent[:] = [WHOLE, *after]
        answer = ask(api)
        assert isinstance(answer, Answer)
        assert answer.content[-1]["input"] == {"path": "a", "n": 12}


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
        assert all(isinstance(block.get("input", {}), dict) for block in found.content)


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


NO_ANSWERS = [
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
]


def test_what_is_no_answer_is_a_fault(interrupts):
    """Nesting without end, other types, other formats, no stop reason, two answers in one."""
    for raw in NO_ANSWERS:
        fault = fail(open_api(interrupts, lambda _, raw=raw: stream([raw])), raw[:80])
        assert fault.kind is FaultKind.INFRA, raw[:80]


def test_what_a_spoiled_answer_has_used_is_read_to_the_end(interrupts):
    """It is billed whole; the same again is likely, so it is not asked for many times."""
    odd = {
        "a delta of tomorrow": {"type": "content_block_delta", "index": 1, "delta": {"type": "novel_delta"}},
        "no such block": {"type": "content_block_stop", "index": 7},
        "no JSON": "[" * 200_000,
        "a list": "[1]",
    }
    for name, part in odd.items():
        spoiled = f"data: {part if isinstance(part, str) else json.dumps(part)}\n\n".encode()
        pieces = [render(*EVENTS[:8]), spoiled, render(*EVENTS[8:])]
        fault = fail(open_api(interrupts, lambda _, pieces=pieces: stream(pieces)), name)
        assert fault.usage is not None, name
        assert (fault.usage.output_tokens, fault.lasting) == (40, True), name


def test_a_finished_message_is_an_answer(interrupts):
    """An endpoint that does not stream has answered all the same, and is paid."""
    message = {
        "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 10, "output_tokens": 40},
        "content": [{"type": "text", "text": "Hm."},
                    {"type": "tool_use", "id": "t", "name": "write", "input": {"path": "a"}}],
    }  # fmt: skip
    for head in (b"", b"\xef\xbb\xbf \r\n"):
        shown: list[Any] = []
        body = head + json.dumps(message).encode()
        api = open_api(interrupts, lambda _, body=body: stream([body[:5], body[5:]]))
        answer = api.send(REQUEST, on_block=shown.append)
        assert isinstance(answer, Answer), head
        assert (answer.content, answer.content[-1]["input"]) == (tuple(message["content"]), {"path": "a"})
        assert answer.usage == Usage(input_tokens=10, output_tokens=40)
        assert [block["type"] for block in shown] == ["text", "tool_use"]


WORKED: dict[str, tuple[Any, bool]] = {
    "a page": (lambda _: stream([b"<html>log in</html>"]), False),
    "nothing": (lambda _: stream([b""]), True),
    "a reset": (lambda _: stream(_play([httpx2.ReadError("reset")])), True),
    "504": (lambda _: httpx2.Response(504, text="late"), True),
    "502": (lambda _: httpx2.Response(502, text="nobody"), False),
    "529": (lambda _: httpx2.Response(529), False),
    "200: JSON": (lambda _: stream([b'{"error": {"code": 502, "message": "no provider"}}']), False),
    "200: a stream": (lambda _: stream([b'data: {"error": {"code": 502, "message": "no provider"}}\n\n']), False),
    "200: an event": (lambda _: stream([render({"type": "error", "error": {"type": "overloaded_error"}})]), False),
}


def test_who_may_have_worked_may_bill(interrupts):
    """A request that was taken in and not refused costs what it may have cost; nobody's answer costs nothing."""
    for name, (handler, billed) in WORKED.items():
        fault = fail(open_api(interrupts, handler), name)
        assert (fault.usage, fault.may_be_billed) == (None, billed), name


def test_who_cannot_be_reached_bills_nothing(interrupts):
    """The request never got there, or not whole."""
    for error in (httpx2.ConnectError("no"), httpx2.ConnectTimeout("late"), httpx2.WriteError("gone")):

        def refuse(_, error=error):
            raise error

        assert not fail(open_api(interrupts, refuse)).may_be_billed, error


ERRORS: list[tuple[Any, FaultKind, str]] = [
    ({"type": "overloaded_error", "message": "x"}, FaultKind.INFRA, "overloaded_error in mid-stream: x"),
    ({"type": "rate_limit_error", "message": "x"}, FaultKind.LIMIT, "rate_limit_error in mid-stream: x"),
    ({"type": "authentication_error", "message": "x"}, FaultKind.USER, "authentication_error in mid-stream: x"),
    ({"type": "invalid_request_error", "message": "x"}, FaultKind.INFRA, "invalid_request_error in mid-stream: x"),
    ({"type": "tomorrow_error", "message": "x"}, FaultKind.INFRA, "tomorrow_error in mid-stream: x"),
    ({"code": 429, "message": "slow down"}, FaultKind.LIMIT, "error 429 instead of an answer: slow down"),
    ({"code": 502, "message": "no provider"}, FaultKind.INFRA, "error 502 instead of an answer: no provider"),
    ({"type": "authentication_error", "message": "key"}, FaultKind.USER, "authentication_error instead of"),
    ({"code": "insufficient_quota", "message": "pay"}, FaultKind.USER, "an error instead of an answer: pay"),
    ("gone", FaultKind.INFRA, "an error instead of an answer: gone"),
]


def test_an_error_is_one_whatever_the_status_and_however_it_comes(interrupts):
    """Gateways answer 200 and say in the body what went wrong, and nobody has worked on that.

    What had begun to be answered was well-formed, so a refusal of it then is the endpoint's own.
    """
    for error, kind, words in ERRORS:
        begun = "mid-stream" in words
        forms = [b'{"error": %s}', b'data: {"error": %s}\n\n']
        if begun:
            forms = [render(*EVENTS[:4]) + b'event: error\ndata: {"type": "error", "error": %s}\n\n']
        for form in forms:
            raw = form.replace(b"%s", json.dumps(error).encode())
            fault = fail(open_api(interrupts, lambda _, raw=raw: stream([raw])), words)
            assert (fault.kind, fault.usage is not None, fault.may_be_billed) == (kind, begun, begun), words
            assert fault.message.startswith(words)


def test_a_request_that_cannot_be_written_is_not_charged_and_not_repeated(interrupts):
    """Nothing was sent."""
    asked: list[httpx2.Request] = []

    def answer(request):
        asked.append(request)
        return stream([WHOLE])

    api = open_api(interrupts, answer)
    for text in ("caf\udce9", float("nan")):
        fault = api.send({**REQUEST, "system": text}, on_block=lambda _: None)
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


ENDLESS: list[tuple[float, Any, str, float]] = [
    (1.0, lambda _: PING, "only pings for 900 s", 901),
    (1.0, lambda _: b"x", "no progress for 90 s", 91),
    (1.0, lambda _: b": hi\n\n", "no progress for 90 s", 91),
    (60.0, lambda _: DELTA, "no end after 1,600 s", 1_620),
    (1.0, lambda n: DELTA[n % len(DELTA) :][:1], "no progress", 120),  # an event in bytes, too slowly
]


def test_a_stream_that_goes_on_for_ever_ends(interrupts):
    """Silence is the client's business; this is about streams that say nothing by saying something."""
    for step_s, piece, words, after_s in ENDLESS:
        clock = Clock()
        pieces = endless(clock, step_s, piece)
        api = open_api(interrupts, lambda _, got=pieces: stream(got), idle_timeout_s=90.0, clock=clock)
        fault = fail(api, words)
        assert words in fault.message
        assert fault.usage is not None, words
        assert clock.now <= after_s, words


def test_an_answer_is_not_read_beyond_what_was_asked_for(interrupts):
    """Whatever it sends, and how fast: what is held of it has a bound, and it costs no more than what was asked for."""
    for piece in (DELTA, b"data: " + b"x" * 1_000, render(*EVENTS[-2:])):
        is_end = piece.startswith(b"event: message_delta")
        sent: list[int] = []

        def play(piece=piece, is_end=is_end, sent=sent) -> Iterator[bytes]:
            yield render(*EVENTS[: 2 if is_end else 3])
            while True:
                sent.append(len(1_000 * piece))
                yield 1_000 * piece

        api = open_api(interrupts, lambda _, play=play: stream(play()))
        found = api.send({**REQUEST, "max_tokens": 1_000}, on_block=lambda _: None)

        assert sum(sent) < 2 * most_answer_bytes(1_000), piece[:40]
        assert isinstance(found, Answer if is_end else Fault), piece[:40]
        if isinstance(found, Fault):
            assert "it is longer than the 1,000 tokens that were asked for" in found.message
            assert (found.may_be_billed, found.lasting) == (True, True)
            assert found.usage == Usage(input_tokens=10, cache_read_tokens=90)


def test_a_models_description_without_end_is_not_read_to_it(interrupts):
    """Neither is one that is nested without end."""
    for body in (b" " * 65_536, b"[" * 65_536):
        api = open_api(interrupts, lambda _, body=body: stream(itertools.repeat(body)))
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


def test_what_never_ends_before_the_first_event_ends_too(interrupts):
    """Inside the client nothing looks at a clock while bytes come, of headers or of an error; an alarm does."""
    for head in (b"HTTP/1.1 200 OK\r\nx-slow: ", b"HTTP/1.1 500 Oops\r\ncontent-length: 99999\r\n\r\n"):
        with trickle(head) as base_url:
            api = open_api(interrupts, ANTHROPIC_BASE_URL=base_url, idle_timeout_s=0.1)
            fault = fail(api, head)
            api.close()
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
            fault = fail(open_api(interrupts, lambda _: stream(play())))
    finally:
        interrupts.close()

    assert fault.kind is FaultKind.INTERRUPTED
    assert fault.usage is not None


def reply(status, **more):
    return lambda _: httpx2.Response(status, **more)


def error_body(kind, message="broken", **more):
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


TOKENS, PAST = "anthropic-ratelimit-tokens-", "2020-01-01T00:00:00Z"
RETRY_AFTER: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": "7.5"}, 7.5),
    ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
    ({"retry-after": "-3"}, 0.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00"}, 0.0),
    *(({"retry-after": odd}, None) for odd in ("nan", "inf", "1e300", "soon", "Wed, 99 Oct 2015 07:28:00 GMT")),
    ({f"{TOKENS}reset": PAST, f"{TOKENS}remaining": "0"}, 0.0),
    ({f"{TOKENS}reset": PAST, f"{TOKENS}remaining": "5"}, None),
    ({f"{TOKENS}reset": "tomorrow", f"{TOKENS}remaining": "0"}, None),
    ({f"{TOKENS}reset": PAST}, 0.0),
    ({"anthropic-ratelimit-unified-reset": "1577836800"}, 0.0),
    ({"anthropic-ratelimit-unified-reset": "9" * 30}, None),
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
]


def test_reads_when_to_come_back(interrupts):
    """Seconds, dates and reset times; nonsense is no time at all. Google says it in the body."""
    assert [headers for headers, wait_s in RETRY_AFTER if find_retry_after(headers) != wait_s] == []
    details = [7, {"@type": "x"}, {"retryDelay": "soon"}, {"retryDelay": "31s"}]
    body = error_body("rate_limit_error", details=details)
    fault = fail(open_api(interrupts, reply(429, headers={"retry-after": "7"}, json=body)))
    assert (fault.kind, fault.retry_after_s) == (FaultKind.LIMIT, 31.0)


def test_an_error_keeps_the_endpoints_words_and_its_id(interrupts):
    """One line, whatever the body is."""
    handler = reply(500, headers={"request-id": "req_1"}, json=error_body("api_error", "two\nlines"))
    assert fail(open_api(interrupts, handler)).message == "HTTP 500 api_error: two lines (request req_1)"
    assert fail(open_api(interrupts, reply(500))).message == "HTTP 500: no body"
    assert fail(open_api(interrupts, reply(500, headers={"x-should-retry": "false"}))).kind is FaultKind.REQUEST
    assert len(fail(open_api(interrupts, reply(502, text="<html>\n" + "x" * 9_000))).message) < 600


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


def test_limits_of_the_users_own_need_nobody_elses(interrupts):
    """A gateway's model is used with what the settings say of it, whatever the Models API says or does not."""
    own = ModelSettings(window_tokens=200_000, max_output_tokens=16_000)
    for handler in (
        reply(404, text="not here"),
        reply(404, json=error_body("not_found_error")),
        reply(405),
        reply(501),
        reply(200, json={"id": "glm-4.6"}),
        reply(200, json={"id": "glm-4.6", "max_input_tokens": 8, "max_tokens": 8}),
    ):
        info = get_model(make_line(open_api(interrupts, handler), []), "glm-4.6", own)
        assert (info.window_tokens, info.max_output_tokens, info.source) == (200_000, 16_000, "settings")


def test_the_way_to_use_a_model_that_nobody_knows_is_said(interrupts):
    """With the table that its limits belong into."""
    for window, words in (
        (None, "http://endpoint.invalid gives no limits for 'glm-4.6', and"),
        (3, "holds no session"),
    ):
        line = make_line(open_api(interrupts, reply(404)), [])
        with pytest.raises(RunnerError, match=words) as raised:
            get_model(line, "glm-4.6", ModelSettings(window_tokens=window, max_output_tokens=window))
        assert '[models."glm-4.6"]' in str(raised.value.hint)


def test_what_is_wrong_with_an_endpoint_is_said(interrupts):
    """Before anything starts, in words that the user can act on: also an address that is none, or where nobody is."""
    no_api = "does not answer like a Messages API"
    bad_key = error_body("authentication_error", "bad key")
    rows: list[tuple[Any, str, str]] = [
        (reply(200, text="<html>log in</html>"), "", no_api),
        (reply(200, content=b"\xff"), "", no_api),
        (reply(401, json=bad_key), "", "HTTP 401 authentication_error: bad key"),
        (reply(400, json=error_body("invalid_request_error")), "", "HTTP 400"),
        (reply(529, json=error_body("overloaded_error")), "", "HTTP 529"),
        *((None, url, "cannot be reached") for url in ("http://127.0.0.1:9", "http://[::1", "not a url", "ftp://x")),
    ]
    for handler, base_url, words in rows:
        given = {"ANTHROPIC_BASE_URL": base_url} if base_url else {}
        with pytest.raises(RunnerError, match=words) as raised:
            get_model(make_line(open_api(interrupts, handler, **given), []), "claude-opus-5-5")
        assert raised.value.hint, words


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


def test_certificates_that_are_not_there_are_the_users_to_name_where_tls_is_spoken(monkeypatch, tmp_path):
    """The client reads them when it is made, which takes a tenth of the way to the first request."""
    file = tmp_path / "bundle.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    for _ in range(2):
        with pytest.raises(RunnerError, match=re.escape(f"cannot be read (SSL_CERT_FILE={file}")):
            open_http("https://127.0.0.1:9", 5)
        file.write_text("no certificate")
    with open_http("http://127.0.0.1:9", 5) as client:
        assert client.base_url.scheme == "http"


def test_what_cannot_be_a_key_is_refused_without_showing_it():
    """An HTTP client would print it."""
    for key in ("", "s3cret s3cret", "s3cret\n", "“s3cret”"):
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


def test_what_the_endpoint_was_told_in_confidence_is_not_shown(interrupts):
    """Neither keys nor parts of the address, whoever says them back, and in whatever words."""
    for handler in (
        None,
        reply(401, json=error_body("authentication_error", ECHO)),
        reply(400, text=ECHO),
        reply(529, text=ECHO),
        reply(307, headers={"location": f"http://elsewhere.invalid/?{ECHO}"}),
        lambda _: stream([render({"type": "error", "error": {"type": "api_error", "message": ECHO}})]),
        lambda _: stream([f"data: {ECHO}\n\n".encode()]),
    ):
        api = open_api(interrupts, handler, **SECRETS)
        told = [fail(api).message]
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
    fault = fail(api)
    with pytest.raises(RunnerError, match=r"it sends us to http://elsewhere\.invalid/v1/messages"):
        get_model(make_line(api, []), "claude-opus-5-5")

    assert fault.kind is FaultKind.USER
    assert {httpx2.URL(url).host for url in asked} == {"endpoint.invalid"}


def test_of_a_long_error_the_beginning_is_read(interrupts):
    """Its words are there, and patterns take their time on what is long."""
    read = []

    def pieces():
        for n in range(10_000):
            read.append(n)
            yield b"tokens " * 1_000

    fault = fail(open_api(interrupts, lambda _: httpx2.Response(500, stream=Pieces(pieces()))))

    assert fault.kind is FaultKind.INFRA
    assert len(read) < 12


def test_a_proxy_that_cannot_be_used_is_called_by_its_name(interrupts, monkeypatch):
    """SOCKS needs a package."""
    for name, proxy, words in (
        ("ALL_PROXY", "socks5://127.0.0.1:1080", "the package socksio is not installed"),
        ("HTTP_PROXY", "nonsense://x", "Unknown scheme for proxy"),
        ("HTTP_PROXY", "http://a:b:c", "through the proxy of HTTP_PROXY=a:b:c"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(name, proxy)
            with pytest.raises(RunnerError, match=words):
                get_model(make_line(open_api(interrupts), []), "claude-opus-5-5")


def test_a_proxy_on_the_way_is_named(interrupts, monkeypatch):
    """It may be what fails; its password is nobody's."""
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api = open_api(interrupts, ANTHROPIC_BASE_URL="http://endpoint.invalid")
    via = "(through the proxy of HTTP_PROXY=127.0.0.1:9)"
    with pytest.raises(RunnerError, match=rf"cannot be reached: .*{re.escape(via)}$") as told:
        api.find_model("claude-opus-5-5")
    fault = fail(api)
    assert fault.message.endswith(via)
    assert "secret" not in fault.message + str(told.value)
