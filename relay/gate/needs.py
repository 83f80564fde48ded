"""What verify commands need, and whether it is there: programs, files, and the test command of the repository itself.

Nothing is run here. `find_test_command` reads the repository's files, for a plan that names no verify command.
"""

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath

from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.gate.model import CommandCheck, Outcome
from relay.gate.shell_line import list_tests
from relay.plan.model import Phase, Plan, Violation
from relay.plan.paths import find_command_modules, find_command_paths, place, split_place
from relay.plan.text import find_plan_folder

_NOT_FOUND = re.compile(
    r"^(?:[\w./-]*sh|[\w./-]*env): (?:line \d+: |\d+: )?['‘]?(?P<name>[^\n:'’]{1,200})['’]?:"
    r" (?:command not found|not found|No such file or directory|Permission denied)",
    re.MULTILINE,
)
"""bash, dash and env in English. In another locale the words differ, and relay knows nothing."""
_NO_MODULE = re.compile(r"^[\w./-]*python[\d.]*(?:\.exe)?: No module named (?P<name>[\w.]{1,200})$", re.MULTILINE)
_INSTALLED = frozenset({"node_modules", ".venv", "venv", ".tox", ".nox", "vendor"})
"""Directories that an installation fills, and no session without the network."""


def find_missing_program(check: CommandCheck) -> str:
    """Return the program or the Python module that was missing; empty if unknown or nothing was missing."""
    if check.status is Outcome.MISSING:
        found = _NOT_FOUND.search(check.output_tail)
    elif check.status is Outcome.FAILED and " -m " in check.command:
        found = _NO_MODULE.search(check.output_tail)
    else:
        found = None
    return found["name"] if found else ""


def may_be_made(program: str, texts: Iterable[str]) -> bool:
    """Return whether work in the repository may bring a missing program.

    Anything may build a path in the repository, except below directories that only an installation fills. A name counts
    if an item of the phase names it.

    Args:
        program: From `find_missing_program`.
        texts: The phase's items, with the paths that they name.
    """
    path = PurePosixPath(program)
    if "/" in program and not path.is_absolute() and ".." not in path.parts:
        return _INSTALLED.isdisjoint(path.parts)
    name = re.compile(rf"(?<![\w-]){re.escape(path.name.partition('.')[0])}(?![\w-])")
    return any(name.search(text) for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something without which a command checks nothing: a script, a rule, a file."""

    words: str
    """They follow “there is no”."""
    files: tuple[str, ...] = ()
    """The files of which one would bring it; empty if unknown."""


_NOT_EXECUTABLE = 126
"""Exit code of POSIX shells."""
MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
_LACKS = tuple(
    (re.compile(pattern, re.MULTILINE), words, files)
    for pattern, words, files in (
        (
            r"(?i:^npm err\S* missing script)|\bERR_PNPM_NO_SCRIPT\b|^error:? (?:Command|Script not found) \"",
            "such script",
            ("package.json",),
        ),
        (
            r"(?i)^npm err\S* enoent could not read package\.json|\bERR_PNPM_NO_IMPORTER_MANIFEST",
            "package",
            ("package.json",),
        ),
        (r"^g?make: \*\*\* No rule to make target [^,\n]*\.  Stop\.$", "such rule", MAKEFILES),
        (r"^g?make: \*\*\* No targets specified and no makefile found", "rule to make", MAKEFILES),
        (
            r"(?i)^error: (?:justfile does not contain recipe|no justfile found)",
            "such recipe",
            ("justfile", "Justfile"),
        ),
        (r"^task: (?:Task \".*\" does not exist|No Taskfile found)", "such task", ("Taskfile.yml", "Taskfile.yaml")),
        (r"^error: could not find `Cargo\.toml` in", "package", ("Cargo.toml",)),
        (r"^go: (?:go\.mod file not found|cannot find main module)", "module", ("go.mod",)),
    )
)
"""What task runners say in English, the words for what they lack, and the files that would bring it."""
_UNREAD = re.compile(
    r"^\S*python[\d.]*: can't open file|^Error: Cannot find module '/|^Can't open perl script|^\S*ruby: No such file",
    re.MULTILINE,
)
"""What interpreters say if there is no such program file."""
_UNKNOWN_MODULE = re.compile(r"^(?:ModuleNotFoundError: )?No module named '(?P<name>[\w.]{1,200})'", re.MULTILINE)


_NO_FOLDER = re.compile(r"^(?:[\w./-]*bash: line \d+: )cd: .{1,400}: No such file or directory$", re.MULTILINE)


def find_lack(check: CommandCheck) -> Lack | None:
    """Return what keeps a red command from checking anything; None if it ran, or an installation would bring it.

    Its files count from the root, wherever the command runs.
    """
    folder = split_place(check.command)[0]
    if folder and check.status is Outcome.FAILED and _NO_FOLDER.search(check.output_tail):
        return Lack(words=f"directory {folder}", files=(folder,))
    lack = _find_lack(check)
    if lack is None or not folder:
        return lack
    return replace(
        lack, words=f"{lack.words} in {folder}", files=tuple(posixpath.join(folder, one) for one in lack.files)
    )


def _find_lack(check: CommandCheck) -> Lack | None:
    if check.status is Outcome.MISSING:
        name = find_missing_program(check)
        path = PurePosixPath(name)
        is_inside = "/" in name and not path.is_absolute() and ".." not in path.parts
        if not name:
            return Lack(words=f"program for it (exit {check.exit_code})")
        words = f"executable {path}" if check.exit_code == _NOT_EXECUTABLE else str(path)
        return Lack(words=words, files=(str(path),)) if is_inside and _INSTALLED.isdisjoint(path.parts) else None
    if check.status is not Outcome.FAILED:
        return None
    for pattern, words, files in _LACKS:
        if pattern.search(check.output_tail):
            return Lack(words=f"{words} ({files[0]})", files=files)
    check = replace(check, command=split_place(check.command)[1])
    lost = _list_missed(check) if _UNREAD.search(check.output_tail) else []
    names = {found["name"] for found in _UNKNOWN_MODULE.finditer(check.output_tail)}
    for file in find_command_modules(check.command):
        module = file.removesuffix(".py").replace("/", ".")
        lost += [file] if any(f"{module}.".startswith(f"{name}.") for name in names) else []
    return Lack(words=list_some(sorted(lost)), files=tuple(sorted(lost))) if lost else None


_MISSES = re.compile(r"no such file|cannot (?:open|find)|can't (?:open|find)|not found|does not exist", re.IGNORECASE)
"""Words of shells, interpreters and common tools in English; in another locale relay knows nothing."""
_WORD = re.compile(r"[^\s;&|<>()'\"`=:]+")
ELSEWHERE = re.compile(
    r"(?:^|[\s;&|(])(?:cd|pushd)\s|\s(?:-C|--?(?:prefix|cwd|dir|directory|filter|workspace|project|root)\b)"
)
"""The command looks below another directory."""
_TEST = re.compile(r"^tests?_|[._-](?:tests?|spec)$|^test(?=[A-Z])|(?<=[a-z])(?:Test|Spec)$")
"""Parts of a test's name that are not in the name of the tested file."""
_SIMILAR = 0.85
"""Least similarity of two names, of 1."""


def read_missed(check: CommandCheck) -> frozenset[str]:
    """Return the words of the lines in which a command says that something is missing."""
    lines = (line for line in check.output_tail.splitlines() if _MISSES.search(line))
    return frozenset(word for line in lines for word in _WORD.findall(line))


def _list_missed(check: CommandCheck) -> list[str]:
    """Return the files that a command names and its output says are missing."""
    folder = split_place(check.command)[0]
    missed, named = (posixpath.join(folder, word) for word in read_missed(check)), find_command_paths(check.command)
    return sorted({path for word in missed for path in named if f"/{word}".endswith(f"/{path}")})


def find_missing_files(check: CommandCheck) -> tuple[str, ...]:
    """Return the files that a command names and that its test runner did not find, so that it ran nothing."""
    return tuple(_list_missed(check)) if check.status is Outcome.NO_TESTS else ()


def may_come(path: str, phases: Iterable[Phase], near: str) -> bool:
    """Return whether phases may make a file: one names it, or the tested file, or names no files at all.

    Args:
        path: The file.
        phases: The phases that are done before the file is needed.
        near: A similar file that exists, from `find_near`.
    """
    folders = {path, *map(str, PurePosixPath(path).parents)} - {"."}
    subject = re.compile(rf"(?<![A-Za-z]){re.escape(_TEST.sub('', PurePosixPath(path).stem))}", re.IGNORECASE)
    for phase in phases:
        bare = [item for item in phase.items if not item.paths]
        named = {str(PurePosixPath(name)) for item in phase.items for name in item.paths}.union(phase.files)
        if bare or not folders.isdisjoint(named) or any(name.startswith(f"{path}/") for name in named):
            return True
        if not near and any(subject.search(item.text) for item in phase.items):
            return True
    return False


def find_near(path: str, root: Path) -> str:
    """Return what a missing path may mean: a directory of that name, or a similar name beside it."""
    from difflib import get_close_matches

    pure, beside = PurePosixPath(path), dict[str, str]()
    with suppress(OSError):
        beside = {found.name.casefold(): found.name for found in (root / pure.parent).iterdir()}
    stem, name = pure.stem.casefold(), pure.name.casefold()
    found = [stem] if stem in beside else get_close_matches(name, beside, 1, _SIMILAR)
    return str(pure.with_name(beside[found[0]])) if found else ""


def suggest(near: str) -> str:
    """Return a question with the similar path; empty without one."""
    return f" (did you mean {near}?)" if near else ""


def check_files(plan: Plan, root: Path, lines: Mapping[str, int]) -> Iterator[Violation]:
    """Yield the files that commands of open phases test and that will be missing when their phase is done, each once.

    Args:
        plan: The plan.
        root: The repository.
        lines: The line of each command.
    """
    begun: list[Phase] = []
    seen = set[str]()
    for phase in plan.phases:
        if phase.done:
            continue
        begun.append(phase)
        for command in phase.verify:
            for path in sorted(_find_tested(command) - seen):
                near = find_near(path, root)
                if os.path.lexists(root / path) or may_come(path, begun, near):
                    continue
                seen.add(path)
                words = f"{path}, which a verify command names, is not there, and no item makes it{suggest(near)}"
                line = lines.get(command) or lines.get(split_place(command)[1], phase.line)
                yield Violation(line=line, message=words, warning=True)


def _find_tested(command: str) -> frozenset[str]:
    """Return the files that a command tests, relative to the root; nothing if it looks elsewhere."""
    folder, rest = split_place(command)
    parts = () if ELSEWHERE.search(rest) else list_tests(rest)
    return frozenset[str]().union(*(find_command_paths(place(part, folder)) for part in parts))


_MAX_BYTES = 512 * 1024
_MAKE_TARGET = re.compile(r"^(test|check):(?!=)", re.MULTILINE)
_PYTEST = re.compile(r"^\[(?:tool\.pytest|tool:pytest|pytest\])|\bpytest\b", re.MULTILINE)
_NO_SCRIPT = "no test specified"
"""From `npm init`."""
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
    """A command, and the file that suggests it."""

    command: str
    source: str


def find_test_command(root: Path, plan_path: str = "") -> KnownCommand | None:
    """Return the most likely test command beside a plan, else of the repository; None if nothing suggests one.

    Args:
        plan_path: From the root; one outside of the repository has nothing beside it.
    """
    for place_of in dict.fromkeys((find_plan_folder(plan_path), "")):
        if found := next(_look(root / place_of), None):
            return KnownCommand(command=place(found.command, place_of), source=posixpath.join(place_of, found.source))
    return None


def _look(root: Path) -> Iterator[KnownCommand]:
    for name in MAKEFILES:
        if made := _MAKE_TARGET.search(read_beginning(root / name)):
            yield KnownCommand(command=f"make {made[1]}", source=name)
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        script = json.loads(read_beginning(root / "package.json") or "{}")["scripts"]["test"]
        if isinstance(script, str) and script.strip() and _NO_SCRIPT not in script:
            runner = next((program for lock, program in _LOCKS if (root / lock).is_file()), "npm")
            yield KnownCommand(command=f"{runner} test", source="package.json")
    yield from _look_at_python(root)
    for name, command in _SIMPLE:
        if (root / name).is_file():
            yield KnownCommand(command=command, source=name)
    if found := min(root.glob("test*.py"), default=None):
        yield KnownCommand(command="python3 -m unittest discover", source=found.name)


def _look_at_python(root: Path) -> Iterator[KnownCommand]:
    own = [f"{venv}/bin/pytest" for venv in (".venv", "venv") if os.access(root / venv / "bin/pytest", os.X_OK)]
    for name in ("pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini", "requirements-dev.txt", "conftest.py"):
        if _PYTEST.search(read_beginning(root / name)) or (
            name in {"pytest.ini", "conftest.py"} and (root / name).is_file()
        ):
            locked = (f"{prefix}pytest" for lock, prefix in _PYTHON_RUNNERS if (root / lock).is_file())
            yield KnownCommand(command=f"{next(chain(locked, own), 'python3 -m pytest')} -q", source=name)
            return
    if (root / "manage.py").is_file():
        yield KnownCommand(command="python3 manage.py test", source="manage.py")
    folder = next((name for name in ("tests", "test") if any((root / name).glob("test*.py"))), "")
    if folder:
        where = "" if (root / folder / "__init__.py").is_file() else f" {folder}"
        command = f"{own[0]} -q" if own else f"python3 -m unittest discover{where}"
        yield KnownCommand(command=command, source=f"{folder}/")


def read_beginning(path: Path) -> str:
    """Return the first half MiB of a file as text; empty if it cannot be read."""
    try:
        return (read_start(path, _MAX_BYTES) or b"")[:_MAX_BYTES].decode("utf-8", "replace")
    except OSError:
        return ""
