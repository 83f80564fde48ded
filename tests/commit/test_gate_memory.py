"""A gate that has just passed on the same files is not run again as the next phase's baseline."""

import pytest

from relay.errors import ExitCode
from relay.run.loop import run as run_plan
from relay.run.selection import Selection
from relay.session.events import GateFinished, GateStarted
from tests.scripted import ScriptedRunner

PLAN = """\
---
relay: {verify: ["test -d . && test -f AGENTS.md"]}
---
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
BOTH = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep"}}]
      - text: "Commit: Say hello"
  - turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: tick, input: {item: "2.1", evidence: "grep"}}]
      - text: "Commit: Say world"
"""
DOCUMENT = "test -d . && test -f AGENTS.md"


@pytest.fixture
def run(stage):
    def go():
        stage.write("PLAN.md", PLAN)
        stage.write(".gitignore", "local.db\n")
        stage.commit("plan")
        ended = stage.run(BOTH)
        assert ended.exit_code == ExitCode.DONE, ended
        return [event.commands for event in stage.seen(GateStarted) if event.baseline]

    return go


def test_only_what_has_not_passed_yet_is_run(stage, run):
    first, second = run()
    assert (DOCUMENT in first, second) == (True, ("grep -q world world.txt",))
    baseline = [event for event in stage.seen(GateFinished) if event.baseline][1]
    assert baseline.summary.endswith(f"\nnot run again, because it has just passed: `{DOCUMENT}`")
    assert [check["status"] for check in baseline.checks] == ["passed", "failed"]
    assert not baseline.passed


def make_session(item, name):
    write = ("write", {"path": f"{name}.txt", "content": f"{name}\n"})
    return [[write, ("tick", {"item": item, "evidence": "grep"})]]


@pytest.mark.parametrize("path", ["notes.txt", "local.db", "AGENTS.md"])
def test_other_files_make_it_run_again(stage, path):
    """One that no commit has, one that git ignores, one that the user edits: saved behind the first phase's commit."""
    stage.write("PLAN.md", PLAN)
    stage.write(".gitignore", "local.db\n")
    stage.commit("plan")
    runner = ScriptedRunner(sessions=[make_session("1.1", "hello"), make_session("2.1", "world")])
    with stage.enter("run", flags={"sandbox": "off"}, runner=runner) as ctx:
        assert run_plan(ctx, Selection(all=False)).exit_code == ExitCode.DONE
        stage.write(path, "# other\n")
        assert run_plan(ctx, Selection(all=False)).exit_code == ExitCode.DONE
    assert DOCUMENT in [event.commands for event in stage.seen(GateStarted) if event.baseline][1]
