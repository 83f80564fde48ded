"""`relay watch --serve`: serve the page of a run at work to a browser on this machine.

The standard library's server is enough: one small answer to GET on loopback needs no framework, and with a thread per
connection a client that does not read delays only itself. This module adds a limit on connections, a deadline for slow
requests, and answers without any text of the library.

A token in the address admits a client. A page of another origin does not know the token. Headers that a page cannot
choose refuse pages that guess it, and pages that reach this address by DNS rebinding.
"""

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from relay.base.errors import ConfigError

HOST = "127.0.0.1"
MOST_CONNECTIONS = 32
REQUEST_S = 5.0
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page has a stricter one of its own
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class _Server(ThreadingHTTPServer):
    """The server. Mutable: knows its connections and the deadlines of their requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, render: Callable[[], str], request_s: float) -> None:
        super().__init__((HOST, port), _PageRequest)
        self.render = render
        self.request_s = request_s
        self.token = secrets.token_urlsafe(32)
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._deadlines: dict[Any, float] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of a browser's ``Host`` header for this server."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, or close it if there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._deadlines[request] = time.monotonic() + self.request_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the connection's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._deadlines.pop(request, None)
            self._places.release()

    def note_read(self, request: Any) -> None:
        """Remove the deadline of a connection whose request has arrived."""
        self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Close connections that are past their deadline; called twice a second."""
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if now > deadline:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the client went away or sent nonsense."""


class _PageRequest(BaseHTTPRequestHandler):
    """One request. Mutable, as in the library."""

    server: _Server
    server_version, sys_version = "relay", ""

    def setup(self) -> None:
        """Set the timeout for a client that neither sends nor reads."""
        super().setup()
        self.connection.settimeout(self.server.request_s)

    def do_GET(self) -> None:  # the library's name
        """Answer."""
        self.server.note_read(self.request)
        token = self.path.removeprefix("/").removesuffix("/")
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        site = self.headers.get("Sec-Fetch-Site", "none")
        named = len(hosts) == 1 and hosts[0] in self.server.hosts
        ours = {f"http://{host}" for host in self.server.hosts}
        if not (named and set(origins) <= ours and site in {"none", "same-origin"}):  # not by its name, or for a page
            self.send_error(403)
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404)
        else:
            self._send("text/html", self.server.render())

    def _send(self, kind: str, text: str, status: int = 200) -> None:
        data = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request, with nothing of the request in the answer."""
        del message, explain
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._send("text/plain", f"{code}\n", code)

    def log_message(self, *_: object) -> None:
        """Print nothing on the terminal."""


@contextlib.contextmanager
def serve_page(render: Callable[[], str], port: int, *, request_s: float = REQUEST_S) -> Iterator[str]:
    """Serve a page on loopback while the block is open; yield its address with the token.

    Args:
        render: Returns the page as it is now; called by several threads.
        port: 0 for a free one.
        request_s: Seconds for a request to arrive, and for a client to read an answer.

    Raises:
        ConfigError: relay cannot listen on the port.
    """
    try:
        server = _Server(port, render, request_s)
    except OSError as error:
        raise ConfigError(
            f"relay cannot listen on {HOST}:{port}: {error.strerror}", hint="choose another port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="relay-page", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/{server.token}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
