"""The tree of the gates: nothing of an earlier gate helps the next one, and nothing of the user's is in its way."""

import json
import os
from types import SimpleNamespace

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.git.repository import open_repo
from relay.run.phases.worktrees import move_jobs
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.test_own_tree import write_session
from tests.phases.test_user_acts import Bench

TICK = {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "done"}}]}


@pytest.fixture
def play(stage):
    """Run phases with these verify commands, and a session for each that writes its file; return code and output."""
    bench = Bench(stage, "run")

    def run(*verify, files=(), then=(), args=()):
        names = ("one", "two")[: len(verify)]
        phases = (
            f"## Phase {n} — P\nVerify: `test -s {n}.txt && {{ {command}; }}`\n- [ ] Write {name} — {n}.txt\n"
            for n, (name, command) in enumerate(zip(names, verify, strict=True), 1)
        )
        stage.write("PLAN.md", "# P\n\n" + "\n".join(phases))
        stage.commit("plan")
        for path, text in files:
            stage.write(path, text)
        return again(names, then=then, args=args)

    def again(names=("one",), then=(), args=()):
        sessions = [write_session(name, n, f"echo {n} > {n}.txt") for n, name in enumerate(names, 1)]
        more = [{"tools": [{"name": "bash", "input": {"command": command}}]} for command in then]
        sessions[0]["turns"] += [*more, *([TICK, {"text": "Commit: Write one"}] if more else [])]
        with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
            process = bench.start(server, "run", *args)
            out = process.communicate()[0]
        return process.returncode, out

    return SimpleNamespace(run=run, again=again)


@pytest.mark.parametrize("left", ["build/helper.txt", "build/a/b/c/d/helper.txt"])
def test_what_a_gate_leaves_in_a_directory_of_the_user_s_helps_no_later_gate(stage, play, left):
    """In an ignored directory of which the gate has a copy, however far down."""
    stage.write(".gitignore", "/build/\n")
    folder = os.path.dirname(left)  # noqa: PTH120  # a path of the repository
    gate = f"cp helper.txt {folder}/ 2>&1; test -e {left} && test 2 = $(cat 1.txt)"
    write = "echo h > helper.txt; echo 1 > 1.txt"
    code, out = play.run(gate, files=[(f"{folder}/old", "x")], then=[write, "rm helper.txt; echo 2 > 1.txt"])
    assert code == ExitCode.STOPPED, out
    assert "Write one" not in stage.git("log", "--format=%s")


@pytest.mark.parametrize("args", [(), ("--jobs", "2")], ids=["here", "child"])
def test_what_a_session_makes_where_git_ignores_it_is_in_no_gate(stage, play, args):
    """Whether its phase is worked on in this process or in one of its own."""
    stage.write(".gitignore", "*.gen\n")
    code, out = play.run("test -e made.gen", then=["echo made > made.gen"], args=args)
    assert code == ExitCode.STOPPED, out
    assert "Write one" not in stage.git("log", "--format=%s")


def test_an_empty_directory_of_an_earlier_gate_is_gone(play):
    code, out = play.run("mkdir out && test 2 = $(cat 1.txt)", then=["echo 2 > 1.txt"])
    assert code == ExitCode.DONE, out


def test_the_second_try_of_a_red_command_sees_nothing_of_the_first(stage, play):
    """Its red is unexplained, since it was green before: the command runs once more, on the commit's files alone."""
    stage.write("check.sh", "[ -e 1.txt ] || exit 0; [ -e made.txt ] || { echo m > made.txt; exit 1; }\n")
    stage.write("PLAN.md", "# P\nVerify: `sh check.sh`\n\n## Phase 1 — P\n- [ ] Write one — 1.txt\n")
    stage.commit("plan")
    code, out = play.again()
    assert code == ExitCode.STOPPED, out


def test_what_the_user_mends_of_what_git_ignores_reaches_the_gate_of_an_open_phase(stage, play):
    stage.write(".gitignore", "*.gen\n")
    code, out = play.run("grep -q good v.gen", files=[("v.gen", "bad\n")])
    assert code == ExitCode.STOPPED, out
    stage.write("v.gen", "good by now\n")
    code, out = play.again()
    assert code == ExitCode.DONE, out


def test_a_gate_that_another_ignored_file_makes_green_is_not_flaky(stage, play):
    """The user mends it while the session is at work."""
    stage.write(".gitignore", "*.gen\n")
    mend = f"echo good > {stage.root}/v.gen"
    code, out = play.run(
        "grep -q good v.gen",
        files=[("v.gen", "bad\n")],
        then=[mend],
        args=("--sandbox", "off"),
    )
    assert code == ExitCode.DONE, out
    assert "flaky" not in out


def test_a_directory_of_the_user_s_with_such_a_name_stays(stage, play):
    """Beside the repository, where relay's trees are: another name is nothing to relay, its own name stops it."""
    place = stage.root.with_name(f"{stage.root.name}.relay")
    kept = [place / name for name in ("garden.gate/file", "door.gate", "1.gate/file")]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    code, out = play.run("true")
    assert code == ExitCode.USER, out
    assert "1.gate is no work tree of relay's" in out
    assert [file.read_text() for file in kept] == ["mine"] * 3
    (place / "1.gate").rename(place / "moved")
    assert play.again()[0] == ExitCode.DONE
    assert (place / "garden.gate/file").exists()


def test_phases_that_both_branches_have_open_stay_where_they_are(stage):
    stage.commit("start")
    repo = open_repo(stage.root)
    own = stage.git("commit-tree", "-m", "work", "-p", "HEAD", "HEAD^{tree}").strip()
    stage.git("update-ref", "refs/heads/relay-jobs/dev/1", own)
    stage.git("update-ref", "refs/heads/relay-jobs/main/1", "HEAD")
    with pytest.raises(RepoError, match="phase 1 is open on dev and on main"):
        move_jobs(repo, "dev", "main")
    assert stage.git("rev-parse", "refs/heads/relay-jobs/dev/1").strip() == own
