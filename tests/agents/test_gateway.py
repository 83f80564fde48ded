"""The gateway between a client and the rehearsal server: what passes, what is held, what is read."""

import gzip
import http.client
import itertools
import json
import queue
import socket
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx2

from relay.base.http_peer import MAX_BODY_BYTES
from relay.runners.agents.gateway import (
    HeldRequest,
    Passed,
    RejectedRequest,
    Route,
    serve_agent,
)
from relay.runners.messages.api import open_wire
from relay.runners.messages.connection import FaultKind
from relay.runners.messages.credentials import Credential, CredentialError, Proof
from relay.runners.messages.endpoint import BEDROCK, FRAMES, GEMINI, OPENAI, Way, find_own_secrets
from relay.runners.messages.reading import most_answer_bytes
from relay.sandbox.openings import listen
from relay.session.usage import Usage
from tests.clouds import render_frames
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

MARK = b"mark-1"
KEY = "sk-real-key-of-the-user"
begin = ThreadPoolExecutor().submit
TOOLS = [{"name": "bash", "description": "run", "input_schema": {"type": "object"}}]
BODY = {
    "model": "claude-opus-5-5", "max_tokens": 1000, "stream": True, "tools": TOOLS,
    "messages": [{"role": "user", "content": "work mark-1"}],
}  # fmt: skip
SAY = "sessions: [{repeat: true, turns: [{text: 'hello there', repeat: forever}]}]"


class Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def make_place(parent):
    """Return a new directory for one row of a table; a socket's path is short."""
    return Path(mkdtemp(prefix="", dir=parent))


@contextmanager
def gateway(script, place, keep=lambda _: None, room=MAX_BODY_BYTES):
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with serve(parse_script(script)) as server:
        environ = {"ANTHROPIC_API_KEY": "sk-real-key-of-the-user", "ANTHROPIC_BASE_URL": server.base_url}
        with closing(open_wire(environ, 5.0)) as wire:
            secrets = find_own_secrets(environ)
            route = Route(wire=wire, mark=MARK, secrets=secrets, tell=told.put, keep=keep, left_bytes=room)
            with listen(place / "socket", partial(serve_agent, route)):
                yield server, told, place / "socket"


def ask(path, body, *, method="POST", target="/v1/messages", headers=None):
    connection = Unix(path)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, target, data, headers or {"x-api-key": "an agent's own"})
    response = connection.getresponse()
    found = response.status, dict(response.headers), response.read()
    connection.close()
    return found


def ask_released(path, told, body, **how):
    """Ask, and let the request go; return the answer and what the gateway told."""
    asked = begin(ask, path, body, **how)
    held = told.get(timeout=20)
    held.release.set_result(None)
    passed = told.get(timeout=20)
    return asked.result(), held, passed


@contextmanager
def played(answer, place, **given):
    """Open a gateway whose endpoint is a function of requests; yield what is told, and its socket."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    transport = httpx2.MockTransport(answer)
    environ = {"ANTHROPIC_API_KEY": KEY}
    with closing(open_wire(environ, 5.0, given.get("way", Way()), transport)) as wire:
        route = Route(wire=wire, mark=MARK, secrets=(KEY,), tell=told.put, **given)
        with listen(place / "socket", partial(serve_agent, route)):
            yield told, place / "socket"


def test_an_answer_without_end_is_cut_where_it_is_longer_than_was_asked_for(tmp_path):
    """It is broken off as endpoints do it, and may be billed."""
    ping = b"event: ping\ndata: %b\n\n" % (b"x" * 200_000)
    sent = itertools.count()
    pieces = (ping for _ in sent)
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=pieces)
    with played(lambda _: answer, tmp_path) as (told, path):
        asked = begin(ask_broken, path, "/v1/messages", BODY)
        told.get(timeout=20).release.set_result(None)
        passed = told.get(timeout=20)
        asked.result()

    assert "the answer is longer than the 1,000 tokens that it may have" in passed.fault.message
    assert (passed.fault.kind, passed.fault.may_be_billed) == (FaultKind.INFRA, True)
    assert next(sent) * len(ping) < 8 * most_answer_bytes(1_000)


ANSWER = {
    "type": "message", "model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": "hello " * 500}],
    "usage": {"input_tokens": 5, "output_tokens": 9},
}  # fmt: skip


def answer_with(data, **headers):
    """Return an endpoint that answers so."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx2.Response(
        200, headers={"content-type": "application/json", **given}, stream=httpx2.ByteStream(data)
    )


def test_an_answer_that_is_compressed_unasked_is_counted_and_passed_in_clear(tmp_path):
    text = json.dumps(ANSWER).encode()
    for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)):
        place = make_place(tmp_path)
        with played(answer_with(pack(text), content_encoding=coding), place) as (told, path):
            (status, headers, said), _, passed = ask_released(path, told, BODY)

        assert (status, said) == (200, text), coding
        assert "content-encoding" not in {name.lower() for name in headers}
        assert (passed.fault, passed.tally.usage) == (None, Usage(input_tokens=5, output_tokens=9))


def test_one_that_cannot_be_read_is_refused_and_may_be_billed(tmp_path):
    with played(answer_with(b"\x8b\x00", content_encoding="br"), tmp_path) as (told, path):
        (status, _, said), _, passed = ask_released(path, told, BODY)

    assert (status, b"compresses its answer unasked, as br" in said) == (502, True)
    assert (passed.tally, passed.fault.kind, passed.fault.may_be_billed) == (None, FaultKind.INFRA, True)


def test_what_never_reached_the_endpoint_is_not_billed(tmp_path):
    for error, may_be_billed in (
        (httpx2.ConnectError("refused"), False),
        (httpx2.ConnectTimeout("no answer"), False),
        (httpx2.ReadTimeout("silent"), True),
        (httpx2.RemoteProtocolError("gone"), True),
    ):

        def fail(_, error=error):
            raise error

        with played(fail, make_place(tmp_path)) as (told, path):
            (status, _, _), _, passed = ask_released(path, told, BODY)

        assert (status, passed.tally, passed.fault.kind) == (502, None, FaultKind.INFRA), error
        assert passed.fault.may_be_billed == may_be_billed, error


def test_of_headers_only_those_pass_that_are_known_for_what_they_say(tmp_path):
    """Others name who pays, lead a company's gateway elsewhere, or tell the agent whose the key is."""
    seen: list[Any] = []
    text = json.dumps(ANSWER).encode()
    told_of = {"request_id": "req_1", "retry_after": "7", "x_should_retry": "true"}
    kept = {"anthropic_organization_id": "org", "set_cookie": "a=b", "x_ratelimit_limit": "9", "via": "1.1 proxy"}

    def answer(request):
        seen.append(request)
        return answer_with(text, **told_of, **kept)(request)

    asked = {
        "x-api-key": "an agent's own", "accept-encoding": "gzip, br", "anthropic-beta": "effort-2025-11-24",
        "x-stainless-os": "Linux", "user-agent": "agent/1", "OpenAI-Organization": "another", "cookie": "a=b",
        "x-goog-user-project": "another", "Helicone-Target-URL": "https://elsewhere.example",
        "content-encoding": "gzip", "x-http-method-override": "DELETE",
    }  # fmt: skip
    target = "/v1/messages?beta=true&key=an-agents-own&$httpHeaders=x&beta=/../../files"
    with played(answer, tmp_path) as (told, path):
        (_, headers, _), _, _ = ask_released(path, told, BODY, target=target, headers=asked)

    passed = {name.lower() for name in headers} - {"transfer-encoding"}
    assert passed == {"content-type", *(name.replace("_", "-") for name in told_of)}
    assert {name for name in asked if name.lower() in seen[0].headers} == {
        *("accept-encoding", "anthropic-beta", "x-stainless-os", "user-agent")
    }
    assert seen[0].headers["accept-encoding"] == "identity"
    assert str(seen[0].url).partition("/v1")[2] == "/messages?beta=true"


def test_the_key_goes_in_the_header_that_the_agent_has_it_in(tmp_path):
    """A company's gateway may know one of them only. What is a token, and no API key, goes as a bearer's always."""
    bearer = {"authorization": f"Bearer {KEY}"}
    for key, said, sent in (
        (KEY, {"x-api-key": "held-by-relay"}, {"x-api-key": KEY}),
        (KEY, {"authorization": "Bearer held-by-relay"}, bearer),
        ("", {"x-api-key": "held-by-relay"}, bearer),
    ):
        seen: list[Any] = []

        def answer(request, seen=seen):
            seen.append(request)
            return answer_with(json.dumps(ANSWER).encode())(request)

        with played(answer, make_place(tmp_path), api_key=key) as (told, path):
            ask_released(path, told, BODY, headers=said)

        names = ("x-api-key", "authorization")
        assert {name: seen[0].headers[name] for name in names if name in seen[0].headers} == sent


def test_the_next_request_of_a_session_is_told_behind_what_the_one_before_it_cost(tmp_path):
    """The agent has the whole answer, and asks again, while relay still writes down what passed."""
    written = threading.Event()
    with gateway(SAY, tmp_path, lambda _: written.wait(20)) as (_, told, path):
        first = begin(ask, path, BODY)
        told.get(timeout=20).release.set_result(None)
        answer = first.result()
        again = begin(ask, path, BODY)
        aside = begin(ask, path, {**BODY, "tools": []})
        held = told.get(timeout=20)
        held.release.set_result("not now")
        assert not held.request.is_main
        written.set()
        assert isinstance(told.get(timeout=20), Passed)
        told.get(timeout=20).release.set_result("not now")
        again.result()
        aside.result()
    assert answer[0] == 200


def test_a_command_that_asks_with_the_sessions_mark_does_not_pose_as_its_conversation(tmp_path):
    """It asks for less than the conversation began with, which only grows; that is counted, and moves no gauge."""
    first = {"role": "user", "content": "work mark-1"}
    work = {**BODY, "system": "You are at work. " * 100}
    tiny = {**BODY, "messages": [first]}
    more = [first, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    found = []
    with gateway(SAY, tmp_path) as (_, told, path):
        for body in (work, tiny, {**work, "messages": more}):
            _, held, passed = ask_released(path, told, body)
            found.append((held.request.is_main, passed.tally.usage is not None))
    assert found == [(True, True), (False, True), (True, True)]


def test_a_request_is_sent_for_as_long_an_answer_as_it_was_let_go_for(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        asked = begin(ask, path, BODY)
        held = told.get(timeout=20)
        held.release.set_result(40)
        passed = told.get(timeout=20)
        assert asked.result()[0] == 200
    assert server.requests[0].body == {**BODY, "max_tokens": 40}
    assert passed.request is held.request


def test_a_request_waits_until_it_is_let_go_and_its_answer_is_counted(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        asked = begin(ask, path, BODY)
        held = told.get(timeout=20)
        assert type(held) is HeldRequest
        assert held.request.is_main
        assert server.requests == []
        held.release.set_result(None)
        passed = told.get(timeout=20)

        status, _, text = asked.result()
        assert (status, b"hello there" in text) == (200, True)
        assert (passed.fault, passed.tally.stop_reason, passed.tally.model) == (None, "end_turn", "claude-opus-5-5")
        reported = server.requests[0].usage
        assert passed.tally.usage.output_tokens == reported["output_tokens"]
        assert passed.tally.usage.prompt_tokens == reported["input_tokens"]


def test_the_endpoint_gets_relays_key_and_the_agent_never_sees_it(tmp_path):
    script = (
        "sessions: [{turns: [{text: x, fault: {kind: status, status: 403, message: bad sk-real-key-of-the-user}}]}]"
    )
    with gateway(script, tmp_path) as (_, told, path):
        (status, headers, text), _, passed = ask_released(path, told, BODY)

    assert status == 403
    assert b"sk-real" not in text
    assert "sk-real" not in str(headers)
    assert passed.fault.kind is FaultKind.USER
    assert "sk-real" not in passed.fault.message


def test_a_request_that_is_refused_is_never_sent(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        asked = begin(ask, path, BODY)
        told.get(timeout=20).release.set_result("the session has ended")
        answer = asked.result()
        assert answer[0] == 400
        assert b"the session has ended" in answer[2]
        assert server.requests == []


COUNTED = json.dumps({name: BODY[name] for name in ("model", "messages")}).encode()
REACHED: list[tuple[str, str, bytes, int]] = [
    ("POST", "/v1/files", b"{}", 404),
    ("POST", "/v1/messages/batches", b"{}", 404),
    ("GET", "/v1/models/../files", b"", 404),
    ("GET", "http://elsewhere.example/v1/models", b"", 404),
    ("HEAD", "/", b"", 404),
    *(("POST", "/v1/messages", body, 400) for body in (b"[" * 100_000, b"nothing", b"[]", b'{"max_tokens": true}')),
    ("GET", "/v1/models/claude-opus-5-5", b"", 200),
    ("POST", "/v1/messages/count_tokens", COUNTED, 200),
]


def test_only_models_are_in_reach(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        for method, target, body, status in REACHED:
            before = len(server.requests)
            assert ask(path, body, method=method, target=target)[0] == status, (method, target, body[:20])
            assert [type(told.get()) for _ in range(told.qsize())] == [RejectedRequest] * (status == 400), body[:20]
            assert len(server.requests) - before == (status == 200), target


FAULTS: list[tuple[str, FaultKind, bool, bool]] = [
    ("{kind: overloaded}", FaultKind.INFRA, False, False),
    ("{kind: rate_limit, retry_after: 7}", FaultKind.LIMIT, False, False),
    ("{kind: overflow}", FaultKind.OVERFLOW, False, False),
    ("{kind: drop, how: rst}", FaultKind.INFRA, False, True),
    ("{kind: cut, how: rst}", FaultKind.INFRA, True, True),
    ("{kind: cut, how: end}", FaultKind.INFRA, True, True),
    ("{kind: error_event}", FaultKind.INFRA, True, True),
    ("{kind: error_event, after_events: 0}", FaultKind.INFRA, False, False),
    ("{kind: spend_limit}", FaultKind.USER, False, False),
]


def test_what_went_wrong_is_known_whatever_the_agent_makes_of_it(tmp_path):
    for fault, kind, has_usage, may_be_billed in FAULTS:
        script = f"sessions: [{{turns: [{{text: 'a text of some length', fault: {fault}}}]}}]"
        with gateway(script, make_place(tmp_path)) as (_, told, path):
            asked = begin(ask_broken, path, "/v1/messages", BODY)
            told.get(timeout=20).release.set_result(None)
            passed = told.get(timeout=20)
            asked.result()
        assert (passed.fault.kind, passed.fault.may_be_billed) == (kind, may_be_billed), fault
        assert (passed.tally is not None and passed.tally.usage is not None) == has_usage, fault


def test_a_body_in_chunks_is_read(tmp_path):
    with gateway(SAY, tmp_path) as (_, told, path):

        def pieces():
            data = json.dumps(BODY).encode()
            yield data[:10]
            yield data[10:]

        def asking():
            with closing(Unix(path)) as connection:
                connection.request("POST", "/v1/messages", pieces(), encode_chunked=True)
                return connection.getresponse().read()

        asked = begin(asking)
        held = told.get(timeout=20)
        held.release.set_result(None)
        told.get(timeout=20)
    assert held.request.prompt_bytes == len(json.dumps(BODY))
    assert b"hello there" in asked.result()


CHUNKED = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = b"%x\r\n%b\r\n" % (len(json.dumps(BODY)), json.dumps(BODY).encode())


NO_HTTP = [
    *(CHUNKED + size + b"\r\n" + b"x" * 100 for size in (b"-1", b"+5", b"0x5", b"1_0", b"", b"z", b"f" * 30)),
    CHUNKED + b"5;" + b"x" * 100_000,
    CHUNKED + b"5\r\n{    }\r\n0\r\n\r\n",
    CHUNKED + WHOLE,
    CHUNKED + WHOLE + b"0\r\n" + b"a: b\r\n" * 20_000,
    CHUNKED + b"%x\r\n" % (MAX_BODY_BYTES + 1) + b"x" * (MAX_BODY_BYTES + 1),
    CHUNKED.replace(b"chunked", b"gzip, chunked") + WHOLE + b"0\r\n\r\n",
    CHUNKED.replace(b"transfer-encoding: chunked", b"content-length: -1"),
    CHUNKED.replace(b"transfer-encoding: chunked", b"content-length: 9") + b"{}",
    CHUNKED.replace(b"transfer-encoding: chunked", b"content-length: 99999999999"),
    CHUNKED.replace(b"host: x", b"x: " + b"y" * 100_000),
    b"POST /v1/messages\r\n\r\n",
]


def test_what_is_no_http_is_turned_away_before_it_is_held(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        for said in NO_HTTP:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(20)
                peer.connect(str(path))
                with suppress(OSError):  # it does not read on
                    peer.sendall(said)
                    peer.shutdown(socket.SHUT_WR)
                answer = b""
                with suppress(ConnectionResetError):
                    answer = peer.recv(65536)
            assert answer[9:12] in {b"", b"400", b"413", b"501"}, said[:120]
            assert told.empty(), said[:120]
        assert server.requests == []


def test_who_waits_to_be_asked_for_a_large_body_is_asked(tmp_path):
    """Some wait for a second otherwise, and others for ever."""
    data = json.dumps(BODY).encode()
    head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(data)
    with gateway(SAY, tmp_path) as (_, told, path), socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(path))
        peer.sendall(head)
        assert peer.recv(65536).startswith(b"HTTP/1.1 100 ")
        peer.sendall(data)
        told.get(timeout=20).release.set_result("not now")
        assert peer.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_all_requests_together_hold_no_more_than_there_is_room_for(tmp_path):
    """A further one is refused; when one is over, there is room again."""
    size = len(json.dumps(BODY))
    with gateway(SAY, tmp_path, room=size + 20_000) as (server, told, path):
        first = begin(ask, path, BODY)
        held = told.get(timeout=20)
        status, _, text = ask(path, {**BODY, "metadata": {"user_id": "x" * 20_000}})
        assert (status, b"under way" in text) == (503, True)
        held.release.set_result("not now")
        first.result()
        answer, _, passed = ask_released(path, told, {**BODY, "metadata": {"user_id": "x" * 10_000}})
        assert (answer[0], passed.fault) == (200, None)
        assert len(server.requests) == 1


def test_an_answer_for_which_there_is_no_room_passes_and_counts_as_one_that_broke_off(tmp_path):
    """Its lines are held until they end."""
    tail = json.dumps({"type": "message", "content": [{"type": "text", "text": "x" * 100_000}], "usage": {}})
    with played(answer_with(tail.encode()), tmp_path, left_bytes=2_000) as (told, path):
        (status, _, text), _, passed = ask_released(path, told, BODY)

    assert (status, text) == (200, tail.encode())
    assert (passed.fault.message, passed.fault.may_be_billed) == ("the answer broke off", True)


def test_a_session_that_ends_lets_nothing_pass(tmp_path):
    with gateway(SAY, tmp_path) as (server, told, path):
        asked = begin(ask, path, BODY)
        told.get(timeout=20).release.cancel()
        answer = asked.result()
        assert answer[0] == 400
        assert server.requests == []


TOOL = {"type": "function", "name": "bash", "parameters": {"type": "object"}}
FOREIGN = {
    "responses": (OPENAI, "/v1/responses", {"model": "gpt-x", "stream": True, "tools": [TOOL], "input": "mark-1"}),
    "chat": (
        OPENAI, "/v1/chat/completions",
        {"model": "gpt-x", "stream": True, "stream_options": {"include_usage": True},
         "tools": [{"type": "function", "function": TOOL}], "messages": [{"role": "user", "content": "mark-1"}]},
    ),
    "gemini": (
        GEMINI, "/v1beta/models/gpt-x:streamGenerateContent?alt=sse",
        {"tools": [{"functionDeclarations": [{"name": "bash"}]}], "contents": [{"parts": [{"text": "mark-1"}]}]},
    ),
}  # fmt: skip
OWN_CARD = "model: {id: gpt-x, window: 50000, min_cache_tokens: 1}\n"


ENDS = {
    "": None,
    "{kind: overloaded}": FaultKind.INFRA,
    "{kind: overflow}": FaultKind.OVERFLOW,
    "{kind: cut, how: rst}": FaultKind.INFRA,
}


def test_other_apis_pass_to_their_endpoint_with_its_key_and_every_token_is_counted(tmp_path):
    for (name, (family, target, body)), (fault, kind) in itertools.product(FOREIGN.items(), ENDS.items()):
        given = f", fault: {fault}" if fault else ""
        script = f"{OWN_CARD}sessions: [{{turns: [{{text: 'hello there', repeat: 2{given}}}]}}]"
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        place, way = make_place(tmp_path) / "socket", Way(family=family)
        with serve(parse_script(script)) as server:
            environ = {family.keys[0]: "sk-real-key-of-the-user", family.base: server.base_url + family.root}
            with closing(open_wire(environ, 5.0, way)) as wire:
                route = Route(wire=wire, mark=MARK, secrets=find_own_secrets(environ), tell=told.put, way=way)
                with listen(place, partial(serve_agent, route)):
                    asked = begin(ask_broken, place, target, body)
                    held = told.get(timeout=20)
                    assert (held.request.is_main, held.request.model) == (True, "gpt-x")
                    held.release.set_result(None)
                    passed = told.get(timeout=20)
                    asked.result()
        assert (passed.fault and passed.fault.kind) == kind, (name, fault)
        [request] = server.requests
        assert request.headers[family.key_header[0]] == "***" or family is GEMINI
        if not fault:
            used, bill = passed.tally.usage, request.usage or {}
            counted = used.input_tokens, used.cache_read_tokens, used.cache_write_tokens, used.output_tokens
            names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
            assert counted == tuple(bill[part] for part in names), name
            assert (passed.tally.stop_reason, passed.tally.model) == ("end_turn", "gpt-x")


def ask_broken(path, target, body):
    """Ask as an agent does that has a key of its own and may be cut off."""
    headers = {"x-goog-api-key": "an agent's own", "authorization": "Bearer x"}
    with closing(Unix(path)) as connection, suppress(OSError, http.client.HTTPException):
        connection.request("POST", target, json.dumps(body).encode(), headers)
        with closing(connection.getresponse()) as response:
            response.read()


CLOUD = Way(
    family=BEDROCK,
    needs_sdk=True,
    credential=Credential("it", lambda _: Proof(value="t", secrets=()), advice=""),
    find_place=lambda: {"base_url": None, "runtime_url": "http://cloud.invalid", "aws_region": "r"},
)


def test_a_cloud_is_asked_for_what_it_has_an_address_for(tmp_path):
    """Model and stream become part of the address: a command of the session can name any model."""
    streams = "is asked for nothing but streams of a model"
    rows: list[tuple[str, dict[str, Any], int, str]] = [
        ("/v1/messages/count_tokens", {}, 404, "provider = bedrock answers nothing but messages"),
        ("/v1/models/claude-opus-5-5", {}, 404, "provider = bedrock answers nothing but messages"),
        *(("/v1/messages", {"model": model}, 400, streams) for model in ("../../v1/files", "m?x=1")),
        ("/v1/messages", {"stream": False}, 400, streams),
    ]
    seen: list[Any] = []
    with played(seen.append, tmp_path, way=CLOUD) as (told, path):
        for target, change, status, words in rows:
            method = "GET" if "models" in target else "POST"
            body = b"" if method == "GET" else {**BODY, **change}
            found, _, said = ask(path, body, target=target, method=method)
            assert (found, seen) == (status, []), (target, change)
            assert words in said.decode()
            assert [type(told.get()) for _ in range(told.qsize())] == [RejectedRequest] * (status == 400)


def test_a_text_that_a_cloud_s_client_cannot_write_is_answered_and_costs_nothing(tmp_path):
    """Agents cut a pair of surrogates in two; nothing was sent."""
    seen: list[Any] = []
    body = {**BODY, "messages": [{"role": "user", "content": "half \ud83d"}]}
    with played(seen.append, tmp_path, way=CLOUD) as (told, path):
        answer, _, passed = ask_released(path, told, body, headers={"content-type": "application/json"})
    assert (answer[0], seen) == (400, [])
    assert (passed.fault.kind, passed.fault.may_be_billed) == (FaultKind.REQUEST, False)


def test_a_cloud_gets_the_request_in_its_form_and_the_agents_betas(tmp_path):
    seen: list[Any] = []

    def answer(request):
        seen.append((request.url.path, json.loads(request.read())))
        return httpx2.Response(403, json={"message": "no"})

    headers = {"anthropic-beta": "one-beta,two-beta", "content-type": "application/json"}
    with played(answer, tmp_path, way=CLOUD) as (told, path):
        _, _, passed = ask_released(path, told, BODY, headers=headers)
    [(path, sent)] = seen
    kept = {name: value for name, value in BODY.items() if name not in {"model", "stream"}}
    assert path == "/model/claude-opus-5-5/invoke-with-response-stream"
    assert sent == {**kept, "anthropic_beta": ["one-beta", "two-beta"], "anthropic_version": "2026-10-21"}
    assert (passed.fault.kind, passed.fault.may_be_billed) == (FaultKind.USER, False)


def test_a_key_that_cannot_be_had_is_a_fault_and_sends_nothing(tmp_path):
    for passes, kind, status in ((True, FaultKind.INFRA, 502), (False, FaultKind.USER, 401)):

        def fetch(_fresh, passes=passes):
            raise CredentialError("the vault is locked", hint="unlock it", passes=passes)

        seen: list[Any] = []
        way = Way(credential=Credential("it", fetch, advice=""))
        with played(seen.append, make_place(tmp_path), way=way) as (told, path):
            (found, _, said), _, passed = ask_released(path, told, BODY)
        assert (found, seen) == (status, [])
        assert "the vault is locked; unlock it" in said.decode()
        assert (passed.fault.kind, passed.fault.may_be_billed) == (kind, False)


def test_frames_that_break_off_are_no_whole_answer(tmp_path):
    """They reach the agent as events as far as they came, and may be billed."""
    frames = render_frames(b'data: {"type": "message_start", "message": {"model": "m"}}\n')
    answer = httpx2.Response(200, headers={"content-type": FRAMES}, content=frames + b"\0\0\0\1rubbish")
    with played(lambda _: answer, tmp_path, way=CLOUD) as (told, path):
        asked = begin(ask_broken, path, "/v1/messages", BODY)
        told.get(timeout=20).release.set_result(None)
        passed = told.get(timeout=20)
        asked.result()
    assert (passed.fault.kind, passed.fault.may_be_billed) == (FaultKind.INFRA, True)
    assert "a frame of 1 bytes" in passed.fault.message
    assert (passed.tally.model, passed.tally.streamed) == ("m", True)
