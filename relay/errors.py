"""What the user or the environment must act on, and relay's exit codes.

Outcomes that are part of the job (a red gate, a refused tool call, a model that stops) are values, never
exceptions. An exception of this tree means: nothing more can be done until somebody changes something.
Anything else that is raised is a bug.

    RelayError
    ├── PlanError            the plan file cannot be used as it is
    ├── ConfigError          a setting has a value that is not allowed
    ├── RepoError            the repository is in a state relay does not work in
    ├── SandboxError         commands cannot be confined as asked
    └── RunnerError          no session can be started (no key, unknown model, endpoint unreachable)
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every relay command."""

    DONE = 0
    """All that was asked for is done."""
    USER = 1
    """The user must act: bad plan, dirty tree, no key."""
    USAGE = 2
    """The command line is wrong."""
    BUG = 3
    """relay itself failed; a log file was written."""
    STOPPED = 4
    """Stopped with work left: gate red, blocked, stuck, budget, split needed."""
    INTERRUPTED = 130
    """Stopped by a signal; the next run resumes."""


class RelayError(Exception):
    """The user or the environment must act before relay can go on.

    Args:
        message: What was found, and what is allowed.
        hint: The one thing to do next, often a command.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PlanError(RelayError):
    """The plan file cannot be used as it is; the message carries ``path:line``."""


class ConfigError(RelayError):
    """A setting has a value that is not allowed; the message names the key and where it came from."""


class RepoError(RelayError):
    """The repository is in a state that relay does not work in."""


class SandboxError(RelayError):
    """Commands cannot be confined as asked."""


class RunnerError(RelayError):
    """No session can be started: no key, unknown model, endpoint unreachable."""
