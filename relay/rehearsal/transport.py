"""uvicorn with two changes: requests know their connection's transport, and stopping does not wait.

uvicorn and not hypercorn or a server of our own: it is maintained, small, and its h11 protocol is one class
whose ASGI callable can be bound to the transport as the connection is made. That is all that resets and closes
in mid-stream need; hypercorn hides the transport behind task groups.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from relay.rehearsal.delivery import TRANSPORT

_PATIENCE_S = 0.5
"""How long a client that does not read may hold up the shutdown."""
_GRACE_S = 5.0
"""How long an answer may take to notice that nobody is there."""
_LOOK_S = 0.001
_DATE_S = 1.0
"""How often uvicorn renews its Date header."""


class RehearsalProtocol(H11Protocol):
    """HTTP/1.1 whose requests carry ``scope["extensions"]["relay.transport"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bind the application to this connection."""
        super().connection_made(transport)
        self.app = _bind(self.app, transport)


class RehearsalServer(uvicorn.Server):
    """A server that says when it is ready and stops at once when told to."""

    def __init__(self, config: uvicorn.Config, app: Any) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._stopping = app.stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Keep the date fresh until `stop`; uvicorn's own loop looks ten times a second."""
        self._loop = asyncio.get_running_loop()
        stopping = self._stopping
        self.ready.set()
        while not stopping.is_set():
            await self.on_tick(0)
            try:
                await asyncio.wait_for(stopping.wait(), _DATE_S)
            except TimeoutError:
                continue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what is being sent end for a moment, then take the connections away; uvicorn waits even for nothing."""
        asyncio.get_running_loop().call_later(_PATIENCE_S, self._abort)
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        left = self.server_state
        for connection in list(left.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while left.connections or left.tasks:  # noqa: ASYNC110  # uvicorn has no event for it
                    await asyncio.sleep(_LOOK_S)
        for task in left.tasks:
            task.cancel()

    def _abort(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def stop(self) -> None:
        """Stop from another thread: stalls end, connections are closed."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)


def build_server(app: Any) -> RehearsalServer:
    """Configure a server for sockets that are already listening."""
    config = uvicorn.Config(
        app,
        http=RehearsalProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    return RehearsalServer(config, app)


def _bind(app: Any, transport: asyncio.Transport) -> Callable[..., Awaitable[None]]:
    async def bound(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[TRANSPORT] = transport
        await app(scope, receive, send)

    return bound
