"""`relay report --all`: how phases went, from the trailers of commits alone."""

import json
import subprocess
from dataclasses import replace

import pytest

from relay.base.errors import ExitCode
from relay.session.events import ResponseReceived
from relay.store import trailers
from relay.store.history import RelayCommit
from relay.store.outcomes import list_outcomes
from tests.cli.documents import read_document
from tests.scripts import call

PLAN = """# Parts

## Phase 1 — One
Verify: `grep -q right one.txt`
- [ ] Write one — one.txt
"""


def do_phase(n, name, *texts):
    turns = []
    for text in texts:
        turns += [call("write", path=f"{name}.txt", content=f"{text}\n"), call("tick", item=f"{n}.1", evidence="grep")]
        turns.append({"text": f"Commit: Write {name}"})
    return {"turns": turns}


def run_plan(stage):
    """Do a phase with a red gate, which its session repairs."""
    stage.write("PLAN.md", PLAN)
    stage.commit()
    script = json.dumps({"sessions": [do_phase(1, "one", "wrong", "right")]})
    assert stage.run(script).exit_code == ExitCode.DONE


def read(stage, *words):
    ran = stage.relay("report", "--all", *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return read_document("relay report --all", ran.stdout)


def test_a_repair_a_revert_and_the_cost_are_counted(stage):
    run_plan(stage)
    stage.git("revert", "--no-edit", "HEAD")
    answers = stage.seen(ResponseReceived)

    found = read(stage)
    (one,) = found["phases"]
    assert (one["phase_id"], one["repairs"], one["sessions"], one["is_undone"]) == ("1", 1, 1, True)
    assert {one["model"]} == {event.model for event in answers}
    (total,) = found["runner"]
    assert (total["name"], total["phases"], total["first_pass"]) == ("api", 1, {"part": 0, "of": 1})
    assert (total["repairs"], total["regressions"]) == (1, 1)
    assert total["spent"]["cost_usd"] == pytest.approx(sum(event.cost_usd for event in answers), abs=1e-6)
    assert "0 of 1 without a repair; 1 taken back" in stage.relay("report", "--all", "--text").stdout
    assert read(stage, "--days", "1") == found


@pytest.mark.nightly
def test_a_shallow_clone_says_what_it_lacks(stage, tmp_path):
    run_plan(stage)
    place = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{stage.root}", place], check=True)
    assert "shallow" not in stage.relay("report", "--all", "--text").stderr
    there = replace(stage, root=place)
    shown = there.relay("report", "--all", "--text")
    assert "phases  1 of 1 plan file" in shown.stdout
    assert "this clone is shallow: phases before its oldest commit are missing" in shown.stderr
    assert "this clone is shallow" in there.relay("report", "--all", "--json").stderr


def test_a_history_without_a_phase_and_an_unknown_commit_are_said(stage):
    for words, said in (((), "no commit below HEAD ends a phase"), (("no-such",), "there is no commit 'no-such'")):
        ran = stage.relay("report", "--all", "--text", *words)
        assert ran.returncode == ExitCode.USER
        assert said in ran.stderr


def make_commit(commit, status, phase="1", session="", **found):
    names = {"repairs": trailers.REPAIRS, "model": trailers.MODEL, "number": trailers.LEG, "merge": trailers.MERGE}
    return RelayCommit(
        commit=commit,
        tree="",
        parents=(),
        subject=commit,
        body="",
        plan="PLAN.md",
        phase=phase,
        status=status,
        items=(),
        session=session or commit,
        gate="",
        sandbox="",
        usage=None,
        cost_usd=None,
        estimated=False,
        time=0,
        found=tuple((names[key], value) for key, value in found.items()),
    )


def test_a_phase_is_the_sum_of_its_sessions_and_what_an_older_relay_did_not_say_is_unknown():
    commits = (
        make_commit("handed", "handoff", model="a", repairs="2", number="1"),
        make_commit("done", "done", model="b, a", repairs="1", number="3"),
        make_commit("old", "done", phase="2"),
        make_commit("picked", "done", phase="2", session="old"),
        make_commit("open", "handoff", phase="3", repairs="1"),
    )
    one, two = list_outcomes(commits[::-1], {"picked"})
    assert (one.commit, one.model, one.repairs, one.sessions, one.is_undone) == ("done", "a + b", 3, 3, False)
    assert (two.commit, two.model, two.repairs, two.is_undone) == ("picked", "unknown", None, True)


def test_a_phase_that_lands_as_a_merge_is_there_once():
    commits = (
        make_commit("own", "done", model="a", repairs="1", number="2"),
        make_commit("other", "done", phase="2"),
        make_commit("merged", "done", repairs="0", number="1", merge="own 0123 4567 together"),
    )
    one, other = list_outcomes(commits[::-1], {"merged"})
    assert (one.commit, one.model, one.repairs, one.sessions, one.is_undone) == ("merged", "a", 1, 2, True)
    assert other.commit == "other"


def test_a_new_plan_in_the_same_file_does_not_inherit_an_open_phase():
    commits = (
        make_commit("left", "handoff", repairs="5", number="1"),
        make_commit("plan", "planned", phase=""),
        make_commit("new", "done", repairs="0", number="1"),
    )
    (one,) = list_outcomes(commits[::-1], ())
    assert (one.repairs, one.sessions) == (0, 1)


def test_trailers_that_are_not_relays_break_nothing():
    for value in ("", "x", "²", "-1", "9" * 99):
        (one,) = list_outcomes([make_commit("a", "done", repairs=value, number=value)], ())
        assert one.sessions == 1, value


def test_models_that_an_endpoint_made_up_are_not_written():
    assert trailers.render_models(["claude-opus-5-5", "a\nRelay-Cost: 0", "x" * 101]) == (
        (trailers.MODEL, "claude-opus-5-5"),
    )
    assert trailers.render_models(["a b"]) == ()
