"""The rehearsal server: its ASGI application on uvicorn, its start and stop; and a server that replays a recorded tape.

uvicorn is maintained and small, and its h11 protocol is one class whose ASGI callable can be bound to the transport
when the connection is made. Faults that reset or close a connection in mid-stream need no more than that; hypercorn
hides the transport behind task groups. relay changes two things: a request knows its connection's transport, and
stopping does not wait.
"""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.rehearsal.exchange import TRANSPORT, Connection, ConnectionEnded, Exchange, Receive, Send
from relay.rehearsal.stage import Recorded, ServerState
from relay.rehearsal.turns import Script
from relay.session.tape import TapedAnswer

_PATIENCE_S = 0.5
"""How long a client that does not read may delay the shutdown."""
_GRACE_S = 5.0
"""How long an answer may take to notice that its client is gone."""
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
    """A server that reports when it is ready, and stops at once."""

    def __init__(self, config: uvicorn.Config, app: Any) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._stopping = app.stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Renew the date until `stop`; uvicorn's own loop wakes ten times a second."""
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
        """Let answers end for a moment, then close the connections; uvicorn would wait even for idle ones."""
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
    """Configure a server for listening sockets."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """Answers HTTP requests from one state."""

    state: ServerState

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the server shuts down."""
        return self.state.stopping

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; websockets and lifespan events do not come here."""
        stopping = self.state.stopping
        connection = Connection(scope=scope, receive=receive, send=send, stopping=stopping)
        exchange = Exchange(state=self.state, connection=connection, number=self.state.count())
        try:
            await exchange.run()
        except ConnectionEnded:
            return


_HOST = "127.0.0.1"
_START_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A running server, and what happened on it."""

    base_url: str
    """For ``ANTHROPIC_BASE_URL``; without ``/v1``."""
    state: ServerState

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in the order in which responses began."""
        return self.state.requests

    @property
    def errors(self) -> list[str]:
        """Faults of the script: failed expectations, missing turns."""
        return self.state.errors

    @property
    def unplayed(self) -> tuple[str, ...]:
        """A sentence for each part of the script that was not played."""
        return self.state.stage.list_unplayed()


@contextlib.contextmanager
def serve(
    script: Script,
    *,
    port: int = 0,
    clock: Callable[[], float] = time.monotonic,
    keeps_bodies: bool = True,
) -> Iterator[Rehearsal]:
    """Serve a script until the block ends.

    Args:
        port: 0 takes a free one.
        clock: Seconds for the lifetime of prompt cache entries.
        keeps_bodies: Whether `Rehearsal.requests` holds the bodies of requests.

    Raises:
        ConfigError: The address cannot be used.
        RuntimeError: The server's thread died; its traceback is on stderr.
    """
    state = ServerState(script, clock, keeps_bodies=keeps_bodies)
    with host_app(App(state=state), port=port) as base_url:
        yield Rehearsal(base_url=base_url, state=state)


@contextlib.contextmanager
def host_app(app: "App | TapeApp", *, port: int = 0) -> Iterator[str]:
    """Serve an application on loopback until the block ends; yields its address, without ``/v1``.

    Raises:
        ConfigError: The address cannot be used.
        RuntimeError: The server's thread died; its traceback is on stderr.
    """
    try:
        listener = socket.create_server((_HOST, port))  # everyone who can connect may play
    except OSError as error:
        raise ConfigError(f"the rehearsal server cannot listen on {_HOST}:{port}: {error}") from error
    # Accepted connections inherit it. Without it, each answer on a reused connection waits for a delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = build_server(app)
    thread = threading.Thread(target=server.run, args=([listener],), name="relay-rehearsal", daemon=True)
    thread.start()
    try:
        if not server.ready.wait(_START_S):
            raise RuntimeError("the rehearsal server did not start")
        yield f"http://{_HOST}:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(_START_S)
        listener.close()


def run_forever(script: Script, *, port: int = 0, announce: Callable[[Rehearsal], None]) -> None:
    """Serve a script until Ctrl-C or SIGTERM, also as a shell's background job, which ignores Ctrl-C.

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


_BEYOND = b'{"type":"error","error":{"type":"invalid_request_error","message":"the tape ends here"}}'


@dataclass(slots=True, kw_only=True)
class TapeApp:
    """Answers requests from a tape. Mutable: remembers the requests."""

    answers: Sequence[TapedAnswer]
    asked: list[bytes] = field(default_factory=list)
    """Bodies of all requests, also those beyond the tape's end."""
    base_url: str = ""
    """For ``ANTHROPIC_BASE_URL``; without ``/v1``."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection = Connection(scope=scope, receive=receive, send=send, stopping=self.stopping)
        try:
            body = await _read_body(receive)
            number = len(self.asked)
            self.asked.append(body)
            answer = (
                self.answers[number]
                if number < len(self.answers)
                else TapedAnswer(status=400, headers={"content-type": "application/json"}, body=_BEYOND, cut=False)
            )
            await _play(connection, answer)
        except ConnectionEnded:
            return


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
    return body


async def _play(connection: Connection, answer: TapedAnswer) -> None:
    if not answer.status:
        await connection.end("rst")
    await connection.start(answer.status, answer.headers)
    await connection.write(answer.body)
    if answer.cut:
        await connection.end("fin")
    await connection.finish()


@contextlib.contextmanager
def serve_tape(answers: Sequence[TapedAnswer]) -> Iterator[TapeApp]:
    """Serve a tape on loopback until the block ends.

    Raises:
        ConfigError: The address cannot be used.
    """
    app = TapeApp(answers=answers)
    with host_app(app) as app.base_url:
        yield app
