"""The program of a tool server: found as a person would find it outside of the repository, in a sandbox of its own.

A session writes the repository and its temporary directory; a server may get secrets that no session has. So nothing of
the one decides what the other runs: it starts in a new directory, and PATH and the places of toolchains leave the
repository out. It reads and writes there what commands do, by absolute paths.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.tree import read_start
from relay.config.servers import REPOSITORY, ServerSettings
from relay.git.command import clean_path
from relay.git.hooks import HEAD_BYTES, parse_programs
from relay.sandbox.child import start_child
from relay.sandbox.environment import LOCATIONS
from relay.sandbox.programs import find_package
from relay.sandbox.run import open_sandbox
from relay.sandbox.toolchains import find_hosts
from relay.tools.server_links import ProgramLink, ServerError
from relay.tools.workspace import Workspace

_EXEC = ("/bin/bash", "-c", 'exec "$@"', "server")
"""Finds the program as every command is found."""
_HERE = (".", "..")
_SYSTEM = Path("/usr")
"""Is shown to every command, though a repository may be below it."""


def make_opener(
    name: str, settings: ServerSettings, workspace: Workspace, environ: Mapping[str, str]
) -> Callable[[], ProgramLink]:
    """Return what starts a server's program.

    Args:
        environ: The user's, for PATH and what the settings name.

    Raises:
        ServerError: There is no such program, or it would be the repository's.
        KeyError: A variable that it needs is not set.
    """
    root, policy = workspace.root, workspace.sandbox.policy
    given = {key: environ[key] for key in settings.env}
    words = [_fill(word, root) for word in settings.command]
    path = clean_path(environ.get("PATH", os.defpath), root)
    places = _list_places(_get_program(words[0], path, root), path)
    own = replace(policy, readable=(*policy.readable, *_list_shown(places, root, environ)), pass_env=())
    inside = {key: "" for key in LOCATIONS if f"{policy.env.get(key, '')}/".startswith(f"{root}/")}
    env = {**inside, **given, "PATH": path, "PYTHONSAFEPATH": "1"}

    def start() -> ProgramLink:
        with ExitStack() as stack:
            try:
                sandbox = stack.enter_context(
                    open_sandbox(own, workspace.sandbox.level, inquiries=workspace.sandbox.inquiries)
                )
                child = start_child(
                    sandbox.confinement, (*_EXEC, *words), limits=workspace.limits, cwd=sandbox.tmp, extra_env=env,
                    errors=sandbox.private.path / f"mcp-{name}",
                )  # fmt: skip
            except SandboxError as error:
                raise ServerError(str(error)) from None
            advise = _advise if not own.reaches_hosts else str
            return ProgramLink(child, workspace.should_stop, advise, stack.pop_all().close)

    return start


def _fill(word: str, root: Path) -> str:
    if word in _HERE or word.startswith(("./", "../")):
        raise ServerError(f"{word} in its command: it starts outside of the repository, which {REPOSITORY} stands for")
    return word.replace(REPOSITORY, str(root))


def _get_program(program: str, path: str, root: Path) -> Path:
    found = shutil.which(program, path=path)
    if found is None:
        raise ServerError(f"there is no program {program} on PATH, where the repository's own do not count")
    for place in (Path(found), Path(found).resolve()):
        if place.is_relative_to(root):
            raise ServerError(f"{program} is {place}, in the repository: relay starts no server that a repository has")
    return Path(found)


def _list_places(program: Path, path: str) -> Iterator[Path]:
    """Yield where a program is, and what its first line names, as they are called and as they are."""
    yield from (program, program.resolve())
    for names in parse_programs(read_start(program.resolve(), HEAD_BYTES) or b""):
        if found := shutil.which(names[0], path=path):
            yield from (Path(found), Path(found).resolve())


def _list_shown(places: Iterator[Path], root: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    shown = tuple(dict.fromkeys(find_package(place) for place in places))
    for place in shown:
        is_above = root.is_relative_to(place) or Path(environ.get("HOME") or "/").is_relative_to(place)
        if is_above and place != _SYSTEM:
            raise ServerError(
                f"its program is in {place}, which is not shown as a whole: give it a directory of its own"
            )
    return shown


def _advise(words: str) -> str:
    """Say what helps a program that wants to download what it is."""
    if not (hosts := find_hosts(words)):
        return words
    listed = ", ".join(f'"{host}"' for host in hosts)
    return f"{words}; it would download itself, and has no network: install it, or network = {{ hosts = [{listed}] }}"
