"""Items that no session can carry out."""

from pathlib import Path

import pytest

from relay.plan.check import asks_for_commit, asks_for_outside, has_impossible_items
from relay.plan.parse import parse_plan
from relay.prompts.texts import PhaseBriefing, render_phase_message


@pytest.mark.parametrize(
    ("text", "commit", "outside"),
    [
        ("Commit", True, False),
        ("**Step 5: Commit**", True, False),
        ("3.2 Commit the changes", True, False),
        ("Run `git commit -m x`", True, False),
        ("Run the tests and commit.", True, False),
        ("Parse commit messages — src/log.py", False, False),
        ("Commit and push to origin", True, True),
        ("git push", False, True),
        ("Push", False, True),
        ("push the branch", False, True),
        ("Create a pull request", False, True),
        ("Open a PR against main", False, True),
        ("Move this plan to `docs/plans/completed/`", False, True),
        ("Merge the work into main", False, True),
        ("Push items onto the stack — src/stack.py", False, False),
        ("Merge two sorted lists into one", False, False),
        ("Move the planet — src/orbit.py", False, False),
        ("Move plan path resolution into `planLocator`", False, False),
        ("Do not update `docs/plans/completed/`", False, False),
        ("Create profile page", False, False),
        ("x" * 10_000 + " git push", False, False),
    ],
)
def test_what_an_item_asks_for(text, commit, outside):
    assert (asks_for_commit(text), asks_for_outside(text)) == (commit, outside)


@pytest.mark.parametrize(("box", "told"), [("[ ]", True), ("[x]", False)])
def test_the_session_is_told_whose_it_is_where_an_open_item_asks(box, told):
    plan = parse_plan(f"# P\n- {box} Commit and push\n- [ ] a\n")
    phase = plan.phases[0]
    briefing = PhaseBriefing(
        plan=plan,
        phase=phase,
        plan_path="PLAN.md",
        environment=(),
        claimed=(),
        handoff_note="",
        interruption="",
        baseline="",
        ledger="",
    )
    assert has_impossible_items(phase) is told
    assert ("left to the user" in render_phase_message(briefing)) is told


def test_foreign_plans_are_judged_right():
    """Of the 40 items that seven other tools' plans hold, three ask for it, and only these are found."""
    plans = [parse_plan(path.read_text()) for path in sorted((Path(__file__).parent / "formats").glob("*.md"))]
    items = [item.text for plan in plans for phase in plan.phases for item in phase.items]
    found = [text for text in items if asks_for_commit(text) or asks_for_outside(text)]

    assert (len(items), found) == (
        40,
        [
            "3.1 Move this plan to `docs/plans/completed/`",
            "**Step 3: Commit**",
            "**Step 2: Push the branch to origin and open a PR**",
        ],
    )
