"""Names of files outside of the repository, as commits and messages have them.

``~/`` is the home directory, ``~~/`` the root of the file system. Such a name is also a path in git's trees, which have
neither absolute paths nor ``..``. No file of a repository has one: `relay.setup.place` refuses a plan in a directory of
that name at the root.
"""

import os
from pathlib import Path

_HOME, _TOP = "~/", "~~/"


def is_outside(name: str) -> bool:
    """Return whether a plan's or a ledger's name is that of a file outside of the repository."""
    return name.startswith((_HOME, _TOP))


def name_outside(path: Path) -> str:
    """Return the name of a file outside of the repository, by its absolute path."""
    home = Path.home()
    return f"{_HOME}{path.relative_to(home)}" if path.is_relative_to(home) else f"{_TOP}{str(path).lstrip('/')}"


def find_place(root: Path, name: str) -> Path:
    """Return where the user's file of a name is: below the root, or outside.

    Links of the user's on the way to a file outside are resolved; the file itself may be none.
    """
    if not is_outside(name):
        return root / name
    top, _, rest = name.partition("/")
    spelled = (Path.home() if top == "~" else Path("/")) / rest
    return Path(os.path.realpath(spelled.parent), spelled.name)
