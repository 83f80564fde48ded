"""JSON-RPC 2.0 with a program of others, one message in each line: agents, their tool server, the user's tool servers.

The reader skips lines that are no messages, and bounds the length of a line and the parts of a message. The official
Python SDK of the Agent Client Protocol is stricter (it drops kinds of updates that are newer than itself), and its
import takes half a second.

It stands below tools and runners, which both use it and import nothing of each other.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Generic, TypeVar

from relay.base.documents import parse_json
from relay.base.values import dataclass

MOST_WAITING = 4
"""Messages in an intake; a program that sends more has to wait."""
MessageT = TypeVar("MessageT")


class Intake(Generic[MessageT]):
    """A bounded queue of messages from several threads to one. Mutable."""

    def __init__(self) -> None:
        self._waiting: deque[MessageT] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: MessageT, *, most: int = MOST_WAITING, wait_s: float | None = None) -> bool:
        """Add a message once there are fewer than `most`; return False if that does not happen.

        Args:
            wait_s: How long to wait for room; None: until the intake is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._waiting) < most, wait_s)
            if self._closed or len(self._waiting) >= most:
                return False
            self._waiting.append(message)
            self._changed.notify_all()
            return True

    def take(self, wait_s: float) -> MessageT | None:
        """Return the next message; None if none comes within `wait_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, wait_s)
            if not self._waiting:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def close(self) -> tuple[MessageT, ...]:
        """Refuse further messages, wake waiting threads, and return the messages that were not taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = tuple(self._waiting)
            self._waiting.clear()
            return left


MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is skipped; a message with a whole file in it is shorter."""
MAX_PARTS = 100_000
"""Largest number of lists, tables and their members in a message: four megabytes of ``[],[],…`` become a hundred."""
METHOD_NOT_FOUND = -32601
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message that expects no answer."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request of the other side; it gets exactly one answer."""

    id: str | int
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to a request of relay's."""

    id: int
    result: Mapping[str, Any]
    error: str = ""
    """One line; empty for a result."""
    has_object: bool = True
    """False if the result is no object, or missing; `result` is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The other side has closed its output."""


Incoming = Notification | Question | Answered


class Wire:
    """A connection to a program. Mutable: it counts requests.

    Args:
        output: The program's output, which the wire reads and closes.
        send: Writes to the program's input; what it cannot write is lost, and `Gone` says so.
        put: Called with each message in order, on a thread of the wire's own; `Gone` is the last. While it waits, the
            wire reads nothing, and the program waits as well.
        skips_long: True skips a line of `MAX_LINE_BYTES` or more; False ends the connection there.
    """

    def __init__(
        self,
        output: IO[bytes],
        send: Callable[[bytes], object],
        put: Callable[[Incoming | Gone], object],
        *,
        skips_long: bool = True,
    ) -> None:
        self._output = output
        self._write = send
        self._put = put
        self._skips_long = skips_long
        self._asked = 0
        threading.Thread(target=self._read, name="relay-agent", daemon=True).start()

    def ask(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; its answer has the returned id."""
        self._asked += 1
        self._send({"id": self._asked, "method": method, "params": params})
        return self._asked

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def answer(self, asked: Question, result: dict[str, Any] | None) -> None:
        """Send an answer; None says that relay does not know the method."""
        self._send(render_answer(asked, result))

    def _send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _read(self) -> None:
        with self._output as output:
            for line in split_lines(output):
                if len(line) >= MAX_LINE_BYTES and not self._skips_long:
                    break
                if found := parse_incoming(line):
                    self._put(found)
        self._put(Gone())


def render_answer(asked: Question, result: dict[str, Any] | None) -> dict[str, Any]:
    """Return an answer; None becomes an error, because clients hang on an empty result."""
    error = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {asked.method[:100]}"}
    return {"jsonrpc": "2.0", "id": asked.id, **({"error": error} if result is None else {"result": result})}


def split_lines(stream: IO[bytes], most: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Yield lines. Of a line over `most` bytes only the start is yielded, as soon as it is there."""
    held = bytearray()
    skipping = False
    while chunk := _read_some(stream):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not skipping:
                yield bytes(held + end)[:most]
            held.clear()
            skipping = False
        if skipping:
            continue
        held += rest
        if len(held) > most:
            skipping = True
            yield bytes(held[:most])


def _read_some(stream: IO[bytes]) -> bytes:
    try:
        return stream.read1(_CHUNK_BYTES) if hasattr(stream, "read1") else stream.read(_CHUNK_BYTES)
    except (OSError, ValueError):  # closed meanwhile
        return b""


def parse_incoming(line: bytes) -> Incoming | None:
    """Return the message of a line; None for a line that is no message."""
    try:
        found = parse_json(line, most_parts=MAX_PARTS)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    number, method, params = found.get("id"), found.get("method"), found.get("params", {})
    if isinstance(method, str):
        given = params if isinstance(params, dict) else {}
        if isinstance(number, str | int):
            return Question(id=number, method=method, params=given)
        return Notification(method=method, params=given)
    if isinstance(number, int) and ("result" in found or "error" in found):
        result, error = found.get("result"), _describe(found)
        if isinstance(result, dict):
            return Answered(id=number, result=result, error=error)
        return Answered(id=number, result={}, error=error, has_object=False)
    return None


def dig(source: Any, path: str) -> Any:
    """Return the value at a dotted path, in which ``0`` is the first of a list; None if there is none."""
    for name in path.split("."):
        if isinstance(source, list) and name == "0":
            source = source[0] if source else None
        else:
            source = source.get(name) if isinstance(source, Mapping) else None
    return source


def _describe(found: dict[str, Any]) -> str:
    if found.get("error") is None:
        return ""
    places = ("error.code", "error.message", "error.data.details")
    words = [dig(found, place) for place in places]
    words[2] = words[2] or dig(found, "error.data.message")
    said = " ".join(str(word) for word in words if word is not None)
    return " ".join(said.split())[:500] or "an error without words"
