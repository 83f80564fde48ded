"""Models and plans of a user's choice, from the command line to commits that say what the endpoint billed.

`.ci/package` plays this, and the logins and pull requests beside it, on the wheel as well.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relay.api
from relay.base.errors import ExitCode
from tests.bills import assert_paid, read_bill
from tests.loop.test_models import ONE, PLAN, make, say
from tests.planning.test_critic import plan
from tests.scripts import serving


@pytest.mark.nightly
def test_a_task_from_a_pipe_is_planned_built_and_closes_its_issue(stage):
    """What `gh issue view` prints, as it is; the request closes what the plan names, and nothing else."""
    issue = "title:\tSay hello\nnumber:\t12\n--\nCloses #99, say hello.\n"
    planned = plan(ONE, first_message_contains="Closes #99, say hello.")
    with serving(json.dumps({"sessions": [planned, say("hello", "1.1")]})) as (server, environ):
        wrote = stage.relay("plan", "--force", "-", answer=issue, environ=environ)
        assert (wrote.returncode, wrote.stderr) == (ExitCode.DONE, "")
        assert "## Issue\n\n- Closes #12\n" in (stage.root / "PLAN.md").read_text()
        ran = stage.relay("run", environ=environ)
    assert (ran.returncode, server.errors) == (ExitCode.DONE, []), ran
    assert_paid(stage.root, server)
    body = stage.relay("pr", "--text").stdout
    assert ("Closes #12" in body, "#99" in body) == (True, False)


@pytest.mark.nightly
def test_the_lines_of_the_page_show_what_each_phase_cost(stage):
    """To the cent, as a program or a notebook has them, after a run that it started itself."""
    page = (Path(__file__).parents[2] / "docs/reference/api.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 10
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    sessions = say("hello", "1.1"), say("world", "2.1")
    for session in sessions:
        session["turns"][0]["usage"] = {"output_tokens": 20_000}
    with serving(make(*sessions)) as (server, environ):
        project = relay.api.open_project(stage.root, environ={**os.environ, **environ})
        assert project.run("all", "--max-cost", "5").exit_code == ExitCode.DONE
    assert_paid(stage.root, server)
    code = code.replace('"path/to/repository"', repr(str(stage.root)))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=stage.root)
    small, large = (f"${read_bill(server, model):.2f}" for model in ("claude-haiku-5-5", "claude-opus-5-5"))
    *shown, total = ran.stdout.split()
    assert (shown, small < large) == (["1", "Small", small, "2", "Large", large, "all"], True)
    assert float(total) == pytest.approx(float(read_bill(server)), abs=1e-6)
