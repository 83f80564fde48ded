"""What the baseline shows that no session can mend stops a run before one is opened."""

import pytest

from relay.errors import PlanError
from relay.git.repository import open_repo
from relay.session.events import GateFinished, LegStarted
from relay.store.legs import read_leg
from tests.scripted import ScriptedRunner


def plan(stage, command, item="Say hello — hello.txt"):
    stage.write("PLAN.md", f"# P\n\n## Phase 1 — Hello\nVerify: `{command}`\n- [ ] {item}\n")
    stage.commit("plan")


@pytest.mark.parametrize("command", ["no-such-linter -q", "python3 -m no_such_linter"])
def test_a_program_that_nothing_makes_costs_nothing(stage, command):
    plan(stage, command)
    runner = ScriptedRunner(sessions=[])
    with pytest.raises(PlanError, match="phase 1 was not begun: its gate can never be green, because") as refused:
        stage.play(runner, sandbox="auto")
    assert refused.value.path == "PLAN.md"
    assert runner.specs == []
    assert stage.seen(LegStarted) == []
    assert len(stage.seen(GateFinished)) == 1
    assert read_leg(open_repo(stage.root)) is None


def test_the_environment_that_has_it_is_named(stage):
    stage.write(".venv/bin/no-such-linter", "#!/bin/sh\n")
    (stage.root / ".venv/bin/no-such-linter").chmod(0o755)
    stage.write(".gitignore", ".venv\n")
    plan(stage, "no-such-linter -q")
    with pytest.raises(PlanError) as refused:
        stage.play(ScriptedRunner(sessions=[]), sandbox="auto")
    assert ".venv/bin/no-such-linter is there and not on PATH" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("command", "item"), [("mytool --version", "Add a script `mytool` — setup.py"), ("./check.sh", "Check it — a.py")]
)
def test_a_program_that_the_phase_may_make_is_waited_for(stage, command, item):
    plan(stage, command, item)
    runner = ScriptedRunner(sessions=[[[("block", {"reason": "seen"})]]])
    assert stage.play(runner, sandbox="auto").reason == "phase 1: blocked: seen"
