"""Agents of the user's own, by whole commands: three phases under three runners, killed in each and run again."""

import os
import signal
import subprocess

import pytest

from relay.base.errors import ExitCode
from tests.agents.test_phases import PLAN, SCRIPT
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until

NAMES = ("one", "two", "three")
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
    stage.write("PLAN.md", PLAN)
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
    """Each phase under another runner, by day the second one; whoever goes on finds what was there."""
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
    assert tree == ["AGENTS.md", "PLAN.md", "one.txt", "three.txt", "two.txt"]
    assert [stage.git("show", f"HEAD:{word}.txt") for word in NAMES] == ["one\n", "two\n", "three\n"]
    assert "- [ ]" not in stage.git("show", "HEAD:PLAN.md")
    messages = [stage.git("log", "-1", "--format=%B", f"HEAD~{back}") for back in (2, 1, 0)]
    assert ["Relay-Agent:" in message for message in messages] == [False, True, True]
    assert "Relay-Agent: other 9.9\n" in messages[2]
