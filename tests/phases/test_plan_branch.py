"""The plan's branch while phases are open on it: a hook that forbids it, a new branch, another name."""

import pytest

from relay.base.errors import ExitCode
from tests.commit.test_hooks import NOT_ON_MAIN, install_hook
from tests.effort import take_each
from tests.phases.bench import Bench, write_session

SESSIONS = [write_session(number, f"echo {number} > {number}.txt") for number in (1, 2)]


def test_a_hook_judges_the_branch_on_which_the_commits_land(stage):
    """It forbids main: nothing is paid there, and `--branch` is a way out."""
    bench = Bench(stage)
    install_hook(stage, NOT_ON_MAIN)
    out = bench.play(SESSIONS, ends=ExitCode.USER)
    assert "turn 1" not in out
    assert "forbids commits on this branch and agrees on another one" in out
    assert "relay run --branch" in out
    bench.play(SESSIONS, "run", "--branch")
    assert stage.git("branch", "--show-current") == "relay/plan\n"
    assert stage.git("log", "-1", "--format=%s", "main") == "plan\n"


@pytest.mark.parametrize("act", take_each(2, ["relay", "git"]))
def test_open_phases_go_along_to_another_name(stage, act):
    """What a session has done is committed there, and nothing of it is paid again."""
    bench = Bench(stage)
    install_hook(stage, f"git diff --cached --quiet && exit 0\n{NOT_ON_MAIN}")
    bench.play(SESSIONS, "run", "--phase", "1", ends=ExitCode.STOPPED)
    if act == "git":
        stage.git("branch", "-m", "other")
    assert "turn 1" not in bench.play([], "run", "--phase", "1", *(["--branch"] if act == "relay" else []))
    assert stage.git("show", "HEAD:1.txt") == "1\n"
    assert stage.git("for-each-ref", "refs/relay/leg", "refs/heads/relay-jobs") == ""
