"""Runs one command through a confinement."""

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
from relay.sandbox.process import CommandResult, Ending, make_not_started, run_started
from relay.sandbox.standby import Standby, build_waiting
from relay.sandbox.start import ATTEMPTS, spawn
from relay.sandbox.survivors import end_orphans

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
