"""A run that was cut off goes on from git alone, wherever git is; `relay status` says before what a run does."""

import json
import shutil
import subprocess

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.base.hints import AT_ROOT
from relay.base.interrupts import Urgency
from relay.session.events import Noticed, SessionStarted
from relay.store.resume import ResumeCase
from tests.effort import take_each
from tests.resume.conftest import LUNCH, Killed, die_with

HAND_OFF = """
sessions:
  - name: first
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel"}}]
      - tools: [{name: write, input: {path: notes/a.txt, content: "a\\n"}}]
      - tools: [{name: hand_off, input: {next_step: "finish the word", learned: [], dead_ends: []}}]
"""
FROM_HANDOFF_NOTE = """
sessions:
  - name: rest
    turns:
      - expect: {first_message_contains: ["hello.txt", "finish the word"]}
        tools: [{name: edit, input: {path: hello.txt, old: "hel", new: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""


def check_said(stage, asked):
    """What the run gave as its reason is what the status had said."""
    started = stage.seen(SessionStarted)[0]
    assert started.reason == asked["why"]
    assert started.phase_id == asked["phase"]


def test_without_the_state_directory(stage, cut_off, ask):
    """`.relay` holds nothing that matters, and neither do relay's own files in the git directory."""
    cut_off()
    shutil.rmtree(stage.root / ".relay")
    shutil.rmtree(stage.root / ".git/relay")
    asked = ask()
    assert asked["row"] == ResumeCase.MID_ATTEMPT

    stage.run(LUNCH, all_=False)

    check_said(stage, asked)
    assert stage.seen(SessionStarted)[0].tries == 2
    assert (stage.root / "hello.txt").read_text() == "hel"


def test_a_fresh_clone_of_the_branch_begins_at_the_next_phase(stage, cut_off, clone, ask):
    """Without relay's refs only commits are known: the phase that was open begins anew."""
    cut_off()
    clone(refs=False)
    assert ask()["row"] == ResumeCase.NOTHING_OPEN
    stage.run(LUNCH)
    assert [(session.phase_id, session.tries) for session in stage.seen(SessionStarted)] == [("1", 1)]


def test_a_clone_with_relays_refs_gets_the_work_back_and_keeps_what_it_finds(stage, clone, ask, finish):
    """One commit holds what both sessions did, the second knows the note of the first; bytes in the way stay in git."""
    handed = []

    def stop() -> None:
        handed.append(1)
        if len(handed) == 3:
            stage.interrupts.request(Urgency.FINISH_TURN)

    stage.on_tool = stop
    assert stage.run(HAND_OFF).exit_code == ExitCode.INTERRUPTED
    stage.calm()
    clone(refs=True)
    assert not (stage.root / "hello.txt").exists()
    stage.write("hello.txt", "found here\n")
    asked = ask()
    assert asked["row"] == ResumeCase.POWER_LOSS

    finish(FROM_HANDOFF_NOTE)

    check_said(stage, asked)
    assert any("restored from the last checkpoint" in notice.text for notice in stage.seen(Noticed))
    kept = [
        stage.git("show", f"{commit}:hello.txt")
        for commit in stage.git("rev-list", "refs/relay/wip/main/000001").split()
        if "hello.txt" in stage.git("ls-tree", "--name-only", commit).split()
    ]
    assert "found here\n" in kept


def test_an_amendment_that_a_kill_cuts_off_is_told_and_stands_once(stage, finish):
    """The next session would add it again; its message names the session that was cut off, and not itself."""
    acts = [{"name": "amend", "input": {"phase": "2", "change": "- [ ] Say it thrice", "why": "asked for"}}]
    acts += [{"name": "write", "input": {"path": "notes/a.txt", "content": "a\n"}}] * 2
    stage.on_tool = lambda: die_with(stage.root / "notes/a.txt")
    with pytest.raises(Killed):
        stage.run(json.dumps({"sessions": [{"turns": [{"tools": [act]} for act in acts]}]}), all_=False)
    stage.calm()
    cut = stage.seen(SessionStarted)[0].session_id
    told = [f"The session before you ({cut}) was interrupted", "- phase 2: Say it thrice"]
    turns = [
        {"expect": {"first_message_contains": told}, "tools": [acts[0]]},
        {"tools": [{"name": "write", "input": {"path": "hello.txt", "content": "hello\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "grep"}}]},
        {"text": "Commit: Say hello"},
    ]

    finish(json.dumps({"sessions": [{"turns": turns}]}))

    assert stage.git("show", "HEAD:PLAN.md").count("Say it thrice") == 1


@pytest.mark.parametrize("how", take_each(3, ["commit", "amend", "reset"]))
def test_the_branch_moved_under_an_open_attempt(stage, cut_off, ask, finish, how):
    """The session's work is still its own: it is committed with the phase, on top of what the user did."""
    stage.write("user.txt", "one\n")
    stage.commit("before")
    cut_off()
    if how == "reset":
        stage.git("reset", "-q", "--soft", "HEAD~1")
        stage.git("reset", "-q")
        (stage.root / "user.txt").unlink()
    else:
        stage.write("user.txt", "two\n")
        stage.git("add", "user.txt")
        stage.git("commit", "-q", *(("--amend",) if how == "amend" else ()), "-m", "the user's")
    asked = ask()
    assert asked["row"] == ResumeCase.MOVED_ON

    finish()

    check_said(stage, asked)
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.usefixtures("landed")
def test_a_commit_that_the_user_took_back_is_not_finished_again(stage):
    """He committed from the index that was left behind: files and index of that commit stay as they are."""
    stage.git("commit", "-q", "--allow-empty", "-m", "the user's, from the old index")
    before = stage.git("ls-files", "--stage"), (stage.root / "PLAN.md").read_bytes()
    assert "hello.txt" not in stage.git("ls-tree", "--name-only", "HEAD").split()

    stage.run(LUNCH)

    assert [session.phase_id for session in stage.seen(SessionStarted)] == ["1"]
    assert (stage.git("ls-files", "--stage"), (stage.root / "PLAN.md").read_bytes()) == before
    assert (stage.root / "hello.txt").read_text() == "hello\n"


@pytest.mark.nightly
def test_what_of_a_phase_is_uncommitted_is_named(stage, cut_off):
    """A part was committed with the tick: only the rest is in the way. The named command helps, and no cost is lost."""
    cut_off()
    before = json.loads(stage.relay("status", "--json").stdout)["spent"]["usd"]
    stage.edit("- [ ] Say hello", "- [x] Say hello")
    stage.git("add", "PLAN.md", "hello.txt")
    stage.git("commit", "-q", "-m", "a part")

    with pytest.raises(RepoError, match=r"its uncommitted work is in notes/a\.txt$") as refused:
        stage.run(LUNCH)

    said = AT_ROOT.write(refused.value.hint)
    assert "commit it or put it away, then relay run" in said
    subprocess.run(["sh", "-c", said.rpartition("and its cost. ")[2]], cwd=stage.root, check=True)
    assert stage.run(LUNCH).exit_code == ExitCode.STOPPED
    assert [session.phase_id for session in stage.seen(SessionStarted)] == ["2"]
    assert json.loads(stage.relay("status", "--json").stdout)["spent"]["usd"] > before > 0


def test_a_run_goes_on_from_the_newest_snapshot_that_git_has_whole(stage, cut_off):
    """Something pruned objects while relay was at work: it is said, and the phase goes on all the same."""
    cut_off()
    lost = stage.git("rev-parse", "refs/relay/wip/main/000001").strip()
    (stage.root / ".git/objects" / lost[:2] / lost[2:]).unlink()
    said = stage.relay("status")
    assert (said.returncode, "goes on from the newest checkpoint that is whole" in said.stderr) == (1, True)

    stage.run(LUNCH, all_=False)
    assert [(session.phase_id, session.tries) for session in stage.seen(SessionStarted)] == [("1", 2)]
    assert (stage.root / "hello.txt").read_text() == "hel"
    assert any(f"refs/relay/wip/main/000001 named {lost[:10]}" in said.text for said in stage.seen(Noticed))
    stage.git("fsck", "--strict", "--no-dangling")
    stage.git("gc", "-q", "--prune=now")
