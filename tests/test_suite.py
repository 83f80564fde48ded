"""What `make test` says while it runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = """
import time
from pathlib import Path

import pytest

def test_a():
    assert 1 == 2, "the reason"

def test_b():
    while not Path("seen").exists():
        time.sleep(0.01)

@pytest.mark.nightly
def test_c():
    assert False
"""


def test_a_test_that_fails_is_named_while_others_still_run_and_nightly_tests_are_left_out(tmp_path):
    (tmp_path / "test_two.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TESTS_", "HYPOTHESIS_"))
    }
    environ["PYTHONPATH"] = str(ROOT)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:randomly", "-n", "0"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as suite:
        assert suite.stdout
        told = next((line for line in suite.stdout if "test_a" in line), "")
        (tmp_path / "seen").touch()
        rest = suite.stdout.read()
    assert told.rstrip() == "FAILED test_two.py::test_a AssertionError: the reason"
    assert "1 failed, 1 passed" in rest


def test_installing_says_how_far_it_is():
    """It takes minutes on a busy machine; a silent one looks as if it hung."""
    rules = re.findall(r"^\$\(VENV\)/\.(?:run|dev):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [("echo" in rule, "pip install -" in rule, " -q" in rule) for rule in rules] == [(True, True, False)] * 2
