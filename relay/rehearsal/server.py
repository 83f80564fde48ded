"""The rehearsal server, from a script; and a server that replays a recorded tape."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from relay.base.values import dataclass
from relay.rehearsal.connection import Connection, host_app
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.stage import Recorded, ServerState
from relay.rehearsal.turns import Script
from relay.rehearsal.wire import ApiError, render_error
from relay.session.tape import TapedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalApp:
    """Answers HTTP requests from one state."""

    state: ServerState

    def answer(self, connection: Connection) -> None:
        """Answer one request."""
        Exchange(state=self.state, connection=connection, number=self.state.count()).run()


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
    """
    state = ServerState(script, clock, keeps_bodies=keeps_bodies)
    with host_app(RehearsalApp(state=state), port=port) as base_url:
        yield Rehearsal(base_url=base_url, state=state)


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

    def answer(self, connection: Connection) -> None:
        """Answer one request; what the tape has not is cut off."""
        body = connection.read_body()
        if isinstance(body, ApiError):
            connection.start(body.status, {"connection": "close"})
            connection.write(json.dumps(render_error(body, "")).encode())
            connection.finish_body()
            return
        number = len(self.asked)
        self.asked.append(body)
        beyond = TapedAnswer(status=400, headers={"content-type": "application/json"}, body=_BEYOND, cut=False)
        answer = self.answers[number] if number < len(self.answers) else beyond
        if not answer.status:
            raise ConnectionAbortedError
        connection.start(answer.status, answer.headers)
        connection.write(answer.body)
        if answer.cut:
            raise ConnectionAbortedError
        connection.finish_body()


@contextlib.contextmanager
def serve_tape(answers: Sequence[TapedAnswer]) -> Iterator[TapeApp]:
    """Serve a tape on loopback until the block ends.

    Raises:
        ConfigError: The address cannot be used.
    """
    app = TapeApp(answers=answers)
    with host_app(app) as app.base_url:
        yield app
