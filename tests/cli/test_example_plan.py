"""examples/PLAN.md is found, checked and run as it stands, in a clone of relay; the demo's plan is the same."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.scripts import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
INSIDE = "examples/project/"


@pytest.fixture
def clone(project, commit):
    """A repository with the examples and the root's files that the plan might be taken for."""
    shutil.copytree(EXAMPLES, project / "examples")
    (project / "tests").mkdir()
    for name in ("README.md", "tests/test_own.py"):
        (project / name).write_text("")
    commit()
    return project


def play_first_phase() -> str:
    """Return the demo's script of phase 1, for somebody who stands at the clone's root."""
    script = (EXAMPLES / "rehearsal.yaml").read_text(encoding="utf-8")
    head, sessions = script.split("sessions:\n", 1)
    first = sessions.partition("  - name: phase 1\n")[2].partition("\n  # ---")[0]
    first = re.sub(r"(path: |\[\")((?:app|tests)/)", rf"\1{INSIDE}\2", first)
    first = first.replace("command: python3", f"command: cd {INSIDE} && python3")
    body = json.dumps((EXAMPLES / "files/test_schema.py").read_text(encoding="utf-8"))
    first = first.replace("content_file: files/test_schema.py", f"content: {body}")
    return f"{head}sessions:\n  - name: phase 1\n{first}"


@pytest.mark.nightly
@pytest.mark.usefixtures("clone")
def test_the_example_is_found_checked_and_run_from_a_clone(relay, git):
    found = relay("run", "--phase", "next").err
    assert "Hint: there is examples/PLAN.md: `relay check examples/PLAN.md` checks it, " in found
    checked = relay("check", "examples/PLAN.md")
    assert (checked.code, checked.out.splitlines()[-1]) == (0, "examples/PLAN.md is valid: 3 phases, 11 items")

    with serving(play_first_phase()) as (server, env):
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"  # as in the demo: the plan says python3
        ran = relay("run", "--phase", "next", "--plan", "examples/PLAN.md", env={**env, "PATH": path})

    assert (server.errors, ran.code, ran.err) == ([], 0, ""), ran.out
    changed = git("show", "--name-only", "--format=", "HEAD").split()
    assert {"examples/PLAN.md", f"{INSIDE}app/store.py", f"{INSIDE}tests/test_schema.py"} <= set(changed)
    assert git("status", "--porcelain") == ""


def test_the_plan_of_the_demo_is_the_same_at_its_own_root():
    """The demo's repository is the project alone."""
    plan = (EXAMPLES / "PLAN.md").read_text(encoding="utf-8")
    own = plan.replace(f"cd {INSIDE.rstrip('/')} && ", "").replace(INSIDE, "")
    assert own == (EXAMPLES / "files/plan.md").read_text(encoding="utf-8")
