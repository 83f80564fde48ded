"""What a command is missing, and whether a phase can make it."""

import pytest

from relay.gate.model import CommandCheck, Outcome
from relay.gate.needs import find_missing_program, may_be_made


def look(output, status=Outcome.MISSING, command="x"):
    return find_missing_program(
        CommandCheck(command=command, exit_code=127, status=status, duration_s=0.0, output_tail=output)
    )


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("bash: line 1: pytest: command not found", "pytest"),
        ("> test\n> jest\n\nsh: 1: jest: not found", "jest"),
        ("bash: line 1: ./check.sh: Permission denied", "./check.sh"),
        ("/usr/bin/env: ‘node’: No such file or directory", "node"),
        ("bash: Zeile 1: pytest: Kommando nicht gefunden.", ""),
        ("", ""),
    ],
)
def test_shells_name_what_they_do_not_find(output, name):
    assert look(output) == name


def test_a_module_is_missing_only_where_the_command_starts_it():
    words = "/usr/bin/python3: No module named pytest"
    assert look(words, Outcome.FAILED, "python3 -m pytest -q") == "pytest"
    assert look(words, Outcome.FAILED, "make test") == ""
    assert look("ModuleNotFoundError: No module named 'app'", Outcome.FAILED, "python3 -m pytest") == ""
    assert look("bash: line 1: pytest: command not found", Outcome.PASSED) == ""


@pytest.mark.parametrize(
    ("program", "texts", "made"),
    [
        ("pytest", ["Write the parser — src/parser.py"], False),
        ("pytest", ["Declare pytest as a dependency — pyproject.toml"], True),
        ("mytool", ["A console script — src/mytool/cli.py"], True),
        ("tool", ["A console script — src/mytool/cli.py"], False),
        ("./check.sh", [], True),
        ("build/app", [], True),
        ("node_modules/.bin/jest", ["Write it — a.js"], False),
        (".venv/bin/pytest", ["Test it — a.py"], False),
        ("/opt/tool/bin/lint", ["Write it — a.py"], False),
        ("../sibling/run", ["Write it — a.py"], False),
    ],
)
def test_work_in_the_repository_builds_paths_and_what_it_names(program, texts, made):
    assert may_be_made(program, texts) is made
