"""Which files of a phase its items do not name."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

RULES_FILES = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md"})
_LEAST_STEM = 3
"""A declared file with a shorter name has no tests that can be told by it."""


def find_strayed(touched: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the touched files that no declared path covers, in order.

    A declared path covers itself, what is below it, what it matches as a pattern, and tests that carry its name.
    Rules files stray never.
    """
    paths = tuple({str(PurePosixPath(path)) for path in declared})
    stems = {PurePosixPath(path).stem.lower() for path in paths}
    stems = {stem for stem in stems if len(stem) >= _LEAST_STEM}
    return tuple(path for path in touched if not _is_covered(path, paths, stems))


def _is_covered(path: str, declared: tuple[str, ...], stems: set[str]) -> bool:
    name = PurePosixPath(path).name
    if name in RULES_FILES:
        return True
    if "test" in path.lower() and any(stem in name.lower() for stem in stems):
        return True
    return any(
        known in {path, "."} or path.startswith(f"{known}/") or ("*" in known and fnmatchcase(path, known))
        for known in declared
    )
