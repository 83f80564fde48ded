"""The ASGI application: one exchange per request."""

import asyncio
from collections.abc import Mapping
from typing import Any

from relay.rehearsal.delivery import Connection, ConnectionEnded, Receive, Send
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.state import ServerState
from relay.values import dataclass


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
