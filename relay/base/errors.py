"""Errors that the user must act on, and relay's exit codes.

Outcomes that are part of the job (a red gate, a refused tool call, a model that stops) are values, never
exceptions. An exception of this tree means that relay can do nothing more until the user changes something.
Any other exception is a bug.

    RelayError
    ├── PlanError            the plan file cannot be used as it is
    ├── LedgerError          the ledger cannot be used as it is
    ├── ConfigError          a setting has a value that is not allowed
    │   └── FlagError        it was typed on the command line
    ├── RepoError            the repository is in a state relay does not work in
    ├── SandboxError         commands cannot be confined as asked
    └── RunnerError          no session can be started (no key, unknown model, endpoint unreachable)

An error carries its facts as fields. The command line writes the sentence; no code reads it back.
"""

import contextlib
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import ClassVar

from relay.base.hints import Hint

_LONGEST_CAUSE_CHARS = 2_000


class ExitCode(IntEnum):
    """Exit status of every relay command."""

    DONE = 0
    """The whole task is done."""
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


class ErrorKind(StrEnum):
    """The thing that the user has to change."""

    PLAN = "plan"
    LEDGER = "ledger"
    SETTINGS = "settings"
    REPOSITORY = "repository"
    SANDBOX = "sandbox"
    RUNNER = "runner"
    OTHER = "other"


class RelayError(Exception):
    """The user or the environment must act before relay can go on.

    Args:
        message: What is wrong, and what is allowed.
        path: The file at fault, as it is shown; empty if unknown or if no file is at fault.
        line: 1-based; 0 if unknown or if the whole file is at fault.
        hint: The next step, often a command. The command line knows how the user types it.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.OTHER

    def __init__(self, message: str, *, path: str = "", line: int = 0, hint: Hint = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.hint = hint

    def __str__(self) -> str:
        """Write ``path:line: message``; ``line 3: message`` where only the reader knows the file."""
        if self.path:
            return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"
        return f"line {self.line}: {self.message}" if self.line else self.message

    @property
    def causes(self) -> tuple[str, ...]:
        """The words of each cause, the nearest first; a cause that adds nothing new is left out."""
        said, seen, found = str(self), {id(self)}, list[str]()
        cause = self.__cause__
        while cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            words = str(cause)[:_LONGEST_CAUSE_CHARS] or type(cause).__name__
            reason = cause.strerror if isinstance(cause, OSError) else None  # its text also has a number and the path
            if words not in said and (not reason or reason not in said):
                found.append(words)
                said = f"{said}\n{words}"
            cause = cause.__cause__
        return tuple(found)


class PlanError(RelayError):
    """The plan file cannot be used as it is."""

    kind = ErrorKind.PLAN


class LedgerError(RelayError):
    """The ledger cannot be used as it is."""

    kind = ErrorKind.LEDGER


class ConfigError(RelayError):
    """A setting has a value that is not allowed; the message names the key and, if that is no file, its origin."""

    kind = ErrorKind.SETTINGS


class FlagError(ConfigError):
    """The value was typed on the command line."""


class RepoError(RelayError):
    """The repository is in a state that relay does not work in."""

    kind = ErrorKind.REPOSITORY


class LockedError(RepoError):
    """Another relay, or a git of the user's, works in the same place."""


class SandboxError(RelayError):
    """Commands cannot be confined as asked."""

    kind = ErrorKind.SANDBOX


class RunnerError(RelayError):
    """No session can be started: no key, unknown model, endpoint unreachable."""

    kind = ErrorKind.RUNNER


@contextlib.contextmanager
def within(path: str) -> Iterator[None]:
    """Add the file's path to errors raised inside: a parser knows lines, not paths."""
    try:
        yield
    except RelayError as error:
        error.path = error.path or path
        raise
