"""What of a user's program has to be seen where it is started in the sandbox. Reads the file system, starts nothing."""

from pathlib import Path

MODULES = "node_modules"


def find_package(program: Path) -> Path:
    """Return the directory that holds a program with what it loads.

    Of an npm package it is the topmost `node_modules`, of a virtual environment and of Python itself its own directory.
    """
    parts, above = program.parts, program.parent.parent
    if MODULES in parts:
        return Path(*parts[: parts.index(MODULES) + 1])
    is_python = program.name.startswith("python") and any(above.glob("lib/python3*/os.py"))
    return above if (is_python and above.name) or (above / "pyvenv.cfg").is_file() else program.parent
