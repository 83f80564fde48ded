"""Reads the output of test runners and linters: whether a test ran, and which failed. Pure.

Exit codes do not tell whether anything ran: most of these runners exit 0 when they find no test, and all do when every
test is skipped.
"""

import re
from functools import cache

# Each pattern is matched at the beginnings of lines. Use `[ \t]`, never `\s`, which also matches line ends: a flood of
# empty lines would then be read to its end from each of them. Never use two `.*` in one pattern: a hostile line would
# be tried at each pair of its places.
_SIGNS = (
    # pytest. Source: pytest 9.2, run in tests/gate
    (
        (
            r"(?:=+ )?(?:no tests ran|\d+ deselected|\d+ skipped(?:, \d+ (?:deselected|warnings?))*) in .*$"
            r"|collected 0 items.*$|(?:=+ )?(?:no tests|\d+(?:/\d+)? tests?) collected\b.*$"
        ),
        r"(?:=+ )?(?:\d+ \w+, )*[1-9]\d* (?:passed|failed|errors?|xfailed|xpassed)\b.* in [\d.]+s",
    ),
    # unittest. Source: CPython 3.11 and 3.12, Lib/unittest/runner.py; 3.11 is run in tests/gate
    (
        r"Ran 0 tests in .*$|Ran (?P<ut>\d+) tests? in .*\n\nOK \(skipped=(?P=ut)\)$|NO TESTS RAN.*$",
        r"Ran [1-9]\d* tests? in ",
    ),
    # jest. Source: jestjs/jest#8187, #5092; packages/jest-reporters getSummary
    (
        r"No tests found(?:, exiting with code \d)?$|Tests:[ \t]+(?:\d+ (?:skipped|todo), )+\d+ total$",
        r"Tests:[ \t].*\b[1-9]\d* (?:passed|failed)",
    ),
    # vitest. Source: nrwl/nx#27722, vitest-dev/vitest#1032; packages/vitest reporters/renderers
    (
        (
            r"[ \t]*No test files found, exiting with code \d$|[ \t]*Tests[ \t]+no tests$"
            r"|[ \t]*Tests[ \t]+\d+ (?:skipped|todo)(?: \| \d+ (?:skipped|todo))* \(\d+\)$"
        ),
        r"[ \t]*Tests[ \t]+[^\n]*\b[1-9]\d* (?:passed|failed)",
    ),
    # go test. Source: golang/go src/cmd/go/internal/test, golang/go#15211
    (
        r"\?[ \t]+\S+[ \t]+\[no test files\]$|ok[ \t]+\S+[ \t].*\[no tests to run\]$",
        r"ok[ \t]+\S+[ \t]|[ \t]*--- (?:PASS|FAIL): ",
    ),
    # gotestsum. Source: gotestyourself/gotestsum README
    (r"DONE 0 tests\b.*$|DONE (?P<gs>\d+) tests?, (?P=gs) skipped\b.*$", r"DONE [1-9]\d* tests?\b"),
    # ginkgo. Source: onsi/ginkgo reporters/default_reporter.go
    (r"Ran 0 of \d+ Specs? in .*$", r"Ran [1-9]\d* of \d+ Specs? in "),
    # cargo test. Source: rust-lang/rust library/test
    (r"running 0 tests$|test result: ok\. 0 passed;.*$", r"test result: \w+\. [1-9]\d* passed;|test result: FAILED"),
    # cargo nextest. Source: nextest-rs/nextest reporter
    (
        r"[ \t]*Summary \[[^\]\n]*\][ \t]+0 tests run:.*$",
        r"[ \t]*Summary \[[^\]\n]*\][ \t]+[1-9]\d*(?:/\d+)? tests? run:",
    ),
    # node --test. Source: abstxn/lunch-uncle#22 (Node 26.7); nodejs/node lib/internal/test_runner
    (r"(?:#|ℹ) tests 0$|(?:#|ℹ) pass 0\n(?:#|ℹ) fail 0$", r"(?:#|ℹ) (?:pass|fail) [1-9]"),
    # mocha. Source: mochajs/mocha#4716, redhat-developer/vscode-extension-tester#1053
    (r"[ \t]*0 passing \(.*$", r"[ \t]*[1-9]\d* (?:passing|failing)\b"),
    # bun test. Source: oven-sh/bun src/cli/test_command.zig
    (r"No tests found!$|[ \t]*0 pass$", r"[ \t]*[1-9]\d* (?:pass|fail)$"),
    # deno test. Source: denoland/deno cli/tools/test/reporters
    (r"ok \| 0 passed\b.*$", r"ok \| [1-9]\d* passed\b|FAILED \| "),
    # karma. Source: karma-runner/karma reporters/base.js
    (r"[^\n]{0,80}?: Executed 0 of \d+[ ()\w]{0,40}SUCCESS", r"[^\n]{0,80}?: Executed [1-9]\d* of [1-9]"),
    # jasmine. Source: jasmine/jasmine-npm reporters/console_reporter.js
    (
        (
            r"0 specs, 0 failures.*$|Incomplete: No specs found.*$"
            r"|(?P<ja>\d+) specs?, 0 failures, (?P=ja) pending specs?$"
        ),
        r"[1-9]\d* specs?, ",
    ),
    # rspec, hspec, shellspec, crystal. Source: rspec.info features/3-13 exit-status; rspec-core formatters/summary
    (
        r"0 examples, 0 failures.*$|No examples found\.$|(?P<rs>\d+) examples?, 0 failures, (?P=rs) pending$",
        r"[1-9]\d* examples?, ",
    ),
    # minitest. Source: minitest/minitest lib/minitest.rb, summary reporter
    (
        (
            r"0 (?:runs|tests), 0 assertions.*$"
            r"|(?P<mt>\d+) (?:runs|tests), \d+ assertions, 0 failures, 0 errors, (?P=mt) skips$"
        ),
        r"[1-9]\d* (?:runs|tests), ",
    ),
    # behave, cucumber. Source: behave/behave reporter/summary.py; cucumber/cucumber-js
    (
        r"0 scenarios passed, 0 failed\b.*$|0 scenarios$",
        r"\d+ scenarios? passed, [1-9]\d* failed|[1-9]\d* scenarios? (?:passed|\()",
    ),
    # ctest. Source: Kitware/CMake Source/CTest; ctest(1) --no-tests
    (r"No tests were found!!!$", r"[^\n]{0,60}?tests failed out of [1-9]"),
    # googletest. Source: google/googletest src/gtest.cc PrettyUnitTestResultPrinter
    (r"\[==========\] Running 0 tests\b.*$|\[  PASSED  \] 0 tests\.$", r"\[  PASSED  \] [1-9]|\[  FAILED  \] "),
    # catch2, doctest. Source: catchorg/Catch2 catch_reporter_console; doctest/doctest
    (
        r"No tests ran$|\[doctest\] test cases:[ \t]+0 \|.*$",
        r"All tests passed \([1-9]|test cases:[ \t]+[1-9]|\[doctest\] test cases:[ \t]+[1-9]",
    ),
    # phpunit. Source: sebastianbergmann/phpunit#6276
    (
        r"No tests executed!$|Tests: (?P<pu>\d+), Assertions: 0, Skipped: (?P=pu)\.$",
        r"OK \([1-9]\d* tests?|Tests: [1-9]",
    ),
    # dotnet test. Source: microsoft/vstest#479, #2590; dotnet/sdk terminal logger
    (
        (
            r"[^\n]{0,80}?No test (?:is available in|matches the given testcase filter).*$|Skipped![ \t]+- Failed:.*$"
            r"|Test summary: total: (?P<dn>\d+), failed: 0, succeeded: 0, skipped: (?P=dn)\b.*$"
        ),
        r"[^\n]{0,80}?(?:(?:Passed|Failed):[ \t]+[1-9]|Total tests: [1-9]|total: [1-9])",
    ),
    # maven surefire. Source: apache/maven-surefire, console output of the test goal
    (
        (
            r"(?:\[\w+\] )?(?:Tests run: 0, Failures: 0, .*|No tests to run\.|Tests are skipped\.)$"
            r"|(?:\[\w+\] )?Tests run: (?P<mv>\d+), Failures: 0, Errors: 0, Skipped: (?P=mv)\b.*$"
        ),
        r"[^\n]{0,40}?Tests run: [1-9]",
    ),
    # gradle. Source: docs.gradle.org, task outcomes
    (
        (
            r"> Task (?::[\w-]+)*:(?!compile|process|generate|kapt|ksp)\w*[tT]est(?!Classes|Fixtures)\w*"
            r" (?:NO-SOURCE|SKIPPED)$"
        ),
        (
            r"> Task (?::[\w-]+)*:(?!compile|process|generate|kapt|ksp)\w*[tT]est(?!Classes|Fixtures)\w*"
            r"(?: UP-TO-DATE| FROM-CACHE| FAILED)?$"
        ),
    ),
    # sbt, scalatest. Source: scalatest.org; sbt/sbt TestResultLogger
    (
        r"(?:\[info\] )?(?:Total number of tests run: 0|No tests were executed\.?|No tests to run for .*)$",
        r"(?:\[info\] )?Total number of tests run: [1-9]|(?:\[info\] )?Passed: Total [1-9]",
    ),
    # mix test. Source: elixir-lang/elixir#8040
    (
        (
            r"There are no tests to run$|0 tests, 0 failures.*$"
            r"|(?P<mx>\d+) tests?, 0 failures, (?P=mx) (?:excluded|skipped)$"
        ),
        r"[1-9]\d* (?:doctests?|tests?|propert(?:y|ies))\b.*, \d+ failures?",
    ),
    # eunit. Source: erlang/otp lib/eunit/src/eunit_text.erl
    (r"[ \t]*There were no tests to run\.$", r"[ \t]*All [1-9]\d* tests passed\.$"),
    # lein test. Source: clojure/clojure src/clj/clojure/test.clj
    (r"Ran \d+ tests containing 0 assertions\.$", r"Ran [1-9]\d* tests containing [1-9]"),
    # tasty, zig test. Source: UnkindPartition/tasty ConsoleReporter; ziglang/zig lib/compiler/test_runner.zig
    (
        r"All 0 tests passed(?:\.| \(.*)$|0 passed; \d+ skipped; 0 failed\.$",
        r"All [1-9]\d* tests passed|[1-9]\d* (?:of \d+ tests? failed|passed; )",
    ),
    # swift test. Source: swiftlang/swift-corelibs-xctest PrintObserver; swiftlang/swift-testing
    (
        (
            r"[ \t]*Executed 0 tests,.*$|[^\n]{0,4}Test run with 0 tests\b.*$"
            r"|[ \t]*Executed (?P<xc>\d+) tests?, with (?P=xc) tests? skipped and 0 failures\b.*$"
        ),
        r"[ \t]*Executed [1-9]\d* tests?, |[^\n]{0,4}Test run with [1-9]",
    ),
    # flutter test, dart test. Source: dart-lang/test pkgs/test_core reporters
    (r"[^\n]{0,80}?(?:No tests ran\.|No tests were found\.|All tests skipped\.)$", r"[^\n]{0,80}?All tests passed!$"),
    # prove. Source: Perl-Toolchain-Gang/Test-Harness TAP::Formatter::Base
    (r"Result: NOTESTS$|Files=\d+, Tests=0,.*$", r"Files=\d+, Tests=[1-9]"),
    # testthat. Source: r-lib/testthat R/reporter-progress.R
    (r"\[ FAIL 0 \| WARN \d+ \| SKIP \d+ \| PASS 0 \]", r"\[ FAIL \d+ \| WARN \d+ \| SKIP \d+ \| PASS [1-9]"),
    # busted. Source: lunarmodules/busted outputHandlers/utfTerminal.lua
    (r"0 successes / 0 failures / 0 errors / \d+ pending\b.*$", r"[1-9]\d* success(?:es)? / |\d+ successes / [1-9]"),
    # pester. Source: pester/Pester src/functions/Output.ps1
    (r"Tests Passed: 0, Failed: 0,.*$", r"Tests Passed: (?:[1-9]|\d+, Failed: [1-9])"),
    # TAP. Source: testanything.org specification 13, 14
    (r"1\.\.0\b.*$|[ \t]*ok \d+[^#\n]*# (?i:skip)\b.*$", r"[ \t]*(?:not )?ok \d+"),
)
"""For each runner the lines that say that nothing ran, and the beginnings of lines that say that something ran."""


@cache
def _get_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns for "nothing ran" and "something ran"; compiled at first use, which takes 5 ms."""
    none, some = zip(*_SIGNS, strict=True)
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
"""Output for a target that exists, such as a directory `test`, and has nothing to do. Source: GNU make, go-task."""
_SURROUNDING = re.compile(r"g?make(?:\[\d+\])?: (?:Entering|Leaving) directory .*|[ \t]*")

_LINE_CHARS = 400
"""Limit for each line: no summary is longer, and an endless line could keep the patterns busy for hours."""

_FAILURES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?:FAIL|ERROR): (\S+ \(.+\))$",  # unittest
        r"^[ \t]*--- FAIL: (\S+)",  # go
        r"^test (\S.*) \.\.\. FAILED$",  # cargo
        r"^[ \t]+● (\S.*)$",  # jest
        r"^[ \t]*not ok \d+ (?:- )?(.+?)(?: # .*)?$",  # TAP
        r"^[ \t]*✖ (\S.*?)(?: \([\d.]+ms\))?$",  # node --test
        r"^rspec (\./\S+)",  # rspec; it prints only file and line
        r"^[ \t]*--> ([^\s:]+):\d+:\d+$",  # ruff and rustc: the file, once for each finding
    )
)
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S.*)$", re.MULTILINE)
_FINDING = re.compile(r"^(?=[^\s:()]*[./])([^\s:()]++)(?::\d+(?::\d+)?|\(\d+,\d+\)):? (\S.*)$", re.MULTILINE)
"""mypy, flake8, compilers, tsc: ``file:line:column: text``. The line moves with every edit and is left out."""


def ran_no_tests(output: str) -> bool:
    """Return whether a test runner reports that it ran nothing, and none reports that it ran something.

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
    """Return whether a test runner reports that it ran something."""
    return bool(output.strip()) and _get_patterns()[1].search(_shorten(output)) is not None


def _is_idle(text: str) -> bool:
    """Return whether make and its like had nothing to do, and printed nothing else."""
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
    """Return the test or the file of ``tests/a.py::test_b[x y] - assert 0``; empty if there is neither."""
    name = words.partition(" - ")[0]
    is_test = "::" in name.partition(" ")[0]
    return name if is_test or (" " not in name and name.endswith(".py")) else ""


def _shorten(output: str) -> str:
    return "\n".join(line[:_LINE_CHARS] for line in output.split("\n"))
