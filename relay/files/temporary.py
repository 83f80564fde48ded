"""Names of files that stand in a work tree for a moment: what a killed relay leaves there, its next run removes."""

import os
import re

_NAME = re.compile(r"\.relay-[0-9]+\.tmp")


def make_temporary_name() -> str:
    """Return a name that no other file has."""
    return f".relay-{int.from_bytes(os.urandom(8))}.tmp"


def is_temporary(name: str) -> bool:
    """Return whether a file's name, without its directories, is one of these."""
    return _NAME.fullmatch(name) is not None
