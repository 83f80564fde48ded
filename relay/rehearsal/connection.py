"""HTTP on loopback: a thread per connection, on the standard library's server; its start and stop.

`http.server` keeps connections alive, reads headers within limits and starts in no time; nothing has to be installed.
Three things differ here: no name is looked up for the address, an answer may be a stream of chunks, and stopping does
not wait.
"""

import contextlib
import select
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from relay.base.errors import ConfigError
from relay.rehearsal.wire import ApiError

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Source: platform.claude.com api/errors, request size limits, 2026-08-21."""
_DRAINED_BYTES = 4 * MAX_BODY_BYTES
"""Most bytes of a refused body that are read, so that a client that is still sending can read the refusal."""
_SLICE_BYTES = 1 << 16
_IDLE_S = 300.0
"""How long a client may neither send nor read."""
_PATIENCE_S = 0.5
"""How long answers may go on when the server stops."""
_GRACE_S = 5.0
"""How long a thread may take to notice that its connection is gone."""
_LOOK_S = 3600.0
"""How often the accepting thread looks whether to stop; `Server.close_all` wakes it at once."""
_HOST = "127.0.0.1"


Answer = Callable[["Connection"], None]
"""Answers one request, from any thread; an `OSError` ends the connection."""


class Connection(BaseHTTPRequestHandler):
    """One client's connection, and the request that it is at."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer on a reused connection waits for a delayed ACK
    timeout = _IDLE_S
    server: "Server"
    _in_chunks = False

    def do_POST(self) -> None:
        """Answer a request."""
        try:
            self.server.answer(self)
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self.do_POST()

    def log_message(self, *_: Any) -> None:
        """Say nothing: the record of requests tells more."""

    def read_body(self) -> bytes | ApiError:
        """Read the request's body.

        Raises:
            ConnectionAbortedError: The client left.
        """
        told = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not (told.isascii() and told.isdigit()):
            self.close_connection = True
            return ApiError(status=411, message="content-length: header is required")
        length = int(told)
        if length <= MAX_BODY_BYTES:
            body = self.rfile.read(length)
            if len(body) < length:
                raise ConnectionAbortedError
            return body
        self.close_connection = True
        left = length if length <= _DRAINED_BYTES else 0
        while left and (part := self.rfile.read(min(left, _SLICE_BYTES))):
            left -= len(part)
        return ApiError(status=413, message="Request exceeds the maximum size")

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers; without a ``content-length`` the body is sent in chunks, as it comes."""
        old = self.request_version == "HTTP/1.0"
        self._in_chunks = not ("content-length" in headers or old)
        self.close_connection = self.close_connection or old
        fields = {**headers, **({"transfer-encoding": "chunked"} if self._in_chunks else {})}
        self.send_response_only(status)
        for name, value in (*fields.items(), ("connection", "close" if self.close_connection else "keep-alive")):
            self.send_header(name, value)
        self.end_headers()

    def write(self, data: bytes) -> None:
        """Send a piece of the body at once."""
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._in_chunks else data)

    def finish_body(self) -> None:
        """End the body normally."""
        if self._in_chunks:
            self.wfile.write(b"0\r\n\r\n")

    def wait(self, seconds: float | None) -> None:
        """Wait; None: until the client leaves or the server stops.

        Raises:
            ConnectionAbortedError: The client left, or the server stops.
        """
        if seconds == 0:
            return
        watched = select.poll()
        watched.register(self.connection, select.POLLRDHUP)  # whatever else the client sends
        if watched.poll(None if seconds is None else seconds * 1000):
            raise ConnectionAbortedError


class Server(ThreadingHTTPServer):
    """A listening server and its connections."""

    request_queue_size = 128

    def __init__(self, answer: Answer, port: int) -> None:
        self.answer = answer
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__((_HOST, port), Connection)

    def server_bind(self) -> None:
        """Bind, without looking up the name of the address as `HTTPServer` does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread."""
        given = (request, client_address)
        thread = threading.Thread(
            target=self.process_request_thread, args=given, name="relay-rehearsal-client", daemon=True
        )
        with self._guard:
            self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, on its thread."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that left; show anything else with its traceback."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close_all(self, accepting: threading.Thread) -> None:
        """Stop: no connection is accepted, waits end, and answers end within a moment or are cut."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self.shutdown()
        accepting.join(_GRACE_S)
        self.server_close()
        with self._guard:
            left = dict(self._open)
        for how, patience_s in ((socket.SHUT_RD, _PATIENCE_S), (socket.SHUT_RDWR, _GRACE_S)):
            for connection in left:
                with contextlib.suppress(OSError):
                    connection.shutdown(how)
            deadline = time.monotonic() + patience_s
            for thread in left.values():
                thread.join(max(0.0, deadline - time.monotonic()))
            left = {connection: thread for connection, thread in left.items() if thread.is_alive()}


@contextlib.contextmanager
def host_app(answer: Answer, *, port: int = 0) -> Iterator[str]:
    """Answer requests on loopback until the block ends; yields its address, without ``/v1``.

    Raises:
        ConfigError: The address cannot be used.
    """
    try:
        server = Server(answer, port)  # everyone who can connect may play
    except OSError as error:
        raise ConfigError(f"the rehearsal server cannot listen on {_HOST}:{port}: {error}") from error
    accepting = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name="relay-rehearsal", daemon=True)
    accepting.start()
    try:
        yield f"http://{_HOST}:{server.server_port}"
    finally:
        server.close_all(accepting)
