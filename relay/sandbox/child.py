"""A confined program that lives as long as a session: an agent, or a tool server of the user's.

relay can freeze such a program while it checks its work. `relay.sandbox.command` runs one command to its end instead.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from relay.base.errors import SandboxError
from relay.sandbox.command import wrap_limits
from relay.sandbox.policy import Limits
from relay.sandbox.process import (
    ATTEMPTS,
    Started,
    kill_below,
    let_go,
    resume,
    spawn,
    stop,
)
from relay.sandbox.run import Sandbox

SEND_S = 30.0
"""How long a program may leave a message unread."""
_SHOWN_BYTES = 2_000


class Child:
    """A running program. Mutable: it ends.

    Args:
        started: The program; its descendants belong to it.
        errors: File with its standard error.
    """

    def __init__(self, started: Started, errors: Path) -> None:
        process = started.process
        assert process.stdout is not None  # noqa: S101  # asked for
        self.output: IO[bytes] = process.stdout
        """Its standard output; one thread reads and closes it."""
        self._process = process
        self._started = started
        self._errors = errors
        self._ended = False
        self.is_deaf = False
        """relay ended it because it did not read its input."""

    def let_go(self) -> bool:
        """Let the program begin once its sandbox is set up; return False if that fails, after its end."""
        if let_go(self._started) is None:
            self.end()
            self.output.close()
            return False
        self._started.speak.settimeout(SEND_S)
        return True

    def send(self, data: bytes) -> bool:
        """Write to its standard input; return False if it does not read any more."""
        try:
            self._started.speak.sendall(data)
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

    def thaw(self) -> None:
        """Let it and its descendants go on."""
        resume(self._process.pid)

    def end(self) -> None:
        """Kill it and its descendants, and wait for its end."""
        if self._ended:
            return
        self._ended = True
        kill_below(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._started.close()


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
        launch = sandbox.build_launch(command, cwd=cwd, extra_env=extra_env)
        try:
            with errors.open("wb") as stderr:
                child = Child(spawn(launch, stderr=stderr), errors)
        except (OSError, ValueError) as error:
            raise SandboxError(f"cannot run this: {error}") from error
        if child.let_go():
            return child
        words = child.read_errors()
    raise SandboxError(f"the sandbox could not be set up: {words or 'no message'}")
