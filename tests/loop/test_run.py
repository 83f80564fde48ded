"""From a plan to commits, and every way in which a phase does not get there."""

import pytest

from relay.base.errors import ExitCode
from relay.run.loop import find_done_plan
from relay.session.values import SessionKind
from tests.scripted import ScriptedRunner
from tests.scripts import HELLO

WORLD = """
  - name: world
    turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\nworld\\n"}}]
      - tools:
        - {name: tick, input: {item: "2.1", evidence: "grep finds it"}}
        - {name: tick, input: {item: "2.2", evidence: "grep counts two"}}
      - text: "Done.\\nCommit: Say world twice"
"""


@pytest.mark.nightly
def test_a_plan_becomes_one_commit_per_phase(stage):
    """Code, ticks and trailers in one commit each; nothing is left open."""
    ended = stage.run(HELLO + WORLD)

    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, "2 of 2 phases")
    world, hello = stage.commits()
    assert (hello.subject, hello.phase, hello.status, hello.items) == ("Say hello", "1", "done", ("1.1",))
    assert (world.subject, world.phase, world.status, world.items) == ("Say world twice", "2", "done", ("2.1", "2.2"))
    assert stage.git("ls-files").split() == ["AGENTS.md", "PLAN.md", "hello.txt", "world.txt"]
    assert "- [ ]" not in stage.git("show", "HEAD:PLAN.md")
    assert stage.git("status", "--porcelain") == ""
    assert stage.git("for-each-ref", "refs/relay/leg") == ""
    assert stage.server.errors == []
    assert hello.usage is not None
    assert hello.cost_usd is not None


NUMBERED = """\
# Implementation Plan

- [ ] 1. Say hello
  - [ ] 1.1 Write `hello.txt`
    - _Requirements: 1.1_
  - Verify: `grep -q hello hello.txt`
- [ ] 2. Say world — world.txt
  - Verify: `grep -q world world.txt`
"""

NUMBERED_SCRIPT = """
sessions:
  - turns:
      - tools:
        - {name: write, input: {path: hello.txt, content: "hello"}}
        - {name: tick, input: {item: "1.1", evidence: "it says so"}}
        - {name: tick, input: {item: "1", evidence: "it says so"}}
        - {name: defer, input: {question: "In French?", assumed: "English"}}
      - text: "Done.\\nCommit: Say hello"
  - turns:
      - tools:
        - {name: write, input: {path: world.txt, content: "world"}}
        - {name: tick, input: {item: "2", evidence: "it says so"}}
      - text: "Done.\\nCommit: Say world"
"""


@pytest.mark.nightly
def test_a_plan_of_numbered_items_becomes_one_commit_per_item(stage):
    """As Kiro writes it: ticked where its boxes stand, with a question below the item that it is about."""
    stage.write("PLAN.md", NUMBERED)

    ended = stage.run(NUMBERED_SCRIPT)

    assert (ended.exit_code, ended.reason.partition(",")[0]) == (ExitCode.DONE, "2 of 2 phases")
    assert [(c.phase, c.items) for c in stage.commits() if c.items] == [("2", ("2",)), ("1", ("1", "1.1"))]
    noted = NUMBERED.replace("[ ]", "[x]").replace(
        "hello.txt`\n- [x] 2.", "hello.txt`\n  - Notes\n    - question: In French? (assumed: English)\n- [x] 2."
    )
    assert f"{stage.git('show', 'HEAD:PLAN.md').rstrip()}\n" == noted


@pytest.mark.nightly
def test_conditions_of_the_whole_are_left_to_the_user(stage):
    """Nobody works on them, nobody ticks them, and the last line says that they are there."""
    stage.write("PLAN.md", f"{stage.git('show', 'HEAD:PLAN.md')}\n## Success criteria\n- [ ] it is friendly\n")

    ended = stage.run(HELLO + WORLD)

    words = "2 of 2 phases, for you to check: Success criteria"
    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, words)
    assert stage.git("show", "HEAD:PLAN.md").endswith("\n## Success criteria\n- [ ] it is friendly\n")
    stage.write("PLAN.md", stage.git("show", "HEAD:PLAN.md").replace("- [ ] it is", "- [x] it is"))
    ended = stage.run("sessions: []")
    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, "2 of 2 phases")


@pytest.mark.nightly
def test_a_plan_that_somebody_changed_meanwhile_is_not_done(stage):
    """What is on the branch is; the phase that was just added is not."""
    stage.run(HELLO + WORLD)
    with stage.enter(SessionKind.RUN, flags={}, runner=ScriptedRunner([])) as ctx:
        assert find_done_plan(ctx.files) is not None
        added = "\n## Phase 3 — More\nVerify: `test -f more.txt`\n- [ ] Say more — more.txt\n"
        stage.write("PLAN.md", stage.git("show", "HEAD:PLAN.md") + added)
        assert find_done_plan(ctx.files) is None
        stage.write("PLAN.md", "---\nrelay: {\n---\n")
        assert find_done_plan(ctx.files) is None


def test_a_green_hand_off_is_committed(stage):
    """What is ticked and passes the gate at a hand-off goes onto the branch, with the handoff note in the body."""
    items = "- [ ] Say world — world.txt\n- [ ] Say it twice — world.txt\n"
    stage.write("PLAN.md", f"## Phase 1\nVerify: `grep -q world world.txt`\n{items}")
    stage.commit("plan")
    script = """
sessions:
  - name: first
    turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
      - tools: [{name: hand_off, input: {next_step: "second line", learned: [], dead_ends: []}}]
  - name: second
    turns:
      - expect: {first_message_contains: "second line"}
        tools: [{name: write, input: {path: world.txt, content: "world\\nworld\\n"}}]
      - tools: [{name: tick, input: {item: "1.2", evidence: "two"}}]
      - text: "Commit: Say it twice"
"""
    ended = stage.run(script)

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, []), ended
    assert [(c.status, c.items) for c in stage.commits()] == [("done", ("1.2",)), ("handoff", ("1.1",))]
    assert "second line" in stage.commits()[1].body


@pytest.mark.nightly
def test_an_item_that_the_session_added_can_be_ticked_by_it(stage):
    """An amendment and the tick of what it added land in one commit."""
    script = """
sessions:
  - name: hello
    turns:
      - tools:
        - {name: write, input: {path: hello.txt, content: "hello\\n"}}
        - {name: amend, input: {phase: "1", change: "- [ ] Say bye — bye.txt", why: "politeness"}}
        - {name: write, input: {path: bye.txt, content: "bye\\n"}}
      - tools:
        - {name: tick, input: {item: "1.1", evidence: "grep finds it"}}
        - {name: tick, input: {item: "1.2", evidence: "read it"}}
      - text: "Commit: Say hello and bye"
"""
    ended = stage.run(script, all_=False)

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.commits()[0].items == ("1.1", "1.2")
    assert "- [x] Say bye — bye.txt" in stage.git("show", "HEAD:PLAN.md")
