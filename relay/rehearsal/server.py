"""The rehearsal server: a script, played on loopback."""

import contextlib
from collections.abc import Iterator

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
