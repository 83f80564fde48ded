"""Signals to a real `relay run`: it stops as asked, leaves no process behind, and the next run goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relay.errors import ExitCode
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve


class Running:
    """A `relay run` of its own, against a script."""

    def __init__(self, root, url):
        env = {**os.environ, "PATH": "/usr/bin:/bin", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-m", "relay", "run", "--phase", "next"],
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, is_there, within_s=90.0):
        deadline = time.monotonic() + within_s
        while not is_there() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert is_there(), self.process.communicate(timeout=60) if self.process.poll() is not None else "not reached"

    def end(self):
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, out, err


def find_processes(mark):
    """Return the command lines that hold a mark, zombies included by their parent."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                line = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and b"sleep" in line:
                found.append(line)
    return found


def wait_until_gone(mark):
    deadline = time.monotonic() + 20
    while find_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert find_processes(mark) == []


def bash(mark, seconds="300"):
    """Return a script whose session starts a child, a grandchild and one that left the session, and then works."""
    sleep = f"sleep {seconds}.{mark}"
    command = f"echo hel > hello.txt; {sleep} & setsid {sleep} & (setsid {sleep} &); touch started; {sleep}"
    return f"""
sessions:
  - turns:
      - tools: [{{name: bash, input: {{command: "{command}"}}}}]
      - text: "never asked for"
"""


REST = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: bash, input: {command: "rm -f started"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""


def check_resumes(stage):
    """Nothing torn was left, and the next run commits the phase."""
    assert list(stage.root.rglob("*.lock")) == []
    assert stage.git("for-each-ref", "refs/relay/leg").count("\n") == 1
    assert stage.run(REST, all_=False).exit_code == ExitCode.DONE
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md", "hello.txt"]
    stage.git("fsck", "--strict", "--no-dangling", "--no-progress")


@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGTERM,), 130), ((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGKILL,), -9)]
)
def test_stopped_now_in_a_command_all_its_processes_die(stage, signals, code):
    """Child, grandchild and the one with a session of its own are gone; the work is not."""
    mark = f"{os.getpid()}{len(signals)}{abs(code)}"
    with serve(parse_script(bash(mark))) as server:
        running = Running(stage.root, server.base_url)
        running.wait_for((stage.root / "started").exists)
        for number in signals:
            running.process.send_signal(number)
            time.sleep(0.3)
        ended, out, err = running.end()

    assert ended == code, out + err
    wait_until_gone(mark)
    assert (stage.root / "hello.txt").read_text() == "hel\n"
    if code > 0:
        assert out.splitlines()[-1].startswith("next: relay run")
        assert err == ""
    check_resumes(stage)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_asked_once_in_a_command_the_turn_is_finished(stage, number):
    """The command runs to its end, its result is recorded, a baton is kept and no further request is sent."""
    mark = f"{os.getpid()}{int(number)}"
    with serve(parse_script(bash(mark, "2"))) as server:
        running = Running(stage.root, server.base_url)
        running.wait_for((stage.root / "started").exists)
        running.process.send_signal(number)
        ended, out, err = running.end()
        asked = [request for request in server.requests if request.path == "/v1/messages"]

    assert (ended, err) == (130, ""), out
    assert len(asked) == 1
    wait_until_gone(mark)
    assert "written by" in stage.git("log", "-1", "--format=%B", "refs/relay/wip/main/000001")
    check_resumes(stage)


def test_stopped_while_the_gate_runs(stage):
    """The gate's processes die, nothing is committed, and the gate is run again by the next run."""
    mark = f"{os.getpid()}77"
    gate = f"if [ -e slow ]; then touch {stage.root}/started; sleep 300.{mark}; fi; grep -q hello hello.txt"
    stage.write("PLAN.md", f"## Phase 1\nVerify: `{gate}`\n- [ ] Say hello — hello.txt\n")
    stage.write(".gitignore", "slow\nstarted\n")
    head = stage.commit("slow gate")
    script = REST.replace("rm -f started", "touch slow")
    with serve(parse_script(script)) as server:
        running = Running(stage.root, server.base_url)
        running.wait_for((stage.root / "started").exists)
        running.process.send_signal(signal.SIGTERM)
        ended, out, err = running.end()

    assert (ended, err) == (130, ""), out
    wait_until_gone(mark)
    assert stage.git("rev-parse", "HEAD").strip() == head
    (stage.root / "slow").unlink()
    check_resumes(stage)


def test_a_second_run_is_told_who_is_at_work_and_another_work_tree_may_run(stage):
    """One relay per work tree: the lock names its holder, and dies with it."""
    mark = f"{os.getpid()}88"
    main = stage.root
    with serve(parse_script(bash(mark))) as server:
        running = Running(main, server.base_url)
        running.wait_for((main / "started").exists)
        second, out, err = Running(main, server.base_url).end()
        assert (second, out) == (1, "")
        assert f"another relay is at work here: process {running.process.pid} on " in err
        stage.git("worktree", "add", "-q", "-b", "side", "../side")
        stage.root = main.parent / "side"
        assert stage.run(REST, all_=False).exit_code == ExitCode.DONE
        running.process.kill()
        running.end()
    stage.root = main
    wait_until_gone(mark)
    check_resumes(stage)
