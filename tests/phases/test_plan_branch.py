"""The plan's branch while phases are open on it: a hook that forbids it, a new branch, another name."""

import pytest

from relay.base.errors import ExitCode
from tests.commit.test_hooks import NOT_ON_MAIN, install_hook
from tests.effort import take_each
from tests.phases.bench import GATES, Bench, make_plan, write_session

PLAN = make_plan(*GATES[:1])


def test_a_hook_judges_the_branch_on_which_the_commits_land(stage):
    """It forbids main: nothing is paid there, and a way out is named."""
    bench = Bench(stage, PLAN)
    install_hook(stage, NOT_ON_MAIN)
    out = bench.play([], ends=ExitCode.USER)
    assert "forbids commits on this branch and agrees on another one" in out
    assert "relay run --branch" in out


@pytest.mark.parametrize("act", take_each(2, ["relay", "git"]))
def test_open_phases_go_along_to_another_name(stage, act):
    """What a session has done is committed there, and nothing of it is paid again."""
    bench = Bench(stage, PLAN)
    install_hook(stage, f"git diff --cached --quiet && exit 0\n{NOT_ON_MAIN}")
    bench.play([write_session(1, "echo 1 > 1.txt")], ends=ExitCode.STOPPED)
    install_hook(stage, NOT_ON_MAIN)  # so would its trial before a session end there
    if act == "git":
        stage.git("branch", "-m", "other")
    bench.play([], "run", *(["--branch"] if act == "relay" else []))
    assert stage.git("show", "HEAD:1.txt") == "1\n"
    assert stage.git("for-each-ref", "refs/relay/leg", "refs/heads/relay-jobs") == ""
    if act == "relay":
        assert stage.git("branch", "--show-current") == "relay/plan\n"
        assert stage.git("log", "-1", "--format=%s", "main") == "plan\n"
