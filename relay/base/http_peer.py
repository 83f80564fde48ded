"""HTTP on one connection, as its server: h11 frames requests and answers, and this sends and receives its bytes.

An ASGI server would bring its event loop into every run, for a few clients on one machine.
"""

import socket
from collections.abc import Iterable, Iterator
from typing import Any

import h11

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Largest request of a model's API. Source: platform.claude.com api/errors, request size limits, 2026-08-21."""
_MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers, or between two of its chunks."""
_CHUNK_BYTES = 64 * 1024
Headers = Iterable[tuple[str, str]]


class MalformedError(Exception):
    """The client sent something that is not HTTP, or broke off."""


class HttpPeer:
    """The client's side of one connection. Mutable: one request follows another, and the client may leave."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._is_heard = True
        self.command = self.path = ""
        """Method and target of the request."""
        self.headers: dict[str, str] = {}
        """Those of the request; names are in lower case."""

    def read_head(self) -> bool:
        """Take in the head of the next request, once the one before is answered; return False at the end.

        Raises:
            MalformedError: It is not a request.
        """
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return False
        head = self._take()
        if not isinstance(head, h11.Request):
            return False
        self.command, self.path = head.method.decode("latin-1"), head.target.decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return True

    def read_body(self) -> Iterator[bytes]:
        """Yield the body of the request.

        Raises:
            MalformedError: The body is not what the head announces, or ends too early.
        """
        while isinstance(part := self._take(), h11.Data):
            yield bytes(part.data)

    def _take(self) -> Any:
        try:
            while (found := self._http.next_event()) is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._say(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(self.socket.recv(_CHUNK_BYTES))
        except h11.RemoteProtocolError as error:
            raise MalformedError(f"the request is no HTTP: {error}") from None
        return found

    def begin(self, status: int, headers: Headers) -> bool:
        """Begin an answer; return False if the client is gone. Without a ``content-length`` it is sent in chunks."""
        given = [(name.encode(), value.encode("ascii", "replace")) for name, value in headers]
        return self._say(h11.Response(status_code=status, headers=given))

    def send(self, data: bytes) -> bool:
        """Send a part of the body; return False if the client is gone."""
        return self._say(h11.Data(data=data))

    def end(self) -> bool:
        """End the answer; return False if the client is gone."""
        return self._say(h11.EndOfMessage())

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer, if none has begun."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self.begin(status, [*headers, ("content-length", str(len(body)))])
            if self.command != "HEAD":
                self.send(body)
            self.end()

    def _say(self, event: h11.Event) -> bool:
        data = self._http.send(event)
        if data and self._is_heard:
            try:
                self.socket.sendall(data)
            except OSError:
                self._is_heard = False
        return self._is_heard
