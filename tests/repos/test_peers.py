"""Situations in which other orchestrators lost work, or called it done, replayed against relay: one test for each.

The docstrings say what the other tool did. Processes that outlive an interrupt are in ``tests/resume/test_signals.py``.
"""

import os
import shutil
from pathlib import Path

import pytest

from relay.base.errors import ConfigError, ExitCode, PlanError, RepoError
from relay.base.interrupts import Urgency
from relay.git.notes import lock_worktree
from relay.git.repository import open_repo
from relay.session.events import RunStarted, SessionStarted
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


def find_dead(stage):
    """The same, or a copy of where it led."""
    stage.arrange("died", lambda: die(stage))
    stage.calm()


def check_nothing_claimed(stage):
    """No box is ticked, on disk or in HEAD, and no commit says done."""
    assert "- [x]" not in (stage.root / stage.plan_path).read_text()
    assert "- [x]" not in stage.git("show", f"HEAD:{stage.plan_path}")
    assert [commit.status for commit in stage.commits() if commit.status == "done"] == []


def check_landed(stage, *files, renames=True):
    """Phase 1 is done, its commit holds these files and no others, and nothing stays open."""
    assert stage.server.errors == []
    shown = stage.git("show", "--name-only", "--format=", *(() if renames else ("--no-renames",)), "HEAD")
    assert shown.split() == [*files]
    assert [commit.phase for commit in stage.commits() if commit.status == "done"] == ["1"]
    assert stage.git("for-each-ref", "refs/relay/leg") == ""


# --- Lost work


@pytest.mark.nightly
def test_a_commit_that_fails_leaves_the_work_where_it_is(stage):
    """gsd-2: when merging a milestone failed, its work tree and branch were deleted, and it counted as complete."""
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ngit diff --cached --quiet || { echo not today; exit 1; }\n")
    hook.chmod(0o755)
    head = stage.git("rev-parse", "HEAD")

    ended = stage.run(BASH % "true")

    assert ended.exit_code == ExitCode.STOPPED
    assert stage.git("rev-parse", "HEAD") == head
    check_nothing_claimed(stage)
    assert (stage.root / "hello.txt").read_text() == "hello\n"
    (wip,) = stage.git("for-each-ref", "--format=%(refname)", "refs/relay/wip").split()[-1:]
    assert stage.git("show", f"{wip}:hello.txt") == "hello\n"
    hook.unlink()
    assert stage.run("sessions: [{turns: [{text: 'Commit: Say hello'}]}]", all_=False).exit_code == ExitCode.DONE
    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_nothing_is_built_on_what_could_not_be_committed(stage):
    """gsd-2 (#1326): commits stopped in the middle of a milestone, and task after task was called complete."""
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ngit diff --cached --quiet\n")
    hook.chmod(0o755)

    ended = stage.run(BASH % "true")

    assert ended.exit_code == ExitCode.STOPPED
    assert {session.phase_id for session in stage.seen(SessionStarted)} == {"1"}
    check_nothing_claimed(stage)


@pytest.mark.nightly
def test_all_that_a_session_changed_is_in_the_commit(stage):
    """Ralphex (#185): fixes were committed without `git add`; what the session had edited stayed behind."""
    for name in ("changed.txt", "removed.txt", "moved.txt", "script.sh"):
        stage.write(name, f"{name}\n")
    stage.commit("files")

    stage.run(BASH % "echo more >> changed.txt; rm removed.txt; mv moved.txt sub.txt; chmod +x script.sh", all_=False)

    check_landed(
        stage, "PLAN.md", "changed.txt", "hello.txt", "moved.txt", "removed.txt", "script.sh", "sub.txt", renames=False
    )
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_other_settings_do_not_orphan_the_work(stage):
    """gsd-2 (#2625): an update flipped the default of `isolation`; the branch with the work was never merged."""
    find_dead(stage)

    later = {"arm": "compact", "sandbox": "off", "reset_at": "30%", "effort": "low"}
    ended = stage.run("sessions:\n  - turns: [{text: 'go on'}]\n", all_=False, max_sessions=1, **later)
    assert ended.exit_code == ExitCode.STOPPED
    assert (stage.root / "hello.txt").read_text() == "hel"
    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


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


@pytest.mark.nightly
def test_a_nested_repository_beside_the_work_is_neither_deleted_nor_linked(stage):
    """gsd-2: the gitlink was committed without a .gitmodules, so nobody could ever fetch what it pointed to."""
    ended = stage.run(BASH % "mkdir app && cd app && git init -q . && echo x > main.txt", all_=False)

    assert ended.exit_code == ExitCode.DONE
    check_landed(stage, "PLAN.md", "hello.txt")
    assert (stage.root / "app/main.txt").read_text() == "x\n"
    assert "160000" not in stage.git("ls-tree", "-r", "HEAD")


def test_stashes_and_other_work_trees_are_not_touched(stage):
    """ralph-orchestrator cleared all stashes; ralph-claude-code popped the user's; gsd-2 forced work trees away."""
    stage.write("AGENTS.md", "# Rules\nstashed\n")
    stage.git("stash", "push", "-q")
    other = stage.root.parent / "other"
    stage.git("worktree", "add", "-q", str(other), "-b", "other")
    (other / "AGENTS.md").write_text("uncommitted\n")
    (other / "new.txt").write_text("untracked\n")
    stash, worktrees = stage.git("stash", "list", "--format=%H"), stage.git("worktree", "list")

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("stash", "list", "--format=%H") == stash
    assert worktrees.splitlines()[1].split() in [line.split() for line in stage.git("worktree", "list").splitlines()]
    assert ((other / "AGENTS.md").read_text(), (other / "new.txt").read_text()) == ("uncommitted\n", "untracked\n")


@pytest.mark.nightly
def test_the_doctor_repairs_nothing_by_deleting(stage):
    """gsd-2: `doctor fix` deleted the work tree that an unfinished milestone was in."""
    find_dead(stage)
    before = stage.git("for-each-ref"), stage.git("status", "--porcelain", "--ignored")

    stage.relay("doctor")

    assert (stage.git("for-each-ref"), stage.git("status", "--porcelain", "--ignored")) == before
    assert (stage.root / "hello.txt").read_text() == "hel"


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


def test_a_session_cannot_delete_the_plan(stage):
    """ralph-tui: the folder with the task list was deleted after two or three stories, and all progress with it."""
    stage.git("mv", "-k", "PLAN.md", "AGENTS.md")
    stage.write("tasks/PLAN.md", (stage.root / "PLAN.md").read_text())
    stage.write("tasks/prd.md", "what it is for\n")
    stage.commit("tasks")
    stage.plan_path = "tasks/PLAN.md"

    stage.run(BASH % "rm -rf tasks; true", all_=False)

    assert "- [x] Say hello" in (stage.root / "tasks/PLAN.md").read_text()
    assert "- [x] Say hello" in stage.git("show", "HEAD:tasks/PLAN.md")
    assert stage.git("show", "HEAD~1:tasks/prd.md") == "what it is for\n"


@pytest.mark.nightly
def test_a_conflict_with_the_users_changes_is_no_success(stage):
    """ralph-orchestrator: git refused to merge over local changes, and the phase was reported as a success."""
    stage.write("hello.txt", "hi\n")
    stage.commit("hi")
    stage.write("hello.txt", "hi, mine\n")

    with pytest.raises(PlanError, match=r"no session was started for phase 1: .*: hello.txt"):
        stage.run(BASH % "true", all_=False)

    check_nothing_claimed(stage)
    assert stage.git("show", "HEAD:hello.txt") == "hi\n"
    assert (stage.root / "hello.txt").read_text() == "hi, mine\n"


# --- Resuming


def test_resuming_needs_no_session_file(stage):
    """ralph-tui: quitting deleted session.json, and `resume` found no session."""
    find_dead(stage)
    shutil.rmtree(stage.root / ".relay")

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


def test_a_dead_run_blocks_nobody(stage):
    """gsd-2: the dead worker's row stayed `running`; every later dispatch was refused, in an endless loop."""
    find_dead(stage)
    die(stage)

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    assert len(stage.seen(SessionStarted)) == 1
    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_the_log_of_the_session_that_died_is_kept(stage):
    """ralphd: the resumed run wrote its transcript over that of the attempt that had crashed."""
    find_dead(stage)
    logs = {path: path.read_bytes() for path in (stage.root / ".relay/sessions").iterdir()}
    assert b"hello.txt" in b"".join(logs.values())

    stage.run(HELLO, all_=False)

    assert {path: path.read_bytes() for path in logs} == logs


@pytest.mark.nightly
def test_an_interrupted_check_is_no_verdict(stage):
    """ralphd: interrupting a verification counted as a failed one and took back a finished task."""

    def stop() -> None:
        if stage.git("for-each-ref", "refs/relay/wip"):
            stage.interrupts.request(Urgency.NOW)

    stage.on_gate = stop
    ended = stage.run(HELLO, all_=False)
    assert ended.exit_code == ExitCode.INTERRUPTED
    check_nothing_claimed(stage)
    stage.calm()
    stage.on_gate = None

    assert stage.run("sessions: [{turns: [{text: 'Commit: Say hello'}]}]", all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_a_refused_key_is_not_the_end_of_the_plan(stage):
    """ralphex: an authorization error was logged as completed, and the next run wiped the progress."""
    fault = "      - text: never\n        fault: {kind: status, status: 401, times: always}\n"
    ended = stage.run(HALF.replace("      - text: never reached\n", fault), all_=False)
    assert ended.exit_code == ExitCode.USER
    check_nothing_claimed(stage)
    assert (stage.root / "hello.txt").read_text() == "hel"

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_what_was_spent_before_the_crash_counts(stage):
    """ralph-orchestrator: `--continue` began the cost and the iterations at zero, so no cap ever held."""
    assert stage.run(HALF.replace("- text: never reached", "- tools: [{name: block, input: {reason: stop}}]")).spent_usd
    die(stage)

    stage.run(HELLO, all_=False)

    (started,) = stage.seen(RunStarted)
    assert started.spent_usd > 0
    assert sum(commit.cost_usd for commit in stage.commits()) > started.spent_usd


def test_the_tenth_interruption_is_like_the_first(stage):
    """ralph-claude-code (#227): each loop appended the session's id to a file, until no loop could start any more."""
    asked = []
    for _ in range(10):
        die(stage)
        asked.append(len(stage.server.requests[-1].body["messages"][0]["content"][0]["text"]))
    assert len(stage.git("for-each-ref", "refs/relay/leg").splitlines()) == 1

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    assert max(asked[2:]) - min(asked[2:]) < 100, asked
    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_what_was_stuck_is_tried_again_when_the_user_asks(stage):
    """gsd-2 (#5465): the next run restored the counter of the stuck one and stopped before it did anything."""
    stuck = """
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "echo no such table >&2; exit 3"}}]
      - tools: [{name: hand_off, input: {next_step: "make the table", learned: [], dead_ends: []}}]
    repeat: true
"""
    ended = stage.run(stuck)
    assert ended.exit_code == ExitCode.STOPPED
    assert "stuck" in ended.reason

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


@pytest.mark.nightly
def test_a_phase_that_was_blocked_goes_on_when_the_user_has_repaired_it(stage):
    """gsd-pi (#1457): every later run replayed the recorded abort; nothing could authorize a new attempt."""
    block = HALF.replace("- text: never reached", "- tools: [{name: block, input: {reason: the disk is missing}}]")
    ended = stage.run(block)
    assert ended.exit_code == ExitCode.STOPPED
    assert "the disk is missing" in ended.reason
    stage.write("disk.txt", "here\n")
    stage.git("add", "disk.txt")
    stage.git("commit", "-q", "-m", "a disk", "disk.txt")

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("status", "--porcelain") == ""


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


# --- Dirty trees


@pytest.mark.nightly
def test_an_uncommitted_specification_stays_and_can_be_read(stage):
    """Orca (PR 155): a fresh run stashed the hand-written spec away before the flow could read it."""
    stage.write("spec.md", "say zebra\n")

    assert stage.run(BASH % "cat spec.md", all_=False).exit_code == ExitCode.DONE

    assert "say zebra" in str(stage.server.requests[-1].body)
    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("status", "--porcelain") == "?? spec.md\n"
    assert stage.git("stash", "list") == ""


@pytest.mark.nightly
def test_a_setting_that_nothing_reads_is_refused(stage):
    """ralph-tui (#332): `autoCommit` was accepted and ignored, and nobody could tell."""
    stage.write("relay.toml", "auto_commit = false\n")
    stage.commit("settings")

    with pytest.raises(ConfigError, match="auto_commit"):
        stage.run(HELLO)


@pytest.mark.nightly
def test_what_the_user_staged_is_not_swept_up(stage):
    """ralphex: a bookkeeping commit took all of the index along."""
    stage.write("mine.txt", "staged\n")
    stage.git("add", "mine.txt")
    stage.write("mine.txt", "staged, and edited\n")

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("show", ":mine.txt") == "staged\n"
    assert (stage.root / "mine.txt").read_text() == "staged, and edited\n"


def test_untracked_files_are_no_obstacle_and_no_prey(stage):
    """One (ralphex) would not start beside a scratch file; gsd-2 and continuous-claude committed it with `git add`."""
    stage.write("tmp/handoff.md", "mine\n")

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")
    assert stage.git("status", "--porcelain") == "?? tmp/\n"


@pytest.mark.nightly
def test_a_file_that_was_only_touched_is_clean(stage):
    """ralphex: a clean tree was refused as one with uncommitted changes."""
    os.utime(stage.root / "AGENTS.md", (1, 1))
    assert stage.git("diff-files", "--name-only") == "AGENTS.md\n"  # what a careless look takes for a change

    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    check_landed(stage, "PLAN.md", "hello.txt")


# --- Interrupts and other sessions


@pytest.mark.nightly
def test_after_an_interrupt_no_other_phase_begins(stage):
    """ralph-claude-code: the handler returned, and the loop went on with the next iteration."""
    stage.on_tool = lambda: stage.interrupts.request(Urgency.FINISH_TURN)

    ended = stage.run(HELLO)

    assert ended.exit_code == ExitCode.INTERRUPTED
    assert len(stage.seen(SessionStarted)) == 1
    check_nothing_claimed(stage)
    assert (stage.root / "hello.txt").read_text() == "hello\n"


def test_no_process_outlives_the_work(stage):
    """Snarktank (#79), ralphify (#26): after the loop its children went on, held the folder and wrote files."""
    mark = f"300.{os.getpid()}{stage.root.stat().st_ino}"

    ended = stage.run(BASH % f"sleep {mark} & setsid sleep {mark} & (setsid nohup sleep {mark} &); true", all_=False)

    assert ended.exit_code == ExitCode.DONE
    lines = (place / "cmdline" for place in Path("/proc").iterdir() if place.name.isdecimal())
    assert not [line for line in lines if line.exists() and mark.encode() in line.read_bytes()]


@pytest.mark.nightly
def test_a_second_run_takes_nothing_over(stage):
    """ralph-claude-code and the ralph-loop plugin went on in whatever session was open in the folder."""
    find_dead(stage)
    before = stage.git("for-each-ref"), stage.git("status", "--porcelain")

    with lock_worktree(open_repo(stage.root)), pytest.raises(RepoError, match="another relay is at work here"):
        stage.run(HELLO)

    assert (stage.git("for-each-ref"), stage.git("status", "--porcelain")) == before
