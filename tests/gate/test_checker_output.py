"""What runners print when they ran nothing, and what they print when they did."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from relay.gate.checker_output import find_failures, ran_no_tests, ran_tests
from tests.effort import NIGHTLY, take_each, take_turns

RAN_NOTHING = {
    "pytest": "\nno tests ran in 0.01s\n",
    "pytest, none collected": "collected 0 items\n\n=== no tests ran in 0.00s ===\n",
    "pytest, all deselected": "\n1 deselected in 0.01s\n",
    "unittest": "\n-----\nRan 0 tests in 0.000s\n\nNO TESTS RAN\n",
    "jest": "No tests found, exiting with code 0\n",
    "old jest": "No tests found\nIn /p\n  9 files checked.\n",
    "vitest": "\n RUN  v2.0.5 /p\n\ninclude: src/**\nNo test files found, exiting with code 0\n",
    "go": "?   \texample.com/a\t[no test files]\n?   \texample.com/b\t[no test files]\n",
    "go -run": "testing: warning: no tests to run\nPASS\nok  \texample.com/a\t0.004s [no tests to run]\n",
    "cargo": "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
    "cargo, all ignored": "running 2 tests\ntest a ... ignored\n\ntest result: ok. 0 passed; 0 failed; 2 ignored\n",
    "node tap": "TAP version 13\n1..0\n# tests 0\n# suites 0\n# pass 0\n# fail 0\n",
    "node spec": "ℹ tests 0\nℹ suites 0\nℹ pass 0\nℹ fail 0\n",
    "mocha": "\n\n  0 passing (1ms)\n\n",
    "rspec": "No examples found.\n\nFinished in 0.00003 seconds\n0 examples, 0 failures\n",
    "minitest": "Run options: --seed 1\n\n0 runs, 0 assertions, 0 failures, 0 errors, 0 skips\n",
    "ctest": "Test project /b\nNo tests were found!!!\n",
    "phpunit": "PHPUnit 12.3 by Sebastian Bergmann and contributors.\n\nNo tests executed!\n",
    "dotnet": "Warning: No test is available in D:\\x.dll. Make sure that installed test discoverers\n",
    "maven": "[INFO] Tests run: 0, Failures: 0, Errors: 0, Skipped: 0\n[INFO] BUILD SUCCESS\n",
    "old maven": "[INFO] No tests to run.\n[INFO] BUILD SUCCESS\n",
    "mix": "There are no tests to run\n",
    "tap": "1..0 # skipped\n",
    "tap, all skipped": "1..2\nok 1 - a # SKIP later\nok 2 - b # skip\n",
    "jest, all skipped": "Test Suites: 1 skipped, 0 of 1 total\nTests:       3 skipped, 3 total\n",
    "jest, skipped and to do": "Tests:       2 skipped, 1 todo, 3 total\n",
    "vitest, all skipped": " Test Files  1 skipped (1)\n      Tests  3 skipped (3)\n",
    "vitest, no tests": " Test Files  1 failed (1)\n      Tests  no tests\n",
    "node, all skipped": "ℹ tests 2\nℹ suites 0\nℹ pass 0\nℹ fail 0\nℹ cancelled 0\nℹ skipped 2\nℹ todo 0\n",
    "node tap, all skipped": "ok 1 - a # SKIP\n1..1\n# tests 1\n# suites 0\n# pass 0\n# fail 0\n# skipped 1\n",
    "mocha, all pending": "\n  0 passing (2ms)\n  2 pending\n",
    "minitest, all skipped": "2 runs, 0 assertions, 0 failures, 0 errors, 2 skips\n",
    "rspec, all pending": "**\n\n2 examples, 0 failures, 2 pending\n",
    "go -v, all skipped": "=== RUN   TestA\n--- SKIP: TestA (0.00s)\nPASS\nok  \tx.org/a\t0.003s\n",
    "gotestsum": "∅  .\n\nDONE 0 tests in 0.1s\n",
    "gotestsum, all skipped": "DONE 2 tests, 2 skipped in 0.1s\n",
    "ginkgo": "Ran 0 of 4 Specs in 0.000 seconds\nSUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 4 Skipped\n",
    "mix, all excluded": "Finished in 0.02 seconds\n3 tests, 0 failures, 3 excluded\n",
    "cargo nextest": "     Summary [   0.000s] 0 tests run: 0 passed, 0 skipped\n",
    "bun": "bun test v1.2.2\n\n 0 pass\n 3 skip\n 0 fail\nRan 3 tests across 1 file. [8.00ms]\n",
    "old bun": "No tests found!\n",
    "deno": "ok | 0 passed | 0 failed (0ms)\n",
    "deno, all ignored": "ok | 0 passed | 0 failed | 3 ignored (2ms)\n",
    "karma": "Chrome Headless 120.0 (Linux x86_64): Executed 0 of 0 SUCCESS (0.003 secs / 0 secs)\n",
    "karma, all skipped": "Firefox 128.0 (Linux): Executed 0 of 5 (skipped 5) SUCCESS (0.002 secs / 0 secs)\n",
    "jasmine": "No specs found\nFinished in 0.002 seconds\nIncomplete: No specs found\n",
    "jasmine, all pending": "2 specs, 0 failures, 2 pending specs\n",
    "behave": "0 features passed, 0 failed, 1 skipped\n0 scenarios passed, 0 failed, 2 skipped\n",
    "cucumber": "0 scenarios\n0 steps\n0m00.000s\n",
    "gtest": "[==========] Running 0 tests from 0 test suites.\n[  PASSED  ] 0 tests.\n",
    "gtest, all skipped": "[----------] 2 tests from A\n[  PASSED  ] 0 tests.\n[  SKIPPED ] 2 tests, listed below:\n",
    "catch2": "===============================================\nNo tests ran\n\n",
    "doctest": "[doctest] test cases: 0 | 0 passed | 0 failed | 2 skipped\n",
    "phpunit, all skipped": "OK, but some tests were skipped!\nTests: 2, Assertions: 0, Skipped: 2.\n",
    "dotnet, all skipped": "Skipped! - Failed:     0, Passed:     0, Skipped:     2, Total:     2, Duration: 3 ms\n",
    "new dotnet, all skipped": "Test summary: total: 2, failed: 0, succeeded: 0, skipped: 2, duration: 0.5s\n",
    "maven, all skipped": "[WARNING] Tests run: 2, Failures: 0, Errors: 0, Skipped: 2\n[INFO] BUILD SUCCESS\n",
    "maven -DskipTests": "[INFO] Tests are skipped.\n[INFO] BUILD SUCCESS\n",
    "gradle": "> Task :testClasses UP-TO-DATE\n> Task :test NO-SOURCE\n\nBUILD SUCCESSFUL\n",
    "sbt": "[info] No tests to run for Test / test\n[success] Total time: 1 s\n",
    "scalatest": "[info] Total number of tests run: 0\n[info] Suites: completed 0, aborted 0\n",
    "eunit": "  There were no tests to run.\n",
    "lein": "\nlein test user\n\nRan 0 tests containing 0 assertions.\n0 failures, 0 errors.\n",
    "tasty": "\nAll 0 tests passed (0.00s)\n",
    "zig": "All 0 tests passed.\n",
    "zig, all skipped": "1/1 main.test.a...SKIP\n0 passed; 1 skipped; 0 failed.\n",
    "swift": "\t Executed 0 tests, with 0 failures (0 unexpected) in 0.0 (0.0) seconds\n"
    "✔ Test run with 0 tests passed after 0.001 seconds.\n",
    "swift, all skipped": "\t Executed 2 tests, with 2 tests skipped and 0 failures (0 unexpected) in 0.0\n",
    "flutter": "No tests ran.\n",
    "dart, all skipped": "00:00 +0 ~2: All tests skipped.\n",
    "prove": "Files=0, Tests=0,  0 wallclock secs ( 0.00 usr +  0.00 sys =  0.00 CPU)\nResult: NOTESTS\n",
    "prove, all skipped": "t/a.t .. skipped: later\nFiles=1, Tests=0,  0 wallclock secs\nResult: NOTESTS\n",
    "testthat": "[ FAIL 0 | WARN 0 | SKIP 2 | PASS 0 ]\n",
    "busted": "0 successes / 0 failures / 0 errors / 2 pending : 0.001 seconds\n",
    "pester": "Tests Passed: 0, Failed: 0, Skipped: 2 NotRun: 0\n",
    "pytest --collect-only": "test_x.py::test_a\n\n1 test collected in 0.01s\n",
    "make beside a directory": "make: 'test' is up to date.\n",
    "make without a recipe": "make: Nothing to be done for 'check'.\n",
    "make of another time": "make[1]: Entering directory '/p'\ngmake[1]: Nothing to be done for `unit-tests'.\n\n"
    "make[1]: Leaving directory '/p'\n",
    "go-task": 'task: Task "test" is up to date\n',
}

RAN_SOMETHING = {
    "pytest, one skipped": "1 passed, 1 skipped in 0.01s\n",
    "pytest, broken": "ERROR test_x.py\n1 error in 0.05s\n",
    "jest": "Tests:       3 passed, 3 total\n",
    "vitest": " Test Files  1 passed (1)\n      Tests  2 passed (2)\n",
    "go": "?   \texample.com/a\t[no test files]\nok  \texample.com/b\t0.1s\n",
    "go, cached": "?   \texample.com/a\t[no test files]\nok  \texample.com/b\t(cached)\n",
    "go, one failed": "?   \texample.com/a\t[no test files]\nFAIL\texample.com/b\t0.1s\n",
    "cargo with doc tests": "running 4 tests\ntest result: ok. 4 passed; 0 failed\n\nrunning 0 tests\n\n"
    "test result: ok. 0 passed; 0 failed\n",
    "node": "ℹ tests 2\nℹ pass 2\n",
    "mocha": "  2 passing (5ms)\n",
    "rspec": "1 example, 0 failures\n",
    "ctest": "100% tests passed, 0 tests failed out of 3\n",
    "phpunit": "OK (1 test, 1 assertion)\n",
    "maven, one module empty": "Tests run: 0, Failures: 0, Errors: 0, Skipped: 0\nTests run: 3, Failures: 0\n",
    "two runs, one empty": "no tests ran in 0.01s\n2 passed in 0.01s\n",
    "make, in one of two places": "make[1]: Nothing to be done for 'test'.\nall 3 examples are as expected\n",
    "make that builds": "make: Nothing to be done for 'all'.\n",
    "jest, one skipped": "Tests:       1 skipped, 2 passed, 3 total\n",
    "vitest, one skipped": "      Tests  1 passed | 1 skipped (2)\n",
    "tap, one skipped": "1..2\nok 1 - a # SKIP later\nok 2 - b\n",
    "node, one skipped": "ℹ tests 2\nℹ pass 1\nℹ fail 0\nℹ skipped 1\n",
    "minitest, one skipped": "2 runs, 1 assertions, 0 failures, 0 errors, 1 skips\n",
    "rspec, one pending": "2 examples, 0 failures, 1 pending\n",
    "go -v, one skipped": "--- SKIP: TestA (0.00s)\n--- PASS: TestB (0.00s)\nPASS\nok  \tx.org/a\t0.003s\n",
    "mix, one excluded": "3 tests, 0 failures, 1 excluded\n",
    "bun": " 2 pass\n 0 fail\n",
    "deno": "ok | 3 passed | 0 failed (5ms)\n",
    "karma": "Chrome 120 (Linux): Executed 2 of 2 SUCCESS (0.01 secs / 0.002 secs)\n",
    "behave": "1 feature passed, 0 failed, 0 skipped\n2 scenarios passed, 0 failed, 0 skipped\n",
    "behave, failed": "0 features passed, 1 failed, 0 skipped\n0 scenarios passed, 1 failed, 0 skipped\n",
    "gtest": "[==========] Running 2 tests from 1 test suite.\n[  PASSED  ] 2 tests.\n",
    "gtest, failed": "[  PASSED  ] 0 tests.\n[  FAILED  ] 1 test, listed below:\n",
    "gradle": "> Task :processTestResources NO-SOURCE\n> Task :testClasses\n> Task :test\n\nBUILD SUCCESSFUL\n",
    "gradle, one module empty": "> Task :lib:test NO-SOURCE\n> Task :app:test UP-TO-DATE\n",
    "gradle assemble": "> Task :compileJava\n> Task :processTestResources NO-SOURCE\n",
    "maven, one skipped": "Tests run: 2, Failures: 0, Errors: 0, Skipped: 1\n",
    "lein": "Ran 2 tests containing 4 assertions.\n0 failures, 0 errors.\n",
    "swift, two frameworks": "\t Executed 0 tests, with 0 failures\n✔ Test run with 3 tests passed after 0.1\n",
    "prove": "Files=2, Tests=7,  0 wallclock secs\nResult: PASS\n",
    "tasty": "All 3 tests passed (0.01s)\n",
    "zig": "1 passed; 1 skipped; 0 failed.\n",
    "pester": "Tests Passed: 2, Failed: 0, Skipped: 0\n",
    "busted": "2 successes / 0 failures / 0 errors / 0 pending : 0.001 seconds\n",
    "nothing recognised": "compiled\nall good\n",
    "prose": "we found that no tests ran in the old pipeline\n",
    "empty": "",
}


def test_nothing_ran():
    assert [name for name, output in RAN_NOTHING.items() if not ran_no_tests(output)] == []


def test_something_ran():
    assert [name for name, output in RAN_SOMETHING.items() if ran_no_tests(output)] == []


NOTHING_OF_TESTS = {
    "make, in one of two places", "make that builds", "gradle assemble", "nothing recognised", "prose", "empty",
}  # fmt: skip


def test_what_says_that_tests_ran_is_told_from_what_says_nothing_of_them():
    """A linter that is green, and a build: neither speaks for what a phase did."""
    assert {name for name, output in RAN_SOMETHING.items() if not ran_tests(output)} == NOTHING_OF_TESTS
    assert not ran_tests("All checks passed!\n")


TEST = "import unittest\nimport pytest\n\nclass T(unittest.TestCase):\n"
BODIES = {
    "passing": TEST + "    def test_a(self): pass\n",
    "failing": TEST + "    def test_a(self): assert 0\n",
    "skipped": TEST + "    @unittest.skip('later')\n    def test_a(self): pass\n",
    "one skipped": TEST + "    def test_a(self): pass\n    @unittest.skip('later')\n    def test_b(self): pass\n",
    "empty": "import os\n",
    "broken": "import none_such\n",
}
TRIED = list(BODIES) if NIGHTLY else ["failing", "skipped"]
FLAGS: tuple[list[str], ...] = (["-q"], ["-v"], [], ["-rA"])


def run_real(folder: Path, runner: str, *args: str) -> str:
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", runner, *args]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "flags"), [*product(TRIED, FLAGS)] if NIGHTLY else [("skipped", [])])
def test_real_pytest(tmp_path, kind, flags):
    (tmp_path / "test_x.py").write_text(BODIES[kind])
    output = run_real(tmp_path, "pytest", "-p", "no:cacheprovider", "--rootdir=.", *flags)
    assert ran_no_tests(output) == (kind in {"skipped", "empty"}), output
    assert ("test_x.py::T::test_a" in find_failures(output)) == (kind == "failing"), output


@pytest.mark.parametrize(("kind", "flags"), take_turns(TRIED, ([], ["-v"], ["-q"])))
def test_real_unittest(tmp_path, kind, flags):
    body = BODIES[kind].replace("import pytest\n", "")
    (tmp_path / "test_x.py").write_text(body)
    output = run_real(tmp_path, "unittest", *flags)
    assert ran_no_tests(output) == (kind in {"skipped", "empty"}), output
    assert any("test_a" in name for name in find_failures(output)) == (kind == "failing"), output


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("FAILED tests/a.py::test_b[x y] - assert 0\nERROR tests/c.py\n", ("tests/a.py::test_b[x y]", "tests/c.py")),
        ("--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/sub (0.00s)\n", ("TestA", "TestA/sub")),
        ("test tests::a ... FAILED\ntest tests::b ... ok\n", ("tests::a",)),
        ("src/a.py:3:5: E501 Line too long\nsrc/a.py:9:5: E501 Line too long\n", ("src/a.py: E501 Line too long",) * 2),
        ("a.ts(3,5): error TS2322: no\n", ("a.ts: error TS2322: no",)),
        ("not ok 3 - adds # time=1ms\nok 4 - x\n", ("adds",)),
        ("12:30:45: started\nhttp://x:80 fine\n", ()),
    ],
)
def test_failures_are_recognised_without_line_numbers(output, names):
    assert find_failures(output) == names


BUSY = (
    "1 passed ", "1 passed, ", "1 failed in 3", "Ran 3 tests in ", "ok 1 ", "1\n", "(1", "=", "= ",
    "FAILED a::", "FAILED a::b - ", "a.b:1:", "a.b/", "././", "✖ ", "> Task :a:b", "make: 'test",
    "\n", " \n", "ok\n\n",
)  # fmt: skip


@pytest.mark.processor(10)
@pytest.mark.parametrize(("unit", "ends"), take_each(5, take_turns(BUSY, (False, True))))
def test_output_made_to_keep_the_patterns_busy_is_judged_in_linear_time(unit, ends):
    size = 100_000 if "\n" in unit else 300_000  # what is looked at line by line takes longer
    output = f"{(unit * 400)[:399]}\n" * 250 if ends else unit * (size // len(unit))
    ran_no_tests(f"collected 0 items\n{output}")  # the first line has it look for what did run
    find_failures(output)
