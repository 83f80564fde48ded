"""The plan's branch while phases are open on it: a hook that forbids it, a new branch, another name."""

import json
import signal
import subprocess

import pytest

from relay.base.errors import ExitCode
from tests.commit.test_hooks import NOT_ON_MAIN, install_hook
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.bench import GATES, HOLD, Bench, make_plan, write_session
from tests.waiting import wait_until

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


@pytest.mark.parametrize("args", take_each(2, [("--jobs", "2"), ()]))
def test_what_is_at_work_lands_under_the_name_that_the_branch_has_by_then(stage, args):
    bench = Bench(stage)
    sessions = [write_session(number, HOLD, f"echo {number} > {number}.txt") for number in (1, 2)]
    acts = [lambda: stage.git("branch", "-m", "other"), lambda: stage.git("branch", "-m", "third")]
    out = bench.play(sessions, "run", *args, holds=2 if args else 1, meanwhile=acts[: 1 if args else 2])
    assert "main is no branch any more: the plan goes on, on other" in out
    assert stage.git("show", "HEAD:1.txt", "HEAD:2.txt") == "1\n2\n"
    assert stage.git("for-each-ref", "refs/relay/leg", "refs/heads/relay-jobs") == ""
    assert stage.git("status", "--porcelain") == ""


def test_what_is_at_work_is_kept_where_its_branch_is_gone(stage):
    """The command that is named puts it back, and no session is paid again."""
    bench = Bench(stage, PLAN)

    def delete():
        stage.git("switch", "-q", "--orphan", "other")
        stage.git("branch", "-qD", "main")

    out = bench.play([write_session(1, HOLD, "echo 1 > 1.txt")], ends=ExitCode.USER, meanwhile=delete)
    assert "the branch main is gone" in out
    put_back = out.partition("Hint: ")[2].partition(" puts it back")[0]
    stage.git(*put_back.split()[1:])
    stage.git("switch", "-q", "main")
    bench.play([])
    assert stage.git("show", "main:1.txt") == "1\n"


@pytest.mark.parametrize("act", take_each(2, ["git", "mv"]))
def test_what_is_at_work_is_kept_where_the_work_tree_of_the_command_goes(stage, act):
    bench, place = Bench(stage, PLAN), stage.root.with_name("beside")
    stage.git("worktree", "add", "-q", "-b", "side", str(place))
    bench.root, bench.places = place, place.with_name(f"{place.name}.relay")
    words = ("worktree", "remove", "--force") if act == "git" else ("worktree", "move")

    def go():
        stage.git(*words, str(place), *([] if act == "git" else [f"{place}2"]))

    out = bench.play([write_session(1, HOLD, "echo 1 > 1.txt")], ends=ExitCode.USER, meanwhile=go)
    assert f"{place} is no work tree any more, and everything is kept" in out
    bench.root = stage.root if act == "git" else place.with_name(f"{place.name}2")
    if act == "git":
        stage.git("switch", "-q", "side")
    bench.play([])
    assert stage.git("show", "side:1.txt") == "1\n"


@pytest.mark.parametrize("is_done", take_each(2, [True, False]))
def test_a_plan_that_gets_another_name_meanwhile_keeps_what_was_done(stage, is_done):
    """A phase that is open goes on under that name; for one that is done, the command is named that lands it."""
    bench = Bench(stage, PLAN)

    def move():
        stage.git("mv", "PLAN.md", "NEXT.md")
        stage.git("commit", "-qm", "moved")

    session = write_session(1, f"{HOLD}; echo 1 > 1.txt")
    if not is_done:
        session["turns"] = [session["turns"][0], {"tools": [{"name": "block", "input": {"reason": "no"}}]}]
    with serve(parse_script(json.dumps({"sessions": [session]}))) as server:
        run = bench.start(server, "run")
        wait_until(bench.find_held, by=run)
        move()
        bench.let_go()
        wait_until(lambda: "nothing lands until then" in run.stdout.readline(), by=run)
        run.send_signal(signal.SIGINT)
        run.communicate()
    if is_done:
        out = bench.play([], "run", "NEXT.md", ends=ExitCode.USER)
        moved = out.partition("Hint: ")[2].partition("; then relay run PLAN.md")[0]
        subprocess.run(moved, shell=True, cwd=stage.root, check=True, capture_output=True)
        bench.play([])
    else:
        bench.play([write_session(1, "test -e 1.txt")], "run", "NEXT.md")
    assert stage.git("show", "main:1.txt") == "1\n"
