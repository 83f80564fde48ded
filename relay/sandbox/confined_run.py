"""Runs one command in a confinement; the sandbox can be prepared while relay waits for the model.

A prepared sandbox is used only if nothing that a command sees has changed since: a new layout would be the same, and
the kernel still has each of its mounts. Otherwise the sandbox is made anew.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from relay.base.errors import SandboxError
from relay.sandbox.confinement import Confinement
from relay.sandbox.policy import Limits
from relay.sandbox.private_folder import end_orphans
from relay.sandbox.process import (
    ATTEMPTS,
    CommandResult,
    Ending,
    Launch,
    Started,
    end_started,
    make_not_started,
    render_words,
    run_started,
    spawn,
    wrap_limits,
)


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


NO_ENV: Mapping[str, str] = MappingProxyType({})


def never() -> bool:
    """Return False: no stop was requested."""
    return False


def run_confined(  # noqa: PLR0913  # one process needs all of these, and most have defaults
    confinement: Confinement,
    argv: Sequence[str],
    *,
    cwd: Path,
    limits: Limits,
    should_stop: Callable[[], bool] = never,
    spool: Path | None = None,
    extra_env: Mapping[str, str] = NO_ENV,
    streams: tuple[int, int, int] | None = None,
    standby: Standby | None = None,
    prepare: Callable[[], object] = lambda: None,
    hear: Callable[[bytes], None] = lambda _: None,
) -> CommandResult:
    """Run a command; see `Sandbox.run`.

    Raises:
        SandboxError: The confinement could not be set up.
    """
    if not argv:
        return make_not_started("there is no command")
    words = ""
    for _ in range(ATTEMPTS):
        lent = tuple(map(os.dup, streams or ()))
        build = partial(build_waiting, confinement, limits=limits, cwd=cwd, extra_env=extra_env)
        try:
            started = None if lent or standby is None else standby.take(build, argv)
            if started is None:
                launch = build((*render_lending(confinement.inside, lent), *argv))
                launch = replace(launch, pass_fds=(*launch.pass_fds, *lent))
                started = spawn(launch, stderr=subprocess.STDOUT)
        except (OSError, ValueError) as error:  # too long, a NUL byte, not encodable: the command line is at fault
            return make_not_started(f"cannot run this: {error}")
        launch = replace(started.launch, prepare=prepare, hear=hear)
        started = replace(started, launch=launch)
        ending = run_started(started, limits=limits, should_stop=should_stop, spool=spool)
        if started.process.returncode < 0:  # killed, maybe alone
            end_orphans(confinement.private.tmp)
        if ending.started:
            return ending.result
        words = _last_line(ending)
    raise SandboxError(f"the sandbox could not be set up: {words}", hint="relay doctor tries each part of it")


def render_lending(inside: Path, lent: tuple[int, ...]) -> tuple[str, ...]:
    """Return what gives a command these descriptors for its streams and becomes it; empty for none."""
    if not lent:
        return ()
    words = f"streams={','.join(map(str, lent))}", *(["terminal"] if os.isatty(lent[0]) else [])
    return (sys.executable, "-I", "-S", str(inside), *words, "--")


def _last_line(ending: Ending) -> str:
    lines = ending.last.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
