"""What a command is missing, and whether a phase can make it."""

from relay.gate.model import CommandCheck, Outcome
from relay.gate.needs import find_lack, find_missing_program, may_be_made


def look(output, status=Outcome.MISSING, command="x"):
    return find_missing_program(
        CommandCheck(command=command, exit_code=127, status=status, duration_s=0.0, output_tail=output)
    )


def test_shells_name_what_they_do_not_find():
    for output, name in (
        ("bash: line 1: pytest: command not found", "pytest"),
        ("> test\n> jest\n\nsh: 1: jest: not found", "jest"),
        ("bash: line 1: ./check.sh: Permission denied", "./check.sh"),
        ("/usr/bin/env: ‘node’: No such file or directory", "node"),
        ("bash: Zeile 1: pytest: Kommando nicht gefunden.", ""),
        ("", ""),
    ):
        assert look(output) == name, output


def test_a_module_is_missing_only_where_the_command_starts_it():
    words = "/usr/bin/python3: No module named pytest"
    assert look(words, Outcome.FAILED, "python3 -m pytest -q") == "pytest"
    assert look(words, Outcome.FAILED, "make test") == ""
    assert look("ModuleNotFoundError: No module named 'app'", Outcome.FAILED, "python3 -m pytest") == ""
    assert look("bash: line 1: pytest: command not found", Outcome.PASSED) == ""


def test_work_in_the_repository_builds_paths_and_what_it_names():
    for program, texts, made in (
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
    ):
        assert may_be_made(program, texts) is made, program


UNITTEST = """\
ERROR: {0} (unittest.loader._FailedTest.{0})
ImportError: Failed to import test module: {0}
ModuleNotFoundError: No module named '{1}'
Ran 1 test in 0.000s
"""
MAKEFILES = ("Makefile", "makefile", "GNUmakefile")


def find(command, code, output):
    status = Outcome.MISSING if code in {126, 127} else Outcome.FAILED
    return find_lack(CommandCheck(command=command, exit_code=code, status=status, duration_s=0.0, output_tail=output))


def test_a_command_that_checked_nothing_is_known_and_what_would_bring_what_it_lacks():
    for command, code, output, files in (
        ("npm test", 1, 'npm error Missing script: "test"\nnpm error', ("package.json",)),
        ("npm test", 254, "npm error enoent Could not read package.json: Error: ENOENT: no such", ("package.json",)),
        ("npm test", 1, 'npm ERR! Missing script: "test"', ("package.json",)),
        ("pnpm test", 1, " ERR_PNPM_NO_SCRIPT  Missing script: test", ("package.json",)),
        ("yarn test", 1, 'error Command "test" not found.', ("package.json",)),
        ("bun run test", 1, 'error: Script not found "test"', ("package.json",)),
        ("make test", 2, "make: *** No rule to make target 'test'.  Stop.", MAKEFILES),
        ("make", 2, "make: *** No targets specified and no makefile found.  Stop.", MAKEFILES),
        ("just test", 1, "error: Justfile does not contain recipe `test`.", ("justfile", "Justfile")),
        ("cargo test", 101, "error: could not find `Cargo.toml` in `/r` or any parent directory", ("Cargo.toml",)),
        ("go test ./...", 1, "go: go.mod file not found in current directory", ("go.mod",)),
        ("python3 run.py", 2, "/usr/bin/python3: can't open file '/r/run.py': [Errno 2] No such file", ("run.py",)),
        ("node a/run.js", 1, "Error: Cannot find module '/r/a/run.js'\n    at Module", ("a/run.js",)),
        ("python3 -m unittest tests.test_a", 1, UNITTEST.format("tests", "tests"), ("tests/test_a.py",)),
        ("python3 -m unittest tests.test_a", 1, UNITTEST.format("test_a", "tests.test_a"), ("tests/test_a.py",)),
        ("bash scripts/check.sh", 127, "bash: scripts/check.sh: No such file or directory", ("scripts/check.sh",)),
        ("./check.sh", 126, "bash: line 1: ./check.sh: Permission denied", ("check.sh",)),
        ("./check", 127, "", ()),
    ):
        lack = find(command, code, output)
        assert lack, (command, output)
        assert lack.files == files, (command, output)


def test_a_command_that_ran_and_is_red_lacks_nothing():
    for command, code, output in (
        ("make test", 2, "make: *** No rule to make target 'src/a.c', needed by 'test'.  Stop."),
        ("make test", 2, "sh: 1: exit\nmake: *** [Makefile:2: test] Error 1"),
        ("npm test", 1, "1 failing\n  expected 'Missing script' to be shown"),
        ("python3 -m unittest tests.test_a", 1, UNITTEST.format("test_a", "app")),
        ("grep -q hello hello.txt", 2, "grep: hello.txt: No such file or directory"),
        ("pytest -q", 127, "bash: line 1: pytest: command not found"),
        ("node_modules/.bin/jest", 127, "bash: line 1: node_modules/.bin/jest: No such file or directory"),
        ("node run.js", 1, "Error: Cannot find module './lib'\nRequire stack:\n- /r/run.js"),
    ):
        assert find(command, code, output) is None, (command, output)
