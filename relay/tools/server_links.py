"""The two ways to a tool server: a program's streams in the sandbox, and HTTP. One JSON-RPC message at a time.

The official SDK was weighed: 29 packages and a second of start-up for four methods, and it starts a server's program by
itself, where relay's are started in the sandbox.
"""

import json
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from relay.sandbox.child import Child, Intake
from relay.sandbox.output import render_output
from relay.sandbox.wire import MAX_LINE_BYTES, Question, load_json, render_answer, split_lines

_LOOK_S = 0.1
_TELLS = re.compile(
    r"(?i)error|exception|not found|no such|cannot|can't|could not|unable|denied|refused|failed|invalid|required"
)
_LEADS_ON = re.compile(r"complete log of this run|^npm (error|ERR!) code ")
"""What npm says beside the reason."""
_MOST_LINES, _MOST_CHARS = 2, 400


class ServerError(Exception):
    """A server does not do what it should; the message says what."""


class ServerLink(Protocol):
    """A way to one server."""

    def ask(self, message: Mapping[str, Any], until: float) -> Mapping[str, Any] | None:
        """Send a message; return its answer, None for a notification.

        Raises:
            ServerError: There is none in time, or none that can be read.
        """

    def close(self) -> None:
        """End it."""


class ProgramLink:
    """A program in the sandbox. Mutable: it runs.

    Args:
        should_stop: Polled while it is waited for.
        advise: Given why it has ended, adds what helps.
        leave: Called when it is gone.
    """

    def __init__(
        self,
        child: Child,
        should_stop: Callable[[], bool],
        advise: Callable[[str], str],
        leave: Callable[[], object],
    ) -> None:
        self._child, self._should_stop = child, should_stop
        self._advise, self._leave = advise, leave
        self._lines: Intake[bytes] = Intake()
        self._thread = threading.Thread(target=self._read, name="mcp", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in split_lines(self._child.output):
            if len(line) >= MAX_LINE_BYTES:
                break
            if line.strip():  # an empty one is the end
                self._lines.put(line)
        self._lines.put(b"")

    def ask(self, message: Mapping[str, Any], until: float) -> Mapping[str, Any] | None:
        """Send a message and take what comes until it is answered; a ping is answered, other requests are refused."""
        self._send(message)
        if "id" not in message:
            return None
        while time.monotonic() < until and not self._should_stop():
            line = self._lines.take(_LOOK_S)
            if line is None:
                continue
            if not line:
                raise ServerError(f"its program has ended{self._find_words()}")
            said = _read_message(line)
            if said.get("id") == message["id"] and "method" not in said:
                return said
            if "method" in said and "id" in said:
                asked = Question(id=said["id"], method=str(said["method"]), params={})
                answer = render_answer(asked, {} if asked.method == "ping" else None)
                self._child.send(_render(answer))  # a program that has ended is noticed by its streams
        if words := self._child.check_memory():
            raise ServerError(words)
        raise ServerError("no answer in time")

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._child.send(_render(message)):
            raise ServerError(f"its program does not listen{self._find_words()}")

    def _find_words(self) -> str:
        words = find_reason(render_output(self._child.read_errors().encode()))
        return f": {self._advise(words)}" if words else ""

    def close(self) -> None:
        """End the program and all it started."""
        self._lines.close()
        self._child.end()
        self._thread.join()
        self._child.output.close()
        self._leave()


def find_reason(said: str) -> str:
    """Return the lines that say why a program has ended, else its last one; a trace's own lines are indented."""
    lines = [
        line.strip().rstrip(".") for line in said.splitlines() if line.strip() and not line.startswith((" ", "\t"))
    ]
    telling = [line for line in lines if _TELLS.search(line) and not _LEADS_ON.search(line)]
    return "; ".join(dict.fromkeys(telling[-_MOST_LINES:] or lines[-1:]))[:_MOST_CHARS]


class AddressLink:
    """An address. Mutable: the server names its session.

    Args:
        url: The only place that is asked.
        headers: With secrets.
        should_stop: Polled while it is waited for.
    """

    def __init__(self, url: str, headers: Mapping[str, str], should_stop: Callable[[], bool]) -> None:
        self._url, self._should_stop = url, should_stop
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def ask(self, message: Mapping[str, Any], until: float) -> Mapping[str, Any] | None:
        """Post a message; what answers a byte at a time, or never, is left to its thread."""
        answers: queue.SimpleQueue[Mapping[str, Any] | ServerError | None] = queue.SimpleQueue()

        def post() -> None:
            try:
                answers.put(self._post(message, until))
            except ServerError as error:
                answers.put(error)

        threading.Thread(target=post, name="mcp", daemon=True).start()
        while time.monotonic() < until and not self._should_stop():
            with suppress(queue.Empty):
                said = answers.get(timeout=_LOOK_S)
                if isinstance(said, ServerError):
                    raise said
                return said
        raise ServerError("no answer in time")

    def _post(self, message: Mapping[str, Any], until: float) -> Mapping[str, Any] | None:
        """Return the answer, which is JSON or an event of a stream."""
        opener = urllib.request.build_opener(_Straight)
        request = urllib.request.Request(  # noqa: S310  # http and https only, as the settings are read
            self._url, data=json.dumps(message).encode(), headers=self._headers, method="POST"
        )
        try:
            with opener.open(request, timeout=max(1.0, until - time.monotonic())) as answer:
                if session := answer.headers.get("Mcp-Session-Id"):
                    self._headers["Mcp-Session-Id"] = session
                if "id" not in message:
                    return None
                streams = "text/event-stream" in answer.headers.get("Content-Type", "")
                lines = _read_events(answer, until) if streams else [answer.read(MAX_LINE_BYTES)]
                for line in lines:
                    said = _read_message(line)
                    if said.get("id") == message["id"] and "method" not in said:
                        return said
        except urllib.error.HTTPError as error:
            error.close()
            raise ServerError(f"answered with {error.code}") from None
        except (OSError, ValueError) as error:
            raise ServerError(f"cannot be reached: {getattr(error, 'reason', error)}") from None
        raise ServerError("said nothing that answers")

    def close(self) -> None:
        """Forget the session; the server lets go of it by itself."""
        self._headers.pop("Mcp-Session-Id", None)


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a secret goes where the user sent it, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def _read_events(answer: Any, until: float) -> Iterator[bytes]:
    """Yield the data of each event."""
    data, size = b"", 0
    while time.monotonic() < until and (line := answer.readline(MAX_LINE_BYTES)):
        size += len(line)
        if size > MAX_LINE_BYTES:
            return
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"data":
            data += value.removeprefix(b" ")
        elif not line.strip() and data:
            yield data
            data = b""


def _render(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read_message(line: bytes) -> Mapping[str, Any]:
    try:
        said = load_json(line)
    except (ValueError, RecursionError):
        return {}  # a program's own chatter
    return said if isinstance(said, dict) else {}
