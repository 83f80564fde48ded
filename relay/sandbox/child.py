"""A confined program that lives as long as a session and talks over its streams, with a bounded inbox for its messages.

relay can freeze it while it checks its work. `run_launch` runs one command to its end instead; the same code ends and
limits both.
"""

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Generic, TypeVar

from relay.base.errors import SandboxError
from relay.sandbox.confinement import Confinement
from relay.sandbox.memory import holds_more, is_worth_a_look, read_files_bytes, render_limit
from relay.sandbox.policy import Limits
from relay.sandbox.process import (
    ATTEMPTS,
    Launch,
    Started,
    kill_below,
    read_init_pid,
    spawn,
    wait_until_bound,
    wrap_limits,
)
from relay.sandbox.supervisor import find_descendants

MOST_WAITING = 4
"""A program that says more before that is taken is not read: it waits."""
MessageT = TypeVar("MessageT")


class Intake(Generic[MessageT]):
    """Messages in order, from threads to one that takes them. Mutable."""

    def __init__(self) -> None:
        self._waiting: deque[MessageT] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: MessageT, *, most: int = MOST_WAITING, wait_s: float | None = None) -> bool:
        """Add one, once there are fewer than `most`; False where nobody takes it.

        Args:
            wait_s: How long to wait for that; None: until it is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._waiting) < most, wait_s)
            if self._closed or len(self._waiting) >= most:
                return False
            self._waiting.append(message)
            self._changed.notify_all()
            return True

    def take(self, wait_s: float) -> MessageT | None:
        """Return the next one; None when none has come in so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, wait_s)
            if not self._waiting:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def close(self) -> tuple[MessageT, ...]:
        """Take nothing more, and let go whoever waits with one; return what had come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = tuple(self._waiting)
            self._waiting.clear()
            return left


START_S = 20.0
"""How long the sandbox may take to be there; it takes a hundredth of it."""
SEND_S = 30.0
"""How long a program may leave what it is told unread."""
_MOST_LOOKS = 100
_SHOWN_BYTES = 2_000


class Child:
    """A running program. Mutable: it ends.

    Args:
        started: Everything it starts is below it.
        limits: What it may hold.
        errors: File that has what it writes to standard error.
    """

    def __init__(self, started: Started, limits: Limits, errors: Path) -> None:
        process = started.process
        assert process.stdout is not None  # noqa: S101  # asked for
        self.output: IO[bytes] = process.stdout
        """What it says; read, and closed, by one thread."""
        self._process = process
        self._speak = started.speak
        self._launch = started.launch
        self._limits = limits
        self._errors = errors
        self._init_pid = 0
        self._ended = False
        self.is_deaf = False
        """It was ended because it did not read what it was told."""

    def let_go(self) -> bool:
        """Let the program begin, once its sandbox is there; False when that cannot be set up, and all of it is gone."""
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
            self._init_pid = read_init_pid(self._launch.status_fd)
            wait_until_bound(self._init_pid)
        self._speak.settimeout(SEND_S)
        self.send(self._launch.words)
        return True

    def send(self, data: bytes) -> bool:
        """Say something to it; False when it does not listen any more."""
        try:
            self._speak.sendall(data)
        except TimeoutError:
            self.is_deaf = True
            self.end()  # it has a part of it, and would take the next for the rest
            return False
        except OSError:
            return False
        return True

    def read_errors(self) -> str:
        """Return the end of what it wrote to standard error, for a person."""
        with contextlib.suppress(OSError), self._errors.open("rb") as file:
            file.seek(max(0, self._errors.stat().st_size - _SHOWN_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""

    def check_memory(self) -> str | None:
        """Say that it holds more memory than it may, with all that it started; None when it does not."""
        most = self._limits.memory_bytes
        if not most or not is_worth_a_look(most):
            return None
        files_bytes = read_files_bytes(self._init_pid, self._launch.in_memory)
        if holds_more(find_descendants(self._process.pid), most, files_bytes=files_bytes):
            return render_limit(most)
        return None

    def freeze(self) -> None:
        """Hold it and everything it started still: nothing of it writes until `thaw`."""
        held: set[int] = set()
        for _ in range(_MOST_LOOKS):  # one that is held starts no other: each look finds fewer
            found = set(find_descendants(self._process.pid)) - held
            if not found:
                return
            _signal(found, signal.SIGSTOP)
            held |= found

    def thaw(self) -> None:
        """Let it go on."""
        _signal(find_descendants(self._process.pid), signal.SIGCONT)

    def end(self) -> None:
        """Kill it and everything it started; returns when all of it is gone."""
        if self._ended:
            return
        self._ended = True
        kill_below(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._speak.close()
        if self._launch.status_fd is not None:
            os.close(self._launch.status_fd)


def _signal(pids: Sequence[int] | set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def start_child(
    confinement: Confinement,
    argv: Sequence[str],
    *,
    limits: Limits,
    cwd: Path,
    extra_env: Mapping[str, str],
    errors: Path,
) -> Child:
    """Start a program in the sandbox.

    Args:
        confinement: What confines it.
        argv: The program, by an absolute path, and its arguments.
        limits: Memory and processes; an agent's time is its session's.
        cwd: Where it starts.
        extra_env: Variables on top of the allow-list.
        errors: New file for what it writes to standard error.

    Raises:
        SandboxError: The sandbox could not be set up, or the program line is none.
    """
    command = wrap_limits(tuple(argv), limits, shared_user=confinement.counts_user, keeps_input=True)
    words = ""
    for _ in range(ATTEMPTS):
        child = _spawn(confinement.build_launch(command, cwd=cwd, extra_env=extra_env), limits, errors)
        if child.let_go():
            return child
        words = child.read_errors()
    raise SandboxError(f"the sandbox could not be set up: {words or 'no message'}")


def _spawn(launch: Launch, limits: Limits, errors: Path) -> Child:
    try:
        with errors.open("wb") as said:
            started = spawn(launch, stderr=said)
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot run this: {error}") from error
    return Child(started, limits, errors)
