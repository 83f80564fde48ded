"""A rehearsal server: its application, and its life."""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.rehearsal.delivery import Connection, ConnectionEnded, Receive, Send
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.state import Recorded, ServerState
from relay.rehearsal.turns import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """Answers HTTP requests from one state."""

    state: ServerState

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the server shuts down."""
        return self.state.stopping

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; websockets and lifespan do not come here."""
        stopping = self.state.stopping
        connection = Connection(scope=scope, receive=receive, send=send, stopping=stopping)
        exchange = Exchange(state=self.state, connection=connection, number=self.state.count())
        try:
            await exchange.run()
        except ConnectionEnded:
            return


_START_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A running server and what happened on it."""

    base_url: str
    """For ``ANTHROPIC_BASE_URL``; without ``/v1``."""
    state: ServerState

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in the order in which responses began."""
        return self.state.requests

    @property
    def errors(self) -> list[str]:
        """What went wrong with the script: expectations that failed, turns that were missing."""
        return self.state.errors

    @property
    def unplayed(self) -> tuple[str, ...]:
        """A sentence for each part of the script that was not played; empty when all of it was."""
        return self.state.stage.list_unplayed()


@contextlib.contextmanager
def serve(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Callable[[], float] = time.monotonic,
    keeps_bodies: bool = True,
) -> Iterator[Rehearsal]:
    """Serve a script until the block ends.

    Args:
        host: Address to listen on; stay on loopback, anybody who can connect may play.
        port: 0 takes a free one.
        clock: Seconds for the lifetime of prompt cache entries.
        keeps_bodies: Whether `Rehearsal.requests` holds the bodies of requests.

    Raises:
        ConfigError: The address cannot be listened on.
        RuntimeError: The server's thread died; its traceback is on stderr.
    """
    state = ServerState(script, clock, keeps_bodies=keeps_bodies)
    with host_app(App(state=state), host=host, port=port) as base_url:
        yield Rehearsal(base_url=base_url, state=state)


class HostedApp(Protocol):
    """An ASGI application that ends when it is told to."""

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the server shuts down."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""


@contextlib.contextmanager
def host_app(app: HostedApp, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve an application until the block ends; yields its address, without ``/v1``.

    Raises:
        ConfigError: The address cannot be listened on.
        RuntimeError: The server's thread died; its traceback is on stderr.
    """
    from relay.rehearsal.transport import build_server

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"the rehearsal server cannot listen on {host}:{port}: {error}") from error
    # Accepted connections inherit it; without, each answer on a connection that is used again waits for a delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = build_server(app)
    thread = threading.Thread(target=server.run, args=([listener],), name="relay-rehearsal", daemon=True)
    thread.start()
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    try:
        if not server.ready.wait(_START_S):
            raise RuntimeError("the rehearsal server did not start")
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(_START_S)
        listener.close()


def run_forever(script: Script, *, port: int = 0, announce: Callable[[Rehearsal], None]) -> None:
    """Serve a script until Ctrl-C or SIGTERM; a shell's background job, which ignores Ctrl-C, too.

    Args:
        port: 0 takes a free one.
        announce: Called once with the running server, to show its address.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    running = serve(script, port=port, keeps_bodies=False)
    with running as rehearsal, contextlib.suppress(KeyboardInterrupt):
        announce(rehearsal)
        threading.Event().wait()
