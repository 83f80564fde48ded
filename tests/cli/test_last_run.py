"""What stopped a run is on the screen, and found again the next morning."""

import json
import re
import shutil

import pytest

from relay.base.errors import ExitCode
from tests.cli.test_run import mask
from tests.scripts import serving

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `sh check.sh`
- [ ] Say hello — hello.txt
"""
CHECK = """\
echo looking at "${DATABASE_URL-nothing}"
grep -q hello hello.txt || { echo "hello.txt lacks its hello, DATABASE_URL is not set"; exit 3; }
"""
SCRIPT = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools:
          - {name: write, input: {path: hello.txt, content: "bye\\n"}}
          - {name: tick, input: {item: "1.1", evidence: "written"}}
      - {text: Done., repeat: 4}
"""


@pytest.fixture
def play(relay, project, commit):
    """Run the committed plan on a script."""

    def run(script, *words, **env):
        (project / "PLAN.md").write_text(PLAN)
        (project / "check.sh").write_text(CHECK)
        commit()
        with serving(script) as (_, given):
            return relay("run", *words, env={**given, **env})

    return run


@pytest.fixture
def stopped(play):
    """A run that ended with a red gate."""
    return play(SCRIPT, RELAY_MAX_REPAIRS="0", DATABASE_URL="postgres://u:hunter2@h/d")


def test_a_red_gate_shows_its_output_and_is_found_again(relay, project, stopped):
    assert stopped.code == ExitCode.STOPPED
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in mask(stopped.out).splitlines()]
    assert [line for line in lines if line.startswith("baseline gate of phase 1 is red after T s, as expected: ")]
    assert lines.count("| hello.txt lacks its hello, DATABASE_URL is not set") == 1  # not for the baseline
    cause = "sandbox: DATABASE_URL: set here and not given to commands; env = "
    assert [line for line in lines if line.startswith(cause)]
    log = next((project / ".relay/sessions").glob("*.jsonl")).read_text()
    gates = [event for event in map(json.loads, log.splitlines()) if event["event"] == "GateFinished"]
    assert "lacks its hello" in gates[-1]["checks"][0]["output"]
    assert gates[0]["expected"] == "as expected: the work is not done yet"

    shutil.rmtree(project / ".relay")
    ran = relay("status", "--why")
    assert "last   stopped " in ran.out
    assert "(exit 4): phase 1: 0 of 1 verify commands passed." in ran.out
    assert "       `sh check.sh` failed with exit 3\n" in ran.out
    assert "         | hello.txt lacks its hello, DATABASE_URL is not set\n" in ran.out
    assert "         sandbox: DATABASE_URL: set here" in ran.out
    assert "last   stopped " in relay("status").out
    body = json.loads(relay("status", "--json").out)["last_run"]
    assert (body["exit_code"], body["gate"]["checks"][0]["exit_code"]) == (4, 3)
    assert "hunter2" not in ran.out + stopped.out


def test_a_run_that_could_not_begin_is_remembered_and_another_relays_lock_is_not(relay, project, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    assert relay("run").code == ExitCode.USER  # no key
    said = relay("status", "--why").out
    assert "(exit 1): " in said
    assert "ANTHROPIC_API_KEY" in said
    note = project / ".git/relay/last-run"
    for broken in ("{", "[]", '{"began": []}', '{"began": 1, "command": "run"}'):
        note.write_text(broken)
        assert relay("status", "--why").code == 0
    killed = {"began": 1.0, "command": "run", "plan_path": "PLAN.md", "branch": "main"}
    note.write_text(json.dumps(killed))
    assert "has no end: killed, or the power failed" in relay("status").out


HANDS_OVER = """\
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "bye\\n"}}]
      - tools: [{name: hand_off, input: {next_step: "say hello", learned: [], dead_ends: []}}]
"""


@pytest.mark.nightly
def test_what_a_run_says_to_do_next_status_says_too_and_its_cost_counts_without_a_branch(relay, play, project, git):
    """Another run would meet the same again; an edit of the plan is another beginning."""
    ran = play(HANDS_OVER, "--max-sessions", "1")
    assert ran.out.splitlines()[-1] == "next: relay plan --split 1"
    told = relay("status").out
    assert "\nnext   relay plan --split 1\n       without that, relay run goes on with phase 1: " in told
    (spent,) = (line for line in told.splitlines() if line.startswith("spent"))

    git("switch", "-q", "--detach")
    detached = relay("status").out.splitlines()
    assert spent in detached
    assert any("git switch --no-overwrite-ignore main goes back to where a phase is open" in line for line in detached)

    git("switch", "-q", "main")
    (project / "PLAN.md").write_text(PLAN.replace("Say hello", "Say a hello"))
    assert "\nnext   relay run goes on with phase 1: " in relay("status").out


@pytest.mark.nightly
def test_a_question_that_stopped_a_run_is_answered_before_it_is_paid_for_again(relay, play):
    ran = play("sessions: [{turns: [{tools: [{name: block, input: {reason: which port?}}]}]}]")
    assert ran.out.splitlines()[-1] == "next: relay say 'what the session needs to know'"
    assert (
        "\nnext   relay say 'what the session needs to know'\n       without that, relay run goes on"
        in relay("status").out
    )
    assert relay("say", "8080").out.endswith("told when it begins: relay run\n")
    told = relay("status").out
    assert "\nnext   relay run goes on with phase 1" in told
    assert "relay say" not in told
