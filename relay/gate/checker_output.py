"""Reads what test runners and linters print: whether a test ran, and which failed. Pure.

Exit codes do not tell whether anything ran: most of these runners exit 0 when they find no test, and all do when every
test is skipped.
"""

import operator
import re
from functools import cache

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    runner: str
    none: str
    """How a line begins (and ends) that says nothing ran."""
    some: str
    """How a line begins that says something ran."""
    source: str


# Matched at the beginnings of lines. `[ \t]` and never `\s`, which takes line ends too: a flood of empty lines was then
# read to its end from each of them. No two `.*` in one pattern: a hostile line is tried at each pair of its places.
_SIGNS = (
    _Sign(
        runner="pytest",
        none=r"(?:=+ )?(?:no tests ran|\d+ deselected|\d+ skipped(?:, \d+ (?:deselected|warnings?))*) in .*$"
        r"|collected 0 items.*$|(?:=+ )?(?:no tests|\d+(?:/\d+)? tests?) collected\b.*$",
        some=r"(?:=+ )?(?:\d+ \w+, )*[1-9]\d* (?:passed|failed|errors?|xfailed|xpassed)\b.* in [\d.]+s",
        source="pytest 9.2, run in tests/gate",
    ),
    _Sign(
        runner="unittest",
        none=r"Ran 0 tests in .*$|Ran (?P<ut>\d+) tests? in .*\n\nOK \(skipped=(?P=ut)\)$|NO TESTS RAN.*$",
        some=r"Ran [1-9]\d* tests? in ",
        source="CPython 3.11 and 3.12, Lib/unittest/runner.py; 3.11 is run in tests/gate",
    ),
    _Sign(
        runner="jest",
        none=r"No tests found(?:, exiting with code \d)?$|Tests:[ \t]+(?:\d+ (?:skipped|todo), )+\d+ total$",
        some=r"Tests:[ \t].*\b[1-9]\d* (?:passed|failed)",
        source="jestjs/jest#8187, #5092; packages/jest-reporters getSummary",
    ),
    _Sign(
        runner="vitest",
        none=r"[ \t]*No test files found, exiting with code \d$|[ \t]*Tests[ \t]+no tests$"
        r"|[ \t]*Tests[ \t]+\d+ (?:skipped|todo)(?: \| \d+ (?:skipped|todo))* \(\d+\)$",
        some=r"[ \t]*Tests[ \t]+[^\n]*\b[1-9]\d* (?:passed|failed)",
        source="nrwl/nx#27722, vitest-dev/vitest#1032; packages/vitest reporters/renderers",
    ),
    _Sign(
        runner="go test",
        none=r"\?[ \t]+\S+[ \t]+\[no test files\]$|ok[ \t]+\S+[ \t].*\[no tests to run\]$",
        some=r"ok[ \t]+\S+[ \t]|[ \t]*--- (?:PASS|FAIL): ",
        source="golang/go src/cmd/go/internal/test, golang/go#15211",
    ),
    _Sign(
        runner="gotestsum",
        none=r"DONE 0 tests\b.*$|DONE (?P<gs>\d+) tests?, (?P=gs) skipped\b.*$",
        some=r"DONE [1-9]\d* tests?\b",
        source="gotestyourself/gotestsum README",
    ),
    _Sign(
        runner="ginkgo",
        none=r"Ran 0 of \d+ Specs? in .*$",
        some=r"Ran [1-9]\d* of \d+ Specs? in ",
        source="onsi/ginkgo reporters/default_reporter.go",
    ),
    _Sign(
        runner="cargo test",
        none=r"running 0 tests$|test result: ok\. 0 passed;.*$",
        some=r"test result: \w+\. [1-9]\d* passed;|test result: FAILED",
        source="rust-lang/rust library/test",
    ),
    _Sign(
        runner="cargo nextest",
        none=r"[ \t]*Summary \[[^\]\n]*\][ \t]+0 tests run:.*$",
        some=r"[ \t]*Summary \[[^\]\n]*\][ \t]+[1-9]\d*(?:/\d+)? tests? run:",
        source="nextest-rs/nextest reporter",
    ),
    _Sign(
        runner="node --test",
        none=r"(?:#|ℹ) tests 0$|(?:#|ℹ) pass 0\n(?:#|ℹ) fail 0$",
        some=r"(?:#|ℹ) (?:pass|fail) [1-9]",
        source="abstxn/lunch-uncle#22 (Node 26.7); nodejs/node lib/internal/test_runner",
    ),
    _Sign(
        runner="mocha",
        none=r"[ \t]*0 passing \(.*$",
        some=r"[ \t]*[1-9]\d* (?:passing|failing)\b",
        source="mochajs/mocha#4716, redhat-developer/vscode-extension-tester#1053",
    ),
    _Sign(
        runner="bun test",
        none=r"No tests found!$|[ \t]*0 pass$",
        some=r"[ \t]*[1-9]\d* (?:pass|fail)$",
        source="oven-sh/bun src/cli/test_command.zig",
    ),
    _Sign(
        runner="deno test",
        none=r"ok \| 0 passed\b.*$",
        some=r"ok \| [1-9]\d* passed\b|FAILED \| ",
        source="denoland/deno cli/tools/test/reporters",
    ),
    _Sign(
        runner="karma",
        none=r"[^\n]{0,80}?: Executed 0 of \d+[ ()\w]{0,40}SUCCESS",
        some=r"[^\n]{0,80}?: Executed [1-9]\d* of [1-9]",
        source="karma-runner/karma reporters/base.js",
    ),
    _Sign(
        runner="jasmine",
        none=r"0 specs, 0 failures.*$|Incomplete: No specs found.*$"
        r"|(?P<ja>\d+) specs?, 0 failures, (?P=ja) pending specs?$",
        some=r"[1-9]\d* specs?, ",
        source="jasmine/jasmine-npm reporters/console_reporter.js",
    ),
    _Sign(
        runner="rspec, hspec, shellspec, crystal",
        none=r"0 examples, 0 failures.*$|No examples found\.$|(?P<rs>\d+) examples?, 0 failures, (?P=rs) pending$",
        some=r"[1-9]\d* examples?, ",
        source="rspec.info features/3-13 exit-status; rspec-core formatters/summary",
    ),
    _Sign(
        runner="minitest",
        none=r"0 (?:runs|tests), 0 assertions.*$"
        r"|(?P<mt>\d+) (?:runs|tests), \d+ assertions, 0 failures, 0 errors, (?P=mt) skips$",
        some=r"[1-9]\d* (?:runs|tests), ",
        source="minitest/minitest lib/minitest.rb, summary reporter",
    ),
    _Sign(
        runner="behave, cucumber",
        none=r"0 scenarios passed, 0 failed\b.*$|0 scenarios$",
        some=r"\d+ scenarios? passed, [1-9]\d* failed|[1-9]\d* scenarios? (?:passed|\()",
        source="behave/behave reporter/summary.py; cucumber/cucumber-js",
    ),
    _Sign(
        runner="ctest",
        none=r"No tests were found!!!$",
        some=r"[^\n]{0,60}?tests failed out of [1-9]",
        source="Kitware/CMake Source/CTest; ctest(1) --no-tests",
    ),
    _Sign(
        runner="googletest",
        none=r"\[==========\] Running 0 tests\b.*$|\[  PASSED  \] 0 tests\.$",
        some=r"\[  PASSED  \] [1-9]|\[  FAILED  \] ",
        source="google/googletest src/gtest.cc PrettyUnitTestResultPrinter",
    ),
    _Sign(
        runner="catch2, doctest",
        none=r"No tests ran$|\[doctest\] test cases:[ \t]+0 \|.*$",
        some=r"All tests passed \([1-9]|test cases:[ \t]+[1-9]|\[doctest\] test cases:[ \t]+[1-9]",
        source="catchorg/Catch2 catch_reporter_console; doctest/doctest",
    ),
    _Sign(
        runner="phpunit",
        none=r"No tests executed!$|Tests: (?P<pu>\d+), Assertions: 0, Skipped: (?P=pu)\.$",
        some=r"OK \([1-9]\d* tests?|Tests: [1-9]",
        source="sebastianbergmann/phpunit#6276",
    ),
    _Sign(
        runner="dotnet test",
        none=r"[^\n]{0,80}?No test (?:is available in|matches the given testcase filter).*$|Skipped![ \t]+- Failed:.*$"
        r"|Test summary: total: (?P<dn>\d+), failed: 0, succeeded: 0, skipped: (?P=dn)\b.*$",
        some=r"[^\n]{0,80}?(?:(?:Passed|Failed):[ \t]+[1-9]|Total tests: [1-9]|total: [1-9])",
        source="microsoft/vstest#479, #2590; dotnet/sdk terminal logger",
    ),
    _Sign(
        runner="maven surefire",
        none=r"(?:\[\w+\] )?(?:Tests run: 0, Failures: 0, .*|No tests to run\.|Tests are skipped\.)$"
        r"|(?:\[\w+\] )?Tests run: (?P<mv>\d+), Failures: 0, Errors: 0, Skipped: (?P=mv)\b.*$",
        some=r"[^\n]{0,40}?Tests run: [1-9]",
        source="apache/maven-surefire, console output of the test goal",
    ),
    _Sign(
        runner="gradle",
        none=r"> Task (?::[\w-]+)*:(?!compile|process|generate|kapt|ksp)\w*[tT]est(?!Classes|Fixtures)\w*"
        r" (?:NO-SOURCE|SKIPPED)$",
        some=r"> Task (?::[\w-]+)*:(?!compile|process|generate|kapt|ksp)\w*[tT]est(?!Classes|Fixtures)\w*"
        r"(?: UP-TO-DATE| FROM-CACHE| FAILED)?$",
        source="docs.gradle.org, task outcomes",
    ),
    _Sign(
        runner="sbt, scalatest",
        none=r"(?:\[info\] )?(?:Total number of tests run: 0|No tests were executed\.?|No tests to run for .*)$",
        some=r"(?:\[info\] )?Total number of tests run: [1-9]|(?:\[info\] )?Passed: Total [1-9]",
        source="scalatest.org; sbt/sbt TestResultLogger",
    ),
    _Sign(
        runner="mix test",
        none=r"There are no tests to run$|0 tests, 0 failures.*$"
        r"|(?P<mx>\d+) tests?, 0 failures, (?P=mx) (?:excluded|skipped)$",
        some=r"[1-9]\d* (?:doctests?|tests?|propert(?:y|ies))\b.*, \d+ failures?",
        source="elixir-lang/elixir#8040",
    ),
    _Sign(
        runner="eunit",
        none=r"[ \t]*There were no tests to run\.$",
        some=r"[ \t]*All [1-9]\d* tests passed\.$",
        source="erlang/otp lib/eunit/src/eunit_text.erl",
    ),
    _Sign(
        runner="lein test",
        none=r"Ran \d+ tests containing 0 assertions\.$",
        some=r"Ran [1-9]\d* tests containing [1-9]",
        source="clojure/clojure src/clj/clojure/test.clj",
    ),
    _Sign(
        runner="tasty, zig test",
        none=r"All 0 tests passed(?:\.| \(.*)$|0 passed; \d+ skipped; 0 failed\.$",
        some=r"All [1-9]\d* tests passed|[1-9]\d* (?:of \d+ tests? failed|passed; )",
        source="UnkindPartition/tasty ConsoleReporter; ziglang/zig lib/compiler/test_runner.zig",
    ),
    _Sign(
        runner="swift test",
        none=r"[ \t]*Executed 0 tests,.*$|[^\n]{0,4}Test run with 0 tests\b.*$"
        r"|[ \t]*Executed (?P<xc>\d+) tests?, with (?P=xc) tests? skipped and 0 failures\b.*$",
        some=r"[ \t]*Executed [1-9]\d* tests?, |[^\n]{0,4}Test run with [1-9]",
        source="swiftlang/swift-corelibs-xctest PrintObserver; swiftlang/swift-testing",
    ),
    _Sign(
        runner="flutter test, dart test",
        none=r"[^\n]{0,80}?(?:No tests ran\.|No tests were found\.|All tests skipped\.)$",
        some=r"[^\n]{0,80}?All tests passed!$",
        source="dart-lang/test pkgs/test_core reporters",
    ),
    _Sign(
        runner="prove",
        none=r"Result: NOTESTS$|Files=\d+, Tests=0,.*$",
        some=r"Files=\d+, Tests=[1-9]",
        source="Perl-Toolchain-Gang/Test-Harness TAP::Formatter::Base",
    ),
    _Sign(
        runner="testthat",
        none=r"\[ FAIL 0 \| WARN \d+ \| SKIP \d+ \| PASS 0 \]",
        some=r"\[ FAIL \d+ \| WARN \d+ \| SKIP \d+ \| PASS [1-9]",
        source="r-lib/testthat R/reporter-progress.R",
    ),
    _Sign(
        runner="busted",
        none=r"0 successes / 0 failures / 0 errors / \d+ pending\b.*$",
        some=r"[1-9]\d* success(?:es)? / |\d+ successes / [1-9]",
        source="lunarmodules/busted outputHandlers/utfTerminal.lua",
    ),
    _Sign(
        runner="pester",
        none=r"Tests Passed: 0, Failed: 0,.*$",
        some=r"Tests Passed: (?:[1-9]|\d+, Failed: [1-9])",
        source="pester/Pester src/functions/Output.ps1",
    ),
    _Sign(
        runner="TAP",
        none=r"1\.\.0\b.*$|[ \t]*ok \d+[^#\n]*# (?i:skip)\b.*$",
        some=r"[ \t]*(?:not )?ok \d+",
        source="testanything.org specification 13, 14",
    ),
)


@cache
def _get_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what says that nothing ran, and that something did; made when there is output: they take 5 ms."""
    none, some = (map(operator.attrgetter(name), _SIGNS) for name in ("none", "some"))
    return (
        re.compile(f"^(?:{'|'.join(none)})", re.MULTILINE),
        re.compile(rf"^(?:{'|'.join(some)}|FAIL(?:ED)?\b)", re.MULTILINE),
    )


_GO_SKIPPED = re.compile(r"^[ \t]*--- SKIP: ", re.MULTILINE)
_GO_RAN = re.compile(r"^(?:[ \t]*--- (?:PASS|FAIL): |Benchmark\S*[ \t]+\d)", re.MULTILINE)
_GO_OK = re.compile(r"^ok[ \t]+\S+[ \t].*$", re.MULTILINE)

_CHECK = r"[^'’\"\n]*(?:test|check|spec|lint|verif|valid)[^'’\"\n]*"
_IDLE = re.compile(
    rf"g?make(?:\[\d+\])?: (?:Nothing to be done for [`'‘]{_CHECK}['’]\.|[`'‘]{_CHECK}['’] is up to date\.)"
    rf'|task: Task "{_CHECK}" is up to date'
)
"""A target that is there, as a directory `test` is, and has nothing to do. Source: GNU make, go-task."""
_SURROUNDING = re.compile(r"g?make(?:\[\d+\])?: (?:Entering|Leaving) directory .*|[ \t]*")

_LINE_CHARS = 400
"""Of each line is looked at: no summary is longer, and an endless line could keep the patterns busy for hours."""

_FAILURES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
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
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S.*)$", re.MULTILINE)
_FINDING = re.compile(r"^(?=[^\s:()]*[./])([^\s:()]++)(?::\d+(?::\d+)?|\(\d+,\d+\)):? (\S.*)$", re.MULTILINE)
"""mypy, flake8, compilers, tsc: ``file:line:column: text``. The line moves with every edit and is left out."""


def ran_no_tests(output: str) -> bool:
    """Say whether a test runner reports that it ran nothing, and none reports that it ran something.

    Tests that were all skipped, deselected or ignored did not run.
    """
    if not output.strip():
        return False
    none, some = _get_patterns()
    text = _shorten(output)
    # `go test -v` calls a package ok whose tests were all skipped.
    idle = _GO_SKIPPED.search(text) is not None and _GO_RAN.search(text) is None
    rest, found = none.subn("", _GO_OK.sub("", text) if idle else text)
    return ((idle or found > 0) and some.search(rest) is None) or _is_idle(text)


def ran_tests(output: str) -> bool:
    """Say whether a test runner reports that it ran something."""
    return bool(output.strip()) and _get_patterns()[1].search(_shorten(output)) is not None


def _is_idle(text: str) -> bool:
    """Say whether make and its like had nothing to do, and nothing else was said."""
    lines = [line for line in text.split("\n") if not _SURROUNDING.fullmatch(line)]
    return bool(lines) and all(_IDLE.fullmatch(line) for line in lines)


def find_failures(output: str) -> tuple[str, ...]:
    """Return names of failed tests and texts of findings, sorted, one for each time they are reported."""
    text = _shorten(output)
    names = [match[1] for pattern in _FAILURES for match in pattern.finditer(text)]
    names += [name for match in _PYTEST.finditer(text) if (name := _find_pytest_name(match[1]))]
    names += [f"{match[1]}: {match[2]}" for match in _FINDING.finditer(text)]
    return tuple(sorted(names))


def _find_pytest_name(words: str) -> str:
    """Return a test or a file out of ``tests/a.py::test_b[x y] - assert 0``; empty when there is neither."""
    name = words.partition(" - ")[0]
    is_test = "::" in name.partition(" ")[0]
    return name if is_test or (" " not in name and name.endswith(".py")) else ""


def _shorten(output: str) -> str:
    return "\n".join(line[:_LINE_CHARS] for line in output.split("\n"))
