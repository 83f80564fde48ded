"""The plan's branch while phases are open on it: a hook that forbids it, a new branch, another name."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.commit.test_hooks import NOT_ON_MAIN, install_hook
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.test_own_tree import write_session
from tests.phases.test_user_acts import Bench

PLAN = """\
# Two

## Phase 1 — One
Verify: `test -s 1.txt`
- [ ] Write one — 1.txt

## Phase 2 — Two
Verify: `test -s 2.txt`
- [ ] Write two — 2.txt
"""


@pytest.fixture
def play(stage):
    """Run relay with what the sessions of both phases do; return its exit code and its output."""
    bench = Bench(stage, "run")
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")

    def run(*args, sessions=("one", "two")):
        written = [
            write_session(words, number, f"echo {number} > {number}.txt") for number, words in enumerate(sessions, 1)
        ]
        with serve(parse_script(json.dumps({"sessions": written}))) as server:
            process = bench.start(server, "run", *args)
            return process.communicate()[0], process.returncode

    return run


def test_a_hook_judges_the_branch_on_which_the_commits_land(stage, play):
    """It forbids main: nothing is paid there, and `--branch` is a way out."""
    install_hook(stage, NOT_ON_MAIN)
    out, code = play()
    assert (code, "turn 1" in out) == (ExitCode.USER, False), out
    assert "forbids commits on this branch and agrees on another one" in out
    assert "relay run --branch" in out

    out, code = play("--branch")
    assert code == ExitCode.DONE, out
    assert stage.git("branch", "--show-current") == "relay/two\n"
    assert stage.git("log", "-1", "--format=%s", "main") == "plan\n"


@pytest.mark.parametrize("act", ["relay", "git"])
def test_open_phases_go_along_to_another_name(stage, play, act):
    """What a session has done is committed there, and nothing of it is paid again."""
    install_hook(stage, f"git diff --cached --quiet && exit 0\n{NOT_ON_MAIN}")
    out, code = play("--phase", "1")
    assert code == ExitCode.STOPPED, out
    if act == "git":
        stage.git("branch", "-m", "other")

    out, code = play("--phase", "1", *(["--branch"] if act == "relay" else []))

    assert (code, "turn 1" in out) == (ExitCode.DONE, False), out
    assert stage.git("show", "HEAD:1.txt") == "1\n"
    assert stage.git("for-each-ref", "refs/relay/leg", "refs/heads/relay-jobs") == ""
