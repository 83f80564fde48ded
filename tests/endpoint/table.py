"""A scripted server with the real SDK and with raw HTTP in front of it."""

import contextlib
import functools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.sdks import anthropic

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21", "content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One running server and its clients."""

    player: Any
    client: Any

    def ask(self, messages: Any, **extra: Any) -> Any:
        """Stream one answer through the SDK and return the final message."""
        fields: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4000}
        with self.client.messages.stream(messages=messages, **(fields | extra)) as stream:
            for _ in stream:
                pass
            return stream.get_final_message()

    def send(self, method: str, path: str, body: Any = None, *, headers: Any = None) -> tuple[int, dict[str, str], Any]:
        """Send a raw request; the answer's body is parsed when it is JSON."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = HEADERS if headers is None else headers
        request = urllib.request.Request(self.player.base_url + path, data=data, headers=sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return read(response)
        except urllib.error.HTTPError as error:
            with error:
                return read(error)

    def post(self, messages: Any, **extra: Any) -> tuple[int, Any]:
        """Post one raw message without streaming; returns status and parsed body."""
        fields: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4000, "messages": messages}
        status, _, body = self.send("POST", "/v1/messages", fields | extra)
        return status, body


def read(response: Any) -> tuple[int, dict[str, str], Any]:
    raw = response.read()
    kind = response.headers.get("content-type", "")
    headers = {name.lower(): value for name, value in response.headers.items()}
    return response.status, headers, json.loads(raw) if "json" in kind else raw


def list_results(message: Any, text: str = "ok") -> list[dict[str, Any]]:
    """Build the results of an answer's calls."""
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": text}
        for block in message.content
        if block.type == "tool_use"
    ]


def answer(message: Any, text: str = "ok") -> list[dict[str, Any]]:
    """Build the two messages that go on after an answer: itself and the results of its calls."""
    said = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
    return [said, {"role": "user", "content": list_results(message, text)}]


@functools.cache
def open_sdk() -> Any:
    """Open one client for all tests: a TLS context takes longer than a rehearsal."""
    return anthropic.Anthropic(api_key="k", base_url="http://127.0.0.1:9", max_retries=0)


@contextlib.contextmanager
def playing(serve: Callable[..., Any]) -> Iterator[Callable[..., Table]]:
    """Yield a function that serves a script's text; `timeout` is the SDK's read timeout in seconds."""
    with contextlib.ExitStack() as stack:

        def start(script: str, *, timeout: float = 10.0, **given: Any) -> Table:
            player = stack.enter_context(serve(script, **given))
            return Table(player=player, client=open_sdk().with_options(base_url=player.base_url, timeout=timeout))

        yield start
