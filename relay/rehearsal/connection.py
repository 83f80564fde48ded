"""HTTP on loopback: a thread per connection; its start and stop."""

import contextlib
import select
import socket
from collections.abc import Callable, Iterator, Mapping

from relay.base.errors import ConfigError
from relay.base.http_peer import MAX_BODY_BYTES, HttpPeer, MalformedError
from relay.rehearsal.wire import ApiError, RefusedError
from relay.sandbox.openings import serve_connections

_IDLE_S = 300.0
"""How long a client may neither send nor read."""
_HOST = "127.0.0.1"


class Connection(HttpPeer):
    """One client's connection, and the request that it is at."""

    def read_request_body(self) -> bytes:
        """Read the request's body; one that is too large is read to its end, so that the client reads the refusal.

        Raises:
            MalformedError: The client left, or its body is not what the head announces.
            RefusedError: It is too large.
        """
        body, size = bytearray(), 0
        for part in self.read_body():
            size += len(part)
            body += part if size <= MAX_BODY_BYTES else b""
        if size > MAX_BODY_BYTES:
            raise RefusedError(ApiError(status=413, message="Request exceeds the maximum size"))
        return bytes(body)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers.

        Raises:
            ConnectionAbortedError: As `write`.
        """
        _require(self.begin(status, headers.items()))

    def write(self, data: bytes) -> None:
        """Send a piece of the body at once.

        Raises:
            ConnectionAbortedError: The client left.
        """
        _require(self.send(data))

    def wait(self, seconds: float | None) -> None:
        """Wait; None: until the client leaves or the server stops.

        Raises:
            ConnectionAbortedError: The client left, or the server stops.
        """
        if seconds == 0:
            return
        watched = select.poll()
        watched.register(self.socket, select.POLLRDHUP)  # whatever else the client sends
        _require(not watched.poll(None if seconds is None else seconds * 1000))


def _require(is_there: bool) -> None:  # noqa: FBT001  # private
    if not is_there:
        raise ConnectionAbortedError


@contextlib.contextmanager
def host_app(answer: Callable[[Connection], None], *, port: int = 0) -> Iterator[str]:
    """Answer requests on loopback until the block ends; yields its address, without ``/v1``.

    Args:
        answer: Answers one request, from any thread; an `OSError` ends the connection.
        port: 0 takes a free one.

    Raises:
        ConfigError: The address cannot be used.
    """
    peers: set[socket.socket] = set()

    def serve(peer: socket.socket) -> None:
        peers.add(peer)
        try:
            peer.settimeout(_IDLE_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or an answer waits for a delayed ACK
            connection = Connection(peer)
            with contextlib.suppress(MalformedError):
                while connection.read_head():
                    answer(connection)
        finally:
            peers.discard(peer)

    try:
        listener = socket.create_server((_HOST, port))  # everyone who can connect may play
    except OSError as error:
        raise ConfigError(f"the rehearsal server cannot listen on {_HOST}:{port}: {error}") from error
    with listener:
        serve_connections(listener, serve)
        try:
            yield f"http://{_HOST}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            for peer in list(peers):
                with contextlib.suppress(OSError):  # it ends by itself
                    peer.shutdown(socket.SHUT_RDWR)
