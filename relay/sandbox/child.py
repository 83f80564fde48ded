"""A confined program that lives as long as a session and talks JSON-RPC over its streams.

relay can freeze such a program while it checks its work. `relay.sandbox.command` runs one command to its end instead.

The messages are JSON-RPC 2.0, one in each line, for agents, their tool server and the user's tool servers. The reader
skips lines that are no messages, and bounds the length of a line and the parts of a message. The official Python SDK of
the Agent Client Protocol is stricter (it drops kinds of updates that are newer than itself), and its import takes half
a second.
"""

import contextlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from relay.base.errors import SandboxError
from relay.base.values import dataclass
from relay.sandbox.command import wrap_limits
from relay.sandbox.policy import Limits
from relay.sandbox.process import (
    ATTEMPTS,
    LET_GO,
    Started,
    kill_below,
    read_init_pid,
    resume,
    spawn,
    stop,
    wait_until_bound,
)
from relay.sandbox.run import Sandbox

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


START_S = 20.0
"""Time limit for the set-up of the sandbox, which takes a hundredth of it."""
SEND_S = 30.0
"""How long a program may leave a message unread."""
_SHOWN_BYTES = 2_000


class Child:
    """A running program. Mutable: it ends.

    Args:
        started: The program; its descendants belong to it.
        errors: File with its standard error.
        look: See `Policy.look`.
        leave: Called at its end.
    """

    def __init__(
        self,
        started: Started,
        errors: Path,
        look: Callable[[int], object],
        leave: Callable[[], object],
    ) -> None:
        process = started.process
        assert process.stdout is not None  # noqa: S101  # asked for
        self.output: IO[bytes] = process.stdout
        """Its standard output; one thread reads and closes it."""
        self._process = process
        self._speak = started.speak
        self._launch = started.launch
        self._errors = errors
        self._look, self._leave = look, leave
        self._ended = False
        self.is_deaf = False
        """relay ended it because it did not read its input."""

    def let_go(self) -> bool:
        """Let the program begin once its sandbox is set up; return False if that fails, after its end."""
        self._speak.settimeout(START_S)
        try:
            ready = self._speak.recv(1)
        except OSError:
            ready = b""
        if not ready:
            self.end()
            self.output.close()
            return False
        if self._launch.status_fd is not None:
            wait_until_bound(read_init_pid(self._launch.status_fd))
        self._speak.settimeout(SEND_S)
        self.send(LET_GO)
        return True

    def send(self, data: bytes) -> bool:
        """Write to its standard input; return False if it does not read any more."""
        try:
            self._speak.sendall(data)
        except TimeoutError:
            self.is_deaf = True
            self.end()  # it has read a part, and would take the next message for the rest
            return False
        except OSError:
            return False
        return True

    def read_errors(self) -> str:
        """Return the end of its standard error, for a person."""
        with contextlib.suppress(OSError), self._errors.open("rb") as file:
            file.seek(max(0, self._errors.stat().st_size - _SHOWN_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""

    def freeze(self) -> None:
        """Stop it and its descendants, so that none of them writes until `thaw`; what does not stop is ended."""
        if not stop(self._process.pid):
            self.end()
        self.look()

    def thaw(self) -> None:
        """Let it and its descendants go on."""
        resume(self._process.pid)

    def look(self) -> None:
        """Compare the protected files: it can write those that somebody replaces while it runs."""
        self._look(0)

    def end(self) -> None:
        """Kill it and its descendants, and wait for its end."""
        if self._ended:
            return
        self._ended = True
        kill_below(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._speak.close()
        if self._launch.status_fd is not None:
            os.close(self._launch.status_fd)
        self._leave()


def start_child(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    limits: Limits,
    cwd: Path,
    extra_env: Mapping[str, str],
    errors: Path,
) -> Child:
    """Start a program in a sandbox.

    Args:
        sandbox: The sandbox; the caller closes it after the program's end.
        argv: The program, by an absolute path, and its arguments.
        limits: Processes; an agent's time is its session's.
        cwd: Working directory.
        extra_env: Variables on top of the allow-list.
        errors: New file for its standard error.

    Raises:
        SandboxError: The sandbox could not be set up, or the program cannot be started.
    """
    command = wrap_limits(tuple(argv), limits, shared_user=sandbox.shares_user, keeps_input=True)
    words = ""
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as stack:
            look = stack.enter_context(sandbox.watching())
            launch = sandbox.build_launch(command, cwd=cwd, extra_env=extra_env)
            try:
                with errors.open("wb") as stderr:
                    child = Child(spawn(launch, stderr=stderr), errors, look, stack.pop_all().close)
            except (OSError, ValueError) as error:
                raise SandboxError(f"cannot run this: {error}") from error
        if child.let_go():
            return child
        words = child.read_errors()
    raise SandboxError(f"the sandbox could not be set up: {words or 'no message'}")


MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is skipped; a message with a whole file in it is shorter."""
MAX_PARTS = 100_000
"""Largest number of lists, tables and their members in a message: four megabytes of ``[],[],…`` become a hundred."""
METHOD_NOT_FOUND = -32601
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
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
    """A JSON-RPC connection to a child. Mutable: it counts requests.

    Args:
        put: Called with each message in order, on a thread of the wire's own; `Gone` is the last. While it waits, the
            wire reads nothing, and the child waits as well.
        skips_long: True skips a line of `MAX_LINE_BYTES` or more; False ends the connection there.
    """

    def __init__(self, peer: Child, put: Callable[[Incoming | Gone], object], *, skips_long: bool = True) -> None:
        self._peer = peer
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
        self._peer.send(
            json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        )  # if the child is gone, `Gone` says so

    def _read(self) -> None:
        with self._peer.output as output:
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
        result, error = found.get("result"), _describe(found)
        if isinstance(result, dict):
            return Answered(id=number, result=result, error=error)
        return Answered(id=number, result={}, error=error, has_object=False)
    return None


def load_json(data: bytes) -> Any:
    """Parse JSON of a foreign program.

    Raises:
        ValueError: It is no JSON, or has more than `MAX_PARTS` parts.
        RecursionError: It is nested too deeply.
    """
    if _count_parts(data) > MAX_PARTS and _count_parts(_TEXTS.sub(b"", data)) > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS:,} parts")
    return json.loads(data)


def _count_parts(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def dig(source: Any, path: str) -> Any:
    """Return the value at a dotted path; None if there is none."""
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
