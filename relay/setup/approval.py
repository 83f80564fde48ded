"""Whether the setup commands that a repository asks for may run: they have network, and a person has to have read them.

An approval is for the text of a command in one repository, and is kept in the user's own directory.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.base.errors import ConfigError
from relay.base.hints import Command
from relay.base.replacement import replace_with_file
from relay.base.tree import read_start
from relay.base.walk import open_folder
from relay.config import Settings, find_user_dir

_FILE = "approved-setup.json"
_MOST_BYTES = 1024 * 1024


def find_unapproved(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the setup commands that are the repository's wish and that nobody has approved here yet."""
    if "setup" not in settings.of_repository:
        return ()
    approved = _read(find_user_dir(environ)).get(str(root), ())
    return tuple(command for command in settings.setup if command not in approved)


def require_approval(root: Path, settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse commands that nobody has read.

    Raises:
        ConfigError: There are some; names them and the way.
    """
    if left := find_unapproved(root, settings, environ):
        raise ConfigError(
            f"{settings.origins['setup']}: this repository wants to run with network before its first session: "
            f"{'; '.join(left)}",
            hint=("read what they run, then type ", Command(words=("run", "--approve-setup")), ", once"),
        )


def save_approval(root: Path, commands: Sequence[str], environ: Mapping[str, str]) -> None:
    """Keep that the user approves of these commands in this repository.

    Raises:
        ConfigError: There is no directory of the user's.
    """
    folder = find_user_dir(environ)
    if folder is None:
        raise ConfigError("an approval cannot be kept: HOME is not set", hint="RELAY_SETUP says the commands yourself")
    known = _read(folder)
    known[str(root)] = list(dict.fromkeys((*known.get(str(root), ()), *commands)))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_folder(folder, ()) as here:
        replace_with_file(here, _FILE, json.dumps(known, indent=1).encode(), executable=None)


def _read(folder: Path | None) -> dict[str, list[str]]:
    """Return the approved commands by repository; what is there and makes no sense approves nothing."""
    try:
        data = read_start(folder / _FILE, _MOST_BYTES) if folder else None
        values: Any = json.loads(data or b"{}")
        return {str(root): [str(command) for command in commands] for root, commands in values.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
