"""A question that a session left to the user stands on top wherever the user looks next, until the note is gone."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.scripts import TWO_PHASES, serving

SCRIPT = """\
sessions:
  - turns:
      - tools: [{name: defer, input: {question: "Which port?", assumed: "8080"}}]
      - tools: [{name: write, input: {path: hello.txt, content: "hello"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "wrote it"}}]
      - text: "Commit: Say hello"
  - turns:
      - tools: [{name: defer, input: {question: "In *which* language?", assumed: "English"}}]
      - tools: [{name: block, input: {reason: "no way on"}}]
"""
FIRST = "phase 1: Which port? (assumed: 8080)"
SECOND = "phase 2: In *which* language? (assumed: English)"
BOTH = "2 questions were answered by assumption"


@pytest.mark.nightly
def test_what_was_assumed_is_on_top_of_all_that_is_looked_at_next(relay, project, commit):
    (project / "PLAN.md").write_text(TWO_PHASES)
    commit()
    with serving(SCRIPT) as (server, env):
        one = relay("run", "--phase", "next", env=env)
        two = relay("run", "--json", env=env)
    assert (one.code, two.code, server.errors) == (ExitCode.DONE, ExitCode.STOPPED, [])

    said = one.out.splitlines()
    assert f"1 question was answered by assumption\n- {FIRST}\n" in "\n".join(said[-4:]), one.out
    assert json.loads(two.out.splitlines()[-1])["questions"] == [FIRST, SECOND]
    for words in (["status"], ["status", "--why"]):
        shown = relay(*words).out.splitlines()
        assert shown[1].startswith(f"check  {BOTH}"), shown
        assert [line.strip() for line in shown[2:4]] == [FIRST, SECOND]
    assert json.loads(relay("status", "--json").out)["questions"] == [FIRST, SECOND]
    text = relay("pr", "--text").out
    assert text.index("## Assumptions to check") < text.index("## What was done")
    assert "phase 1: Which port? (assumed: 8080)" in text  # the second phase has no commit yet
    needs = relay("report", "--text").out.partition("What needs you: ")[2].splitlines()
    assert needs[0] == "Type this to go on"
    assert [line.strip() for line in needs[2:4]] == [FIRST, SECOND]

    plan = (project / "PLAN.md").read_text()
    (project / "PLAN.md").write_text(plan.replace("- question: Which port? (assumed: 8080)\n", ""))
    assert FIRST not in relay("status").out
    with serving("sessions: [{turns: [{tools: [{name: block, input: {reason: still}}]}]}]") as (_, env):
        last = relay("run", env=env)
    assert "1 question was answered by assumption" in last.out
    assert FIRST not in last.out
