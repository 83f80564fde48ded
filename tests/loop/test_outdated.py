"""A session that makes a later item wrong is told so, and amends the plan in its commit or leaves a doubt."""

import pytest

from relay.base.errors import ExitCode
from relay.session.events import GateStarted, PlanShown
from tests.effort import take_each

PLAN = """\
# Keys

## Phase 1 — Rename
Verify: `test -f src/api_keys.py`
- [ ] Give the file its real name — src/api_keys.py

## Phase 2 — Use
Verify: `test -d .`
- [ ] Use `load_key` — src/keys.py
"""
KEYS = "def load_key(name):\n    return name\n" + "".join(f"# line {n}\n" for n in range(30))
MOVE = """
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "cd src; sed s/load_key/read_key/ keys.py >api_keys.py; rm keys.py"}}]
%s      - tools: [{name: tick, input: {item: "1.1", evidence: "ls"}}]
      - text: "Commit: Rename"
  - turns:
      - tools: [{name: block, input: {reason: lunch}}]
"""
AMEND = """\
      - expect: {last_result_contains: "which is src/api_keys.py now"}
        tools:
          - name: amend
            input: {phase: "2", change: "src/keys.py is src/api_keys.py now, load_key is read_key", why: "renamed here"}
"""
WRONG = (
    "item 2.1 names src/keys.py, which is src/api_keys.py now",
    "item 2.1 names `load_key`, which src/keys.py defined before",
)


def run(stage, script, folder=""):
    """Return what the session was told, the doubts of its commit, and that commit."""
    stage.plan_path = f"{folder}PLAN.md"
    stage.write(stage.plan_path, PLAN)
    stage.write(f"{folder}src/keys.py", KEYS)
    stage.commit("plan")
    assert stage.run(script).exit_code == ExitCode.STOPPED
    assert stage.server.errors == []
    results = [
        block
        for request in stage.server.requests
        if request.path == "/v1/messages"
        for message in request.body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]
    told = {str(block["content"]) for block in results if "this made later items wrong" in str(block["content"])}
    done = stage.git("log", "--format=%H", "--grep=Relay-Status: done").split()
    return told, stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)", done[0]), done[0]


@pytest.mark.nightly
def test_a_session_is_told_after_its_command_and_its_amendment_is_in_the_same_commit(stage):
    [told], doubts, commit = run(stage, MOVE % AMEND)
    assert WRONG[0] in told
    assert doubts.strip() == ""
    assert "src/keys.py is src/api_keys.py now, load_key is read_key" in stage.git("show", f"{commit}:PLAN.md")
    assert "src/api_keys.py" in stage.git("show", "--stat", commit)


@pytest.mark.parametrize("folder", take_each(2, ["pkg/", ""]))
def test_what_a_session_leaves_wrong_is_a_doubt_of_its_commit(stage, folder):
    """It was told; the next phase's session is told too. Names count from the directory of a package's plan."""
    wrong = [words.replace("src/", f"{folder}src/") for words in WRONG]
    told, doubts, commit = run(stage, (MOVE % "").replace("cd src", f"cd {folder}src"), folder)
    assert sorted(words in text for text in told for words in wrong) == [False, False, True, True]
    assert doubts.split("\n")[:2] == wrong
    assert f"left as it is in the plan: item 2.1 names {folder}src/keys.py" in str(stage.events)
    assert "2.1 names" not in stage.git("show", f"{commit}:{folder}PLAN.md")
    (first,) = [
        str(request.body["messages"][0]["content"])
        for request in stage.server.requests
        if request.path == "/v1/messages" and "Carry out phase 2" in str(request.body["messages"][0]["content"])
    ]
    assert [words in first for words in wrong] == [True, True]
    command = "test -f src/api_keys.py"
    ran = f"cd pkg && {command}" if folder else command
    assert [event.commands for event in stage.seen(GateStarted)][:2] == [(ran,)] * 2
    shown = {tuple(item["paths"]) for event in stage.seen(PlanShown) for item in event.phases[1]["items"]}
    assert shown == {(f"{folder}src/keys.py",)}


@pytest.mark.nightly
@pytest.mark.parametrize(("amend", "doubts"), [(AMEND, []), ("", ["2.1 names src/keys.py, which no commit has"])])
def test_a_rename_that_was_amended_as_asked_leaves_no_doubt_about_the_later_tick(stage, amend, doubts):
    """A note that has the old name beside one that is there says where the work went."""
    work = """\
      - tools: [{name: bash, input: {command: "echo used >> src/api_keys.py"}}]
      - tools: [{name: tick, input: {item: "2.1", evidence: "cat"}}]
      - text: "Commit: Use it"
"""
    block = "      - tools: [{name: block, input: {reason: lunch}}]\n"
    stage.write("PLAN.md", PLAN)
    stage.write("src/keys.py", KEYS)
    stage.commit("plan")
    ended = stage.run((MOVE % amend).replace(block, work))
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    said = stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)")
    assert said.split("\n")[:-2] == doubts
