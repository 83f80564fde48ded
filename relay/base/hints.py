"""Commands and paths that the user is told to type, as values. `Caller` writes them as they are typed there."""

import posixpath
import shlex
import sys
from pathlib import Path
from typing import TypeAlias

from relay.base.places import find_place, is_outside
from relay.base.values import dataclass

MAX_COMMAND_CHARS = 380
"""A longer command is shown as `relay NAME --help`; the live view cuts lines at 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A relay command."""

    words: tuple[str, ...]
    """The command's name and its arguments, without ``relay`` and ``--plan``."""
    plan_path: str = ""
    """The plan's path from the repository's root, or its name outside; empty for the plan that the user named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedPath:
    """A path within a command."""

    path: str


Hint: TypeAlias = "str | Command | TypedPath | tuple[Hint, ...]"
"""A sentence, in parts that follow each other without a blank."""

RUN = Command(words=("run",))
PLAN = Command(words=("plan", "what you want"))
STATUS = Command(words=("status",))
WHY = Command(words=("status", "--why"))
DOCTOR = Command(words=("doctor",))
ANOTHER_RELAY = ("is another relay at work on this branch? ", STATUS, " says where the plan stands now; then ", RUN)
"""Another program moved or removed a ref that this process had just written."""
TELL = Command(words=("say", "what the session needs to know"))
REVISE = Command(words=("plan", "--revise", "what to do instead"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user's directory, and the plan they named."""

    folder: str = "."
    """Relative to the repository's root; ``--plan`` is read relative to it."""
    plan: str = ""
    """The value of ``--plan`` as typed; empty when the settings named the plan."""

    def write(self, hint: Hint) -> str:
        """Write a hint with commands and paths as they are typed here, quoted for a shell."""
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
        """Write a command, or `relay NAME --help` where it is too long for a screen."""
        plan = self._find_typed(command.plan_path) if command.plan_path else self.plan
        name, *words = command.words
        named = () if not plan else (plan,) if name == "check" else ("--plan", plan)
        line = shlex.join(("relay", name, *named, *words))
        return line if len(line) <= MAX_COMMAND_CHARS and line.isprintable() else f"relay {name} --help"

    def _find_typed(self, path: str) -> str:
        return str(find_place(Path(), path)) if is_outside(path) else posixpath.relpath(path, self.folder)


AT_ROOT = Caller()
"""In the repository's root, with the plan of the settings."""


_DISTRIBUTION = "relay-build"


def advise_extra(name: str, place: Path = Path(sys.prefix)) -> str:
    """Return the command that installs the packages of an extra, in the way relay itself was installed.

    Args:
        name: The extra's name.
        place: The environment that has relay.
    """
    from importlib.metadata import PackageNotFoundError, requires
    from importlib.util import find_spec

    try:
        found = [line.partition(";") for line in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:  # relay is not installed: it runs from its source
        found = []
    packages = [package.strip() for package, _, marker in found if f"extra == '{name}'" in marker.replace('"', "'")]
    if not packages:
        return f"pip install '.[{name}]', in a checkout of relay"
    if (place / "pipx_metadata.json").exists():
        way = f"pipx inject {_DISTRIBUTION}"
    elif (place / "uv-receipt.toml").exists() or find_spec("pip") is None:
        way = f"uv pip install --python {shlex.quote(str(place))}"
    else:
        way = f"{shlex.quote(str(place / 'bin/python'))} -m pip install"
    return f"{way} {shlex.join(packages)}"
