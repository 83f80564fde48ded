"""What goes over the wire, held against the provider's SDK: it is installed for the tests, and this is why."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from relay.base.interrupts import Interrupts
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.transport import open_http
from tests.sdks import anthropic

OWN_HEADERS = {"user-agent"}
"""What the two may say differently, besides `x-stainless-…`: relay says that it is relay."""
CUSTOM = "X-Team: a: b\nnothing\n x-name :  Zoë \nX-Team: last"
REQUEST: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 32_000,
    "system": [{"type": "text", "text": "Build.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "tools": [{"name": "write", "description": "Write.", "input_schema": {"type": "object", "properties": {}}}],
    "thinking": {"type": "adaptive", "display": "summarized"},
    "cache_control": {"type": "ephemeral"},
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Zoë's\u2028plan \U0001f3c1 </s> \\u0000"}]}],
}


class Recorder(BaseHTTPRequestHandler):
    """Keeps what it is asked and says no, so that nothing is read of the answer."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, Any]]

    def _record(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        sent = [(name.lower(), value) for name, value in self.headers.items()]
        self.seen.append({"line": self.requestline, "headers": sorted(sent), "body": body})
        self.send_response(429)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = _record  # noqa: N815  # the standard library's names

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], **fields: Any) -> Iterator[str]:
    """Serve by a handler with these fields; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), fields)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def record() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    seen: list[dict[str, Any]] = []
    with serving(Recorder, seen=seen) as url:
        yield url, seen


def ask_sdk(model: str, base_url: str) -> None:
    """Ask as one does who has read the SDK's manual: key, token and custom headers come from the environment."""
    with anthropic.Anthropic(base_url=base_url, max_retries=0, timeout=5) as client:
        with pytest.raises(anthropic.RateLimitError):
            client.models.retrieve(model)
        with (
            pytest.raises(anthropic.RateLimitError),
            client.messages.with_streaming_response.create(**REQUEST, stream=True),
        ):
            pass


def ask_relay(model: str, environ: Mapping[str, str]) -> None:
    interrupts = Interrupts()
    api = MessagesApi(environ=environ, interrupts=interrupts, idle_timeout_s=5)
    api.find_model(model)
    api.send(REQUEST, on_block=lambda _: None)
    api.close()
    interrupts.close()


def strip(request: dict[str, Any]) -> dict[str, Any]:
    """Leave out what each says of itself, and the order of the body's own fields; that of all others is kept."""
    kept = [(n, v) for n, v in request["headers"] if n not in OWN_HEADERS and not n.startswith("x-stainless-")]
    fields = [(name, json.dumps(value)) for name, value in json.loads(request["body"] or b"{}").items()]
    return {**request, "headers": kept, "body": sorted(fields)}


KEY = {"ANTHROPIC_API_KEY": "k"}


CASES: list[tuple[dict[str, str], str, str]] = [
    (KEY, "", ""),
    ({"ANTHROPIC_AUTH_TOKEN": "t"}, "/gateway/v1/", "/gateway"),  # the SDK would ask for /v1/v1/messages
    ({**KEY, "ANTHROPIC_CUSTOM_HEADERS": CUSTOM}, "", ""),
    ({**KEY, "ANTHROPIC_CUSTOM_HEADERS": "authorization: other\nX-Api-Key: more\nanthropic-beta: x"}, "", ""),
]


def test_relay_sends_what_the_sdk_sends(monkeypatch):
    """Method, address, query, every header and every field: a version of the SDK that changes one is seen here.

    But what the SDK says of itself, relay does not say.
    """
    model = "vendor/claude opus@5:1+é%41"
    for environ, path, sdk_path in CASES:
        with monkeypatch.context() as patched, record() as (url, seen):
            for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"):
                patched.delenv(name, raising=False)
            for name, value in environ.items():
                patched.setenv(name, value)
            ask_sdk(model, url + sdk_path)
            expected, seen[:] = list(seen), []
            ask_relay(model, {**environ, "ANTHROPIC_BASE_URL": url + path})
        assert [strip(request) for request in seen] == [strip(request) for request in expected], environ
        assert [len(request["body"]) for request in seen] == [len(request["body"]) for request in expected]
        assert len(seen) == 2
        for request in seen:
            names = {name for name, _ in request["headers"] if name.startswith("x-stainless-")}
            assert names <= {"x-stainless-raw-response"}
            assert dict(request["headers"])["user-agent"].startswith("relay")


def test_a_silent_connection_is_kept_alive_as_the_sdk_keeps_it():
    """A way through a gateway that forgets is lost during a long thought, and nobody says so."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
        options += [(socket.IPPROTO_TCP, getattr(socket, name))] if hasattr(socket, name) else []

    def read(client: httpx2.Client, url: str) -> list[int]:
        with client, client.stream("GET", url) as response:
            found = response.extensions["network_stream"].get_extra_info("socket")
            return [found.getsockopt(*option) for option in options]

    with record() as (url, _):
        expected = read(anthropic.DefaultHttpxClient(), url)
        assert read(open_http(url, 5), url) == expected
    assert all(expected)


def test_a_proxy_of_the_environment_is_asked(monkeypatch):
    """The endpoint has no address of its own here: only the proxy can have been asked. On this machine nobody is."""
    with record() as (url, seen):
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        ask_relay("m", {**KEY, "ANTHROPIC_BASE_URL": "http://endpoint.invalid"})
        assert seen[0]["line"] == "GET http://endpoint.invalid/v1/models/m HTTP/1.1"
        seen.clear()
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        ask_relay("m", {**KEY, "ANTHROPIC_BASE_URL": url})
    assert seen[0]["line"] == "GET /v1/models/m HTTP/1.1"
