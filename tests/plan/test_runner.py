"""`Runner:`, `Model:` and `Effort:` below a phase's heading say who runs it."""

import pytest

from relay.plan.check import check_plan
from relay.plan.parse import parse_plan

GOOD = "# P\nVerify: `t`\n- [ ] a — x.py\n"


@pytest.mark.parametrize(
    "line", ["Runner: claude", "runner: `claude`", "**Runner:** Claude", "- Runner: claude.", "Runner: `claude` (mine)"]
)
def test_a_phase_names_its_runner(line):
    plan = parse_plan(f"{GOOD}\n{line}\n\n# Q\nVerify: `t`\n- [ ] b — y.py\n")
    assert [phase.find_wish("runner") for phase in plan.phases] == [("claude", 5), ("", 0)]
    assert check_plan(plan) == ()


@pytest.mark.parametrize(
    ("text", "line", "warning", "words"),
    [
        (f"{GOOD}\nRunner: Ubuntu on our CI\n", 5, True, "is read as prose, because that names no runner"),
        (f"{GOOD}\nRunner: a\n\nRunner: b\n", 7, False, "has a runner in line 5 already"),
        (f"Runner: a\n\n{GOOD}", 1, True, "the front matter says it for all phases: `relay: {runner: a}`"),
        (f"{GOOD}\n## Notes\nRunner: a\n", 6, True, "counts below a phase's own heading only"),
        (f"{GOOD}\nRunner: a\n---\n", 5, False, "underlines it"),
        (f"{GOOD}\nModel: User\n", 5, True, "is read as prose, because that names no model"),
        (f"{GOOD}\nModel: claude-opus-5-5\n\nModel: opus\n", 7, False, "has a model in line 5 already"),
        (f"Effort: low\n\n{GOOD}", 1, True, "`relay: {effort: low}`"),
    ],
)
def test_a_line_that_is_not_acted_on_is_named(text, line, warning, words):
    plan = parse_plan(text)
    [found] = check_plan(plan)
    assert (found.line, found.warning) == (line, warning)
    assert words in found.message
    assert plan.phases[0].runner in {"", "a"}


def test_an_empty_line_says_nothing():
    assert parse_plan(f"{GOOD}\nRunner:\n").phases[0].runner == ""


@pytest.mark.parametrize(
    "line", ["Model: Qwen/Qwen3-Coder:30b", "**Model:** `Qwen/Qwen3-Coder:30b`", "- model: Qwen/Qwen3-Coder:30b."]
)
def test_a_model_keeps_its_letters(line):
    plan = parse_plan(f"{GOOD}\n{line}\n\nEffort: HIGH\n")
    assert (plan.phases[0].model, plan.phases[0].effort) == ("Qwen/Qwen3-Coder:30b", "high")
    assert check_plan(plan) == ()


@pytest.mark.parametrize(
    "line", ["Effort: 2 days", "Effort: M", "**Effort**: small", "Model: the user has many keys", "Effort: 3h"]
)
def test_an_estimate_and_a_description_are_prose(line):
    """Plans of people have such lines: nothing is chosen, refused or warned of."""
    plan = parse_plan(f"{GOOD}\n{line}\n")
    assert (plan.phases[0].wishes, check_plan(plan)) == ((), ())
