"""What a planner asks, and what a session at work leaves for later."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import ExitCode
from relay.plan.parse import parse_plan
from relay.run.planning.planner import PlanTask
from relay.run.planning.submission import MAX_ROUNDS, Interview, RejectedPlan, judge_plan
from relay.session.events import Event, Noticed, QuestionAsked, WordsHeard
from relay.tools.workspace import RefusedError
from tests.planning.test_planner import read_results

PLAN = "# Keys\n\nGoal.\n\n## Phase 1 — One\nVerify: `test -f one.txt`\n- [ ] Say one — one.txt\n"
WHERE = {"question": "Where are keys kept?", "options": ["in a file", "in the database"], "default": "in a file"}

SIZED = False


def ask(*questions):
    return {"name": "ask", "input": {"questions": list(questions)}}


def plan_by(*tools):
    turns = [{"tools": [tool]} for tool in (*tools, {"name": "submit_plan", "input": {"markdown": PLAN}})]
    return json.dumps({"sessions": [{"turns": turns}]})


def make_interview(*answers):
    """Return one with a person who answers in turn, and the events."""
    events: list[Event] = []
    left = list(answers)
    return Interview(lambda *_: left.pop(0), events.append, lambda text: text.replace("hunter2", "•")), events


def test_where_nobody_sits_the_default_holds_and_is_an_assumption(stage):
    ended = stage.plan(plan_by(ask(WHERE)), PlanTask(feature="keys", force=True))

    assert ended.exit_code == ExitCode.DONE, ended
    text = (stage.root / "PLAN.md").read_text()
    assert "Goal.\n\n## Assumptions\n\n- Where are keys kept? in a file\n\n## Phase 1" in text
    assert read_results(stage)[0].startswith("Where are keys kept? Nobody answered; assume: in a file\n")
    assert [(event.assumed, event.waits) for event in stage.seen(QuestionAsked)] == [("in a file", False)]


def test_answers_are_constraints_and_what_was_not_answered_is_assumed():
    other = {**WHERE, "question": "Who may read them?"}
    interview, events = make_interview("in a drawer, behind hunter2", None)
    answer = interview.take({"questions": [WHERE, other]})

    assert answer.text.splitlines()[:2] == [
        "Where are keys kept? The user says: in a drawer, behind •",
        "Who may read them? Nobody answered; assume: in a file",
    ]
    assert [type(event) for event in events] == [QuestionAsked, WordsHeard, QuestionAsked, Noticed]
    judged = interview.noting(lambda text, _: judge_plan(text, None))(PLAN, SIZED)
    assert not isinstance(judged, RejectedPlan)
    assert judged.preamble == (
        "# Keys\n\nGoal.\n\n## Constraints\n\n- Where are keys kept? in a drawer, behind •\n"
        "\n## Assumptions\n\n- Who may read them? in a file\n\n"
    )


def test_a_plan_that_cannot_take_the_answers_goes_back():
    interview, _ = make_interview("yes")
    interview.take({"questions": [WHERE]})
    judge = interview.noting(lambda text, _: judge_plan(text, None))
    judged = judge(PLAN.replace("Goal.\n\n## Phase 1 — One", "   One\n   ==="), SIZED)
    assert isinstance(judged, RejectedPlan)
    assert "does not end there" in judged.faults[0]
    assert isinstance(judge("no plan", SIZED), RejectedPlan)


UNASKED = [
    ([], "Ask 1 to 4 questions"),
    ([WHERE] * 5, "Ask 1 to 4 questions"),
    ([{**WHERE, "options": ["in a file"]}], "give 2 to 4 different options"),
    ([{**WHERE, "options": list("abcde"), "default": "a"}], "give 2 to 4 different options"),
    ([{**WHERE, "options": ["in a file", "in a  file"]}], "give 2 to 4 different options"),
    ([{**WHERE, "default": "elsewhere"}], "the default is one of its options"),
    ([{**WHERE, "question": " \n"}], "1 to 400 characters"),
    ([{**WHERE, "question": "x" * 401}], "1 to 400 characters"),
    ([{**WHERE, "options": ["in a file", "x" * 401]}], "1 to 400 characters"),
]


def test_what_nobody_can_answer_is_not_asked():
    interview, events = make_interview()
    for questions, words in UNASKED:
        with pytest.raises(RefusedError, match=words):
            interview.take({"questions": questions})
    assert events == []


def test_a_person_is_not_asked_without_end():
    interview, events = make_interview(*["a"] * 9)
    for _ in range(MAX_ROUNDS):
        interview.take({"questions": [WHERE]})
    with pytest.raises(RefusedError, match="asked often enough"):
        interview.take({"questions": [WHERE]})
    assert len([event for event in events if isinstance(event, QuestionAsked)]) == MAX_ROUNDS


@given(question=st.text(min_size=1, max_size=60), answer=st.text(max_size=60) | st.none())
def test_no_question_and_no_answer_becomes_anything_but_a_line(question, answer):
    interview, _ = make_interview(answer)
    before = parse_plan(PLAN)
    try:
        interview.take({"questions": [{**WHERE, "question": question}]})
    except RefusedError:
        assert not question.split()
        return
    after = interview.note_into(before)
    assert [phase.items for phase in before.phases] == [
        tuple(item for item in phase.items) for phase in parse_plan(PLAN).phases
    ]
    assert [(p.title, p.verify, [i.text for i in p.items]) for p in after.phases] == [
        (p.title, p.verify, [i.text for i in p.items]) for p in before.phases
    ]


@pytest.mark.nightly
def test_what_is_said_from_another_terminal_while_it_plans_is_a_constraint(stage):
    def say():
        stage.on_tool = None
        assert stage.relay("say", "use the v2 client").returncode == 0

    stage.on_tool = say
    look = {"name": "bash", "input": {"command": "ls"}}
    ended = stage.plan(plan_by(look, look), PlanTask(feature="keys", force=True))

    assert ended.exit_code == ExitCode.DONE, ended
    assert "## Constraints\n\n- use the v2 client\n" in (stage.root / "PLAN.md").read_text()
    assert stage.relay("say", "and no more").returncode == 0
    stage.commit("plan")
    stage.run("sessions: [{turns: [{tools: [{name: block, input: {reason: seen}}]}]}]")
    assert [event.text for event in stage.seen(WordsHeard)] == ["and no more"]


DEFER = {"name": "defer", "input": {"question": "Which port?", "assumed": "8080"}}


def test_a_question_of_a_session_at_work_goes_into_the_plan_and_the_work_goes_on(stage):
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    turns = [
        {"tools": [DEFER]},
        {"tools": [DEFER]},
        {"tools": [{"name": "write", "input": {"path": "one.txt", "content": "one\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "wrote it"}}]},
        {"text": "Commit: Say one"},
    ]
    ended = stage.run(json.dumps({"sessions": [{"turns": turns}]}))

    assert ended.exit_code == ExitCode.DONE, ended
    plan = stage.git("show", "HEAD:PLAN.md")
    assert plan.endswith("- [x] Say one — one.txt\n### Notes\n- question: Which port? (assumed: 8080)\n")
    assert [(event.question, event.assumed, event.waits) for event in stage.seen(QuestionAsked)] == [
        ("Which port?", "8080", False)
    ]
    assert read_results(stage)[1].startswith("Already asked")


@pytest.mark.nightly
def test_a_question_outlives_the_session_that_left_it(stage):
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    block = {"name": "block", "input": {"reason": "no way on"}}
    stage.run(json.dumps({"sessions": [{"turns": [{"tools": [DEFER]}, {"tools": [block]}]}]}))
    turns = [{"expect": {"first_message_contains": "question: Which port? (assumed: 8080)"}, "tools": [block]}]
    stage.run(json.dumps({"sessions": [{"turns": turns}]}))
    assert stage.server.errors == []
