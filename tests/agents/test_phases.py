"""One plan whose phases are run by different runners: relay's own loop and two agents."""

import json

import pytest

from relay.base.errors import ConfigError, ExitCode, PlanError
from relay.base.hints import AT_ROOT
from relay.cli.sessions import make_end_event
from relay.config import Settings
from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.events import ReviewFinished, SessionStarted
from tests.agents.test_session import count_usage, sum_usage
from tests.sessions.test_skeleton import Review

PLAN = """\
# Greetings

## Phase 1 — One
Verify: `grep -q one one.txt`
- [ ] Say one — one.txt

## Phase 2 — Two
Runner: fake
Verify: `grep -q two two.txt`
- [ ] Say two — two.txt

## Phase 3 — Three
Runner: `other`
Verify: `grep -q three three.txt`
- [ ] Say three — three.txt
"""
SCRIPT = "sessions:\n" + "".join(
    f"  - {{when: {{first_message_contains: 'Say {word}'}}, turns: ["
    f"{{tools: [{{name: bash, input: {{command: 'echo {word} > {word}.txt'}}}}]}}, "
    f"{{tools: [{{name: tick, input: {{item: '{number}.1', evidence: seen}}}}]}}, {{text: 'Commit: {word}'}}]}}\n"
    for number, word in enumerate(("one", "two", "three"), start=1)
)


FINDING = (
    "{file: one.txt, line: 1, summary: It is one, failure_scenario: two are wanted, category: correctness, "
    "severity: important}"
)
VERDICT = "{number: 1, confirmed: false, reason: one it is}"
REVIEWED = f"""
sessions:
  - when: {{first_message_contains: 'Say one'}}
    turns:
      - tools: [{{name: bash, input: {{command: 'echo one > one.txt'}}}}]
      - tools: [{{name: tick, input: {{item: '1.1', evidence: seen}}}}]
      - text: 'Commit: one'
  - turns: [{{tools: [{{name: report_findings, input: {{findings: [{FINDING}]}}}}]}}]
  - turns: [{{tools: [{{name: judge_findings, input: {{verdicts: [{VERDICT}]}}}}]}}]
"""


def play(ctx):
    return make_end_event(run(ctx, Selection()), AT_ROOT)


def put_plan(stage, text=PLAN):
    stage.write("PLAN.md", text)
    stage.commit("plan")


def test_what_is_typed_for_a_run_counts_more_than_a_phase():
    runners = [Settings(runner="fake", origins={"runner": origin}) for origin in ("relay.toml:1", "--runner")]
    assert [(one.runner_for("other"), one.runner_for("")) for one in runners] == [("other", "fake"), ("fake", "fake")]


def test_a_name_that_nobody_has_stops_the_run_before_anything_is_asked(stage, agent, kinds):
    put_plan(stage)
    with pytest.raises(PlanError) as raised, agent("run", SCRIPT, runner="api", more=kinds("fake")):
        pass

    assert raised.value.line == 13
    assert raised.value.message.startswith("Runner: found 'other'; allowed: api, ")
    assert stage.server.requests == []


@pytest.mark.nightly
def test_a_phase_that_is_edited_in_between_is_asked_for_its_runner_before_it_begins(stage, agent, kinds):
    """Here by a person, while the phase before it was being committed."""
    put_plan(stage, PLAN.replace("Runner: `other`\n", ""))
    with agent("run", SCRIPT, runner="api", more=kinds("fake")) as ctx:
        assert make_end_event(run(ctx, Selection(phase_id="1", all=False)), AT_ROOT).exit_code == ExitCode.DONE
        stage.edit("Runner: fake", "Runner: nobody")
        with pytest.raises(ConfigError, match="Runner: runner: found 'nobody'; allowed: api, "):
            play(ctx)
    assert [session.runner for session in stage.seen(SessionStarted)] == ["api"]


@pytest.mark.nightly
def test_an_agent_reviews_what_another_runner_wrote(stage, agent, kinds):
    """It hands in by relay's own tools, on a model of its own, and writes nothing."""
    put_plan(stage, PLAN.partition("## Phase 2")[0])
    flags = {"review": "phase", "roles": {"review": "claude-haiku-4-5", "review_runner": "fake"}}
    with agent("run", REVIEWED, runner="api", more=kinds("fake"), **flags) as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    [review] = stage.seen(ReviewFinished)
    assert [(finding["summary"], finding["verdict"]) for finding in review.findings] == [("It is one", "refuted")]
    models = [request.body["model"] for request in stage.server.requests if request.usage]
    assert [model == "claude-haiku-4-5" for model in models] == [False, False, False, True, True]
    assert sum_usage(stage.commits()[0].spent.usage) == count_usage(stage)


def test_a_further_kind_of_session_in_a_run_that_claims_nothing_writes_nothing(stage, agent):
    """Though commands of the run's own sessions do, and the agent would."""
    write = {"name": "bash", "input": {"command": "date > pwned.txt; ls; echo $?"}}
    verdict = {"name": "verdict", "input": {"text": "looked"}}
    script = json.dumps({"sessions": [{"turns": [{"tools": [write]}, {"tools": [verdict]}, {"text": "Done."}]}]})
    with agent("run", script) as ctx:
        review = Review().run(ctx.sessions, "diff")

    assert review.findings == ["looked"]
    assert not (stage.root / "pwned.txt").exists()
