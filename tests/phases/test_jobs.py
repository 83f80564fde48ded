"""`relay run --jobs N`: landings that meet something, what a kill leaves; as a whole it is in `test_three_ways`."""

import json
import os
import shutil
import signal
import subprocess
from types import MappingProxyType
from typing import Any

import pytest

from relay.plan.parse import parse_plan
from tests.cli.documents import read_document
from tests.conftest import Stage
from tests.copied import FSCK
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.test_merge import finish
from tests.waiting import wait_until
from tests.warm import find_relay

PLAN = """\
---
relay: {{verify: ["sh check.sh"]}}
---
# Three

## Phase 1 — One
After: none
Verify: `test -s 1.txt`
- [ ] Write one — 1.txt

## Phase 2 — Two
After: none
Verify: `test -s 2.txt`
- [ ] Write two — 2.txt

## Phase 3 — Three
After: 1, 2
Verify: `test -s 3.txt`
- [ ] Write three — 3.txt
"""
WAVE = PLAN.partition("\n## Phase 3")[0].rstrip() + "\n"
"""The first wave alone, where nobody looks at the second."""
WORDS = {1: "one", 2: "two", 3: "three"}


def tool(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def write_phase(n, *more, delay_s=0):
    """The session of a phase: it writes its file, and what else it is given."""
    turns = [
        tool("write", path=f"{n}.txt", content=f"{WORDS[n]}\n"),
        *more,
        tool("tick", item=f"{n}.1", evidence="done"),
    ]
    turns[0]["delay_s"] = delay_s
    return {
        "name": f"phase {n}",
        "when": {"first_message_contains": f"Write {WORDS[n]} — "},
        "turns": [*turns, {"text": f"Commit: Write {WORDS[n]}"}],
    }


def repair(*turns, contains):
    return {
        "name": "repair",
        "when": {"first_message_contains": contains},
        "turns": [*turns, {"text": "Commit: Put both together"}],
    }


@pytest.fixture
def plan(stage):
    """A plan of three phases in two waves."""
    return commit_plan(stage, PLAN)


@pytest.fixture
def wave(stage):
    """The plan without its second wave."""
    return commit_plan(stage, WAVE)


def commit_plan(stage, text):
    stage.write("PLAN.md", text.format())
    stage.write("check.sh", "test -e AGENTS.md\n")
    stage.commit("plan")
    return stage


def start(stage, server, *args):
    environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
    return subprocess.Popen(
        [*stage.find_program(), "run", "--jobs", "2", *args],
        cwd=stage.root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(stage, sessions, *args):
    with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
        child = start(stage, server, *args)
        out = child.communicate()[0]
        return child.returncode, out, server


def is_whole(stage):
    """Everything is landed, the files are there, and nothing is left beside the repository."""
    assert stage.git("status", "--porcelain") == ""
    plan = parse_plan((stage.root / "PLAN.md").read_text())
    assert plan.done
    written = {phase.id: (stage.root / f"{phase.id}.txt").read_text() for phase in plan.phases}
    assert written == {phase.id: f"{WORDS[int(phase.id)]}\n" for phase in plan.phases}
    assert stage.git("worktree", "list").count("\n") == 1
    assert stage.git("branch", "--list", "relay-jobs/*") == ""
    assert stage.git("for-each-ref", "refs/relay/leg") == ""
    stage.git(*FSCK)
    return True


def land_all(stage, sessions, *args):
    """Run, with each session played, until everything is landed; return what was said."""
    code, out, server = run(stage, sessions, *args)
    assert (code, server.errors, server.unplayed) == (0, [], ()), out
    assert is_whole(stage)
    return out


def test_a_merge_that_is_red_is_repaired(wave):
    """Each is green alone; together a third file is missing."""
    wave.write("check.sh", "test ! -e 1.txt || test ! -e 2.txt || test -e both.txt\n")
    wave.commit("check")
    done_beside(wave, "1", "2")
    land_all(wave, [repair(tool("write", path="both.txt", content="both\n"), contains="are merged in the work tree")])
    assert (wave.root / "both.txt").exists()


@pytest.mark.nightly
def test_a_phase_begins_before_the_one_that_it_comes_after_has_landed(plan):
    """On that one's own commit, and it lands behind it: also where that takes a session, and another run."""
    plan.write("PLAN.md", PLAN.format().replace("After: 1, 2", "After: 2"))
    plan.write("check.sh", "test ! -e 1.txt || test ! -e 2.txt || test -e both.txt\n")
    plan.commit("three comes after two")
    sessions = [write_phase(1), write_phase(2, delay_s=1), write_phase(3)]
    gives_up = repair(contains="are merged in the work tree") | {"turns": [tool("block", reason="a key is missing")]}
    code, out, server = run(plan, [*sessions, gives_up])
    assert (code, server.errors, server.unplayed) == (4, [], ()), out
    assert "phase 2 stopped: " in out
    assert "phase 3 is done and waits for phase 2 to land" in out.splitlines()[-2]
    assert plan.git("merge-base", "relay-jobs/main/3", "main") == plan.git("rev-parse", "main~1")
    mend = repair(
        tool("write", path="both.txt", content="both\n"),
        contains=["are merged in the work tree", "`sh check.sh` failed"],
    )
    land_all(plan, [mend])


GIT = """\
#!/bin/sh
case "$*" in
    *{call}*) mkdir "$0.died" 2>/dev/null && kill -9 $$ ;;
esac
exec {real} "$@"
"""


@pytest.mark.nightly
def test_a_git_that_dies_while_a_phase_is_landed_is_tried_once_more(wave, tmp_path, monkeypatch):
    """No session is paid to repair it, and no other run is needed."""
    done_beside(wave, "1", "2")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(GIT.format(call="merge-tree", real=shutil.which("git")))
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    land_all(wave, [])
    assert (programs / "git.died").is_dir()


@pytest.mark.nightly
def test_a_check_that_is_killed_while_a_phase_is_landed_costs_no_session(wave, tmp_path, monkeypatch):
    """Killed again when run once more, the phase stops; the next run, whose check is killed once, lands it."""
    place = tmp_path / "marks"
    place.mkdir()
    monkeypatch.setenv("RELAY_PATHS", json.dumps({"write": [str(place)]}))
    marks = [f"test -e {place}/{n} || {{ touch {place}/{n}; kill -9 $$; }}" for n in range(3)]
    wave.write("check.sh", f"if test -e 1.txt && test -e 2.txt; then {'; '.join(marks)}; fi\n")
    wave.commit("check")
    done_beside(wave, "1", "2")
    code, out, server = run(wave, [])
    assert (code, server.errors) == (4, []), out
    assert "phase 2 stopped: " in out
    assert "failed with exit 137" in out
    land_all(wave, [])
    assert "is flaky" not in wave.git("log", "--format=%B"), "a kill says nothing about the check"


def done_beside(stage, *phases, files=MappingProxyType({})):
    """Have phases done in work trees of their own, and not landed."""
    for phase in phases:
        place = Stage(root=stage.root.with_name(f"{stage.root.name}.relay") / phase)
        stage.git("worktree", "add", "-q", "-b", f"relay-jobs/main/{phase}", str(place.root))
        finish(place, phase, {f"{phase}.txt": f"{WORDS[int(phase)]}\n", **files})


@pytest.mark.nightly
def test_a_run_that_is_killed_is_gone_on_with(wave):
    """By the same parent, which waits for nobody."""
    sessions = [write_phase(1), write_phase(2)]
    sessions[1]["turns"][1]["fault"] = {"kind": "stall"}
    again = {**write_phase(2), "name": "phase 2 again"}
    with serve(parse_script(json.dumps({"sessions": [*sessions, again]}))) as server:
        first = start(wave, server, "--json")
        assert first.stdout
        for line in first.stdout:
            event = json.loads(line)
            if event["event"] == "ToolFinished" and event["phase_id"] == "2":
                break
        os.kill(find_relay(wave.root.with_name(f"{wave.root.name}.relay") / "2"), signal.SIGKILL)
        rest = first.communicate()[0]
        assert (first.returncode, server.errors) == (0, []), rest
    assert "relay tries once more" in rest
    assert is_whole(wave)


def test_a_parent_that_is_killed_leaves_its_work_to_the_next_run(wave):
    """Its children hand over when it dies; what they had goes on in the same work trees."""
    sessions = [write_phase(1), write_phase(2, delay_s=1)]
    again = [{**session, "name": f"{session['name']} again"} for session in sessions]
    with serve(parse_script(json.dumps({"sessions": [*sessions, *again]}))) as server:
        first = start(wave, server, "--json")
        assert first.stdout
        for line in first.stdout:
            if '"event":"ToolFinished"' in line:
                break
        first.send_signal(signal.SIGKILL)
        first.communicate()
        second = start(wave, server)
        out = second.communicate()[0]
        assert (second.returncode, server.errors) == (0, []), out
    assert is_whole(wave)


def test_another_terminal_reaches_all_of_them(plan):
    """What status, say and stop see and do; in the end none of the processes is left."""
    sessions = [write_phase(1), write_phase(2), write_phase(3)]
    sessions[0]["turns"][2]["fault"] = sessions[1]["turns"][0]["fault"] = {"kind": "stall"}
    with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
        first = start(plan, server, "--json")
        assert first.stdout
        began = claimed = 0
        for line in first.stdout:
            began += '"event":"SessionStarted"' in line
            claimed += '"state":"claimed"' in line
            if began == 2 and claimed:
                break
        shown = plan.relay("status").stdout
        assert "now    2 phases at work" in shown
        assert f"job    phase 1 in {plan.root}.relay/1: at work, 1 claimed\n" in shown
        assert f"job    phase 2 in {plan.root}.relay/2: at work\n" in shown
        assert "wait   phase 3 comes after 1, 2" in shown
        assert "left for the session of phase 1 and phase 2" in plan.relay("say", "be brief").stdout
        assert "left for the session of phase 2;" in plan.relay("say", "--phase", "2", "be brief").stdout
        assert plan.relay("stop", "--now").returncode == 0
        rest = first.communicate()[0]
        assert first.returncode == 130, rest
    assert plan.git("worktree", "list").count("\n") == 5  # and the trees of their gates
    standing = read_document("relay status", plan.relay("status", "--json").stdout)
    assert [(job["phase"], job["at_work"]) for job in standing["jobs"]] == [("1", None), ("2", None)]
    assert "next   relay run goes on with phases 1, 2" in plan.relay("status").stdout


@pytest.mark.nightly
def test_a_phase_that_is_called_otherwise_while_its_work_is_elsewhere_is_refused(wave):
    """Else it would be done twice: the run says what to do, and everything is kept."""
    done_beside(wave, "2")
    text = (wave.root / "PLAN.md").read_text()
    added = "## Phase 2 — Another\nAfter: none\n- [ ] Write another — 4.txt\n\n"
    wave.write("PLAN.md", text.replace("## Phase 2", f"{added}## Phase 3"))
    wave.commit("by hand")
    code, out, server = run(wave, [])
    assert (code, server.errors) == (1, []), out
    assert "phase 2, 'Two', is phase 3 in the plan" in out
    assert "put it back as 'Phase 2 — Two'" in out
    wave.write("PLAN.md", text)
    wave.commit("put back")
    land_all(wave, [write_phase(1)])


@pytest.mark.nightly
def test_a_phase_that_waits_for_money_has_not_stopped(plan):
    """The run that is at work goes on with it; without that run it has."""
    words = "it has spent its share of the cap; it goes on when others leave enough"

    def read():
        shown, report = (
            plan.relay("status").stdout,
            read_document("relay status", plan.relay("status", "--json").stdout),
        )
        waits = sorted(str(job["waits"]) for job in report["jobs"])
        found[:] = [shown, report]
        return waits == ["None", "comes after 1, 2", words]

    # Neither may send what its first request could cost: the second is kept from it by the gate before its session.
    plan.write("PLAN.md", PLAN.format().replace("`test -s 2.txt`", "`sleep 100 && test -s 2.txt`"))
    plan.commit("slow")
    found: list[Any] = []
    with serve(parse_script(json.dumps({"sessions": [write_phase(1), write_phase(2)]}))) as server:
        first = start(plan, server, "--json", "--max-cost", "0.18")
        assert first.stdout
        assert any('"event":"GateStarted"' in line and "sleep 100" in line for line in first.stdout)
        wait_until(read)
        shown, report = found
        assert plan.relay("stop", "--now").returncode == 0
        rest = first.communicate()[0]
        assert first.returncode == 130, rest
    assert f": {words}" in shown
    assert "stopped: " not in shown
    assert {job["stopped"] for job in report["jobs"]} == {None}
    assert "stopped: " in plan.relay("status").stdout


def test_one_cap_binds_all_and_a_phase_that_stops_leaves_the_others_to_go_on(plan, tmp_path, monkeypatch):
    """Half of the cap is less than a request may cost: who comes to its end waits, and goes on alone.

    Of the phase that stops, dependents wait; it is said at once, and by a call; the end says what stopped, and what to
    type.
    """
    called = tmp_path / "called"
    config = f"""[[notify]]\nform = "command"\ncommand = ["sh", "-c", "echo $0 >> '{called}'", "{{occasion}}"]\n"""
    (tmp_path / "config" / "relay").mkdir(parents=True)
    (tmp_path / "config" / "relay" / "config.toml").write_text(config)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    asks = [tool("defer", question="Which port?", assumed="8080"), tool("block", reason="a key is missing")]
    blocked = {**write_phase(1), "turns": asks}
    code, out, _ = run(plan, [blocked, write_phase(2)], "--max-cost", "0.18")
    assert "it has spent its share of the cap" in out
    assert {"question", "blocked"} <= {*called.read_text().split()}
    assert code == 4, out
    assert "job    phase 1 in " in (shown := plan.relay("status").stdout)
    assert "stopped: blocked: a key is missing; the next run goes on there" in shown
    report = read_document("relay status", plan.relay("status", "--json").stdout)
    assert [job["stopped"] for job in report["jobs"]] == ["phase 1: blocked: a key is missing"]
    assert report["questions"] == ["phase 1: Which port? (assumed: 8080)"]
    assert out.splitlines()[-3:-1] == ["1 question was answered by assumption", f"- {report['questions'][0]}"]
    assert "phase 2 landed" in out
    assert "phase 1 stopped: " in out
    assert "a key is missing" in out.splitlines()[-4]
    assert "1 phase not begun: 3" in out
    assert out.splitlines()[-1] == "next: relay run --jobs 2"


def test_the_doctor_names_copies_of_what_git_does_not_ignore(plan):
    assert "copy names missing.local" in plan.relay("doctor", environ={"RELAY_COPY": "missing.local"}).stdout


def test_a_dry_run_says_what_would_be_side_by_side(plan):
    shown = plan.relay("run", "--jobs", "2", "--dry-run", environ={"ANTHROPIC_API_KEY": "k"}).stdout.splitlines()
    begins = shown[next(n for n, line in enumerate(shown) if line.startswith("waves")) :]
    assert begins[0] == "waves  1 2 │ 3, up to 2 at once"
    assert [line for line in begins if line.startswith("phase")] == ["phase  1  One", "phase  2  Two"]
    assert not plan.root.with_name(f"{plan.root.name}.relay").exists()


@pytest.mark.parametrize("words", [("--phase", "1"), ("--approve",)])
def test_what_is_one_phase_at_a_time_is_refused(plan, words):
    done = plan.relay("run", "--jobs", "2", *words)
    assert done.returncode == 2
    assert "one phase at a time" in done.stderr


def remove_places(stage):
    """Remove them at once, since somebody may be writing there."""
    gone = stage.root.with_name(f"{stage.root.name}.relay").rename(stage.root.with_name("gone"))
    shutil.rmtree(gone, ignore_errors=True)


@pytest.mark.nightly
def test_an_open_phase_whose_work_tree_somebody_removed_goes_on_from_its_last_checkpoint(wave):
    done_beside(wave, "1")
    hangs, goes_on = write_phase(2), write_phase(2)
    hangs["turns"][1]["fault"] = {"kind": "stall"}
    goes_on["turns"][0] = tool("read", path="2.txt")
    goes_on["turns"][1]["expect"] = {"last_result_contains": "two"}
    with serve(parse_script(json.dumps({"sessions": [hangs, goes_on]}))) as server:
        first = start(wave, server, "--json")
        assert first.stdout
        assert any('"event":"ToolFinished"' in line for line in first.stdout)
        assert wave.relay("stop", "--now").returncode == 0
        first.communicate()
        remove_places(wave)
        told = wave.relay("status", "--why").stdout
        assert "job    phase 2: its work tree is gone; the next run creates it again" in told
        assert "next   relay run goes on with phase 2" in told
        second = start(wave, server)
        out = second.communicate()[0]
        assert (second.returncode, server.errors) == (0, []), out
    assert "phase 2: its work tree was gone, and is made again" in out
    assert is_whole(wave)


@pytest.mark.nightly
def test_phases_that_are_done_land_though_somebody_removed_their_work_trees(wave):
    """Before anything is begun, also by a run without jobs."""
    done_beside(wave, "1", "2")
    remove_places(wave)
    tried = wave.relay("run", "--dry-run", environ={"ANTHROPIC_API_KEY": "k"})
    assert "first  phases 1, 2, which have work that has not landed" in tried.stdout
    land_all(wave, [], "--jobs", "1")


def amend(stage):
    stage.write("more.txt", "more\n")
    stage.git("add", "more.txt")
    stage.git("commit", "-q", "--amend", "-m", "plan, and more")


def amend_and_forget(stage):
    amend(stage)
    stage.git("reflog", "expire", "--expire=now", "--all")
    stage.git("gc", "-q", "--prune=now")


def make_root(stage):
    """Nothing is in common any more."""
    stage.git("checkout", "-q", "--orphan", "new")
    stage.git("commit", "-q", "-m", "plan")
    stage.git("branch", "-q", "-M", "new", "main")


@pytest.mark.nightly
@pytest.mark.parametrize(("rewrite", "first"), [(amend, True), (amend_and_forget, True), (make_root, False)])
def test_what_is_done_beside_lands_where_the_commit_that_brought_the_plan_was_rewritten(stage, rewrite, first):
    if first:
        stage.git("rm", "-q", "PLAN.md")
        stage.git("commit", "-q", "-m", "no plan")
    commit_plan(stage, WAVE)
    done_beside(stage, "1", "2")
    rewrite(stage)
    assert "phase 1: the branch was rewritten since this phase began" in land_all(stage, [])
