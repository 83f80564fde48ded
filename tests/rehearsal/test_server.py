"""The server's life: it starts at once, plays to many, and leaves nothing behind."""

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

import pytest

from relay.base.errors import ConfigError
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from tests.waiting import wait_until

HELLO = "sessions: [{repeat: true, turns: [{text: Hello., repeat: forever}]}]"
OPENING = [{"role": "user", "content": "Begin."}]


def count_threads() -> int:
    return sum(thread.name.startswith("opening") for thread in threading.enumerate())


def open_request(url: str, **extra: Any) -> http.client.HTTPConnection:
    """Send a streaming request and do not read its answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": OPENING, "stream": True, **extra}
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    connection.request("POST", "/v1/messages", json.dumps(body), headers)
    return connection


def test_it_stops_and_leaves_no_thread() -> None:
    """The port, which nobody else gets meanwhile, is free again afterwards."""
    with serve(parse_script(HELLO)) as player:
        with contextlib.closing(open_request(player.base_url)) as connection:
            assert connection.getresponse().status == 200
        assert count_threads() >= 1
        port = int(player.base_url.rpartition(":")[2])
        taken = f"cannot listen on 127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=taken), serve(parse_script(HELLO), port=port):
            pass
    wait_until(lambda: count_threads() == 0)  # one that has closed its connection is on its last line
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.timeout(60)
def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    """Its connection is taken away."""
    script = parse_script(f"sessions: [{{turns: [{{text: {'x' * 6_000_000}}}]}}]")
    with contextlib.ExitStack() as stack, serve(script) as player:
        request = open_request(player.base_url, model="claude-opus-5", max_tokens=128_000)
        stack.enter_context(contextlib.closing(request))
        wait_until(lambda: bool(player.state.bills))
    wait_until(lambda: count_threads() == 0)  # one that has closed its connection is on its last line


def test_a_client_that_leaves_during_a_delay_is_noticed(play: Any) -> None:
    """The server goes on to serve others."""
    table = play("sessions: [{turns: [{delay_s: 60, text: x}]}, {turns: [{text: y}]}]")
    with contextlib.closing(open_request(table.player.base_url)):
        wait_until(lambda: table.player.state.held == 1)
    wait_until(lambda: table.player.state.held == 0)
    assert table.ask([{"role": "user", "content": "Another."}]).content[-1].text == "y"


def test_a_delay_holds_each_answer_back() -> None:
    """For demonstrations."""
    script = parse_script(f"delay_s: 60\n{HELLO}")
    with serve(script) as player, contextlib.closing(open_request(player.base_url)) as connection:
        assert connection.sock is not None
        connection.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.getresponse().read()


def test_a_connection_is_kept_and_what_does_not_fit_is_refused(play: Any) -> None:
    """Two requests on one connection; a body in chunks; no HTTP; an HTTP/1.0 client, which knows no chunks."""
    port = int(play(HELLO).player.base_url.rpartition(":")[2])
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for stream in (True, False):
            body = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": OPENING, "stream": stream}
            connection.request("POST", "/v1/messages", json.dumps(body))
            sock = connection.sock
            assert b"Hello." in connection.getresponse().read()
            assert connection.sock is sock
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw, raw.makefile("rb") as came:
        raw.sendall(b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost: x\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        assert came.readline().startswith(b"HTTP/1.1 400 ")  # it has no model
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw, raw.makefile("rb") as came:
        raw.sendall(b"nonsense\r\n\r\n")
        assert came.read() == b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw, raw.makefile("rb") as came:
        data = json.dumps({"model": "claude-opus-5-5", "messages": OPENING, "stream": True}).encode()
        raw.sendall(b"POST /v1/messages HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data))
        head, _, sent = came.read().partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert sent.endswith(b"\n\n")
