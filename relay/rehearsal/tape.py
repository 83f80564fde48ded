"""A rehearsal server that answers with what an endpoint has answered once, byte for byte, in the same order."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.delivery import Connection, ConnectionEnded, Receive, Send
from relay.rehearsal.server import host_app
from relay.session.tape import TapedAnswer

_BEYOND = b'{"type":"error","error":{"type":"invalid_request_error","message":"the tape ends here"}}'


@dataclass(slots=True, kw_only=True)
class TapeApp:
    """Answers requests from a tape. Mutable: it remembers what it was asked."""

    answers: Sequence[TapedAnswer]
    asked: list[bytes] = field(default_factory=list)
    """Bodies of all requests, those beyond the tape's end included."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeServer:
    """A running server."""

    base_url: str
    """For ``ANTHROPIC_BASE_URL``; without ``/v1``."""
    asked: Sequence[bytes]
    """Bodies of the requests so far."""


@contextmanager
def serve_tape(answers: Sequence[TapedAnswer]) -> Iterator[TapeServer]:
    """Serve a tape on loopback until the block ends.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    app = TapeApp(answers=answers)
    with host_app(app) as base_url:
        yield TapeServer(base_url=base_url, asked=app.asked)
