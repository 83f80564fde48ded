"""`relay run` is killed, and `relay run` goes on: on another machine with the refs, and in linked work trees."""

import json
import shutil
import subprocess

import pytest

from relay.base.errors import ExitCode
from relay.store.resume import ResumeCase
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.resume.test_signals import Running
from tests.scripts import HELLO

WORLD = """\
  - turns:
      - tools: [{name: write, input: {path: world.txt, content: "wor"}}]
      - tools: [{name: write, input: {path: extra.txt, content: "extra\\n"}}]
      - tools: [{name: tick, input: {item: "2.1", evidence: "half"}}]
      - tools: [{name: bash, input: {command: "touch started; sleep 300"}}]
"""
REST = """
sessions:
  - turns:
      - expect: {first_message_contains: %s}
        tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: bash, input: {command: "rm -f started"}}]
      - tools: %s
      - text: "Commit: Say world"
"""
TICK = '{name: tick, input: {item: "%s", evidence: "grep"}}'


def push(stage, *refspecs):
    """Send refs to a server and lose the machine."""
    stage.git("init", "-q", "--bare", "../server.git")
    stage.git("push", "-q", "../server.git", *refspecs)
    place = stage.root.parent
    shutil.move(stage.root, place / "lost")
    subprocess.run(["git", "clone", "-q", "-b", "main", "server.git", "clone"], cwd=place, check=True)
    stage.root = place / "clone"


def move_to_a_machine_with_the_refs(stage):
    push(stage, "main", "refs/relay/*:refs/relay/*")
    stage.git("fetch", "-q", "origin", "refs/relay/*:refs/relay/*")


def move_to_a_linked_work_tree(stage):
    """The same refs, another work tree: what was written lies in the first one."""
    stage.git("switch", "-q", "-c", "aside")
    stage.git("worktree", "add", "-q", "../side", "main")
    stage.root = stage.root.parent / "side"


def relay(stage, *args):
    done = stage.relay(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def begin(stage):
    """Have the same in a directory that need not be the one where the process was."""
    stage.arrange("half done", lambda: begin_and_die(stage))


def begin_and_die(stage):
    """Run until the second phase is half done, then lose the process and its children at once."""
    with serve(parse_script(HELLO + WORLD)) as server:
        running = Running(stage.root, server.base_url, "all", stage.find_program())
        running.wait_for((stage.tree / "started").exists)
        running.process.kill()
        running.end()
    assert stage.git("log", "-1", "--format=%s").strip() == "Say hello"


def go_on(stage, script):
    """Run to the end, and once more: nothing is left to do."""
    with serve(parse_script(script)) as server:
        ended, out, err = Running(stage.root, server.base_url, "all", stage.find_program()).end()
        assert (ended, err, server.errors) == (ExitCode.DONE, "", []), out
        head = stage.git("rev-parse", "HEAD")
        ended, out, err = Running(stage.root, server.base_url, "all", stage.find_program()).end()
    assert (ended, err) == (ExitCode.DONE, "")
    assert out.splitlines()[-1].startswith("done: 2 of 2 phases")
    assert stage.git("rev-parse", "HEAD") == head


def check_end(stage, files):
    """Check that each phase is committed, and that nothing but these files is in the last one, or open, or left."""
    # What another machine began is checked once more as a whole, in a commit of its own.
    assert list(dict.fromkeys(commit.phase for commit in stage.commits())) == ["2", "1"]
    assert stage.git("diff", "--name-only", "HEAD^1", "HEAD").split() == files
    assert stage.git("show", "HEAD:PLAN.md").count("- [x]") == 3
    assert stage.git("for-each-ref", "refs/relay/leg") == ""
    assert stage.git("status", "--porcelain") == ""
    stage.git("fsck", "--strict", "--no-dangling", "--no-progress")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("move", "row"),
    [
        (move_to_a_machine_with_the_refs, ResumeCase.NOTHING_OPEN),
        (move_to_a_linked_work_tree, ResumeCase.MID_ATTEMPT),
    ],
)
def test_with_relays_refs_the_open_phase_goes_on(stage, move, row):
    """Files, claims and spend of the session that was killed are there; `relay status` said so before."""
    (begin if move is move_to_a_machine_with_the_refs else begin_and_die)(stage)
    move(stage)
    said = json.loads(relay(stage, "status", "--json"))
    assert (said["next"]["row"], said["next"]["phase"]) == (row, "2")
    assert [item["state"] for item in said["phases"][1]["items"]] == ["claimed", "open"]
    assert said["phases"][1]["spent"]["usd"] > 0
    assert "  0/2, 1 claimed  $" in relay(stage, "status")
    words = said["next"]["why"] if row is ResumeCase.MID_ATTEMPT else "its work tree is gone, 1 claimed; the next run"
    assert words in relay(stage, "status", "--why")

    go_on(stage, REST % ('"It had ticked: 2.1."', f"[{TICK % '2.2'}]"))

    check_end(stage, ["PLAN.md", "extra.txt", "world.txt"])
    assert json.loads(relay(stage, "status", "--json"))["spent"]["usd"] > said["spent"]["usd"]


@pytest.mark.nightly
def test_a_job_in_a_linked_work_tree_goes_on_there(stage):
    """The main work tree, on a branch of its own, sees none of it."""
    main = stage.root
    stage.git("worktree", "add", "-q", "-b", "side", "../side")
    before = sorted(path.name for path in main.iterdir())
    stage.root = main.parent / "side"
    begin_and_die(stage)
    shutil.rmtree(stage.root / ".relay")
    assert json.loads(relay(stage, "status", "--json"))["next"]["row"] == ResumeCase.MID_ATTEMPT

    go_on(stage, REST % ('"It had ticked: 2.1."', f"[{TICK % '2.2'}]"))

    check_end(stage, ["PLAN.md", "extra.txt", "world.txt"])
    stage.root = main
    assert sorted(path.name for path in main.iterdir()) == before
    assert stage.git("status", "--porcelain") == ""
