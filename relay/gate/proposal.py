"""The test command that a repository has already, for a plan that names none: read off its files, never run here."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from relay.base.tree import read_start
from relay.base.values import dataclass

_MAX_BYTES = 512 * 1024
_MAKE_TARGET = re.compile(r"^(test|check):(?!=)", re.MULTILINE)
_PYTEST = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest\])|\bpytest\b", re.MULTILINE)
_NO_SCRIPT = "no test specified"
"""What `npm init` writes."""
_LOCKS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun run"), ("bun.lockb", "bun run"))
_PYTHON_RUNNERS = (("uv.lock", "uv run "), ("poetry.lock", "poetry run "), ("pdm.lock", "pdm run "))
_SIMPLE = (
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("mix.exs", "mix test"),
    ("gradlew", "./gradlew test"),
    ("mvnw", "./mvnw -q test"),
    ("pom.xml", "mvn -q test"),
    ("deno.json", "deno test"),
    ("noxfile.py", "nox"),
    ("tox.ini", "tox"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCommand:
    """A command, and the file that speaks for it."""

    command: str
    source: str


def find_test_command(root: Path) -> KnownCommand | None:
    """Return the test command that a repository most likely has; None when nothing speaks for one."""
    return next((found for look in _LOOKS for found in look(root)), None)


def _look_at_make(root: Path) -> Iterator[KnownCommand]:
    for name in ("Makefile", "makefile", "GNUmakefile"):
        if found := _MAKE_TARGET.search(_read(root / name)):
            yield KnownCommand(command=f"make {found[1]}", source=name)


def _look_at_package(root: Path) -> Iterator[KnownCommand]:
    try:
        script = json.loads(_read(root / "package.json") or "{}")["scripts"]["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if isinstance(script, str) and script.strip() and _NO_SCRIPT not in script:
        runner = next((program for lock, program in _LOCKS if (root / lock).is_file()), "npm")
        yield KnownCommand(command=f"{runner} test", source="package.json")


def _look_at_python(root: Path) -> Iterator[KnownCommand]:
    for name in ("pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini", "requirements-dev.txt", "conftest.py"):
        if _PYTEST.search(_read(root / name)) or (name in {"pytest.ini", "conftest.py"} and (root / name).is_file()):
            yield KnownCommand(command=f"{_find_pytest(root)} -q", source=name)
            return
    if (root / "manage.py").is_file():
        yield KnownCommand(command="python3 manage.py test", source="manage.py")
    folder = next((name for name in ("tests", "test") if any((root / name).glob("test*.py"))), "")
    if folder:
        is_package = (root / folder / "__init__.py").is_file()
        where = "" if is_package else f" {folder}"
        yield KnownCommand(command=f"python3 -m unittest discover{where}", source=f"{folder}/")


def _find_pytest(root: Path) -> str:
    if prefix := next((prefix for lock, prefix in _PYTHON_RUNNERS if (root / lock).is_file()), ""):
        return f"{prefix}pytest"
    venv = next((name for name in (".venv", "venv") if os.access(root / name / "bin/pytest", os.X_OK)), "")
    return f"{venv}/bin/pytest" if venv else "python3 -m pytest"


def _look_at_others(root: Path) -> Iterator[KnownCommand]:
    for name, command in _SIMPLE:
        if (root / name).is_file():
            yield KnownCommand(command=command, source=name)


def _read(path: Path) -> str:
    try:
        return (read_start(path, _MAX_BYTES) or b"")[:_MAX_BYTES].decode("utf-8", "replace")
    except OSError:
        return ""


_LOOKS: tuple[Callable[[Path], Iterator[KnownCommand]], ...] = (
    _look_at_make,
    _look_at_package,
    _look_at_python,
    _look_at_others,
)
