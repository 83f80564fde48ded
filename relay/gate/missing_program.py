"""What a command that did not run is missing, and whether a phase could make it. Pure."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from relay.gate.model import CommandCheck, Outcome

_NOT_FOUND = re.compile(
    r"^(?:[\w./-]*sh|[\w./-]*env): (?:line \d+: |\d+: )?['‘]?(?P<name>[^\n:'’]{1,200})['’]?:"
    r" (?:command not found|not found|No such file or directory|Permission denied)",
    re.MULTILINE,
)
"""bash, dash and env. Another locale says it in other words, and then nothing is known."""
_NO_MODULE = re.compile(r"^[\w./-]*python[\d.]*(?:\.exe)?: No module named (?P<name>[\w.]{1,200})$", re.MULTILINE)
_INSTALLED = frozenset({"node_modules", ".venv", "venv", ".tox", ".nox", "vendor"})
"""Directories that an installation fills, and no session without the network."""


def find_missing_program(check: CommandCheck) -> str:
    """Return the program or the Python module that was not there; empty when it is not known or nothing was missing."""
    if check.status is Outcome.MISSING:
        found = _NOT_FOUND.search(check.output_tail)
    elif check.status is Outcome.FAILED and " -m " in check.command:
        found = _NO_MODULE.search(check.output_tail)
    else:
        found = None
    return found["name"] if found else ""


def may_be_made(program: str, texts: Iterable[str]) -> bool:
    """Say whether work in the repository may bring a program that is missing.

    A path in the repository may be built by anything, but for what only an installation fills; a name is made by a
    phase that names it.

    Args:
        program: As `find_missing_program` returns it.
        texts: Of the phase's items, with the paths that they name.
    """
    path = PurePosixPath(program)
    if "/" in program and not path.is_absolute() and ".." not in path.parts:
        return _INSTALLED.isdisjoint(path.parts)
    name = re.compile(rf"(?<![\w-]){re.escape(path.name.partition('.')[0])}(?![\w-])")
    return any(name.search(text) for text in texts)
