"""What runners print when they ran nothing, and what they print when they did."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.gate.signs import find_failures, ran_no_tests

RAN_NOTHING = {
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
}

RAN_SOMETHING = {
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
    "nothing recognised": "compiled\nall good\n",
    "prose": "we found that no tests ran in the old pipeline\n",
    "empty": "",
}


@pytest.mark.parametrize("output", RAN_NOTHING.values(), ids=RAN_NOTHING.keys())
def test_nothing_ran(output):
    assert ran_no_tests(output)


@pytest.mark.parametrize("output", RAN_SOMETHING.values(), ids=RAN_SOMETHING.keys())
def test_something_ran(output):
    assert not ran_no_tests(output)


TEST = "import unittest\nimport pytest\n\nclass T(unittest.TestCase):\n"
BODIES = {
    "passing": TEST + "    def test_a(self): pass\n",
    "failing": TEST + "    def test_a(self): assert 0\n",
    "skipped": TEST + "    @unittest.skip('later')\n    def test_a(self): pass\n",
    "one skipped": TEST + "    def test_a(self): pass\n    @unittest.skip('later')\n    def test_b(self): pass\n",
    "empty": "import os\n",
    "broken": "import none_such\n",
}


def run_real(folder: Path, runner: str, *args: str) -> str:
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", runner, *args]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("flags", [[], ["-q"], ["-v"], ["-rA"]], ids=["plain", "quiet", "verbose", "summary"])
@pytest.mark.parametrize("kind", BODIES)
def test_real_pytest(tmp_path, kind, flags):
    (tmp_path / "test_x.py").write_text(BODIES[kind])
    output = run_real(tmp_path, "pytest", "-p", "no:cacheprovider", "--rootdir=.", *flags)
    assert ran_no_tests(output) == (kind in {"skipped", "empty"}), output


def test_real_pytest_that_deselects_everything(tmp_path):
    (tmp_path / "test_x.py").write_text(BODIES["passing"])
    assert ran_no_tests(run_real(tmp_path, "pytest", "--rootdir=.", "-q", "-k", "none_such"))


@pytest.mark.parametrize("flags", [[], ["-v"], ["-q"]], ids=["plain", "verbose", "quiet"])
@pytest.mark.parametrize("kind", BODIES)
def test_real_unittest(tmp_path, kind, flags):
    body = BODIES[kind].replace("import pytest\n", "")
    (tmp_path / "test_x.py").write_text(body)
    output = run_real(tmp_path, "unittest", *flags)
    assert ran_no_tests(output) == (kind in {"skipped", "empty"}), output


def test_failed_tests_are_named(tmp_path):
    (tmp_path / "test_x.py").write_text(BODIES["failing"])
    assert "test_x.py::T::test_a" in find_failures(run_real(tmp_path, "pytest", "--rootdir=.", "-q"))
    assert any("test_a" in name for name in find_failures(run_real(tmp_path, "unittest")))


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


@given(output=st.text(max_size=300))
def test_any_output_is_judged(output):
    assert isinstance(ran_no_tests(output), bool)
    assert list(find_failures(output)) == sorted(find_failures(output))


@pytest.mark.timeout(60, method="signal")  # quadratic is hours: the test fails then, and its process goes on
@pytest.mark.parametrize(
    "unit",
    ["1 passed ", "FAILED a::", "a.b:1:", "= ", "Ran 3 tests in ", "1 failed in 3", "✖ ", "a/", "\n", " \n", "ok\n\n"],
)
def test_hostile_output_is_judged_in_linear_time(unit):
    output = unit * (1_000_000 // len(unit))
    ran_no_tests(f"collected 0 items\n{output}")  # the first line has it look for what did run
    find_failures(output)
