"""One connection of an agent: requests come, answers go. h11 frames them, as it does for the HTTP client: strictly."""

import socket
from collections.abc import Iterable, Iterator
from typing import Any

import h11

_MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers, or of what stands between two of its chunks."""
_CHUNK_BYTES = 64 * 1024
Headers = Iterable[tuple[str, str]]


class MalformedError(Exception):
    """What came is no HTTP, or ended before its end."""


class HttpPeer:
    """Who asks over one connection. Mutable: it says one thing after another, and may go."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._is_heard = True
        self._method = b""

    def read_head(self) -> h11.Request | None:
        """Return the head of the next request, of which everything before is answered; None behind the last.

        Raises:
            MalformedError: It is none.
        """
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head = self._take()
        if not isinstance(head, h11.Request):
            return None
        self._method = head.method
        return head

    def read_body(self) -> Iterator[bytes]:
        """Yield what the request says behind its head.

        Raises:
            MalformedError: It is not what the head says, or ends too early.
        """
        while isinstance(part := self._take(), h11.Data):
            yield bytes(part.data)

    def _take(self) -> Any:
        try:
            while (found := self._http.next_event()) is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._say(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(self._peer.recv(_CHUNK_BYTES))
        except h11.RemoteProtocolError as error:
            raise MalformedError(f"the request is no HTTP: {error}") from None
        return found

    def begin(self, status: int, headers: Headers) -> bool:
        """Begin an answer; False when nobody hears it."""
        given = [(name.encode(), value.encode("ascii", "replace")) for name, value in headers]
        return self._say(h11.Response(status_code=status, headers=given))

    def send(self, data: bytes) -> bool:
        """Go on with it; False when nobody hears it."""
        return self._say(h11.Data(data=data))

    def end(self) -> bool:
        """End it; False when nobody heard it."""
        return self._say(h11.EndOfMessage())

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Say a whole answer, if none has begun."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self.begin(status, [*headers, ("content-length", str(len(body)))])
            if self._method != b"HEAD":
                self.send(body)
            self.end()

    def _say(self, event: h11.Event) -> bool:
        data = self._http.send(event)
        if data and self._is_heard:
            try:
                self._peer.sendall(data)
            except OSError:
                self._is_heard = False
        return self._is_heard
