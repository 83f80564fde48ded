"""Branches that move, plans that change and files that are not the session's: nothing is ticked without its code."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.base.interrupts import Urgency
from relay.git.repository import open_repo
from relay.run.planning.planner import PlanTask
from relay.session.events import Noticed
from relay.store.attempts import read_attempt
from tests.commit.candidate import WHOLE
from tests.scripts import HELLO


def names(stage, rev="HEAD"):
    return stage.git("show", "--name-only", "--format=", rev).split()


@pytest.mark.nightly
def test_what_an_open_attempt_asked_and_amended_outlives_an_edit_of_the_plan(stage):
    """The user's edit and the session's stand in one plan; where both cannot, the user's does, and it is said."""
    acts = [
        {"name": "defer", "input": {"question": "Which port?", "assumed": "8080"}},
        {"name": "amend", "input": {"phase": "2", "change": "- [ ] Say it thrice — world.txt", "why": "asked for"}},
        {"name": "block", "input": {"reason": "lunch"}},
    ]
    stage.run(json.dumps({"sessions": [{"turns": [{"tools": [act]} for act in acts]}]}))
    stage.edit("# Greetings", "# Greetings to all")

    stage.run("sessions: [{turns: [{tools: [{name: block, input: {reason: enough}}]}]}]")

    attempt = read_attempt(open_repo(stage.root))
    assert attempt is not None
    kept = stage.git("show", f"{attempt.wip_ref}:PLAN.md")
    assert "- question: Which port? (assumed: 8080)\n" in kept
    assert "- [ ] Say it thrice — world.txt\n" in kept
    assert kept.startswith("# Greetings to all\n")
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text().partition("## Phase 2")[0])

    stage.run("sessions: [{turns: [{tools: [{name: block, input: {reason: enough}}]}]}]")

    said = [event.text for event in stage.seen(Noticed) if "left out" in event.text]
    assert any("a note for phase 2 left out, since the phase is gone" in words for words in said), said
    assert "Which port?" in stage.git("show", f"{attempt.wip_ref}:PLAN.md")


@pytest.mark.nightly
def test_a_finished_plan_can_be_replaced(stage):
    """A second feature in the same file is a new plan with a count of its own."""
    stage.write("PLAN.md", "# Old\n\n## Phase 1\nVerify: `test -d .`\n- [x] Was done — old.txt\n")
    stage.commit("an old plan")
    new = "# New\n\n## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
    planner = f"""
sessions:
  - name: planner
    turns:
      - tools: [{{name: submit_plan, input: {{markdown: {new!r}}}}}]
"""
    planned = stage.plan(planner.replace("'", '"'), PlanTask(feature="new"))

    ended = stage.run(HELLO)

    assert planned.exit_code == ExitCode.DONE, planned
    assert ended.exit_code == ExitCode.DONE, ended
    assert [commit.status for commit in stage.commits()] == ["done", "planned"]
    assert stage.commits()[1].cost_usd == planned.spent_usd


@pytest.mark.nightly
def test_what_the_baseline_gate_writes_is_nobodys(stage):
    """A file that the gate made before the session is the session's once it writes it."""
    stage.write(
        "PLAN.md", "## Phase 1\nVerify: `touch hello.txt && grep -q hello hello.txt`\n- [ ] Hello — hello.txt\n"
    )
    stage.commit("plan")

    ended = stage.run(WHOLE)

    assert ended.exit_code == ExitCode.DONE, ended
    assert names(stage) == ["PLAN.md", "hello.txt"]


@pytest.mark.nightly
def test_a_stop_during_the_baseline_opens_nothing(stage):
    """No attempt, no baseline that blames the next session for what was red before."""
    stage.write("PLAN.md", "## Phase 1\nVerify: `sleep 5 && test -d .`\n- [ ] Say hello — hello.txt\n")
    stage.commit("plan")
    stage.on_gate = lambda: stage.interrupts.request(Urgency.NOW)

    ended = stage.run("sessions: []")

    assert ended.exit_code == ExitCode.INTERRUPTED
    assert stage.git("for-each-ref", "refs/relay") == ""


@pytest.mark.nightly
def test_an_uncommitted_plan_that_is_written_over_is_kept(stage):
    """`--force` replaces what the user typed, and says where it is."""
    stage.write("PLAN.md", "# Mine\n\n## Phase 1\n- [ ] Typed all night — night.txt\n")
    new = "# New\n\n## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
    script = f"""
sessions:
  - name: planner
    turns:
      - tools: [{{name: submit_plan, input: {{markdown: {new!r}}}}}]
"""
    stage.plan(script.replace("'", '"'), PlanTask(feature="new", force=True))

    kept = [event.text for event in stage.seen(Noticed) if "git show" in event.text]
    assert len(kept) == 1
    assert "Typed all night" in stage.git("show", kept[0].split("git show ")[1])


NUMBERED = """\
# Tasks
Verify: `test -d .`
- [ ] 1. Set up
  - [ ] 1.1 Create a — a.txt
  - [ ] 1.2 Create b — b.txt
- [ ] 2. Finish — c.txt
"""
TICKS_TWO = """
sessions:
  - name: two
    turns:
      - tools:
        - {name: write, input: {path: a.txt, content: "a\\n"}}
        - {name: write, input: {path: b.txt, content: "b\\n"}}
      - tools:
        - {name: tick, input: {item: "1.1", evidence: "ls"}}
        - {name: tick, input: {item: "1.2", evidence: "ls"}}
"""
BLOCKS = "      - tools: [{name: block, input: {reason: lunch}}]\n"
HANDS_OFF = "      - tools: [{name: hand_off, input: {next_step: c, learned: [], dead_ends: []}}]\n"


@pytest.mark.nightly
def test_numbers_that_items_print_are_what_is_ticked(stage):
    """Also where the ordinals of other items are these numbers."""
    stage.write("PLAN.md", NUMBERED)
    stage.commit("plan")

    stage.run(TICKS_TWO + HANDS_OFF + BLOCKS.replace("      - tools", "  - turns:\n      - tools"))

    assert stage.git("show", "HEAD:PLAN.md") == NUMBERED.replace("[ ] 1.1", "[x] 1.1").replace("[ ] 1.2", "[x] 1.2")
    body = stage.git("show", "-s", "--format=%B")
    assert "- [x] 1.1 Create a — a.txt\n  evidence: ls\n- [x] 1.2 Create b" in body
    assert "Relay-Items: 1.1 1.2\n" in body


def test_no_session_ticks_what_is_for_a_person_or_optional_and_the_end_names_the_first(stage):
    """A run's end, `relay status` and the page name it until the person ticks it in the file.

    Optional items as Kiro writes them; what another tool had begun is open. The session is told of both kinds.
    """
    text = "# Tasks\nVerify: `grep -q hello hello.txt`\n- [-] 1. Say hello — hello.txt\n- [ ]* 2. Test it — test.txt\n"
    text += "- [ ] 3. User Manual Verification: look\n"
    stage.write("PLAN.md", text)
    stage.commit("plan")
    told = ["- [ ]* 2. Test", "]*: not required", "3: for a person, not for you; leave open."]
    tick = {"name": "tick", "input": {"item": "3", "evidence": "I skipped the manual check because there are tests"}}
    turns = [
        {"expect": {"first_message_contains": told}, "tools": [tick]},
        {"expect": {"last_result_is_error": True}, **write_hello("1")[0]},
        *write_hello("1")[1:],
    ]

    ended = stage.run(json.dumps({"sessions": [{"turns": turns}]}))

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, []), ended
    assert ended.reason == "1 of 1 phase, 1 item for you: 3. User Manual Verification: look"
    assert stage.git("show", "HEAD:PLAN.md") == text.replace("[-]", "[x]")
    assert "Relay-Amended" not in stage.git("show", "-s", "--format=%B")
    shown = stage.relay("status").stdout
    assert "1 of 1 phase done, 1 of 1 box ticked" in shown
    assert "you    3. User Manual Verification: look: tick it in PLAN.md when it is done" in shown
    stage.edit("[ ] 3. User", "[x] 3. User")
    stage.commit("I looked")
    assert stage.relay("run").stdout.splitlines()[-1].startswith("done: 1 of 1 phase (")


def write_hello(item):
    return [
        {"tools": [{"name": "write", "input": {"path": "hello.txt", "content": "hello\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": item, "evidence": "grep"}}]},
        {"text": "Commit: Say hello"},
    ]
