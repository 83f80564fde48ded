"""What test runners and linters print: that they ran nothing, that they ran something, what failed. Pure.

Exit codes do not tell: of the runners below most exit 0 when they find no test.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    runner: str
    none: str
    """A line (or lines) that says nothing ran."""
    some: str
    """A line that says something ran."""
    source: str


# `[ \t]` and never `\s`, which takes line ends too: a flood of empty lines was then read to its end from each of them.
_SIGNS = (
    _Sign(
        runner="pytest",
        none=r"^(?:=+ )?(?:no tests ran|\d+ deselected|\d+ skipped(?:, \d+ (?:deselected|warnings?))*) in .*$"
        r"|^collected 0 items.*$",
        some=r"^(?:=+ )?.*\b[1-9]\d* (?:passed|failed|errors?|xfailed|xpassed)\b.* in [\d.]+s",
        source="pytest 9.2, run in tests/gate",
    ),
    _Sign(
        runner="unittest",
        none=r"^Ran 0 tests in .*$|^Ran (?P<all>\d+) tests? in .*\n\nOK \(skipped=(?P=all)\)$|^NO TESTS RAN.*$",
        some=r"^Ran [1-9]\d* tests? in ",
        source="CPython 3.11 and 3.12, Lib/unittest/runner.py; 3.11 is run in tests/gate",
    ),
    _Sign(
        runner="jest",
        none=r"^No tests found(?:, exiting with code \d)?$",
        some=r"^Tests:[ \t].*\b[1-9]\d* (?:passed|failed)",
        source="jestjs/jest#8187, #5092",
    ),
    _Sign(
        runner="vitest",
        none=r"^[ \t]*No test files found, exiting with code \d$",
        some=r"^[ \t]*Tests[ \t]+.*\b[1-9]\d* (?:passed|failed)",
        source="nrwl/nx#27722, vitest-dev/vitest#1032",
    ),
    _Sign(
        runner="go test",
        none=r"^\?[ \t]+\S+[ \t]+\[no test files\]$|^ok[ \t]+\S+[ \t].*\[no tests to run\]$",
        some=r"^(?:ok[ \t]+\S+[ \t]|--- (?:PASS|FAIL): )",
        source="golang/go src/cmd/go/internal/test, golang/go#15211",
    ),
    _Sign(
        runner="cargo test",
        none=r"^running 0 tests$|^test result: ok\. 0 passed;.*$",
        some=r"^test result: \w+\. [1-9]\d* passed;|^test result: FAILED",
        source="rust-lang/rust library/test",
    ),
    _Sign(
        runner="node --test",
        none=r"^(?:#|ℹ) tests 0$",
        some=r"^(?:#|ℹ) (?:pass|fail) [1-9]",
        source="abstxn/lunch-uncle#22 (Node 26.7)",
    ),
    _Sign(
        runner="mocha",
        none=r"^[ \t]*0 passing \(.*$",
        some=r"^[ \t]*[1-9]\d* (?:passing|failing)\b",
        source="mochajs/mocha#4716, redhat-developer/vscode-extension-tester#1053",
    ),
    _Sign(
        runner="rspec",
        none=r"^0 examples, 0 failures.*$|^No examples found\.$",
        some=r"^[1-9]\d* examples?, ",
        source="rspec.info features/3-13 exit-status",
    ),
    _Sign(
        runner="minitest",
        none=r"^0 (?:runs|tests), 0 assertions.*$",
        some=r"^[1-9]\d* (?:runs|tests), ",
        source="minitest/minitest lib/minitest.rb, summary reporter",
    ),
    _Sign(
        runner="ctest",
        none=r"^No tests were found!!!$",
        some=r"tests failed out of [1-9]",
        source="Kitware/CMake Source/CTest; ctest(1) --no-tests",
    ),
    _Sign(
        runner="phpunit",
        none=r"^No tests executed!$",
        some=r"^OK \([1-9]\d* tests?|^Tests: [1-9]",
        source="sebastianbergmann/phpunit#6276",
    ),
    _Sign(
        runner="dotnet test",
        none=r"^.*No test (?:is available in|matches the given testcase filter).*$",
        some=r"(?:Passed|Failed):[ \t]+[1-9]|Total tests: [1-9]|total: [1-9]",
        source="microsoft/vstest#479, #2590",
    ),
    _Sign(
        runner="maven surefire",
        none=r"^(?:\[\w+\] )?(?:Tests run: 0, Failures: 0, .*|No tests to run\.)$",
        some=r"Tests run: [1-9]",
        source="apache/maven-surefire, console output of the test goal",
    ),
    _Sign(
        runner="mix test",
        none=r"^There are no tests to run$|^0 tests, 0 failures.*$",
        some=r"^[1-9]\d* (?:doctests?|tests?|propert(?:y|ies)).*, \d+ failures?",
        source="elixir-lang/elixir#8040",
    ),
    _Sign(runner="TAP", none=r"^1\.\.0\b.*$", some=r"^(?:not )?ok \d+", source="testanything.org specification 13, 14"),
)

_NONE = re.compile("|".join(sign.none for sign in _SIGNS), re.MULTILINE)
_SOME = re.compile("|".join([*(sign.some for sign in _SIGNS), r"^FAIL(?:ED)?\b"]), re.MULTILINE)

_LINE_CHARS = 400
"""Of each line is looked at: no summary is longer, and an endless line could keep the patterns busy for hours."""

_FAILURES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?:FAILED|ERROR) (\S+::.*?|\S+\.py)(?: - .*)?$",  # pytest
        r"^(?:FAIL|ERROR): (\S+ \(.+\))$",  # unittest
        r"^[ \t]*--- FAIL: (\S+)",  # go
        r"^test (\S.*) \.\.\. FAILED$",  # cargo
        r"^[ \t]+● (\S.*)$",  # jest
        r"^[ \t]*not ok \d+ (?:- )?(.+?)(?: # .*)?$",  # TAP
        r"^[ \t]*✖ (\S.*?)(?: \([\d.]+ms\))?$",  # node --test
        r"^rspec (\./\S+)",  # rspec; with the line, which is all it gives
        r"^[ \t]*--> ([^\s:]+):\d+:\d+$",  # ruff and rustc: the file, once for each finding
    )
)
_FINDING = re.compile(r"^([^\s:()]*[./][^\s:()]*)(?::\d+(?::\d+)?|\(\d+,\d+\)):? (\S.*)$", re.MULTILINE)
"""mypy, flake8, compilers, tsc: ``file:line:column: text``. The line moves with every edit and is left out."""


def ran_no_tests(output: str) -> bool:
    """Say whether a test runner reports that it ran nothing, and none reports that it ran something.

    Tests that were all skipped, deselected or ignored did not run.
    """
    rest, found = _NONE.subn("", _shorten(output))
    return found > 0 and _SOME.search(rest) is None


def find_failures(output: str) -> tuple[str, ...]:
    """Return names of failed tests and texts of findings, sorted, one for each time they are reported."""
    text = _shorten(output)
    names = [match[1] for pattern in _FAILURES for match in pattern.finditer(text)]
    names += [f"{match[1]}: {match[2]}" for match in _FINDING.finditer(text)]
    return tuple(sorted(names))


def _shorten(output: str) -> str:
    return "\n".join(line[:_LINE_CHARS] for line in output.split("\n"))
