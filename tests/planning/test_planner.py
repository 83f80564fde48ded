"""What `relay plan` tells the session and the user when a plan is not taken."""

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import ExitCode
from relay.base.hints import AT_ROOT, Caller
from relay.cli.plan import command, make_task
from relay.run.planning.planner import PlanTask, make_command
from relay.run.planning.submission import MAX_SUBMISSIONS, RejectedPlan, judge_plan

PLAN = """\
# Work

Prose above the phases.

## Phase 1 — First
Verify: `true`
- [x] Was done — a.py

## Phase 2 — Too big
Verify: `true`
- [ ] One — b.py
- [ ] Two — c.py

## Phase 3 — Last
Verify: `true`
- [ ] Three — d.py
"""


def submit(*markdowns):
    """Return a planner's script that hands in one text after the other."""
    turns = [{"tools": [{"name": "submit_plan", "input": {"markdown": markdown}}]} for markdown in markdowns]
    return json.dumps({"sessions": [{"turns": [*turns, {"text": "I stop here."}, {"text": "I do."}]}]})


def read_results(stage):
    """Return what the session was told of its submissions."""
    messages = [request.body for request in stage.server.requests if request.path == "/v1/messages"][-1]["messages"]
    blocks = [block for message in messages for block in message["content"] if isinstance(block, dict)]
    found = [block["content"] for block in blocks if block.get("type") == "tool_result"]
    return [text if isinstance(text, str) else text[0]["text"] for text in found]


HOSTILE_COMMANDS = (
    "true \x1b[2K\x1b[1A",
    "true #\rmake test",
    "true \0 x",
    "true \u202e; x",  # shown turned around
    "tr\u200bue",
    "true " + "x" * 5_000,
    "pytest -q || true",  # its exit code is thrown away
)
FORMS = ("## Phase 1\nVerify: `{0}`\n", "## Phase 1\nVerify:\n```sh\n{0}\n```\n")


def test_a_command_that_nobody_can_review_is_not_taken(stage):
    """A screen must show what will run; the session is told which character it is, and nothing is written."""
    plans = [f"# Work\n\n{form.format(one)}- [ ] One — a.py\n" for one in HOSTILE_COMMANDS for form in FORMS]
    assert [plan for plan in plans if not isinstance(judge_plan(plan, None), RejectedPlan)] == []

    ended = stage.plan(submit(plans[0]), PlanTask(feature="x", force=True))

    assert ended.exit_code == ExitCode.STOPPED
    assert read_results(stage)[0].startswith("The plan is not accepted")
    assert (stage.root / "PLAN.md").read_text() == stage.git("show", "HEAD:PLAN.md")


@pytest.mark.nightly
def test_a_split_names_the_lines_that_were_submitted(stage):
    """Not those of the merged plan, which the session never saw; what its phases are called there is said."""
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    ticked = "\n## Small\nVerify: `true`\n- [ ] One — b.py\n\n## Rest\nVerify: `true`\n- [x] Two — c.py\n"
    empty = "## Small\nVerify: `true`\n- [ ] One — b.py\n\n## Rest\nVerify: `true`\n- [ ]\n"
    good = ticked.replace("[x]", "[ ]")

    ended = stage.plan(submit(ticked, empty, good), PlanTask(split="2"))

    assert ended.exit_code == ExitCode.DONE, ended
    first, second = read_results(stage)
    assert "will number them: 2 is `Small`; 3 is `Rest`\n" in first
    assert "\n- line 8: `Two — c.py` is ticked" in first
    assert "line 16" not in first
    assert "\n- line 7: " in second


@pytest.mark.nightly
def test_the_way_on_from_a_plan_that_was_not_taken_is_the_same_command(stage):
    """With what was asked for, quoted for a shell."""
    feature = 'don\'t `rm -rf $HOME`; say "hello"'
    stage.write("PLAN.md", "# Old\n\n## Phase 1\n- [ ] Open — a.py\n")
    stage.commit("plan")

    ended = stage.plan(submit(*["no plan"] * MAX_SUBMISSIONS), PlanTask(feature=feature, force=True))

    assert ended.exit_code == ExitCode.STOPPED
    assert shlex.split(ended.next_command) == ["relay", "plan", "--force", feature]


def test_the_last_plan_that_is_not_taken_ends_the_session(stage):
    """Nothing that it could say from there on would be a plan: not one more request is paid for."""
    ended = stage.plan(submit(*[f"no plan {n}" for n in range(50)]), PlanTask(feature="x", force=True))

    assert ended.exit_code == ExitCode.STOPPED
    assert ended.reason.startswith("no plan was accepted: ")
    assert len([r for r in stage.server.requests if r.path == "/v1/messages"]) == MAX_SUBMISSIONS


@pytest.mark.nightly
def test_what_ended_the_session_comes_before_the_faults_of_its_last_plan(stage):
    """Nobody looks for the cause in the plan when it was the endpoint."""
    script = json.loads(submit("no plan"))
    script["sessions"][0]["turns"][1]["fault"] = {"kind": "status", "status": 400, "message": "no such field"}

    ended = stage.plan(json.dumps(script), PlanTask(feature="x", force=True))

    assert ended.reason.startswith("no plan was accepted: HTTP 400 ")
    assert "no such field" in ended.reason
    assert "; of the last one: " in ended.reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "--split", "9"), "there is no phase '9' to split"),
        (("plan", "--split", "1"), "phase 1 is done; only open phases are split"),
        (("review", "--whole-plan"), "PLAN.md has open phases"),
    ],
)
def test_a_task_that_does_not_fit_the_plan_opens_nothing(stage, words, said):
    """No key is asked for, and no run begins that could only end at once."""
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")

    ran = stage.relay(*words)

    assert (ran.returncode, ran.stdout) == (ExitCode.USER, "")
    assert ran.stderr.startswith(f"Error: {said}")
    assert not (stage.root / ".relay").exists()


@given(
    st.text(min_size=1).filter(lambda text: text.strip()),
    st.sampled_from(["feature", "revise", "split"]),
    st.booleans(),
    st.sampled_from([AT_ROOT, Caller(plan="-other plan.md")]),
)
def test_the_command_asks_for_the_same_task(text, kind, force, caller):
    """Whatever a shell and click make of it; white space counts as one blank."""
    said = text if kind == "split" else " ".join(text.split())
    given: dict[str, Any] = {kind: text}
    task = PlanTask(**given, converge=False, force=force and kind == "feature")
    shown = caller.write(make_command(task))
    assert shown.isprintable()
    if shown == "relay plan --help":
        assert len(said) > 200 or not said.isprintable() or "'" in said
        return
    typed = command.make_context("plan", shlex.split(shown)[2:]).params
    assert (typed["plan"] or "") == caller.plan
    again = make_task(typed["feature"], revise=typed["revise"], split=typed["split"], force=typed["force"])
    given[kind] = said
    assert again == replace(task, **given)


def test_a_plan_is_not_taken_when_the_repository_changed_meanwhile(stage):
    """Whoever changed it: the plan is kept aside, the change is named, and PLAN.md stays as it was."""
    good = "# Work\n\n## Phase 1\nVerify: `grep -q one a.py`\n- [ ] One — a.py\n"
    stage.on_tool = lambda: stage.write("planted.py", "evil\n")

    ended = stage.plan(submit(good), PlanTask(feature="x", force=True))

    assert ended.exit_code == ExitCode.STOPPED
    assert "the repository changed while it was planned" in ended.reason
    assert "planted.py" in ended.reason
    assert (stage.root / "PLAN.md").read_text() == stage.git("show", "HEAD:PLAN.md")


def test_a_planner_has_a_model_of_its_own_and_proposes_only_what_a_run_takes(stage):
    """What it plans with is the setting's; a model that relay does not know goes back to it."""
    plan = "# W\n\n## Phase 1\nVerify: `test -e a.py`\n{}\n- [ ] One — a.py\n"
    script = json.loads(submit(plan.format("Model: claude-opus-99"), plan.format("Effort: low")))
    script["models"] = ["claude-opus-5-5", "claude-haiku-5-5"]
    task = PlanTask(feature="x", force=True)

    ended = stage.plan(json.dumps(script), task, roles={"plan": "claude-haiku-5-5"})

    assert ended.exit_code == ExitCode.DONE, ended
    assert "Model: found 'claude-opus-99'" in read_results(stage)[0]
    assert {one.body["model"] for one in stage.server.requests if one.path == "/v1/messages"} == {"claude-haiku-5-5"}
    assert "Effort: low" in (stage.root / "PLAN.md").read_text()
