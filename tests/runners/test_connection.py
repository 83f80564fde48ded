"""A session uses one connection for all its requests, and an endpoint that never ends a response costs no answer."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relay.base.interrupts import Interrupts
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import MessagesApi, open_api
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

SCRIPT = json.dumps({"sessions": [{"repeat": True, "turns": [{"text": "Hello."}]}]})


class Relay:
    """A port that passes everything on to another, counts connections, and may swallow the end of a response."""

    def __init__(self, target: int, *, swallow: bytes = b"") -> None:
        self.count = 0
        self._target, self._swallow = target, swallow
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.count += 1
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                self._start(self._pass_on, client, server, b"")
                self._start(self._pass_on, server, client, self._swallow)

    def _pass_on(self, source: socket.socket, sink: socket.socket, swallow: bytes) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data.removesuffix(swallow))
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End every connection and wait until nobody uses one."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for one in self._sockets:
            one.close()


@contextlib.contextmanager
def open_through(swallow: bytes) -> Iterator[tuple[MessagesApi, Relay]]:
    interrupts = Interrupts()
    with serve(parse_script(SCRIPT)) as server:
        relay = Relay(int(server.base_url.rpartition(":")[2]), swallow=swallow)
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": relay.url}
        with open_api(environ=environ, interrupts=interrupts, idle_timeout_s=20) as api:
            yield api, relay
        relay.close()
    interrupts.close()


def ask(api: MessagesApi, n: int) -> object:
    message = {"role": "user", "content": f"Say it {n} times."}
    request = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [message]}
    return api.send(request, on_block=lambda _: None)


@pytest.mark.parametrize(("swallow", "connections"), [(b"", 1), (b"0\r\n\r\n", 2)])
def test_connections_are_used_again_when_the_response_was_read_to_its_end(swallow: bytes, connections: int) -> None:
    """A new one means a new handshake; where the end never comes the answer counts and the connection goes."""
    with open_through(swallow) as (api, relay):
        answers = [ask(api, n) for n in range(2)]

        assert [isinstance(answer, Answer) and answer.text for answer in answers] == ["Hello.", "Hello."]
        assert relay.count == connections


def test_the_sdk_loads_while_others_are_waited_for(tmp_path) -> None:
    """From the first question for a model on, which is answered meanwhile; nobody waits who holds no session.

    The garbage collector rests until then, and no longer.
    """
    (tmp_path / "anthropic.py").write_text("import builtins\nbuiltins.begun.set()\nbuiltins.going.wait()\n")
    code = """
import builtins, gc, sys, threading
from relay.base.interrupts import Interrupts
from relay.runners.messages.api import open_api

builtins.begun, builtins.going = threading.Event(), threading.Event()
usual_s = sys.getswitchinterval()
environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": sys.argv[1]}
with open_api(environ=environ, interrupts=Interrupts(), idle_timeout_s=20) as api:
    print("anthropic" in sys.modules, api.find_model("claude-opus-5-5").source)
    begun.wait()
    print(gc.isenabled(), sys.getswitchinterval() < usual_s)
going.set()
for thread in threading.enumerate():
    if thread.name == "relay-sdk":
        thread.join()
print(gc.isenabled(), sys.getswitchinterval() == usual_s)
"""
    with serve(parse_script(SCRIPT)) as server:
        words = (sys.executable, "-c", code, server.base_url)
        own = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=own, timeout=60)
    assert done.stdout.splitlines() == ["False models api", "False True", "True True"]
