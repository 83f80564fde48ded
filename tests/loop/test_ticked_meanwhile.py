"""What a person does to boxes while a session works is put aside, and the night goes on."""

import pytest

from relay.base.errors import ExitCode
from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.events import Noticed
from relay.session.values import SessionKind
from tests.scripted import ScriptedRunner


def test_a_tick_by_hand_ends_no_run(stage):
    """It is open again, kept as it was, and said; another edit of the file made with it is taken."""

    def tick() -> None:
        text = (stage.root / "PLAN.md").read_text()
        stage.write(
            "PLAN.md", text.replace("- [ ] Say it twice", "- [x] Say it twice").replace("# Greet", "# My greet")
        )

    hello = ("write", {"path": "hello.txt", "content": "hello\n"}), tick, ("tick", {"item": "1.1", "evidence": "x"})
    runner = ScriptedRunner(sessions=[[list(hello)], [[("block", {"reason": "seen"})]]])
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=runner) as ctx:
        ended = run(ctx, Selection())
    assert (ended.exit_code, "blocked: seen" in str(ended.reason)) == (ExitCode.STOPPED, True)
    (said,) = [event.text for event in stage.seen(Noticed) if "ticked by hand" in event.text]
    assert said.startswith("2.2 was ticked by hand while a session worked")
    kept = said.rpartition("git show ")[2]
    assert "- [x] Say it twice" in stage.git("show", kept)
    plan = (stage.root / "PLAN.md").read_text()
    assert "- [ ] Say it twice" in plan
    assert "- [x] Say hello" in plan
    assert "# My greetings" in stage.git("show", "HEAD:PLAN.md")


@pytest.mark.parametrize("when", ["before the tick", "at the gate"])
def test_an_item_that_is_reworded_while_its_session_works_ends_no_run(stage, when):
    """The commit has the old words; the new ones are kept and said, another edit is taken, and phase 2 begins."""

    def reword() -> None:
        text = (stage.root / "PLAN.md").read_text()
        stage.write("PLAN.md", text.replace("Say hello", "Say hello loudly").replace("# Greet", "# My greet"))
        stage.on_gate = None

    acts = [("write", {"path": "hello.txt", "content": "hello\n"}), ("tick", {"item": "1.1", "evidence": "x"})]
    meanwhile = [reword] if when == "before the tick" else [lambda: setattr(stage, "on_gate", reword)]
    runner = ScriptedRunner(sessions=[[[acts[0], *meanwhile, acts[1]]], [[("block", {"reason": "seen"})]]])
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=runner) as ctx:
        ended = run(ctx, Selection())
    assert (ended.exit_code, "phase 2: blocked: seen" in str(ended.reason)) == (ExitCode.STOPPED, True), ended
    (said,) = [event.text for event in stage.seen(Noticed) if "was reworded" in event.text]
    assert "phase 1 stands in the plan as it was committed" in said
    assert "- [ ] Say hello loudly" in stage.git("show", said.rpartition("git show ")[2])
    plan = (stage.root / "PLAN.md").read_text()
    assert ("- [x] Say hello —" in plan, "loudly" in plan, "# My greet" in plan) == (True, False, True)
    assert stage.git("show", "HEAD:PLAN.md") == plan
