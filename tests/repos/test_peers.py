"""Situations in which other orchestrators lost work, or called it done, replayed against relay: one test for each.

The docstrings say what the other tool did. Processes that outlive an interrupt are in ``tests/resume/test_signals.py``.
"""

import shutil
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.session.events import RunStarted, SessionStarted
from tests.effort import NIGHTLY
from tests.scripts import HELLO

HALF = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel"}}]
      - text: never reached
"""
BASH = """
sessions:
  - turns:
      - tools: [{name: bash, input: {command: '%s'}}]
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
      - tools: [{name: block, input: {reason: "it cannot be committed"}}]
"""


class Killed(BaseException):
    """Stands for the end of the process."""


def die(stage):
    """Run phase 1 and die after its first tool."""

    def kill() -> None:
        raise Killed

    stage.on_tool = kill
    with pytest.raises(Killed):
        stage.run(HALF, all_=False)
    stage.calm()


def check_nothing_claimed(stage):
    """No box is ticked, on disk or in HEAD, and no commit says done."""
    assert "- [x]" not in (stage.root / stage.plan_path).read_text()
    assert "- [x]" not in stage.git("show", f"HEAD:{stage.plan_path}")
    assert [commit.status for commit in stage.commits() if commit.status == "done"] == []


def check_landed(stage, *files):
    """Phase 1 is done, its commit holds these files and no others, and nothing stays open."""
    assert stage.server.errors == []
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == [*files]
    assert [commit.phase for commit in stage.commits() if commit.status == "done"] == ["1"]
    assert stage.git("for-each-ref", "refs/relay/leg") == ""


def test_a_phase_whose_files_are_in_a_nested_repository_is_not_done(stage):
    """gsd-2: a scaffolder's own .git made a gitlink of the new code; the code was deleted with the work tree."""
    stage.edit("hello.txt", "app/hello.txt")
    stage.commit("plan an app")
    head = stage.git("rev-parse", "HEAD")

    ended = stage.run(
        (BASH % "mkdir app && cd app && git init -q . && echo hello > hello.txt").replace("path: h", "path: app/h")
    )

    assert ended.exit_code == ExitCode.STOPPED, ended
    assert stage.git("rev-parse", "HEAD") == head
    check_nothing_claimed(stage)
    assert (stage.root / "app/hello.txt").read_text() == "hello\n"


def test_a_commit_made_meanwhile_is_not_undone(stage):
    """get-shit-done: sessions began from another branch's files and committed those over the feature branch."""

    def commit() -> None:
        stage.on_tool = None
        stage.write("theirs.txt", "theirs\n")
        stage.git("add", "theirs.txt")
        stage.git("commit", "-q", "-m", "theirs")

    stage.on_tool = commit
    ended = stage.run(HELLO, all_=False)
    stage.calm()
    assert ended.exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("log", "-2", "--format=%s").splitlines()[1] == "theirs"
    assert stage.git("show", "HEAD:theirs.txt") == "theirs\n"
    assert (stage.root / "theirs.txt").read_text() == "theirs\n"


def test_resuming_needs_no_session_file(stage):
    """ralph-tui: quitting deleted session.json. gsd-2 (#2625): an update flipped a setting, and the work was orphaned.

    ralph-orchestrator: `--continue` began the cost at zero.
    """
    die(stage)
    shutil.rmtree(stage.root / ".relay")
    later = {"arm": "compact", "sandbox": "off", "reset_at": "30%", "effort": "low"}

    assert stage.run(HELLO, all_=False, **later).exit_code == ExitCode.DONE

    (started,) = stage.seen(RunStarted)
    assert sum(commit.cost_usd for commit in stage.commits()) > started.spent_usd > 0
    check_landed(stage, "PLAN.md", "hello.txt")


def test_each_interruption_is_like_the_first(stage):
    """ralph-claude-code (#227): each loop appended the session's id to a file, until no loop could start any more.

    gsd-2: the dead worker's row stayed `running`. ralphd: the next run wrote over the transcript of the dead one.
    """
    asked: list[int] = []
    logs: dict[Path, bytes] = {}
    for _ in range(10 if NIGHTLY else 4):
        die(stage)
        asked.append(len(stage.server.requests[-1].body["messages"][0]["content"][0]["text"]))
        assert all(path.read_bytes() == data for path, data in logs.items())
        logs = {path: path.read_bytes() for path in (stage.root / ".relay/sessions").iterdir()}
    assert len(stage.git("for-each-ref", "refs/relay/leg").splitlines()) == 1

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    assert max(asked[2:]) - min(asked[2:]) < 100, asked
    assert len(stage.seen(SessionStarted)) == 1
    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_a_plan_gets_nothing_of_another_plans_run(stage):
    """ralph-orchestrator (PR 250): tasks of earlier runs got into the prompt, and those of this one were not found."""
    told = "make it longer: zebra"
    hand_off = f"- tools: [{{name: hand_off, input: {{next_step: '{told}', learned: [], dead_ends: []}}}}]"
    stage.run(HALF.replace("- text: never reached", hand_off), max_sessions=1)
    stage.run(HELLO, all_=False)
    assert told in str(stage.server.requests[-1].body)
    stage.write("docs/PLAN.md", (stage.root / "PLAN.md").read_text().replace("- [x]", "- [ ]"))
    stage.commit("another plan")
    stage.plan_path = "docs/PLAN.md"

    stage.run(HELLO, all_=False)

    asked = [str(request.body) for request in stage.server.requests if request.body]
    assert asked
    assert not [text for text in asked if "zebra" in text]
