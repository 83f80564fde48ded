"""A session uses one connection for all its requests, and an endpoint that never ends a response costs no answer."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any

from relay.base.interrupts import Interrupts
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import open_api
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.runners.test_api import REQUEST, WHOLE
from tests.runners.test_wire import serving

SCRIPT = json.dumps({"sessions": [{"repeat": True, "turns": [{"text": "Hello."}]}]})


class Answering(BaseHTTPRequestHandler):
    """Answers each request; may never end a response."""

    protocol_version = "HTTP/1.1"
    opened: list[Any]
    ends: bool

    def setup(self) -> None:
        super().setup()
        self.opened.append(self)

    def do_POST(self) -> None:  # the standard library's name
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(WHOLE), WHOLE) + (b"0\r\n\r\n" if self.ends else b""))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_connections_are_used_again_when_the_response_was_read_to_its_end() -> None:
    """A new one means a new handshake; where the end never comes the answer counts and the connection goes."""
    for ends, connections in ((True, 1), (False, 2)):
        opened: list[Any] = []
        interrupts = Interrupts()
        with serving(Answering, opened=opened, ends=ends) as url:
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
            with open_api(environ=environ, interrupts=interrupts, idle_timeout_s=20) as api:
                answers = [api.send(REQUEST, on_block=lambda _: None) for _ in range(2)]
        interrupts.close()
        assert all(isinstance(answer, Answer) for answer in answers)
        assert len(opened) == connections


def test_the_sdk_loads_while_others_are_waited_for(tmp_path) -> None:
    """From the first question for a model on, which is answered meanwhile; nobody waits who holds no session."""
    (tmp_path / "anthropic.py").write_text("import builtins\nbuiltins.begun.set()\nbuiltins.going.wait()\n")
    code = """
import builtins, sys, threading
from relay.base.interrupts import Interrupts
from relay.runners.messages.api import open_api

builtins.begun, builtins.going = threading.Event(), threading.Event()
environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": sys.argv[1]}
with open_api(environ=environ, interrupts=Interrupts(), idle_timeout_s=20) as api:
    print("anthropic" in sys.modules, api.find_model("claude-opus-5-5").source)
    begun.wait()
going.set()
for thread in threading.enumerate():
    if thread.name == "relay-sdk":
        thread.join()
"""
    with serve(parse_script(SCRIPT)) as server:
        words = (sys.executable, "-c", code, server.base_url)
        own = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=own, timeout=60)
    assert done.stdout.splitlines() == ["False models api"]
