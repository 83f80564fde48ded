"""A trial of reset lines: phases get them by their text, `relay lab tune` compares what came of them."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.session.events import ResponseReceived, SessionStarted
from relay.session.gauge import assign_line

PHASES = 6
LINES = ["60k", "none"]


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def make_phase(n):
    return [
        call("write", path=f"p{n}.txt", content="x\n"),
        call("tick", item=f"{n}.1", evidence="it is there"),
        {"text": "Commit: Do it"},
    ]


@pytest.mark.nightly
def test_each_phase_of_a_plan_gets_a_line_and_tune_says_what_came_of_it(stage):
    """The line is the session's own; a hash chooses it, so that a second plan of the same text has the same."""
    phases = "\n".join(f"## Phase {n} — Part {n}\n\n- [ ] Write part {n} — p{n}.txt\n" for n in range(1, PHASES + 1))
    stage.write("PLAN.md", f"# Parts\n\n{phases}")
    head = stage.commit()
    script = json.dumps({"sessions": [{"turns": make_phase(n)} for n in range(1, PHASES + 1)]})
    assert stage.run(script, trial={"reset_at": LINES}, unchecked=True).exit_code == ExitCode.DONE
    given = [event.trial for event in stage.seen(SessionStarted)]
    assert given == [assign_line(LINES, f"Part {n}\nWrite part {n} — p{n}.txt", head) for n in range(1, PHASES + 1)]
    softs = [event.soft_tokens for event in stage.seen(ResponseReceived) if event.turn == 1]
    assert [soft == 60_000 for soft in softs] == [line == "60k" for line in given]
    assert all(soft == 60_000 or soft > 150_000 for soft in softs)

    done = stage.relay("lab", "tune")
    assert (done.returncode, done.stderr) == (0, "")
    assert "These rates cannot advise a line" in done.stdout
    assert all(f"{line:<8}{given.count(line)} phase" in done.stdout for line in set(given))
    found = json.loads(stage.relay("lab", "tune", "--json").stdout)
    assert {arm["reset_at"]: arm["phases"] for arm in found["trial"]["arms"]} == {
        line: given.count(line) for line in set(given)
    }
    assert {band["band"]: band["sessions"] for band in found["rates"]}["orient"] == PHASES


@pytest.mark.nightly
def test_a_phase_keeps_its_line_behind_a_hand_off_commit_whatever_becomes_of_its_text(stage):
    """The commit says it: an item that a session adds makes no other line of it, and no phase without an arm."""
    stage.write("PLAN.md", "# Parts\n\n## Phase 1 — One\n\n- [ ] 1.1 Write a — p1.txt\n- [ ] 1.2 Write b\n")
    head, text = stage.commit(), "One\n1.1 Write a — p1.txt\n1.2 Write b"
    given = assign_line(LINES, text, head)
    added = next(f"Add {n}" for n in range(99) if assign_line(LINES, f"{text}\nAdd {n}", head) != given)
    amended = call("amend", phase="1", change=f"- [ ] {added}", why="it is missing")
    parted = [*make_phase(1)[:2], amended, call("hand_off", next_step="b", learned=[], dead_ends=[])]
    last = [*(call("tick", item=item, evidence="there") for item in ("1.2", "1.3")), {"text": "Commit: Do it"}]
    script = json.dumps({"sessions": [{"turns": parted}, {"turns": last}]})
    assert stage.run(script, trial={"reset_at": LINES}, unchecked=True).exit_code == ExitCode.DONE
    assert [commit.status for commit in stage.commits()] == ["done", "handoff"]
    assert [event.trial for event in stage.seen(SessionStarted)] == [given, given]
    (arm,) = json.loads(stage.relay("lab", "tune", "--json").stdout)["trial"]["arms"]
    assert (arm["reset_at"], arm["phases"]) == (given, 1)


def test_a_trial_needs_lines_that_differ(stage):
    for text in ('"60k"', '{reset_at = ["60k"]}', '{reset_at = ["60k", "60k"]}', '{reset_at = ["60k", "soon"]}', "{}"):
        stage.write("relay.toml", f"trial = {text}\n")
        done = stage.relay("run")
        assert done.returncode == 1
        assert "trial" in done.stderr
        assert "at least 2 different lines" in done.stderr
