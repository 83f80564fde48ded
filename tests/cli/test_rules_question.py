"""Another agent's rules: a person at a terminal is asked, nobody else is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = "There is no AGENTS.md. Take CLAUDE.md for this repository's rules?"
SETTING = 'rules_fallback_names = ["CLAUDE.md"] in relay.toml'


def run_at_terminal(stage, answer: str) -> str:
    """Run relay on a terminal of its own, with an answer typed ahead, and return the screen; it ends without a key."""
    here, there = os.openpty()
    os.write(here, answer.encode())
    command = [str(Path(sys.executable).with_name("relay")), "run"]
    with subprocess.Popen(command, cwd=stage.root, stdin=there, stdout=there, stderr=there) as process:
        os.close(there)
        shown = b""
        try:
            while data := os.read(here, 4096):
                shown += data
        except OSError:
            pass  # how a terminal says that nobody is there any more
    os.close(here)
    assert process.returncode == 1
    return " ".join(shown.decode().split())


@pytest.mark.parametrize(("answer", "told"), [("\n", True), ("n\n", False)])
def test_a_person_is_asked(stage, answer, told):
    stage.git("mv", "AGENTS.md", "CLAUDE.md")
    stage.commit("another name")

    shown = run_at_terminal(stage, answer)

    assert (QUESTION in shown, f"{SETTING} says so for every run" in shown) == (True, told)
    assert "no API key" in shown


def test_nobody_is_asked_without_a_terminal_or_where_nothing_is_missing(stage):
    """A run without one says what to set."""
    assert QUESTION not in run_at_terminal(stage, "")
    stage.git("mv", "AGENTS.md", "CLAUDE.md")
    stage.commit("another name")
    assert QUESTION not in stage.relay("run").stdout

    stage.run("sessions: [{turns: [{tools: [{name: block, input: {reason: lunch}}]}]}]")

    assert any(SETTING in notice.text for notice in stage.events if hasattr(notice, "text"))
    assert SETTING in stage.relay("doctor", environ={"RELAY_SANDBOX": "off"}).stdout
