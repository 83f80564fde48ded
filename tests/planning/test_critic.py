"""A plan is criticized by two fresh sessions where the user wants that, and corrected once."""

import io
import json

import pytest

from relay.base.errors import ExitCode, RelayError
from relay.cli.plan import read_task
from relay.run.planning.planner import PlanTask, find_issue
from relay.session.events import Noticed, ResponseReceived, ReviewFinished, SessionStarted

PLAN = "# Keys\nGoal.\n\n## Phase 1\nVerify: `test -e a.py`\n- [ ] One — a.py\n"
BETTER = PLAN.replace("- [ ] One — a.py", "- [ ] One — a.py\n- [ ] Test it — test_a.py")
FAULT = {
    "file": "PLAN.md", "line": 6, "summary": "Nothing tests it", "failure_scenario": "It breaks and nobody sees it",
    "category": "missing", "severity": "important",
}  # fmt: skip


def use(tool, given, **expect):
    return {"turns": [{"expect": expect, "tools": [{"name": tool, "input": given}]}, {"text": "I stop.", "repeat": 4}]}


def plan(markdown, **expect):
    return use("submit_plan", {"markdown": markdown}, **expect)


def report(*findings):
    return use(
        "report_findings",
        {"findings": list(findings)},
        first_message_contains=["# What was asked for\nkeys", "6\t- [ ] One"],
    )


def judge(confirmed):
    verdict = {"number": 1, "confirmed": confirmed, "reason": "line 6 is alone"}
    return use("judge_findings", {"verdicts": [verdict]}, first_message_contains=["Nothing tests it", "6\t- [ ] One"])


def run(stage, *sessions):
    return stage.plan(json.dumps({"sessions": sessions}), PlanTask(feature="keys", force=True, is_criticized=True))


def read(stage):
    return (stage.root / "PLAN.md").read_text()


def test_the_planner_corrects_once_what_both_confirm(stage):
    """Each session is fresh, and all of them are paid for by the plan."""
    corrected = plan(BETTER, first_message_contains=["1. [missing] PLAN.md:6: Nothing tests it", "line 6 is alone"])
    ended = run(stage, plan(PLAN), report(FAULT), judge(confirmed=True), corrected)
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert read(stage) == BETTER
    assert [session.title for session in stage.seen(SessionStarted)] == ["planning", "critic", "refutation", "planning"]
    [seen] = stage.seen(ReviewFinished)
    assert (seen.confirmed, [one["verdict"] for one in seen.findings]) == (1, ["confirmed"])
    spent = json.loads(stage.relay("status", "--json").stdout)["spent"]["usd"]
    assert spent == pytest.approx(sum(event.cost_usd for event in stage.seen(ResponseReceived)), abs=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("findings", "verdicts"), [((), ()), ((FAULT,), (False,)), (({**FAULT, "severity": "nit"},), ())]
)
def test_what_is_not_confirmed_changes_nothing(stage, findings, verdicts):
    ended = run(stage, plan(PLAN), report(*findings), *(judge(confirmed=one) for one in verdicts))
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert read(stage) == PLAN


@pytest.mark.nightly
def test_a_plan_that_no_session_corrects_is_kept_with_the_fault_named(stage):
    ended = run(stage, plan(PLAN), report(FAULT), judge(confirmed=True), use("submit_plan", {"markdown": "none"}))
    assert ended.exit_code == ExitCode.DONE
    assert read(stage) == PLAN
    words = "both critics confirm, and no session corrected: PLAN.md:6: Nothing tests it — It breaks"
    assert any(event.text.startswith(words) for event in stage.seen(Noticed))


@pytest.mark.nightly
def test_a_critic_that_hands_nothing_in_costs_no_plan(stage):
    ended = run(stage, plan(PLAN), {"turns": [{"text": "Fine.", "repeat": 3}]})
    assert (ended.exit_code, read(stage)) == (ExitCode.DONE, PLAN)
    assert any("the plan was not criticized" in event.text for event in stage.seen(Noticed))


ISSUES = {
    "title:\tKeys\nstate:\tOPEN\nnumber:\t12\n--\nAs #3 says.": "#12",
    "Fix #7: keys\n\nsee #8": "#7",
    "https://github.com/o/r/issues/9 please": "o/r#9",
    "https://gitlab.com/g/s/p/-/issues/9": "g/s/p#9",
    "Add keys\n\nsee #8": "",
    "colour &#35; and a/b#4": "",
    "": "",
}


def test_the_issue_that_a_task_names_is_found():
    assert {text: find_issue(text) for text in ISSUES} == ISSUES


@pytest.mark.nightly
def test_a_pipe_without_a_task_asks_nobody(stage):
    ran = stage.relay("plan", "--force", "-", answer="  \n")
    assert ran.returncode == ExitCode.USAGE
    assert "got no text from the pipe" in ran.stderr


def test_what_is_no_task_is_refused():
    for data, words in ((b"x" * 300_000, "the task has more than 262,144 bytes"), (b"\xff\xfe", "byte 0 is wrong")):
        with pytest.raises(RelayError, match=words):
            read_task(io.TextIOWrapper(io.BytesIO(data)))
    assert read_task(io.TextIOWrapper(io.BytesIO(b"a\x1b[31mb\n"))) == "ab"
