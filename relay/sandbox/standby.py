"""The sandbox of a session's next command, made while the model is asked what the command is.

It holds where nothing that a command is shown has changed since: what would be laid out now is laid out, and the kernel
still has each mount of it. Where it does not hold, it is made anew, as for any other command.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.errors import SandboxError
from relay.sandbox.confinement import Confinement
from relay.sandbox.policy import Limits
from relay.sandbox.process import end_started, render_words, wrap_limits
from relay.sandbox.start import Launch, Started, spawn


def build_waiting(
    confinement: Confinement, argv: tuple[str, ...] | None, *, limits: Limits, cwd: Path, extra_env: Mapping[str, str]
) -> Launch:
    """Return the launch of a command that waits to be let go; without one it is told then.

    Raises:
        SandboxError: The confinement cannot be set up as things are now.
    """
    command = wrap_limits(argv, limits, shared_user=confinement.counts_user)
    try:
        return confinement.build_launch(command, cwd=cwd, extra_env=extra_env)
    except OSError as error:  # no file descriptors or no memory left, say; the command is not at fault
        raise SandboxError(
            f"the sandbox could not be laid out: {error}", hint="relay doctor tries each part of it"
        ) from error


class Standby:
    """What waits for the next command. Mutable: it is made, taken and ended, on one thread."""

    def __init__(self) -> None:
        self._expected: tuple[Limits, Path] | None = None
        self._started: Started | None = None

    def expect(self, *, limits: Limits, cwd: Path) -> None:
        """Note what the next command is given, if it is like most."""
        self._expected = limits, cwd

    def begin(self, confinement: Confinement) -> None:
        """Start the sandbox of a command that is expected; the command tells what fails here."""
        # Without a user namespace of its own there is little to make, and its limit is another one at each look.
        if self._started is not None or confinement.counts_user or self._expected is None:
            return
        (limits, cwd), self._expected = self._expected, None
        try:
            launch = build_waiting(confinement, None, limits=limits, cwd=cwd, extra_env={})
            self._started = replace(spawn(launch, stderr=subprocess.STDOUT), early=True)
        except (SandboxError, OSError, ValueError):
            self._started = None

    def take(self, build: Callable[[None], Launch], argv: Sequence[str]) -> Started | None:
        """Return what waits, to be let go for a command, and used up then; None where it is not what `build` builds.

        Raises:
            SandboxError: `build` does.
            ValueError: No command line can hold a word of the command.
        """
        if self._started is None:
            return None
        words, launch = render_words(argv), build(None)
        launch.close()
        started, self._started = self._started, None
        if launch.alike != started.launch.alike:
            end_started(started)
            return None
        return replace(started, launch=replace(started.launch, words=words))

    def close(self) -> None:
        """End what waits."""
        if self._started is not None:
            end_started(self._started)
            self._started = None
