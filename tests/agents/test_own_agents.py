"""Agents of the user's own, by whole commands: each phase under another runner, killed in each and run again."""

import os
import re
import signal
import subprocess

import pytest

from relay.base.errors import ExitCode
from tests.agents.test_phases import PLAN, SCRIPT
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until

NAMES = ("one", "two", "three") if NIGHTLY else ("one", "three")
"""By day relay's own loop and the agent that is like another one of the user's."""
TOML = """
[agents.fake]
program = "{program}"
env = {{ FAKE_BASE = "{{base}}", FAKE_MODEL = "{{model}}" }}

[agents.other]
like = "fake"
"""


@pytest.fixture
def machine(stage, programs, tmp_path):
    """Return what starts relay in the stage's repository, with the user's agents and a server's address."""
    stage.write("PLAN.md", PLAN if NIGHTLY else re.sub(r"## Phase 2.*(?=## Phase 3)", "", PLAN, flags=re.DOTALL))
    stage.commit("plan")
    folder = tmp_path / "config/relay"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(TOML.format(program=programs / "fake-agent"))

    def start(server, *args):
        environ = {
            **os.environ,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "ANTHROPIC_API_KEY": "sk-the-real-key-of-the-user",
            "ANTHROPIC_BASE_URL": server.base_url,
        }
        return subprocess.Popen(
            [*stage.find_program(), *args],
            cwd=stage.root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def hang(number):
    """Return the script where the session of this phase hangs in its command, once its file is written."""
    word = NAMES[number]
    return SCRIPT.replace(f"echo {word} > {word}.txt", f"echo {word} > {word}.txt; sleep 600")


@pytest.mark.timeout(300)
def test_a_run_killed_in_each_phase_ends_in_the_same_tree(stage, machine):
    """By day in the last one; whoever goes on finds what was there."""
    for number in range(len(NAMES)) if NIGHTLY else [1]:
        word = NAMES[number]
        with serve(parse_script(hang(number))) as server:
            process = machine(server, "run")
            wait_until((stage.root.with_name(f"{stage.root.name}.relay") / f"1/{word}.txt").exists, by=process)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
        assert stage.git("rev-list", "--count", "HEAD").strip() == str(2 + number)

    with serve(parse_script(SCRIPT)) as server:
        process = machine(server, "run")
        said, _ = process.communicate(timeout=120)

    assert process.returncode == ExitCode.DONE, said
    tree = stage.git("ls-tree", "--name-only", "HEAD").split()
    assert tree == sorted(["AGENTS.md", "PLAN.md", *(f"{word}.txt" for word in NAMES)])
    assert [stage.git("show", f"HEAD:{word}.txt") for word in NAMES] == [f"{word}\n" for word in NAMES]
    assert "- [ ]" not in stage.git("show", "HEAD:PLAN.md")
    messages = [stage.git("log", "-1", "--format=%B", f"HEAD~{back}") for back in range(len(NAMES))]
    assert ["Relay-Agent:" in message for message in reversed(messages)] == [False, *[True] * (len(NAMES) - 1)]
    assert "Relay-Agent: other 9.9\n" in messages[0]
