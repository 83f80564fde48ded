"""Whether a command of the user's own configuration can only be code that no session writes.

git runs a filter at the top of the work tree. What is named by a relative path, what an interpreter or a launcher
finds in the current directory, and what a shell would still expand, may be a session's.
"""

import os
import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_LAUNCHERS = re.compile(
    r"(ba|da|z|k|fi|c|tc|a|pw)?sh|busybox|env|exec|eval|source|\.|command|xargs|find|nice|nohup|setsid|stdbuf|timeout|time|sudo"
    r"|doas|parallel|g?make|just|task|rake|ninja|node|nodejs|deno|bun|bunx|np[mx]|pnpm|pnpx|yarn|corepack|tsx|ts-node|prettier"
    r"|eslint|biome|ruby|bundle|bundler|perl|php|composer|lua\w*|tclsh|guile|java|jshell|groovy|kotlin|scala|dotnet|go|cargo"
    r"|mix|iex|elixir|escript|R|Rscript|julia|uvx?|pipx?|pipenv|poetry|hatch|pdm|rye|conda|mamba|micromamba|pixi|nix\S*"
    r"|direnv|mise|asdf|docker|podman|pre-commit|lefthook|husky|ipython\S*|jupyter\S*|pypy\S*"
)
"""Programs that run what they find in the current directory, or what their next words say."""
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_SAFE_PYTHON = re.compile(r"python3\.(1[1-9]|[2-9]\d)")
"""Since 3.11 PYTHONSAFEPATH keeps the current directory off the path; relay sets it for git."""
_TEXT_TOOLS = frozenset({"sed", "gsed", "awk", "gawk", "mawk", "grep", "tr", "cut", "jq", "yq"})
"""Their words are patterns and programs, full of slashes."""
_PROGRAM_FILE = re.compile(r"-[a-zA-Z]*[fEilL]|--(file|from-file|exec|include|load|in-place)\b.*")
_EXPANDS = re.compile(r"[`\n<>]|\$[\w({]")
_SEPARATORS = frozenset({";", "|", "||", "&", "&&"})


def runs_outside(command: str, root: Path) -> bool:
    """Say whether nothing that a filter command runs can be in the work tree."""
    parts = _split(command)
    return parts is not None and all(_are_outside(part, root) for part in parts)


@lru_cache(maxsize=64)
def _split(command: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the words of each simple command; None where only a shell can tell. It is asked before every git."""
    if _EXPANDS.search(command):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    if any(set(word) <= set("();&|") and word not in _SEPARATORS for word in words):
        return None
    simple: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            simple.append([])
        else:
            simple[-1].append(word)
    return tuple(tuple(part) for part in simple if part)


def _are_outside(words: Sequence[str], root: Path) -> bool:
    program, *given = words
    if not is_outside(program, root):
        return False
    name = os.path.basename(program)  # noqa: PTH119  # a word, not a path
    if _PYTHON.fullmatch(name):
        real = os.path.basename(os.path.realpath(os.path.expanduser(program)))  # noqa: PTH111, PTH119  # never raises
        return _SAFE_PYTHON.fullmatch(real) is not None and given[:1] == ["-m"]
    if name in _TEXT_TOOLS:
        return not any(_PROGRAM_FILE.match(word) for word in given)
    if "=" in name or _LAUNCHERS.fullmatch(name):
        return False
    places = (part for word in given if word != "%f" for part in word.split("="))
    return not any(_is_below(place, root) for place in places if "/" in place or os.path.lexists(root / place))


def is_outside(program: str, root: Path) -> bool:
    """Say whether a program is found on PATH, or absolute and outside of the work tree."""
    return "/" not in program or (program.startswith(("/", "~")) and not _is_below(program, root))


def _is_below(word: str, root: Path) -> bool:
    place = os.path.realpath(root / os.path.expanduser(word))  # noqa: PTH111  # never raises
    return Path(place).is_relative_to(root)
