"""A verify command whose exit code means nothing is noticed."""

from hypothesis import given
from hypothesis import strategies as st

from relay.gate.shell_line import check_command, list_tests, may_run_nothing, proves_nothing, swallows_exit

SWALLOWED = [
    "(cd app && pytest) || true",
    "pytest || true",
    "pytest || echo failed",
    "pytest; true",
    "pytest\necho done",
    "pytest || exit 0",
    "pytest &",
    "pytest & echo started",
    "(pytest || true)",
    "pytest || true # never fail, don't ask",
    "set -e; pytest || true",
    r"pytest \a|| true",
    "{ pytest; true; }",
    "cd app; { pytest; true; }",
    "{ { pytest; :; }; }",
    "pytest; { echo done; }",
    "pytest || (echo failed)",
    "pytest || { cat log; }",
    "pytest || git diff",
    "pytest > log; cat log",
    "pytest & wait",
    "bash -c 'pytest || true'",
    'sh -ec "pytest || true"',
]

HONEST = [
    "pytest > log 2>&1",
    "pytest",
    "pytest || exit 1",
    "pytest | tee log",
    "pytest 2>&1 | tail -5",
    "pytest &> log",
    "cd app && pytest",
    "set -e; pytest; echo ok",
    "(rm -rf build || true) && pytest",
    "grep -q '|| true' f",
    'grep -q "; true" f',
    r"find . -name x -exec grep -q y {} \;",
    "pytest # || true",
    'test "$(git status --porcelain | wc -l)" = 0',
    "pytest; exit",
    "cd app; npm test",
    "{ pytest; }",
    "{ pytest && ruff check; }",
    "pytest || (cat log && exit 1)",
    "pytest || (cat log; false)",
    "pytest tests/{a,b}.py",
    "echo ${X} && pytest",
    "test -f a && cat a",
    "bash -c 'pytest'",
    "()",
]


def test_thrown_away_exit_codes():
    assert [command for command in SWALLOWED if not (swallows_exit(command) and check_command(command))] == []


def test_honest_exit_codes():
    assert [command for command in HONEST if swallows_exit(command)] == []
    assert [command for command in HONEST if check_command(command)] == ["pytest; exit"]
    assert "goes on when `pytest` fails" in (check_command("pytest; exit") or "")


def test_warnings_say_what_to_do():
    for command, words in (
        ("", "checks nothing"),
        ("# nothing", "checks nothing"),
        ("true", "checks nothing"),
        ("echo ok", "checks nothing"),
        ("pytest tests/a; pytest tests/b", "join the commands with &&"),
        ("pytest tests/a\npytest tests/b", "join the commands with &&"),
        ("pytest &", "background"),
        ("pytest || true", "`|| true` throws the exit code away"),
        ("pytest tests --collect-only -q", "only lists tests"),
        ("npm run lint --if-present", "passes when there is no such script"),
    ):
        assert words in (check_command(command) or ""), command


@given(command=st.text(alphabet="a ;&|()'\"\\\n#`$<>{}!", max_size=40))
def test_any_text_is_read(command):
    check_command(command)
    swallows_exit(command)


def test_groups_without_end_are_not_looked_into():
    """The command is a stranger's text."""
    assert not swallows_exit("(" * 5_000 + "pytest || true" + ")" * 5_000)
    assert not swallows_exit("pytest || " + "{ " * 5_000 + "true" + "; }" * 5_000)
    assert not swallows_exit("()")
    assert not swallows_exit("pytest || ()")


def test_what_is_there_in_some_places_only_is_no_mistake():
    assert check_command("npm test --workspaces --if-present") is None
    assert may_run_nothing("npm test --workspaces --if-present")
    assert not may_run_nothing("npm test")


def test_what_is_green_whatever_was_done_proves_nothing():
    nothing = ("true", ":", "exit 0", "echo done >&2", "ls", "ls -la", "git status", "", "true && echo ok")
    assert [command for command in nothing if not (proves_nothing(command) and check_command(command))] == []
    a_little = ("ls dist/app.js", "cat out.txt", "test -f a", "git diff --exit-code")
    assert [command for command in a_little if proves_nothing(command)] == []


RUNS = (
    "pytest -q",
    "python -m unittest",
    "npm test",
    "pnpm vitest run a.test.ts",
    "go test ./...",
    "make check",
    "tox -q",
    "npx mocha",
    "./gradlew check",
    "sh run-tests.sh",
    "ruff check . && pytest",
    "cd pkg && node --test",
)
LOOKS = (
    "ruff check src tests",
    "python -m mypy tests",
    "cargo clippy --tests",
    "grep -q x tests/a.py",
    "git ls-files tests",
    "test -f out.txt",
    "! test -e tests",
    "npm install a@latest",
    "tsc --noEmit",
    "prettier --check tests && eslint tests",
)


def test_what_runs_tests_is_told_by_its_name():
    assert [command for command in RUNS if not list_tests(command)] == []
    assert [command for command in LOOKS if list_tests(command)] == []
