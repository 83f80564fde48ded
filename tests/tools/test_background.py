"""Commands that keep running between calls: real servers in real sandboxes, and nothing of them left at the end."""

import os
import re
import sys
from pathlib import Path

import pytest

from relay.sandbox.policy import Level

SERVER = f"""{sys.executable} -I -S -u - <<'END'
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ['TMPDIR'] + '/s')
server.listen()
print('listening')
while True:
    peer, _ = server.accept()
    peer.sendall(b'hello from the server')
    peer.close()
END"""
CLIENT = f"""{sys.executable} -I -S - <<'END'
import os, socket, time
for _ in range(200):
    try:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(os.environ['TMPDIR'] + '/s')
        break
    except OSError:
        time.sleep(0.05)
print(peer.recv(100).decode())
END"""


@pytest.fixture(autouse=True)
def _nothing_stays(bench):
    yield
    bench.tools.stop()


OWN = os.getpid()
"""Behind the point of how long something sleeps: other suites on this machine run the same tests."""


def is_running(word: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().replace(b"\0", b" "):
                return True
        except OSError:
            continue  # it ended meanwhile
    return False


def start(bench, command: str) -> str:
    """Start a command and return the path of its output, as the model is told."""
    text = bench.ok("bash", command=command, background=True)
    found = re.search(r"running until your turn ends; output: (\S+) ", text)
    assert found, text
    return found[1]


def test_a_later_call_talks_to_a_server_of_an_earlier_one(bench):
    """Through a Unix socket in the private temporary directory; what it printed is read from its file."""
    output = start(bench, SERVER)

    assert "hello from the server" in bench.ok("bash", command=CLIENT)
    assert "hello from the server" in bench.ok("bash", command=CLIENT)
    assert "listening" in bench.ok("read", path=output)


def test_nothing_is_left_when_the_turn_ends(bench):
    """Daemons that left the tree included; the next call is told."""
    start(bench, f"(setsid sh -c 'sleep 4731.{OWN}; true' &) ; sleep 4732.{OWN}")
    assert is_running(f"sleep 4731.{OWN}")
    assert is_running(f"sleep 4732.{OWN}")

    bench.tools.stop()

    assert not is_running(f"sleep 4731.{OWN}")
    assert not is_running(f"sleep 4732.{OWN}")
    assert "stopped by relay when your turn ended" in bench.ok("bash", command="true")
    assert "background" not in bench.ok("bash", command="true")


def test_what_ends_at_once_is_no_server(bench):
    """A failure like that of every command, told by what stands at the end of the output."""
    text = bench.refused("bash", command="seq 5000; echo port taken; exit 3", background=True)

    assert text.startswith("ended at once: exit 3; output: .relay/")
    assert text.endswith("5000\nport taken")
    assert bench.ok("bash", command="true", background=True).startswith("ended at once: exit 0")


def test_the_end_of_a_command_is_told_with_the_next_call(bench):
    start(bench, "while [ ! -e go ]; do sleep 0.05; done; exit 7")

    told = [bench.ok("bash", command="touch go")]  # it may end before this answer is written
    while "exit 7; output: " not in told[-1]:
        told.append(bench.ok("bash", command="sleep 0.2"))

    assert "exit 7; output: " not in "".join(bench.ok("bash", command="true") for _ in range(3))


def test_the_same_command_restarts_and_too_many_are_refused(bench):
    """A restart takes the place of the first; the refusal lists what is running."""
    for number in range(4):
        start(bench, f"sleep 474{number}")
    start(bench, "sleep 4740")

    text = bench.refused("bash", command="sleep 4749", background=True)

    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- sleep 4741",
        "- sleep 4742",
        "- sleep 4743",
        "- sleep 4740",
    ]


def test_a_restart_is_no_news(bench):
    """Told that its server was stopped, a session would take the new one for gone."""
    start(bench, f"sleep 4735.{OWN}")
    start(bench, f"sleep 4735.{OWN}")

    assert "background" not in bench.ok("bash", command="true")
    assert is_running(f"sleep 4735.{OWN}")


def test_its_output_is_capped_while_it_runs(bench):
    """A flood of more than any pipe holds fills the file to its limit and no further, and the session goes on."""
    bench = bench.change(limits=bench.workspace.limits.__class__(timeout_s=20, spool_bytes=100_000))
    output = start(bench, "yes | head -c 3000000; sleep 600")

    assert (bench.root / output).stat().st_size == 100_000
    bench.tools.stop()


def test_it_is_confined_like_every_command(bench):
    """The same view, the same protected files."""
    output = start(
        bench, f"echo x > {bench.outside}/made; echo x >> PLAN.md; cat {bench.outside}/secret.txt; sleep 4751"
    )
    said = bench.ok("read", path=output)

    assert "TOP-SECRET" not in said
    assert not (bench.outside / "made").exists()
    assert (bench.root / "PLAN.md").read_text() == "# Plan\n"


def test_without_a_place_for_its_output_it_is_refused(bench):
    assert "no place for its output" in bench.change(spills=False).refused("bash", command="sleep 9", background=True)


def test_a_planner_has_no_background(bench, open_box):
    planner = bench.plan(lambda _: None, sandbox=open_box(bench.root, Level.READ_ONLY))
    assert "not known" in planner.refused("bash", command="sleep 9", background=True)
