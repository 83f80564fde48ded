"""One plan whose phases are run by different runners: relay's own loop and two agents."""

import json

import pytest

from relay.base.errors import PlanError
from relay.base.hints import AT_ROOT
from relay.cli.sessions import make_end_event
from relay.config import Settings
from relay.run.loop import run
from relay.run.selection import Selection
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


def test_a_further_kind_of_session_in_a_run_that_claims_nothing_writes_nothing(stage, agent):
    """Though commands of the run's own sessions do, and the agent would."""
    write = {"name": "bash", "input": {"command": "date > pwned.txt; ls; echo $?"}}
    verdict = {"name": "verdict", "input": {"text": "looked"}}
    script = json.dumps({"sessions": [{"turns": [{"tools": [write]}, {"tools": [verdict]}, {"text": "Done."}]}]})
    with agent("run", script) as ctx:
        review = Review().run(ctx.sessions, "diff")

    assert review.findings == ["looked"]
    assert not (stage.root / "pwned.txt").exists()
