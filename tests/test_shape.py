"""The rules of AGENTS.md that no linter checks."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_modules_are_small():
    """No module is longer than the limit."""
    long = {name_of(p): n for p in SOURCES if (n := p.read_text().count("\n")) > MAX_MODULE_LINES}

    assert long == {}


def test_functions_are_small():
    """No function is longer than the limit, docstring included."""
    long = {
        f"{name_of(path)}:{node.lineno} {node.name}": length
        for path in SOURCES
        for node in functions(ast.parse(path.read_text()))
        if (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }

    assert long == {}


def test_names_say_what_a_thing_is():
    """No module or class hides behind a word that means nothing."""
    empty = re.compile(r"(^|_)utils?$|(^|_)helpers?$|Manager$|Helper$|Util$|Service$")
    modules = [name_of(p) for p in SOURCES if empty.search(p.stem)]
    classes = [
        f"{name_of(path)} {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and empty.search(node.name)
    ]

    assert modules + classes == []


def test_git_is_run_in_one_place():
    """Only git/command.py starts git; the demo starts it for the person who watches."""
    starts = re.compile(r"\[\s*[\"']git[\"']")
    allowed = {"relay/demo.py", "relay/sandbox/probe.py"}  # shown to a person; a name of an act, not a command

    assert {name_of(p) for p in SOURCES if starts.search(p.read_text())} <= allowed


def test_relay_never_asks_git_to_destroy():
    """No argument list of relay's git calls holds a destructive command or flag."""
    forbidden = re.compile(
        r"[\"'](stash|clean|push|checkout|switch|gc|prune|filter-branch|--hard|--force|-f|-D|-A|--all)[\"']"
    )
    found = [
        f"{name_of(path)}:{n}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[1] in {"git", "store"}
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line) and "git" in line
    ]

    assert found == []


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["run", "--help"], ["plan", "--help"]])
def test_the_command_line_starts_without_the_sdk(arguments):
    """Starting relay imports neither the SDK nor rich nor an ASGI server."""
    code = (
        "import sys; from relay.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'anthropic', 'httpx2', 'uvicorn', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )

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
        "left_out = {'anthropic', 'httpx2', 'uvicorn', 'rich', 'yaml', 'json', 'shutil', 'socket', 'tempfile'}\n"
        "left_out |= {'relay.session.values', 'relay.session.events', 'relay.config'}\n"
        "left_out |= {'relay.store.commit', 'relay.store.legs'}\n"
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
