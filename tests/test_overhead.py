"""What every request pays before a word of work is said: tools and role."""

import json

import pytest

from relay.prompts.texts import render_planner_system, render_runner_system
from relay.session.tokens import estimate_tokens
from relay.session.values import ToolSpec
from relay.tools.specs import PLANNER_SPECS, RUNNER_SPECS

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


def test_nothing_in_the_system_text_depends_on_the_session() -> None:
    """Two sessions of a run share it byte for byte, or none starts on a warm cache."""
    assert render_runner_system("rules") == render_runner_system("rules")
    assert "$" not in render_runner_system("")
