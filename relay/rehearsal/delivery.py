"""Bytes on one connection, and the faults that happen there.

A response is a list of pieces (the events of a stream, or slices of a JSON body). A fault in the stream says
after how many pieces, or after how many bytes, something else happens than the next piece.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import PING, render_event
from relay.rehearsal.turns import FaultName, FaultSpec
from relay.rehearsal.wire import find_error_type

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TRANSPORT = "relay.transport"
"""Key in the ASGI scope's extensions under which the protocol leaves the connection's transport."""
DEFAULT_AFTER_EVENTS = 3
_PIECES = 8
"""Of a body that is no stream."""
_GARBAGE = "{this is not json"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: close sends RST and forgets what was not sent."""


class ConnectionEnded(Exception):  # noqa: N818  # not an error: the script wanted it, or the client left
    """Nothing more can be sent on this connection."""


@dataclass(slots=True, kw_only=True)
class Connection:
    """One request's way back to the client. Mutable: knows what was sent."""

    scope: Mapping[str, Any]
    receive: Receive
    send: Send
    stopping: asyncio.Event
    """Set when the server shuts down: nothing may wait any longer."""

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        fields = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": fields})

    async def write(self, data: bytes) -> None:
        """Send a piece of the body.

        Raises:
            ConnectionEnded: The client left.
        """
        if self._transport.is_closing():
            raise ConnectionEnded
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """End the body the proper way."""
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end(self, how: str) -> None:
        """End the connection without ending the response; `how` is ``rst`` or ``fin``.

        Raises:
            ConnectionEnded: Always.
        """
        transport = self._transport
        if how == "rst":
            raw: socket.socket | None = transport.get_extra_info("socket")
            await _let_send(transport)
            if raw is not None and not transport.is_closing():
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        else:
            transport.close()
        await self._wait_for_disconnect()
        raise ConnectionEnded

    async def wait(self, seconds: float | None) -> None:
        """Let time pass; None: until the client leaves or the server stops.

        Raises:
            ConnectionEnded: The client left, or the server is shutting down.
        """
        if seconds == 0:
            return
        gone = asyncio.ensure_future(self._wait_for_disconnect())
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            done, _ = await asyncio.wait({gone, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            stop.cancel()
            await asyncio.gather(gone, stop, return_exceptions=True)
        if stop in done:
            await self.end("rst")
        if gone in done:
            raise ConnectionEnded

    @property
    def _transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.scope["extensions"][TRANSPORT]
        return transport

    async def _wait_for_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def _let_send(transport: asyncio.Transport) -> None:
    """Give the transport a moment to hand over what was written: a reset discards its buffer."""
    for _ in range(200):
        if not transport.get_write_buffer_size() or transport.is_closing():
            return
        await asyncio.sleep(0.005)


async def deliver(
    connection: Connection,
    pieces: list[bytes],
    *,
    fault: FaultSpec | None,
    event_s: float,
    render: Callable[[str, str], bytes] | None = None,
) -> None:
    """Send the pieces of a response whose headers are sent, with a fault in between.

    `render` writes an error's type and message for the stream; None for the Messages API's way.

    Raises:
        ConnectionEnded: The fault ended the connection, or the client left.
    """
    index = _find_break(pieces, fault)
    if not event_s:  # what nothing parts is sent at once: each send wakes the client
        parts = pieces[: max(index, 0)], pieces[max(index, 0) :]
        pieces, index = [b"".join(part) for part in parts if part], min(index, 1)
    for number, piece in enumerate(pieces):
        if number == index and fault is not None and not await _break(connection, fault, pieces, number, render):
            break
        await connection.write(piece)
        if event_s:
            await connection.wait(event_s)
        else:
            await asyncio.sleep(0)
    await connection.finish()


def cut_body(body: bytes) -> list[bytes]:
    """Slice a body that is no stream, so that faults have places to happen at."""
    size = max(1, -(-len(body) // _PIECES))
    return [body[i : i + size] for i in range(0, len(body), size)]


def _find_break(pieces: list[bytes], fault: FaultSpec | None) -> int:
    """Find the piece in front of which the fault happens; -1 for none."""
    if fault is None:
        return -1
    after_bytes = fault.options.get("after_bytes")
    if after_bytes is None:
        return min(int(fault.options.get("after_events", DEFAULT_AFTER_EVENTS)), len(pieces) - 1)
    sizes = list(_accumulate(pieces))
    return next((i for i, size in enumerate(sizes) if size > after_bytes), len(pieces) - 1)


def _accumulate(pieces: list[bytes]) -> Iterator[int]:
    total = 0
    for piece in pieces:
        total += len(piece)
        yield total


async def _break(
    connection: Connection,
    fault: FaultSpec,
    pieces: list[bytes],
    number: int,
    render: Callable[[str, str], bytes] | None,
) -> bool:
    """Let the fault happen in front of a piece; True when the rest of the response still follows."""
    options, piece = fault.options, pieces[number]
    match fault.kind:
        case FaultName.CUT:
            if "after_bytes" in options:
                sent = sum(map(len, pieces[:number]))
                await connection.write(piece[: options["after_bytes"] - sent])
            if options.get("how", "fin") != "end":
                await connection.end(options.get("how", "fin"))
            return False
        case FaultName.ERROR_EVENT:
            error = _build_error_event(options)
            words = render(error["error"]["type"], error["error"]["message"]) if render else render_event(error)
            await connection.write(words)
            return False
        case FaultName.GARBAGE:
            data = options.get("data", _GARBAGE)
            await connection.write(f"event: content_block_delta\ndata: {data}\n\n".encode())
            return True
        case FaultName.STALL:
            await _stall(connection, options)
            return True
        case _:
            return True


def _build_error_event(options: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = options.get("type", find_error_type(529))
    return {"type": "error", "error": {"type": kind, "message": options.get("message", "Overloaded")}}


async def _stall(connection: Connection, options: Mapping[str, Any]) -> None:
    """Be silent, or send only pings, for a while or until the client gives up."""
    seconds, ping_s = options.get("seconds"), options.get("ping_s")
    if ping_s is None:
        await connection.wait(seconds)
        return
    left = float("inf") if seconds is None else seconds
    while left > 0:
        await connection.wait(min(max(ping_s, 0.001), left))
        left -= max(ping_s, 0.001)
        await connection.write(PING)
