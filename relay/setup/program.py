"""Keeps relay's own code away from directories that a session writes or that a clone brought along.

`relay.__main__` imports this module before anything else, so it imports only `os` and `sys`: both are part of the
interpreter, and nothing is searched on ``sys.path``.
"""

import os
import sys

_dropped: list[str] = []
"""Entries that `drop_unsafe_imports` removed from ``sys.path``."""
LOADED_FROM = {"PYTHONPATH": ":", "LD_LIBRARY_PATH": ":;", "LD_PRELOAD": ": ", "LD_AUDIT": ":"}
"""Variables that name directories or files of code, with their separators. An empty entry is the current directory."""


def drop_unsafe_imports() -> None:
    """Remove entries of ``sys.path`` inside the work tree around the current directory.

    An empty or relative entry of PYTHONPATH, or ``python -m relay``, puts the current directory before the standard
    library. Entries of a virtual environment in the work tree stay, since relay needs them; `find_exposed` names them.
    """
    try:
        top = _find_top(os.getcwd())  # noqa: PTH109  # pathlib may be what a hostile directory brings along
    except OSError:
        top = "/"  # the directory is gone: remove relative entries only
    libraries = os.path.join(sys.prefix, "lib")  # noqa: PTH118
    unsafe = [
        entry
        for entry in sys.path
        if not os.path.isabs(entry)  # noqa: PTH117
        or (top != "/" and is_inside(entry, (top,)) and not entry.startswith(libraries))
    ]
    _dropped[:] = dict.fromkeys([*_dropped, *(os.path.abspath(entry) for entry in unsafe)])  # noqa: PTH100
    sys.path[:] = [entry for entry in sys.path if entry not in unsafe]


def _find_top(here: str) -> str:
    """Return the nearest directory upwards with a ``.git``; without one, `here`."""
    place = here
    while not os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
        if place == os.path.dirname(place):  # noqa: PTH120
            return here
        place = os.path.dirname(place)  # noqa: PTH120
    return place


def is_inside(place: str, roots: tuple[str, ...]) -> bool:
    """Return whether a path, as written or with links resolved, is one of `roots` or below one."""
    names = (os.path.abspath(place), os.path.realpath(place))  # noqa: PTH100
    tops = [os.path.join(os.path.realpath(root), "") for root in roots]  # noqa: PTH118
    return any(f"{name}/".startswith(top) for name in names for top in tops)


def find_exposed(roots: tuple[str, ...], variables: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the parts of relay's code, interpreter and libraries that are inside directories that sessions write.

    Args:
        variables: Those of `LOADED_FROM` that are set.

    Returns:
        (name of the part, place) pairs; variables come first, since a user can unset them at once.
    """
    import relay

    named = [
        (name, place)
        for name, value in variables.items()
        if value
        for place in value.translate(dict.fromkeys(map(ord, LOADED_FROM[name]), ":")).split(":")
    ]
    own = [
        ("relay itself", os.path.dirname(relay.__file__)),  # noqa: PTH120
        ("its Python", sys.executable),
        *(("its Python's environment", place) for place in (sys.prefix, sys.base_prefix)),
        *(("a directory of its imports", place) for place in (*_dropped, *sys.path)),
        *(("its bytecode", place) for place in (sys.pycache_prefix,) if place),
    ]
    return tuple((what, place) for what, place in dict.fromkeys((*named, *own)) if is_inside(place, roots))
