"""The rehearsal server: a script, played on loopback."""

import contextlib
import signal
from collections.abc import Callable, Iterator

from relay.base.values import dataclass
from relay.rehearsal.connection import Connection, host_app
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.script import Script
from relay.rehearsal.stage import PlayerState, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A running server, and what happened on it."""

    base_url: str
    """For ``ANTHROPIC_BASE_URL``; without ``/v1``."""
    state: PlayerState

    @property
    def errors(self) -> list[str]:
        """Faults of the script: failed expectations, missing turns."""
        return self.state.errors

    @property
    def unplayed(self) -> tuple[str, ...]:
        """A sentence for each part of the script that was not played."""
        return self.state.stage.list_unplayed()


@contextlib.contextmanager
def serve(script: Script, *, port: int = 0) -> Iterator[Player]:
    """Play a script until the block ends; `port` 0 takes a free one.

    Raises:
        ConfigError: The address cannot be used.
    """
    state = PlayerState(script, Stage(script.source, script.sessions))

    def answer(connection: Connection) -> None:
        Exchange(state, connection).run()

    with host_app(answer, port=port) as base_url:
        yield Player(base_url=base_url, state=state)


def run_forever(script: Script, *, port: int = 0, announce: Callable[[Player], None]) -> None:
    """Play a script until Ctrl-C or SIGTERM, also as a shell's background job, which ignores Ctrl-C.

    Args:
        port: 0 takes a free one.
        announce: Called once with the running server, to show its address.
    """
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # or a handler runs just before a wait, which then goes on
    with serve(script, port=port) as player:
        announce(player)
        signal.sigwait(ends)
