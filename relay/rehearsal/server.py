"""The rehearsal server, from a script."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

from relay.base.values import dataclass
from relay.rehearsal.connection import Connection, host_app
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.stage import Recorded, ServerState
from relay.rehearsal.turns import Script


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
