"""A second pair of eyes before the commit: found, refuted, confirmed, repaired, checked again."""

import json

import pytest

from relay.base.errors import ExitCode, RelayError
from relay.session.events import GateFinished, GateStarted, Noticed, ReviewFinished, SessionEnded, SessionStarted
from relay.store.trailers import REVIEW
from tests.resume.test_spend import count_billed, read_recorded

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt
"""
WORK = """
  - name: author
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\nrm -rf /\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "It was hard.\\nCommit: Say hello"
"""
FINDING = {
    "file": "hello.txt",
    "line": 2,
    "summary": "It removes everything",
    "failure_scenario": "somebody runs it",
    "category": "correctness",
    "severity": "important",
}

UNKNOWN = {"kind": "status", "status": 401}
AGAIN = FINDING | {"summary": "It yet removes everything"}


def report(*findings, **expect):
    """A session that looks at the change and says this."""
    return session("reviewer", "report_findings", {"findings": findings}, expect)


def judge(*verdicts, **expect):
    """A session that judges what it is given."""
    rows = [{"number": n, "confirmed": ok, "reason": why} for n, (ok, why) in enumerate(verdicts, 1)]
    return session("refuter", "judge_findings", {"verdicts": rows}, expect)


def session(name, tool, given, expect):
    turn = {"tools": [{"name": tool, "input": given}]} | ({"expect": expect} if expect else {})
    return f"  - {json.dumps({'name': name, 'turns': [turn]})}\n"


REPAIR = """
  - name: repair
    turns:
      - expect:
          first_message_contains: ["# Confirmed by review", "hello.txt:2: It removes everything", "line 2 is a command"]
          first_message_lacks: "somebody reads it"
        tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - text: "Removed.\\nCommit: Say hello safely"
"""


@pytest.fixture
def greeting(stage):
    stage.write("PLAN.md", PLAN)
    stage.commit()
    return stage


def get_review(stage):
    return dict(stage.commits()[0].found).get(REVIEW, "")


TRIES = {"command": "echo x > hello.txt; touch .relay/x; echo ok > $TMPDIR/y; cat $TMPDIR/y"}


def test_a_confirmed_fault_is_repaired_and_the_repair_reviewed(greeting):
    """The author's words are not shown; the second round sees the repair only; the gate runs on what is committed.

    A reviewer writes nothing: its sandbox is the planner's; $TMPDIR is its own.
    """
    nit = FINDING | {"severity": "nit", "summary": "No full stop", "failure_scenario": "somebody reads it"}
    sees = {
        "first_message_contains": ["+rm -rf /", "Say hello — hello.txt", "`grep -q hello hello.txt` (passed)"],
        "first_message_lacks": "It was hard",
    }
    look = {"expect": sees, "tools": [{"name": "bash", "input": TRIES}]}
    finds = {
        "expect": {"last_result_contains": ["Read-only file system", "ok"]},
        "tools": [{"name": "report_findings", "input": {"findings": [FINDING, nit]}}],
    }
    ended = greeting.run(
        "sessions:" + WORK
        + f"  - {json.dumps({'name': 'reviewer', 'turns': [look, finds]})}\n"
        + judge((True, "line 2 is a command"), first_message_lacks=["No full stop", "It was hard"])
        + REPAIR
        + report(first_message_contains=["-rm -rf /", "1. [correctness] hello.txt:2"], first_message_lacks="+hello"),
        review="phase",
    )  # fmt: skip

    assert (ended.exit_code, greeting.server.errors) == (ExitCode.DONE, [])
    assert greeting.git("show", "HEAD:hello.txt") == "hello\n"
    assert greeting.commits()[0].subject == "Say hello safely"
    assert get_review(greeting).startswith("rounds=2 found=2 confirmed=1 open=0 ")
    assert [(event.round, event.confirmed) for event in greeting.seen(ReviewFinished)] == [(1, 1), (2, 0)]
    assert [session.title for session in greeting.seen(SessionStarted)] == [
        "Hello",
        "review",
        "refutation",
        "Hello",
        "review",
    ]
    assert [session.result for session in greeting.seen(SessionEnded)] == ["review", "done", "done", "review", "done"]
    assert greeting.seen(SessionStarted)[3].reason == (
        "A review of phase 1 confirmed 1 fault. Claimed but not committed: 1.1."
    )
    assert "- [x] 1.1 Say hello — hello.txt\n  evidence: grep finds it" in greeting.commits()[0].body
    assert len(greeting.commits()) == 1
    assert greeting.git("for-each-ref", "refs/relay/leg/") == ""


@pytest.mark.nightly
def test_a_refuted_fault_changes_nothing(greeting):
    """Wherever it is: a change breaks files that it does not touch."""
    greeting.run(
        "sessions:" + WORK + report(FINDING | {"file": "main.py"}) + judge((False, "nobody runs a greeting")),
        review="phase",
    )

    assert greeting.server.errors == []
    assert get_review(greeting).startswith("rounds=1 found=1 confirmed=0 open=0 ")
    assert [gate.commands for gate in greeting.seen(GateStarted)][1:] == [("grep -q hello hello.txt",), ()]
    (event,) = greeting.seen(ReviewFinished)
    assert [(one["verdict"], one["reason"]) for one in event.findings] == [("refuted", "nobody runs a greeting")]
    assert greeting.git("show", "HEAD:hello.txt") == "hello\nrm -rf /\n"


@pytest.mark.nightly
def test_a_session_that_leaves_a_fault_is_not_asked_for_ever(greeting):
    """It says why; the commit says that one is open."""
    greeting.run(
        "sessions:" + WORK + report(FINDING) + judge((True, "line 2 is a command"))
        + '  - {name: stubborn, turns: [{text: "It is meant so.\\nCommit: Say hello"}]}\n',
        review="phase",
    )  # fmt: skip

    assert greeting.server.errors == []
    assert get_review(greeting).startswith("rounds=1 found=1 confirmed=1 open=1 ")
    assert "not changed by the session: hello.txt:2" in "".join(event.text for event in greeting.seen(Noticed))


@pytest.mark.nightly
def test_there_are_two_rounds_at_most(greeting):
    greeting.run(
        "sessions:" + WORK + report(FINDING) + judge((True, "line 2 is a command"))
        + REPAIR.replace('"hello\\n"', '"hello\\nrm -r /\\n"')
        + report(AGAIN) + judge((True, "still"))
        + REPAIR.replace("line 2 is a command", "still").replace("It removes", "It yet removes"),
        review="phase",
    )  # fmt: skip

    assert greeting.server.errors == []
    assert get_review(greeting).startswith("rounds=2 found=2 confirmed=2 open=0 repair=unreviewed ")


@pytest.mark.nightly
def test_a_killed_review_is_held_again_and_what_it_cost_is_counted(greeting):
    """A review that has come to an end is not paid for twice."""
    greeting.run("sessions:" + WORK + "  - {turns: [{text: x, fault: {kind: status, status: 401}}]}\n", review="phase")
    assert greeting.commits() == ()
    assert [session.title for session in greeting.seen(SessionStarted)] == ["Hello", "review"]
    greeting.calm()

    ended = greeting.run("sessions:\n" + report(FINDING) + judge((False, "no")), review="phase")

    assert (ended.exit_code, greeting.server.errors) == (ExitCode.DONE, [])
    assert [session.title for session in greeting.seen(SessionStarted)] == ["review", "refutation"]
    (commit,) = greeting.commits()
    assert commit.usage.output_tokens > 0
    assert ended.spent_usd == pytest.approx(commit.cost_usd, abs=1e-6)


@pytest.mark.nightly
def test_what_a_review_cost_that_was_cut_off_is_counted(greeting):
    """Its session is over, and that of the author, which has spent less until then, is the attempt's again."""
    refused = {
        "turns": [{"tools": [{"name": "read", "input": {"path": "hello.txt"}}]}, {"text": "x", "fault": UNKNOWN}]
    }
    greeting.run(f"sessions:{WORK}  - {json.dumps(refused)}\n", review="phase")
    billed = count_billed(greeting.server)
    assert read_recorded(greeting) == pytest.approx(billed, abs=1e-6)
    greeting.calm()

    greeting.run("sessions:\n" + report(), review="phase")

    assert greeting.commits()[0].cost_usd == pytest.approx(billed + count_billed(greeting.server), abs=1e-6)


@pytest.mark.nightly
def test_a_reviewer_that_hands_nothing_in_holds_no_phase_up(greeting):
    greeting.run("sessions:" + WORK + "  - {turns: [{text: fine}, {text: really}]}\n", review="phase")

    assert greeting.server.errors == []
    assert get_review(greeting) == "none: finished"
    assert "not reviewed: " in "".join(event.text for event in greeting.seen(Noticed))


def test_a_review_has_a_cap_of_its_own(greeting):
    models = {"claude-opus-5-5": {"max_output_tokens": 1_000}}
    greeting.run("sessions:" + WORK, review="phase", max_phase_cost_usd=0.12, models=models)

    assert get_review(greeting) == "none: its cap was met"
    assert "the review may cost 0.03 USD" in "".join(e.text for e in greeting.seen(Noticed))


def test_a_dearer_reviewer_is_checked_at_its_own_price(greeting):
    """The plan's cap would hold a request at the author's price, and not at this one."""
    prices = {"dear": {"price": {"input": 5_000.0, "output": 25_000.0}}}
    models = "models: [{id: claude-opus-5-5}, {id: dear}]\n"
    ended = greeting.run(
        models + "sessions:" + WORK, review="phase", roles={"review": "dear"}, max_phase_cost_usd=1e6, models=prices
    )

    assert (ended.exit_code, [session.title for session in greeting.seen(SessionStarted)]) == (
        ExitCode.STOPPED,
        ["Hello", "review"],
    )
    assert "of the run's cap of 20.00 USD" in ended.reason
    assert ended.spent_usd < 1


@pytest.mark.nightly
def test_a_reviewer_that_there_is_not_costs_no_session(greeting):
    with pytest.raises(RelayError, match="no-such-model"):
        greeting.run("sessions:" + WORK, review="phase", roles={"review": "no-such-model"})

    assert greeting.seen(SessionStarted) == []


@pytest.mark.nightly
def test_a_plan_is_reviewed_with_its_last_phase(stage):
    """The whole change since before its first phase."""
    phases = [("hello", "1.1"), ("world", "2.1")]
    work = [
        {"turns": [
            {"tools": [{"name": "write", "input": {"path": f"{word}.txt", "content": f"{word}\n"}}]},
            {"tools": [{"name": "tick", "input": {"item": item, "evidence": "there"}}]
             + ([{"name": "tick", "input": {"item": "2.2", "evidence": "there"}}] if word == "world" else [])},
            {"text": "Commit: Say it"},
        ]}
        for word, item in phases
    ]  # fmt: skip
    script = "sessions:\n" + "".join(f"  - {json.dumps(one)}\n" for one in work)

    ended = stage.run(script + report(first_message_contains=["+hello", "+world", "Phase 1"]), review="plan")

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert [REVIEW in dict(commit.found) for commit in stage.commits()] == [True, False]


@pytest.mark.nightly
def test_a_hand_off_is_not_reviewed(greeting):
    greeting.run(
        """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: hand_off, input: {next_step: "tick it", learned: [], dead_ends: []}}]
  - turns:
      - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
      - tools: [{name: hand_off, input: {next_step: "nothing", learned: [], dead_ends: []}}]
"""
        + report(),
        review="phase",
    )

    assert greeting.server.errors == []
    assert [session.title for session in greeting.seen(SessionStarted)] == ["Hello", "Hello", "review"]
    assert get_review(greeting).startswith("rounds=1 found=0 ")
    assert sum(1 for gate in greeting.seen(GateFinished) if gate.passed) >= 1
