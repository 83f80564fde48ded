"""The rules of AGENTS.md that no linter checks; `tests/shape/test_rules.py` shows that each check can fail."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.shape import rules

ROOT = Path(__file__).resolve().parent.parent
TESTS = sorted(path for room in ("tests", "rigs") for path in (ROOT / room).rglob("*.py"))
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
MAX_FUNCTION_LINES = 80


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def find_all(rule: Callable[[str], rules.Found], paths: Iterable[Path] = SOURCES) -> list[str]:
    """Return what breaks a rule in any of the files, as ``file:line: what``."""
    return [f"{name_of(path)}:{found}" for path in paths for found in rule(path.read_text())]


def test_functions_are_small():
    """No function is longer than the limit, docstring included."""
    long = {
        f"{name_of(path)}:{node.lineno} {node.name}": length
        for path in SOURCES
        for node in rules.walk_functions(path.read_text())
        if (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }

    assert long == {}


def test_prompts_are_read_in_one_place():
    """Every word of them is paid for on every request, so all of them are seen together."""
    found = [name_of(path) for path in SOURCES if re.search(r'"prompts"|templates/prompts', path.read_text())]

    assert found == ["relay/prompts/texts.py"]


def test_values_cost_a_start_little():
    """They are made by `relay.base.values`."""
    assert find_all(rules.find_slow_values, [path for path in SOURCES if path.name != "values.py"]) == []


def test_what_nobody_uses_goes():
    """What only tests call stands in tests."""
    uses = frozenset[str]().union(*(rules.list_uses(path.read_text()) for path in SOURCES))
    called_by_libraries = {"do_GET", "get_backoff_time", "handle_error", "log_message", "main_loop", "redirect_request"}
    called_by_libraries |= {"format_commands", "format_options", "service_actions"}
    called_by_libraries |= {"generate_span_id", "generate_trace_id"}
    shown = {"PLANNER_SPECS"}  # what a planner is told, measured
    inner = [path for path in SOURCES if path.name != "api.py" or path.parent.name != "relay"]  # for others to call
    idle = {name_of(path): {*rules.list_names(path.read_text())} - uses for path in inner}

    assert {name: found for name, known in idle.items() if (found := known - called_by_libraries - shown)} == {}


def test_git_is_started_in_one_place():
    assert {entry.partition(":")[0] for entry in find_all(rules.find_git_starts)} == {"relay/git/command.py"}


def test_git_is_spoken_in_two_rooms():
    """git/ and store/ name git's subcommands; elsewhere stand these few, which read, or write what nobody else has."""
    words = {
        name_of(path): set(found)
        for path in SOURCES
        if path.relative_to(ROOT).parts[1] not in {"git", "store"} and (found := rules.find_git_words(path.read_text()))
    }
    known = {
        "relay/rehearsal/demo.py": {
            "add",
            "commit",
            "config",
            "init",
            "log",
        },  # in the example's repository, which it makes
        "relay/run/commit/review.py": {"rev-parse"},
        "relay/run/rewind.py": {"check-ref-format", "revert"},  # which it prints for the user
        "relay/run/commit/disclosures.py": {"cat-file"},
        "relay/setup/trials.py": {"init"},  # a repository of the trial's own
    }

    assert [(name, found) for name, found in words.items() if not found <= known.get(name, set())] == []


def test_relay_never_asks_git_to_destroy():
    """No module that gives commands to git holds a word that makes git destroy."""
    found = find_all(rules.find_destroyers)
    filters = [entry for entry in found if re.fullmatch(r"relay/git/config_guard\.py:\d+: clean", entry)]

    pushes = [entry for entry in found if re.fullmatch(r"relay/git/remote\.py:\d+: push", entry)]

    # There "clean" is the key of a filter driver; and remotes are spoken to in one module, which only goes forward.
    assert sorted(set(found) - set(filters) - set(pushes)) == []


def test_no_test_sleeps():
    """What is waited for is looked for, in `tests/waiting.py`; a clock that a session waits by is injected."""
    allowed = {
        "tests/waiting.py",
        "tests/tools/test_edit_write.py",  # kills at moments of chance
        *map(name_of, (ROOT / "rigs").glob("[ac]*/*.py")),  # real processes, from outside: `make crash`, `make agents`
    }
    found = find_all(rules.find_sleeps, TESTS)

    assert [entry for entry in found if entry.partition(":")[0] not in allowed] == []


def test_no_test_is_timed():
    """A busy machine makes no test fail."""
    assert find_all(rules.find_timed_assertions, TESTS) == []


def test_modules_that_are_named_are_there():
    """A docstring that names a module, or what is in it, leads a reader there; so do README, AGENTS.md and docs/."""
    named = [
        (name_of(path), name)
        for path in SOURCES
        for name in re.findall(r"(?<!`)`relay\.(?!toml)([\w.]+)`", path.read_text())
        if not is_there(name)
    ]
    paths = [
        (page, name)
        for page in (ROOT / "README.md", ROOT / "AGENTS.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text())
        if not any((ROOT / base / name).exists() for base in ("", "relay")) and not name.startswith("app/")
    ]

    assert named + paths == []


def is_there(dotted: str) -> bool:
    """Say whether ``room.module.name``, or the beginning of it, is in the product."""
    place, parts = ROOT / "relay", dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    module = place / (f"{parts.pop(0)}.py" if parts and (place / f"{parts[0]}.py").exists() else "__init__.py")
    return not parts or re.search(rf"\b{parts[0]}\b", module.read_text()) is not None


def test_the_help_of_relay_imports_no_command():
    """Nor any room but `cli`, `base` and the module that makes imports safe."""
    code = (
        "import sys; from relay.__main__ import main; code = main()\n"
        "from relay.cli.main import COMMANDS\n"
        "own = [name for name in sys.modules if name.startswith('relay.')]\n"
        "rooms = {name.split('.')[1] for name in own} - {'__main__', 'base', 'cli'} - {'setup'}\n"
        "commands = {f'relay.cli.{place.partition(\":\")[0]}' for place, _ in COMMANDS.values()}\n"
        "setup = {name for name in own if name.startswith('relay.setup.')} - {'relay.setup.program'}\n"
        "print(code, sorted(rooms | setup | commands & set(own)))"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_help_of_commands_does_not_import_the_sdk():
    """Nor rich nor an HTTP server."""
    code = (
        "import sys; from relay.__main__ import main\n"
        "for sys.argv[1] in ('status', 'run', 'plan'): assert main() == 0\n"
        "print(sorted({'anthropic', 'httpx2', 'http.server', 'rich'} & set(sys.modules)))"
    )
    argv = [sys.executable, "-c", code, "-", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.splitlines()[-1] == "[]"


def test_status_does_not_import_the_sdk(tmp_path):
    """`relay status` of a real plan pays for git and Markdown, not for the SDK, settings, sessions or writing."""
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "PLAN.md").write_text("## Phase 1\nVerify: `true`\n- [ ] A — a.py\n")
    code = (
        "import sys; from relay.__main__ import main\n"
        "sys.argv[1:] = ['status']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "left_out = {'anthropic', 'httpx2', 'http.server', 'rich', 'asyncio', 'yaml', 'json', 'socket', 'tempfile'}\n"
        "left_out |= {'msgspec', 'shutil', 'relay.session.values', 'relay.session.events', 'relay.config'}\n"
        "left_out |= {'relay.store.commit', 'relay.store.attempts'}\n"
        "print(sorted(left_out & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.splitlines()[-1] == "[]"


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_nothing_is_tied_to_one_machine():
    """No committed text names this checkout's directory, and no lock file records download addresses."""
    locks = {"uv.lock", "poetry.lock", "pdm.lock", "package-lock.json"}
    here = f"{ROOT}{os.sep}"
    texts = {name_of(p): p.read_bytes() for p in tracked()}

    assert [name for name in texts if Path(name).name in locks] == []
    assert [name for name, data in texts.items() if here.encode() in data] == []


def test_the_commands_of_agents_md_exist():
    """AGENTS.md names only make targets that the Makefile has, and stays short."""
    text = (ROOT / "AGENTS.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z]+)`", text)) <= targets
    assert text.count("\n") <= 150
