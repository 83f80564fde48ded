"""What the user is told to type next, as values; they are written out where it is known how relay was called. Pure."""

import posixpath
import shlex
from typing import TypeAlias

from relay.base.values import dataclass

MAX_COMMAND_CHARS = 380
"""Longest command that is shown to be typed; the live view cuts lines at 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of relay's."""

    words: tuple[str, ...]
    """Without ``relay`` and ``--plan``, the command's name first."""
    plan_path: str = ""
    """The plan it is for, relative to the repository's root; empty for the one that the user named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedPath:
    """A path that is part of what is to be typed."""

    path: str


Hint: TypeAlias = "str | Command | TypedPath | tuple[Hint, ...]"
"""A sentence, in parts that follow each other without a blank."""

RUN = Command(words=("run",))
STATUS = Command(words=("status",))
WHY = Command(words=("status", "--why"))
DOCTOR = Command(words=("doctor",))
ANOTHER_RELAY = ("is another relay at work on this branch? ", STATUS, " says where the plan stands now; then ", RUN)
"""A ref that this process had just written was moved or removed by somebody else."""
TELL = Command(words=("say", "what the session needs to know"))
REVISE = Command(words=("plan", "--revise", "what to do instead"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Where a command was typed, and how it named its plan."""

    folder: str = "."
    """Relative to the repository's root; ``--plan`` is read relative to it."""
    plan: str = ""
    """The value of ``--plan`` as typed; empty when the settings named the plan."""

    def write(self, hint: Hint) -> str:
        """Write a hint, commands and paths as they are typed here, quoted for a shell."""
        match hint:
            case str():
                return hint
            case Command():
                return self._write_command(hint)
            case TypedPath():
                return shlex.quote(self._find_typed(hint.path))
            case _:
                return "".join(map(self.write, hint))

    def _write_command(self, command: Command) -> str:
        """Write a command, or how to get its help where it is too long for a screen."""
        plan = self._find_typed(command.plan_path) if command.plan_path else self.plan
        name, *words = command.words
        named = () if not plan else (plan,) if name == "check" else ("--plan", plan)
        line = shlex.join(("relay", name, *named, *words))
        return line if len(line) <= MAX_COMMAND_CHARS and line.isprintable() else f"relay {name} --help"

    def _find_typed(self, path: str) -> str:
        return posixpath.relpath(path, self.folder)


AT_ROOT = Caller()
"""In the repository's root, with the plan that the settings name."""
