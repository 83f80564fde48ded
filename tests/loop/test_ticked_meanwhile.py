"""What a person does to boxes while a session works is put aside, and the night goes on."""

import pytest

from relay.base.errors import ExitCode
from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.events import Noticed
from relay.session.values import SessionKind
from tests.effort import take_each
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


@pytest.mark.parametrize("when", take_each(2, ["at the gate", "before the tick"]))
def test_an_item_that_is_reworded_while_its_session_works_ends_no_run(stage, when):
    """The commit has the old words; the file gets tick and amendment with the new ones, which is said."""

    def reword() -> None:
        text = (stage.root / "PLAN.md").read_text()
        stage.write("PLAN.md", text.replace("Say hello", "Say hello loudly").replace("# Greet", "# My greet"))
        stage.on_gate = None

    more = {"phase": "2", "change": "- [ ] Say more — more.txt", "why": "left out"}
    acts = [("write", {"path": "hello.txt", "content": "hello\n"}), ("tick", {"item": "1.1", "evidence": "x"})]
    meanwhile = [reword] if when == "before the tick" else [lambda: setattr(stage, "on_gate", reword)]
    ended = play(stage, acts[0], ("amend", more), *meanwhile, acts[1])
    assert (ended.exit_code, "phase 2: blocked: seen" in str(ended.reason)) == (ExitCode.STOPPED, True), ended
    words = "item 1.1 was done as `Say hello — hello.txt`, and was reworded meanwhile: `Say hello loudly — hello.txt`"
    assert [event.text for event in stage.seen(Noticed) if "reworded" in event.text] == [words]
    assert f"Relay-Doubt: {words}" in stage.git("show", "-s", "--format=%(trailers:only,unfold)", "HEAD")
    assert "[x] Say hello — hello.txt" in stage.git("show", "HEAD~1:PLAN.md")
    plan = (stage.root / "PLAN.md").read_text()
    assert ("- [x] Say hello loudly —" in plan, "# My greet" in plan, "- [ ] Say more —" in plan) == (True, True, True)
    assert stage.git("show", "HEAD:PLAN.md") == plan


@pytest.mark.parametrize(("new", "phase"), take_each(2, [("", "2"), ("- [ ] Sing — song.txt\n", "1")]))
def test_an_item_that_is_gone_when_its_session_has_done_it_ends_no_run(stage, new, phase):
    """The plan stands as the person wrote it; the work is committed, and its commit and the plan's say so."""

    def rewrite() -> None:
        text = (stage.root / "PLAN.md").read_text()
        stage.write("PLAN.md", text.replace("- [ ] Say hello — hello.txt\n", new).replace("twice", "often"))

    hello = ("write", {"path": "hello.txt", "content": "hello\n"}), rewrite, ("tick", {"item": "1.1", "evidence": "x"})
    ended = play(stage, *hello)
    assert (ended.exit_code, f"phase {phase}: blocked: seen" in str(ended.reason)) == (ExitCode.STOPPED, True), ended
    told = "the tick of item 1.1 left out, since it is gone: Say hello — hello.txt"
    assert told in [event.text for event in stage.seen(Noticed)]
    words = "item 1.1 is done, and is in the plan no more as `Say hello — hello.txt`"
    assert f"Relay-Doubt: {words}" in stage.git("show", "-s", "--format=%(trailers:only,unfold)", "HEAD")
    assert stage.git("show", "HEAD~1:hello.txt") == "hello\n"
    plan = (stage.root / "PLAN.md").read_text()
    assert ("Say hello" in plan, new in plan, "often" in plan) == (False, True, True)
    assert stage.git("show", "HEAD:PLAN.md") == plan


def play(stage, *acts):
    """Run the plan: one session does these, the next one blocks."""
    runner = ScriptedRunner(sessions=[[list(acts)], [[("block", {"reason": "seen"})]]])
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=runner) as ctx:
        return run(ctx, Selection())
