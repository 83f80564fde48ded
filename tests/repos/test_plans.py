"""Plans that age, move, multiply and change hands."""

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.base.hints import AT_ROOT
from tests.effort import take_each

HELLO = """
  - turns:
      - expect: {first_message_contains: %s}
        tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""
HALF = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel"}}]
      - tools: [{name: block, input: {reason: "half way"}}]
"""
WORLD = """
sessions:
  - turns:
      - expect: {first_message_contains: "Carry out phase 2"}
        tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools:
        - {name: tick, input: {item: "2.1", evidence: "grep"}}
        - {name: tick, input: {item: "2.2", evidence: "grep"}}
      - text: "Commit: Say world"
"""


def test_a_sessions_amendment_is_in_the_trailer_of_its_commit(stage, finish):
    """The phase whose text it changed is named; a commit that only ticks names none."""
    amend = '{name: amend, input: {phase: "2", change: "say it loud", why: "asked for"}}'
    finish("sessions:" + HELLO.replace("- text:", f"- tools: [{amend}]\n      - text:") % '"Phase 1"')

    assert stage.server.errors == []
    assert dict(stage.commits()[0].found)["Relay-Amended"] == "2"
    assert "say it loud" in stage.git("show", "HEAD:PLAN.md")


def test_a_plan_edited_while_a_session_works_is_not_lost(stage, finish):
    """The session ends on the plan it began with; the next run commits the edit by itself, ticks kept."""
    text = (stage.root / "PLAN.md").read_text()
    stage.on_tool = lambda: stage.write("PLAN.md", text.replace("Say it twice", "Say it three times"))
    finish()
    assert "Say it three times" in (stage.root / "PLAN.md").read_text()
    stage.calm()

    stage.run("sessions: [{turns: [{text: Done}, {text: Done}]}]")

    assert stage.commits()[0].status == "amended"
    committed = stage.git("show", "HEAD:PLAN.md")
    assert "- [x] Say hello" in committed
    assert "Say it three times" in committed


@pytest.mark.nightly
def test_a_renamed_plan_keeps_its_boxes(stage, finish):
    """The file is the truth: under its new name the next open phase is next."""
    finish()
    spent = stage.commits()[0].cost_usd
    stage.git("commit", "-q", "--allow-empty", "-m", "odd\n\nRelay-Plan: ..")  # anybody may write a trailer
    stage.git("mv", "PLAN.md", "BUILD.md")
    stage.git("commit", "-q", "-m", "rename")
    stage.plan_path = "BUILD.md"

    ended = stage.run("sessions: []", phase="1", all_=False)
    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, "the phase was done already")
    assert ended.spent_usd == spent > 0  # what it cost under its old name counts for the cap
    ended = stage.run(WORLD)

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert [(commit.plan, commit.phase) for commit in stage.commits()] == [("BUILD.md", "2")]
    assert (stage.root / "BUILD.md").read_text().count("- [x]") == 3


@pytest.mark.nightly
def test_the_open_phase_of_one_plan_is_not_taken_for_another_plans(stage, finish):
    """Not its phase number, not its files: the other plan waits, with the command that goes on with the first one."""
    stage.write("docs/PLAN.md", (stage.root / "PLAN.md").read_text().replace("hello", "hallo"))
    stage.commit("two plans")
    assert stage.run(HALF, all_=False).exit_code == ExitCode.STOPPED
    before = stage.git("for-each-ref"), stage.git("status", "--porcelain")
    stage.calm()
    stage.plan_path = "docs/PLAN.md"

    with pytest.raises(RepoError, match=r"phase 1 of PLAN\.md is open") as caught:
        stage.run("sessions: []")

    assert AT_ROOT.write(caught.value.hint) == "`relay run --plan PLAN.md` goes on with it"
    assert (stage.git("for-each-ref"), stage.git("status", "--porcelain")) == before
    for command in (("status", "--plan", "docs/PLAN.md"), ("run", "--dry-run", "--plan", "docs/PLAN.md")):
        said = stage.relay(*command, environ={"ANTHROPIC_API_KEY": "k"})
        assert "phase 1 of PLAN.md is open" in said.stdout + said.stderr, command
    stage.calm()
    stage.plan_path = "PLAN.md"
    assert finish() == ["PLAN.md", "hello.txt"]
    stage.plan_path = "docs/PLAN.md"
    script = "sessions:" + HELLO % '"Phase 1"'
    assert finish(script.replace("hello", "hallo")) == ["docs/PLAN.md", "hallo.txt"]


@pytest.mark.parametrize("commit", take_each(2, [False, True]))
def test_a_plan_that_is_renamed_while_a_phase_is_open_keeps_it(stage, finish, commit):
    """Under its new name the phase goes on; a rename that the user has not committed is not committed for him."""
    assert stage.run(HALF, all_=False).exit_code == ExitCode.STOPPED
    stage.calm()
    stage.git("mv", "PLAN.md", "BUILD.md")
    if commit:
        stage.git("commit", "-q", "-m", "rename")
    stage.plan_path = "BUILD.md"

    assert finish("sessions:" + HELLO % '"Carry out phase 1 now"') == ["BUILD.md", "hello.txt"]

    assert stage.git("status", "--porcelain") == ("" if commit else "D  PLAN.md\n")
    assert (stage.root / "BUILD.md").read_text().count("- [x]") == 1
