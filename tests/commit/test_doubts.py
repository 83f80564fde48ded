"""A session that only ticks: what speaks against it is said, and where nothing speaks for it nothing is committed."""

import json

import pytest

from relay.errors import ExitCode
from relay.session.events import Noticed
from tests.scripts import run_commands

IDLE = "no file was changed, and the verify commands passed before too"
ABSENT = "1.1 names src/export.py, which no commit has"


@pytest.fixture
def run(stage):
    """Run a phase of one item to its end."""

    def run_phase(item, *commands, verify="Verify: `test -d .`\n"):
        stage.write("old.py", "old\n")
        stage.write("PLAN.md", f"## Phase 1 — Export\n{verify}- [ ] {item}\n")
        stage.commit("plan")
        return stage.run(run_commands(*commands), max_repairs=0, unchecked=True)

    return run_phase


def read_doubts(stage):
    return stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly)").split("\n")[:-2]


@pytest.mark.parametrize("verify", ["Verify: `test -f old.py`\n", ""], ids=["green before", "no gate"])
def test_nothing_done_for_a_file_that_is_not_there(stage, run, verify):
    """The session is told, and the box stays open."""
    ended = run("Write the export — src/export.py", verify=verify)

    assert ended.exit_code == ExitCode.STOPPED
    assert f"{IDLE}; {ABSENT}" in ended.reason
    assert stage.commits() == ()


def test_a_phase_that_only_looks_is_marked(stage, run):
    """What it names is there; commit, view and status say that nothing was changed."""
    assert run("Check that the tests pass — old.py", verify="Verify: `test -f old.py`\n").exit_code == ExitCode.DONE
    assert read_doubts(stage) == [IDLE]
    assert any(notice.text == f"ticked all the same: {IDLE}" for notice in stage.seen(Noticed))
    assert f"doubtful: {IDLE}" in stage.relay("status").stdout
    assert json.loads(stage.relay("status", "--json").stdout)["phases"][0]["doubts"] == [IDLE]


def test_a_name_that_is_not_there_is_marked(stage, run):
    """The work may have got another name."""
    verify = "Verify: `test -f src/exporter.py`\n"
    ended = run("Write the export — src/export.py", "mkdir src && echo x > src/exporter.py", verify=verify)
    assert ended.exit_code == ExitCode.DONE
    assert read_doubts(stage) == [ABSENT]


@pytest.mark.parametrize(
    ("item", "command"),
    [
        ("Write it — new.py", "echo x > new.py"),
        ("Fill the folder — src/deep/", "mkdir -p src/deep && echo x > src/deep/a.py"),
        ("Remove it — old.py", "rm old.py"),
        ("Rename it — old.py, new.py", "mv old.py new.py"),
        ("Write them — src/*.py", "echo x > new.py"),
    ],
)
def test_what_was_done_is_not_doubted(stage, run, item, command):
    assert run(item, command, verify="Verify: `git ls-files`\n").exit_code == ExitCode.DONE
    assert read_doubts(stage) == []
