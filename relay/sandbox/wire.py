"""JSON-RPC 2.0 with one message in each line, for agents, their tool server and the user's tool servers.

The reader skips lines that are no messages. It bounds the length of a line and the parts of a message. The official
Python SDK of the Agent Client Protocol is stricter (it drops kinds of updates that are newer than itself), and its
import takes half a second.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Protocol

from relay.base.values import dataclass

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is passed over, unread; a message with a whole file in it is shorter."""
MAX_PARTS = 100_000
"""Of one message: lists, tables and what they hold. Read, four megabytes of ``[],[],…`` would be a hundred."""
METHOD_NOT_FOUND = -32601
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Something that the other side says."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that the other side asks; it gets exactly one answer."""

    id: str | int
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to something that relay asked."""

    id: int
    result: Mapping[str, Any]
    error: str = ""
    """One line; empty where there is a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The other side says nothing more."""


Incoming = Notification | Question | Answered


class Peer(Protocol):
    """The other side."""

    @property
    def output(self) -> IO[bytes]:
        """What it says."""

    def send(self, data: bytes) -> bool:
        """Say something to it; False when it does not listen any more."""


class Wire:
    """The way to a child. Mutable: counts what was asked.

    Args:
        put: Given everything that comes, in order, on a thread of the wire's own; `Gone` is the last. While it waits
            nothing is read, and the other side waits as well.
        skips_long: Whether a line of `MAX_LINE_BYTES` or more is passed over; else it is the end.
    """

    def __init__(self, peer: Peer, put: Callable[[Incoming | Gone], object], *, skips_long: bool = True) -> None:
        self._peer = peer
        self._put = put
        self._skips_long = skips_long
        self._asked = 0
        threading.Thread(target=self._read, name="relay-agent", daemon=True).start()

    def ask(self, method: str, params: dict[str, Any]) -> int:
        """Ask something; the answer comes with the number that is returned."""
        self._asked += 1
        self._send({"id": self._asked, "method": method, "params": params})
        return self._asked

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Say something that is not answered."""
        self._send({"method": method, "params": params})

    def answer(self, asked: Question, result: dict[str, Any] | None) -> None:
        """Answer; None says that relay does not know the method."""
        self._send(render_answer(asked, result))

    def _send(self, message: dict[str, Any]) -> None:
        self._peer.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")  # who is gone is told by `Gone`

    def _read(self) -> None:
        with self._peer.output as output:
            for line in split_lines(output):
                if len(line) >= MAX_LINE_BYTES and not self._skips_long:
                    break
                if found := parse_incoming(line):
                    self._put(found)
        self._put(Gone())


def render_answer(asked: Question, result: dict[str, Any] | None) -> dict[str, Any]:
    """Return an answer; None says that the method is not known: clients hang on an empty result."""
    error = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {asked.method[:100]}"}
    return {"jsonrpc": "2.0", "id": asked.id, **({"error": error} if result is None else {"result": result})}


def split_lines(stream: IO[bytes], most: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Yield whole lines; of a longer one its first `most` bytes, as soon as they are there. The rest is skipped."""
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
    """Return the message of a line; None for anything that is none."""
    try:
        found = load_json(line)
    except (ValueError, RecursionError):
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
        result = found.get("result")
        return Answered(id=number, result=result if isinstance(result, dict) else {}, error=_describe(found))
    return None


def load_json(data: bytes) -> Any:
    """Read what somebody else wrote.

    Raises:
        ValueError: It is no JSON, or has more than `MAX_PARTS`.
        RecursionError: It is nested too deeply.
    """
    if _count_parts(data) > MAX_PARTS and _count_parts(_TEXTS.sub(b"", data)) > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS:,} parts")
    return json.loads(data)


def _count_parts(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def dig(source: Any, path: str) -> Any:
    """Return what stands at a dotted path; None where there is nothing."""
    for name in path.split("."):
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
