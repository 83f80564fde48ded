"""Where a gate runs: the directory of each verify command, decided in one place, and what an item's path means there.

A plan below a package runs a command in its own directory if the command's own files are there, else at the root.
`In: DIR`, and a command that begins with `cd`, say it themselves. The decision reads the commit that a phase starts
from: no session moves its own gate.
"""

import json
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from pathlib import Path, PurePosixPath

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.gate.needs import ELSEWHERE, MAKEFILES, find_near, may_come, read_beginning, suggest
from relay.git.names import with_parents
from relay.git.objects import load_blob
from relay.git.repository import Repo
from relay.git.trees import EXECUTABLE, FILE, find_entries
from relay.plan.model import Phase, Plan, Violation
from relay.plan.paths import find_command_modules, find_command_paths, place, split_place
from relay.plan.text import describe_outside, find_plan_folder

Read = Callable[[str], str | None]
"""Returns the beginning of a file by its path from the root, "" for a directory, None if nothing is there."""

_PYTHON = ("pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini", "conftest.py", "tests", "test")
_PROGRAMS = tuple(
    (re.compile(rf"(?<![\w./-])(?:{programs})(?![\w/-])"), files)
    for programs, files in (
        (r"pytest|py\.test|unittest|ruff|mypy|pyright|flake8|tox|nox", (*_PYTHON, "noxfile.py")),
        (r"npx|pnpx|npm (?:ci|exec|audit)|tsc|eslint|vitest|jest|mocha|prettier|biome", ("package.json",)),
        (r"g?make(?=(?:\s+-\S+)*\s*$)", MAKEFILES),
        ("cargo", ("Cargo.toml",)),
        ("go", ("go.mod",)),
        ("mix", ("mix.exs",)),
        ("mvn", ("pom.xml",)),
        ("gradle", ("build.gradle", "build.gradle.kts")),
        ("deno", ("deno.json", "deno.jsonc")),
        ("rake|rspec|bundle", ("Rakefile", "Gemfile")),
        ("phpunit|composer", ("composer.json", "phpunit.xml")),
        ("task", ("Taskfile.yml", "Taskfile.yaml")),
    )
)
"""Programs, and the files of which one is a project's of theirs."""
_RULED = ("package.json", *MAKEFILES, "justfile", "Justfile")
"""Files with named commands."""


def find_rules(path: str, commands: Iterable[str]) -> Iterator[str]:
    """Yield the targets of a makefile, or the scripts of a package, that commands run."""
    name = path.rpartition("/")[2]
    for command in commands if name in _RULED else ():
        if name == "package.json":
            found = re.search(r"\b(?:npm|pnpm|yarn|bun)(?: run)? ([\w:.-]+)", command)
            yield from (found[1],) if found else ()
        else:
            found = re.search(r"\b(?:make|just)\b([^|;&]*)", command)
            yield from (word for word in found[1].split() if re.fullmatch(r"[\w.-]+", word)) if found else ()


def cut_rule(path: str, text: str, rule: str) -> str:
    """Return a rule's text; empty without it."""
    if path.endswith("package.json"):
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            return str(json.loads(text)["scripts"][rule])
        return ""
    found = re.search(rf"^{re.escape(rule)}\b[^\n]*:[^\n]*\n(?:[ \t]+[^\n]*\n?)*", text, re.MULTILINE)
    return found[0] if found else ""


def find_place(command: str, folder: str, read: Read) -> tuple[str, str]:
    """Return the directory in which a command of a plan runs, and the file that says so.

    Args:
        command: As the plan has it, without an `In:`.
        folder: The plan's own directory; empty at the root.

    Returns:
        Both from the root. The directory is empty at the root, and the file where nothing says where.
    """
    if ELSEWHERE.search(command):
        return split_place(command)[0], ""
    named = sorted(find_command_paths(command) | find_command_modules(command))
    for place_of in dict.fromkeys((folder, "")):
        if found := next((path for name in named if read(path := posixpath.join(place_of, name)) is not None), ""):
            return place_of, found
    if named and _nearest(named[0], folder, read) != _nearest(named[0], "", read):
        return max((folder, ""), key=lambda one: _nearest(named[0], one, read)), ""
    for place_of in dict.fromkeys((folder, "")):
        if found := _find_own(command, place_of, read):
            return place_of, found
    return "", ""


def _nearest(path: str, folder: str, read: Read) -> int:
    """Return how many directories of a path are there."""
    above = (posixpath.join(folder, str(one)) for one in PurePosixPath(path).parents if str(one) != ".")
    return sum(read(one) is not None for one in above)


def _find_own(command: str, folder: str, read: Read) -> str:
    """Return the file that has the rule or the script which a command runs, or that makes a project of its program."""
    for name in _RULED:
        path = posixpath.join(folder, name)
        if any(cut_rule(path, read(path) or "", rule) for rule in find_rules(path, (command,))):
            return path
    files = (posixpath.join(folder, name) for pattern, names in _PROGRAMS if pattern.search(command) for name in names)
    return next((path for path in files if read(path) is not None), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The repository of a plan, in which its commands and paths are looked up."""

    root: Path
    folder: str
    """The plan's directory; empty at the root, and for a plan outside of the repository."""
    read: Read = field(hash=False)
    """Reads the commit that decides where commands run."""


def open_ground(root: Path, repo: Repo | None, plan_path: str, rev: str | None) -> Ground:
    """Return the ground of a plan.

    Args:
        rev: The commit or tree that decides where commands run; None for the files as they are.
    """

    @cache
    def read(path: str) -> str | None:
        if repo is None or rev is None:
            return read_beginning(root / path) if os.path.lexists(root / path) else None
        mode, blob = find_entries(repo, rev, (path,)).get(path, ("", ""))
        is_file = mode in {FILE, EXECUTABLE}
        return load_blob(repo, blob).decode("utf-8", "replace") if is_file else "" if mode else None

    return Ground(root=root, folder=find_plan_folder(plan_path), read=read)


def settle_plan(ground: Ground, plan: Plan) -> Plan:
    """Return a plan of phases as `settle_phase` returns them; a change of its boxes reads it anew, without places."""
    return replace(plan, phases=tuple(settle_phase(ground, phase) for phase in plan.phases))


def settle_phase(ground: Ground, phase: Phase) -> Phase:
    """Return a phase whose verify commands say where they run, and whose paths count from the root.

    Raises:
        PlanError: Its `In:` leads out of the repository.
    """
    said, line = phase.find_wish("in")
    if not (ground.folder or said or phase.folder):
        return phase
    for folder in filter(None, (said, phase.folder)):
        if words := describe_outside(folder) or _describe_link(ground.root, folder):
            raise PlanError(words, line=line if folder == said else 1)
    placed = {
        command: place(
            command,
            (said if command in phase.own_verify else "")
            or phase.folder
            or find_place(command, ground.folder, ground.read)[0],
        )
        for command in phase.verify
    }
    base = posixpath.normpath(said or phase.folder or ground.folder)
    is_used = any(split_place(command)[0] == base for command in placed.values())

    def mean(paths: Sequence[str]) -> tuple[str, ...]:
        return tuple(_find_meant(ground.root, path, base, is_used=is_used) for path in paths)

    return replace(
        phase,
        verify=tuple(placed.values()),
        own_verify=tuple(placed[command] for command in phase.own_verify),
        files=mean(phase.files),
        items=tuple(replace(item, paths=mean(item.paths), targets=mean(item.targets)) for item in phase.items),
    )


def describe_places(phase: Phase) -> tuple[str, ...]:
    """Return a line for sessions on commands of a settled phase that do not run at the root; empty without one."""
    below = [f"`{command}`" for command in phase.verify if split_place(command)[0] not in {"", "."}]
    words = "Paths in the plan count from there, or from the root."
    return (f"Verify commands run as {', '.join(below)}. {words}",) if below else ()


def _describe_link(root: Path, folder: str) -> str:
    if Path(os.path.realpath(root / folder)).is_relative_to(os.path.realpath(root)):
        return ""
    return f"`In: {folder}` leads out of the repository by a link; a verify command runs in a directory of its own"


def _find_meant(root: Path, path: str, base: str, *, is_used: bool) -> str:
    """Return a path of an item from the root: below the plan's directory if it is there, or more of its way is.

    Args:
        is_used: Whether the phase's commands run in that directory, which decides about a path without any way.
    """
    below = posixpath.join(base, path)
    if base == "." or f"{path}/".startswith(f"{base}/") or not (root / base).is_dir():
        return path

    def count(one: str) -> int:
        return sum(os.path.lexists(root / part) for part in (one, *map(str, PurePosixPath(one).parents)))

    inner, outer = count(below) - count(base) + 1, count(path)
    return below if inner > outer or (inner == outer and (is_used or os.path.lexists(root / below))) else path


def check_folders(plan: Plan, root: Path) -> Iterator[Violation]:
    """Yield the directories in which commands of open phases run and that will be missing then, each once.

    Args:
        plan: With the places of its commands.
    """
    begun, seen = list[Phase](), set[str]()
    for phase in (phase for phase in plan.phases if not phase.done):
        begun.append(phase)
        for folder in dict.fromkeys(split_place(command)[0] for command in phase.verify):
            if folder in seen or (root / folder).is_dir() or may_come(folder, begun, near := find_near(folder, root)):
                continue
            seen.add(folder)
            words = f"{folder}, where a verify command runs, is no directory, and no item makes it{suggest(near)}"
            yield Violation(line=phase.find_wish("in")[1] or phase.line, message=words, warning=True)


def describe_moved(plan: Plan, before: Ground, after: Ground, named: Collection[str]) -> Iterator[str]:
    """Yield the commands of open phases that a change of files takes away from the files that they ran on.

    Args:
        named: Paths that the phase's items name: these changes are the plan's own.
    """
    open_ones = (phase for phase in plan.phases if not (phase.done or phase.find_wish("in")[0] or phase.folder))
    for command in dict.fromkeys(command for phase in open_ones for command in phase.verify):
        (was, by), (now, why) = (find_place(command, before.folder, one.read) for one in (before, after))
        if was != now and by and with_parents((by, why)).isdisjoint(named):
            yield f"the check was moved: `{command}` ran in {was or 'the root'} ({by}), now in {now or 'the root'}"
