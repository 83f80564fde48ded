"""What has changed since a phase was planned, read from files or told by git."""

import pytest

from relay.plan.parse import parse_plan
from relay.state.staleness import find_stale

PLAN = "# Plan\n\n## Phase 1 — One\nVerify: `true`\n- [ ] Do it — src/app.py\n"
DONE = "a phase\n\nRelay-Plan: PLAN.md\nRelay-Status: done"


@pytest.mark.parametrize("branch", [False, True])
def test_it_is_the_same_loose_and_packed(box, branch):
    """Counted from the commit that wrote the plan, below relay's own that ticked it and the user's on other files."""
    box.write("PLAN.md", PLAN)
    box.commit("the plan")
    box.write("src/app.py", "print(2)\n")
    changed = box.commit("by hand")
    box.write("PLAN.md", f"{PLAN}\n## Phase 2 — Two\nVerify: `true`\n- [x] Done\n")
    box.commit(DONE)
    if branch:
        box.git("switch", "-q", "-c", "side", "HEAD~1")
        box.write("side.txt")
        box.commit("beside")
        box.git("switch", "-q", "main")
        box.git("merge", "-q", "--no-edit", "side")
    box.write("other.txt")
    box.commit("other")
    (phase,) = parse_plan(PLAN).phases

    loose = find_stale(box.open(), "PLAN.md", phase)
    assert loose == (f"src/app.py has changed: {changed[:8]} by hand",)

    box.git("gc", "-q", "--prune=now")
    assert find_stale(box.open(), "PLAN.md", phase) == loose


def test_what_relay_has_done_since_the_first_commit_is_not_stale(new_box):
    box = new_box()
    box.write("PLAN.md", PLAN)
    box.commit("the plan")
    (phase,) = parse_plan(PLAN).phases
    assert find_stale(box.open(), "PLAN.md", phase) == ()

    box.write("src/app.py", "print(1)\n")
    box.commit(DONE)
    assert find_stale(box.open(), "PLAN.md", phase) == ()

    box.write("src/app.py", "print(2)\n")
    changed = box.commit("by hand")
    box.commit(DONE)
    assert find_stale(box.open(), "PLAN.md", phase) == (f"src/app.py has changed: {changed[:8]} by hand",)
