"""The endpoint on loopback."""

import contextlib
import time
from collections.abc import Callable, Iterator

from relay.base.values import dataclass
from relay.rehearsal.connection import Connection, host_app
from relay.rehearsal.server import Player
from tests.endpoint.exchange import EndpointExchange
from tests.endpoint.script import EndpointScript
from tests.endpoint.state import EndpointState, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Player):
    """A running server, and what happened on it."""

    state: EndpointState

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in the order in which responses began."""
        return self.state.requests


@contextlib.contextmanager
def serve(
    script: EndpointScript,
    *,
    port: int = 0,
    clock: Callable[[], float] = time.monotonic,
    keeps_bodies: bool = True,
) -> Iterator[Endpoint]:
    """Serve a script until the block ends.

    Args:
        port: 0 takes a free one.
        clock: Seconds for the lifetime of prompt cache entries.
        keeps_bodies: Whether `Endpoint.requests` holds the bodies of requests.

    Raises:
        ConfigError: The address cannot be used.
    """
    state = EndpointState(script, clock, keeps_bodies=keeps_bodies)

    def answer(connection: Connection) -> None:
        EndpointExchange(state, connection).run()

    with host_app(answer, port=port) as base_url:
        yield Endpoint(base_url=base_url, state=state)
