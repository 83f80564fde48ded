"""What every request pays before a word of work is said: tools and role."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.plan.parse import parse_plan
from relay.prompts.texts import (
    PhaseBriefing,
    render_phase_message,
    render_system,
)
from relay.session.usage import estimate_tokens
from relay.session.values import ToolSpec
from relay.tools.toolbox import (
    ANSWER,
    ASK,
    EXPLORE,
    JUDGE_FINDINGS,
    PLANNER_SPECS,
    READER_SPECS,
    REPORT_FINDINGS,
    RUNNER_SPECS,
)

ROOT = Path(__file__).resolve().parent.parent
LIMIT_TOKENS = 1_000
EXPLORE_TOKENS = 90
"""On top of it, for those who may send an explorer."""
KINDS = {
    "runner": (render_system("runner", ""), RUNNER_SPECS),
    "runner that may explore": (render_system("runner", ""), (*RUNNER_SPECS, EXPLORE)),
    "explorer": (render_system("explorer", "", turns=20, tokens=1_500), (*READER_SPECS, ANSWER)),
    "planner": (render_system("planner", "", line_tokens=100_000), PLANNER_SPECS),
    "planner with nobody there": (
        render_system("planner", "", line_tokens=100_000),
        tuple(spec for spec in PLANNER_SPECS if spec is not ASK),
    ),
    "reviewer": (render_system("reviewer", ""), (*READER_SPECS, REPORT_FINDINGS)),
    "refuter": (render_system("refuter", "", what="change"), (*READER_SPECS, JUDGE_FINDINGS)),
}
PLAN = "# T\n\n## Phase 1 — A\n- [ ] a\n"


def measure(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Estimate the fixed part of a prompt: its text, and the tools as compact JSON, at 4 bytes a token."""
    rendered = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
    return estimate_tokens(system) + estimate_tokens(json.dumps(rendered, separators=(",", ":"), ensure_ascii=False))


def measure_message() -> int:
    """Estimate the constant words of a phase's first message, with an environment as it usually is."""
    plan = parse_plan(PLAN)
    environment = "Commands run in a sandbox without network; they write only here and in $TMPDIR, home is empty."
    given: dict[str, Any] = dict.fromkeys(("handoff_note", "interruption", "baseline", "ledger"), "")
    briefing = PhaseBriefing(
        plan=plan, phase=plan.phases[0], plan_path="PLAN.md", environment=(environment,), claimed=(), **given
    )
    return estimate_tokens(render_phase_message(briefing)) - estimate_tokens(PLAN)


@pytest.mark.parametrize(("system", "tools"), KINDS.values(), ids=KINDS)
def test_tools_and_role_and_constant_words_fit_their_budget(system: str, tools: tuple[ToolSpec, ...]) -> None:
    """Every word here is paid for on every call; what is too long goes, not the limit."""
    assert measure(system, tools) + measure_message() <= LIMIT_TOKENS + EXPLORE_TOKENS * (EXPLORE in tools)


def test_what_a_model_is_told_of_its_tools_has_no_names_of_relays_code() -> None:
    """Such a name is of no use to a model, and a rename by script can put one into a sentence."""
    said = " ".join(tool.description for _, tools in KINDS.values() for tool in tools)
    assert re.findall(r"\b[A-Z][a-z]+[A-Z]\w*", said) == []


PROGRAM = """
import json
from relay.prompts.texts import render_system
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS
print(render_system("runner", "rules"), render_system("planner", "rules", line_tokens=100_000))
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
    assert "$" not in render_system("runner", "")


def test_each_session_that_works_is_told_what_no_session_can_do():
    """Plans of other tools ask for it in items: `Step 5: Commit`, `push the branch and open a PR`."""
    said = render_system("runner", "")
    assert "Leave commits and boxes to relay, pushes and pull requests to the user" in said
    assert "Tick an item that asks for nothing else last; its evidence is who does it." in said
