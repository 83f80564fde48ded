"""What every request pays before a word of work is said: tools and role."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from relay.prompts.texts import render_planner_system, render_runner_system
from relay.session.usage import estimate_tokens
from relay.session.values import ToolSpec
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS

ROOT = Path(__file__).resolve().parent.parent
LIMIT_TOKENS = 1_700
"""The leanest other client with tools has 1,690, the full ones 5,600 to 18,900; estimated in the same way."""


def measure(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Estimate the fixed part of a prompt: its text, and the tools as compact JSON, at 4 bytes a token."""
    rendered = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
    return estimate_tokens(system) + estimate_tokens(json.dumps(rendered, separators=(",", ":"), ensure_ascii=False))


@pytest.mark.parametrize(
    ("system", "tools"),
    [(render_runner_system(""), RUNNER_SPECS), (render_planner_system("", line_tokens=100_000), PLANNER_SPECS)],
    ids=["runner", "planner"],
)
def test_tools_and_role_fit_their_budget(system: str, tools: tuple[ToolSpec, ...]) -> None:
    """Every word here is paid for on every call; what is too long goes, not the limit."""
    assert measure(system, tools) <= LIMIT_TOKENS


PROGRAM = """
import json
from relay.prompts.texts import render_planner_system, render_runner_system
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS
print(render_runner_system("rules"), render_planner_system("rules", line_tokens=100_000))
for spec in (*RUNNER_SPECS, *PLANNER_SPECS):
    print(spec.name, spec.description, json.dumps(spec.input_schema))
"""


def test_nothing_in_the_fixed_part_depends_on_the_session(tmp_path: Path) -> None:
    """Sessions share it byte for byte, in whatever process, place and environment, or none starts on a warm cache."""
    strange = {"HOME": str(tmp_path), "USER": "somebody", "TZ": "Asia/Tokyo", "LC_ALL": "C", "COLUMNS": "40"}
    texts = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PYTHONHASHSEED": seed, **environ},
            cwd=cwd,
            capture_output=True,
            check=True,
        ).stdout
        for seed, environ, cwd in (("1", {}, ROOT), ("2", strange, tmp_path), ("3", {}, tmp_path))
    ]

    assert texts[0] == texts[1] == texts[2]
    assert b"rules" in texts[0]
    assert "$" not in render_runner_system("")
