"""Signals to a real `relay run`: it stops as asked, leaves no process behind, and the next run goes on."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.base.interrupts import Urgency
from relay.cli.views.narrate import STOPPING
from tests.effort import NIGHTLY, take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until


class Running:
    """A `relay run` of its own, against a script; `program` is what starts relay."""

    def __init__(self, root, url, phase="next", program=(sys.executable, "-P", "-m", "relay")):
        env = {**os.environ, "PATH": "/usr/bin:/bin", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        self.root = root
        ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, and stay so
        self.process = subprocess.Popen(
            [*program, "run", "--phase", phase],
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        signal.signal(signal.SIGHUP, ours)
        self.said = ""

    def wait_for_line(self, line):
        """Read what is printed until a line is there."""
        assert self.process.stdout
        for said in self.process.stdout:
            self.said += said
            if said.strip() == line:
                return
        raise AssertionError(self.said)

    def wait_for(self, is_there):
        wait_until(is_there, by=self.process)

    def end(self):
        if self.said and self.process.stdout:
            self.said += self.process.stdout.read()  # what is buffered, `communicate` would not see
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, self.said + out, err


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


def is_asleep(mark):
    """Return whether a `sleep` with the mark runs, and not only a shell that may come to it."""
    return any(line.startswith(b"sleep\0") for line in find_processes(mark))


def wait_until_gone(mark):
    wait_until(lambda: find_processes(mark) == [])


def start_family(mark):
    """Return a command that starts a child, a grandchild and one that left the session, and says that it has."""
    sleep = f"sleep 300.{mark}"
    return f"{sleep} & setsid {sleep} & (setsid {sleep} &); touch started"


def bash(mark):
    """Return a script whose session starts processes, and then works without an end."""
    command = f"echo hel > hello.txt; {start_family(mark)}; sleep 300.{mark}"
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


def go_on(stage, script):
    with serve(parse_script(script)) as server:
        ended, out, err = Running(stage.root, server.base_url, program=stage.find_program()).end()
    assert (ended, err, server.errors) == (ExitCode.DONE, "", []), out


def check_left(stage):
    """Nothing torn was left, and the attempt is open."""
    assert list(stage.root.rglob("*.lock")) == []
    assert stage.git("for-each-ref", "refs/relay/leg").count("\n") == 1
    stage.git("fsck", "--strict", "--no-dangling", "--no-progress")


def go_on_and_commit(stage):
    """The next run commits the phase."""
    go_on(stage, REST)
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md", "hello.txt"]
    stage.git("fsck", "--strict", "--no-dangling", "--no-progress")


@pytest.mark.parametrize(
    ("signals", "code"),
    take_each(3, [((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGTERM,), 130), ((signal.SIGKILL,), -9)]),
)
def test_stopped_now_in_a_command_all_its_processes_die(stage, signals, code):
    """Child, grandchild and the one with a session of its own are gone; the work is not."""
    mark = f"{os.getpid()}{len(signals)}{abs(code)}"
    # How its interpreter ends is looked at where it ends by itself.
    warm = {} if signals == (signal.SIGTERM,) else {"program": stage.find_program()}
    with serve(parse_script(bash(mark))) as server:
        running = Running(stage.root, server.base_url, **warm)
        running.wait_for((stage.tree / "started").exists)
        for number in signals:
            running.process.send_signal(number)
            if number == signal.SIGINT and STOPPING[Urgency.FINISH_TURN] not in running.said:
                running.wait_for_line(STOPPING[Urgency.FINISH_TURN])
        ended, out, err = running.end()

    assert ended == code, out + err
    wait_until_gone(mark)
    assert (stage.tree / "hello.txt").read_text() == "hel\n"
    said = [line for line in out.splitlines() if line in STOPPING.values()]
    assert said == [STOPPING[Urgency.FINISH_TURN], STOPPING[Urgency.NOW]][-len(signals) :] * (code > 0)
    if code > 0:
        assert out.splitlines()[-1].startswith("next: relay run")
        assert err == ""
    check_left(stage)
    if NIGHTLY:
        go_on_and_commit(stage)


def ask_once(stage, gate, items, *, then="", number=signal.SIGINT, phase="next"):
    """Ask a session to stop while its last command runs, when it has ticked the first `items` of two.

    Ask once more when a process runs whose command line has the mark `then`. The command runs to its end, and what it
    has started dies; no further request is sent.
    """
    stage.write(
        "PLAN.md", f"## Phase 1\nVerify: `{gate}`\n- [ ] Say hello — hello.txt\n- [ ] Say it twice — hello.txt\n"
    )
    stage.write(".gitignore", "started\nasked\n")
    stage.commit("two items")
    ticks = "".join(f'      - tools: [{{name: tick, input: {{item: "1.{n}", evidence: "seen"}}}}]\n' for n in items)
    mark = f"{os.getpid()}79"
    waits = f"{start_family(mark)}; until [ -e asked ]; do sleep 0.05; done; echo finished >> hello.txt"
    script = f"""
sessions:
  - turns:
      - tools: [{{name: write, input: {{path: hello.txt, content: "hello\\n"}}}}]
{ticks}
      - tools:
          - {{name: bash, input: {{command: "{waits}"}}}}
          - {{name: write, input: {{path: more.txt, content: "the second call of the same answer\\n"}}}}
      - text: "never asked for"
"""
    with serve(parse_script(script)) as server:
        running = Running(stage.root, server.base_url, phase, stage.find_program())
        running.wait_for((stage.tree / "started").exists)
        running.process.send_signal(number)
        running.wait_for_line(STOPPING[Urgency.FINISH_TURN])
        (stage.tree / "asked").touch()
        if then:
            running.wait_for(lambda: is_asleep(then))
            running.process.send_signal(number)
        code, out, err = running.end()
        asked = [request for request in server.requests if request.path == "/v1/messages"]
    assert (len(asked), err) == (2 + len(items), ""), out
    assert (stage.tree / "hello.txt").read_text() == "hello\nfinished\n"
    assert (stage.tree / "more.txt").exists()
    wait_until_gone(mark)
    return code, out


FINISH = """
sessions:
  - turns:
      - expect: {first_message_contains: "Say hello"}
        tools: [{name: tick, input: {item: "1.2", evidence: "seen"}}]
      - text: "Commit: Say it twice"
"""


@pytest.mark.parametrize("number", take_each(2, [signal.SIGHUP, signal.SIGINT]))
def test_asked_once_what_passes_the_gate_is_a_hand_off_commit(stage, number):
    """As at the hard line: claims that pass are on the phase's branch, with relay's note for the next session."""
    code, out = ask_once(stage, "grep -q hello hello.txt", (1,), number=number)

    assert code == 130, out
    assert out.splitlines()[-2:-1] == [line for line in out.splitlines() if line.startswith("stopped: asked to stop")]
    assert STOPPING[Urgency.FINISH_TURN] in out.splitlines()
    body = stage.git("log", "-1", "--format=%B", "relay-jobs/main/1")
    assert "Relay-Status: handoff\nRelay-Items: 1.1\n" in body
    assert "written by relay" in body
    shown = stage.git("show", "--name-only", "--format=", "relay-jobs/main/1")
    assert shown.split() == ["PLAN.md", "hello.txt", "more.txt"]
    assert stage.git("for-each-ref", "refs/relay/leg") == ""


@pytest.mark.parametrize("again", take_each(2, [False, True]))
def test_asked_once_what_does_not_pass_stays_in_the_attempt(stage, again):
    """A red gate, or one that a second Ctrl-C ended, commits nothing; claims are in the snapshot, with a note."""
    head = stage.git("rev-parse", "HEAD")
    then = f"{os.getpid()}78" if again else ""
    gate = f"if [ -e hello.txt ]; then sleep 300.{then}; fi; false" if then else "false"
    code, out = ask_once(stage, gate, (1,), then=then)

    assert code == 130, out
    assert (STOPPING[Urgency.NOW] in out.splitlines()) == again
    saved = stage.git("log", "-1", "--format=%B", "--glob=refs/relay/wip/*")
    assert ("written by" in saved) == (not again)  # a hurried end writes no note
    assert stage.git("rev-parse", "HEAD~1") == head
    assert "- [ ] Say hello" in (stage.root / "PLAN.md").read_text()
    stage.edit(gate, "grep -q hello hello.txt")
    go_on(stage, FINISH)
    assert "Relay-Items: 1.1 1.2" in stage.git("log", "-1", "--format=%B")


@pytest.mark.nightly
@pytest.mark.parametrize("phase", take_each(2, ["all", "next"]))
def test_asked_once_at_the_very_end_everything_is_done(stage, phase):
    """The phase was finished before the stop came about: it is committed, and nothing is left to resume."""
    code, out = ask_once(stage, "grep -q hello hello.txt", (1, 2), phase=phase)

    assert code == 0, out
    assert out.splitlines()[-1].startswith("done: 1 of 1 phase")
    assert "Relay-Status: done" in stage.git("log", "-1", "--format=%B")


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, Urgency.FINISH_TURN), (signal.SIGTERM, Urgency.NOW)])
def test_asked_before_a_session_began_nothing_has_to_be_finished(stage, number, words):
    """An endpoint that does not answer is not waited for, and the signal is answered at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        running = Running(stage.root, f"http://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()
        running.process.send_signal(number)
        ended = running.end()
        connection.close()

    assert ended == (130, f"{STOPPING[words]}\n", "Interrupted. Nothing is lost; `relay run` resumes.\n")
    assert stage.git("for-each-ref", "refs/relay") == ""
