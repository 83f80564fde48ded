"""Runs one command through a confinement."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from relay.errors import SandboxError
from relay.sandbox.confinement import Confinement
from relay.sandbox.policy import Limits
from relay.sandbox.process import CommandResult, Ending, refuse, run_launch, wrap_limits

NO_ENV: Mapping[str, str] = MappingProxyType({})
_ATTEMPTS = 3
"""A path that vanished between check and mount fails the set-up before the command runs; then it is laid out anew."""


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
) -> CommandResult:
    """Run a command; see `Sandbox.run`.

    Raises:
        SandboxError: The confinement could not be set up.
    """
    if not argv:
        return refuse("there is no command")
    command = wrap_limits(tuple(argv), limits, shared_user=confinement.counts_user)
    words = ""
    for _ in range(_ATTEMPTS):
        launch = confinement.build_launch(command, cwd=cwd, extra_env=extra_env)
        ending = run_launch(launch, limits=limits, should_stop=should_stop, spool=spool)
        if ending.started:
            return ending.result
        words = _last_line(ending)
    raise SandboxError(f"the sandbox could not be set up: {words}", hint="relay doctor tries each part of it")


def _last_line(ending: Ending) -> str:
    lines = ending.result.output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
