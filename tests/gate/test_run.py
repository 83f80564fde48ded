"""Verify commands really run, in the sandbox, and are judged for what they are."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from relay.gate.model import Outcome
from relay.gate.run import run_gate
from relay.sandbox.policy import Level, Limits, Policy
from relay.sandbox.run import open_sandbox
from tests.effort import take_each

LIMITS = Limits(timeout_s=20.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate").resolve()
    (folder / "repo" / ".git").mkdir(parents=True)
    (folder / "repo" / "PLAN.md").write_text("- [ ] x\n")
    return folder / "repo"


@pytest.fixture(scope="module")
def sandbox(root):
    policy = Policy(
        root=root,
        git_dirs=(root / ".git",),
        protected=(root / "PLAN.md",),
        readable=(Path(sys.base_prefix), Path(sys.prefix)),
        env=dict(os.environ),
    )
    with open_sandbox(policy, Level.WORKSPACE_WRITE) as opened:
        yield opened


@pytest.fixture
def run(root, sandbox):
    def run_commands(*commands, limits=LIMITS, should_stop=lambda: False, root=root):
        with sandbox.start_anew() as fresh:
            return run_gate(
                commands,
                sandbox=fresh,
                limits=limits,
                should_stop=should_stop,
                root=root,
            )

    return run_commands


ENDS = (
    ("true", Outcome.PASSED, 0),
    ("exit 3", Outcome.FAILED, 3),
    ("no-such-program-at-all", Outcome.MISSING, 127),
    ("./PLAN.md", Outcome.MISSING, 126),
    ("false || true", Outcome.SWALLOWED, 0),
    ("false | cat", Outcome.FAILED, 1),
    ("kill -9 $$", Outcome.FAILED, 137),
    ("echo 'No tests executed!'", Outcome.NO_TESTS, 0),
    ("if [", Outcome.FAILED, 2),
    ("true --if-present", Outcome.NO_TESTS, 0),
    ("echo ran && true --if-present", Outcome.PASSED, 0),
    ("echo x > .git/config", Outcome.FAILED, 1),
    ("cat", Outcome.PASSED, 0),
    ("echo two > two.txt", Outcome.PASSED, 0),
    ("test two = $(cat two.txt)", Outcome.PASSED, 0),
)


def test_each_end_is_told_apart(run):
    """All run in order, even after a red one."""
    result = run(*(command for command, *_ in ENDS))
    assert [(check.command, check.status, check.exit_code) for check in result.commands] == list(ENDS)
    assert not result.passed


def test_it_sees_nothing_of_what_was_left_in_the_scratch_directory(run, sandbox):
    """Neither a session's files nor those of the gate before; commands of one gate may work for each other."""
    leave = 'mkdir -p "$XDG_CACHE_HOME" && touch "$TMPDIR/made" "$XDG_CACHE_HOME/made"'
    sandbox.run(["bash", "-c", leave], limits=LIMITS)
    look = 'test ! -e "$TMPDIR/made" && test ! -e "$XDG_CACHE_HOME/made"'

    assert run(look, leave, f"! ({look})").passed
    assert run(look).passed
    assert sandbox.run(["bash", "-c", f"! ({look})"], limits=LIMITS).exit_code == 0


def read_if_there(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_time_limit_kills_the_whole_tree(run):
    own = f"4251.{os.getpid()}"
    command = f"(trap '' TERM; setsid sleep {own}) & echo started; sleep 30"
    (result,) = run(command, limits=Limits(timeout_s=0.5)).commands
    assert (result.status, result.exit_code, result.output_tail) == (Outcome.TIMED_OUT, None, "started")
    assert not [line for path in Path("/proc").glob("[0-9]*/cmdline") if own.encode() in (line := read_if_there(path))]


def test_a_stop_ends_the_running_command_and_skips_the_rest(run):
    polls = []

    def should_stop():
        polls.append(True)
        return len(polls) > 3

    result = run("sleep 30", "true", should_stop=should_stop)
    assert [check.status for check in result.commands] == [Outcome.INTERRUPTED, Outcome.INTERRUPTED]


def test_output_is_printable_capped_and_kept_in_full(run, root):
    (result,) = run("printf '\\033[31mred\\033[0m\\n'; seq 1 5000; exit 1").commands
    assert len(result.output_tail) <= 4_002
    assert result.output_tail.endswith("4999\n5000")
    assert result.handle.startswith(".relay/outputs/gate-")
    full = (root / result.handle).read_text()
    assert full.startswith("\x1b[31mred")
    assert full.endswith("\n5000\n")
    (root / "short").mkdir()
    (result,) = run("echo hi", root=root / "short").commands
    assert (result.output_tail, result.handle) == ("hi", "")
    assert [path.name for path in (root / "short/.relay/outputs").iterdir()] == [".gitignore"]


def test_the_user_may_delete_the_output_directory_meanwhile(run, root):
    folder = root / ".relay" / "outputs"

    def delete():
        shutil.rmtree(folder.parent, ignore_errors=True)
        return False

    results = run("seq 1 5000; exit 1", "seq 1 5000; exit 1", should_stop=delete).commands
    assert [result.exit_code for result in results] == [1, 1]
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.write_text("the user's")
    assert run("seq 1 5000").commands[0].handle == ""
    folder.parent.unlink()


BODY = "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): "


@pytest.mark.parametrize("runner", take_each(2, ["unittest", "pytest -q -p no:cacheprovider --rootdir=."]))
def test_a_real_test_run_is_green_only_when_tests_ran(run, root, runner):
    folder = root / f"suite_{runner[:4]}"
    folder.mkdir()
    command = f"cd {folder.name} && PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -B -m {runner}"
    checks = []
    for body in ("", f"{BODY}pass\n", f"{BODY}self.fail()\n"):
        (folder / "test_x.py").write_text(body)
        checks += run(command).commands
    assert [check.status for check in checks] == [Outcome.NO_TESTS, Outcome.PASSED, Outcome.FAILED]
    assert checks[-1].failures


def test_the_files_that_commands_leave_as_evidence_are_kept(run, root):
    """All commands of a gate share a directory, which the next gate finds empty."""
    first = run('test -z "$(ls $RELAY_EVIDENCE)" && echo one > $RELAY_EVIDENCE/a.txt', "ls $RELAY_EVIDENCE/a.txt")
    again = run('test -z "$(ls $RELAY_EVIDENCE)"')
    assert first.passed
    assert again.passed
    (kept,) = first.evidence
    assert (root / ".relay/outputs/evidence" / f"{kept['sha256']}.txt").read_text() == "one\n"
    assert again.evidence == ()
