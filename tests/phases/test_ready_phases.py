"""Which phases begin, and where: on the tip of the plan's branch, or on the one that they wait for."""

from relay.plan.parse import parse_plan
from relay.run.phases.jobs import ReadyPhase, find_ready_phases

PLAN = """\
# Four

## Phase 1 — One
After: none
- [ ] Do it — 1.txt

## Phase 2 — Two
After: none
- [ ] Do it — 2.txt

## Phase 3 — Three
After: 2
- [ ] Do it — {path}

## Phase 4 — Four
After: 1, 2
- [ ] Do it — 4.txt
"""


def tick(text, *phase_ids):
    parts = text.split("## ")
    return "## ".join(part.replace("[ ]", "[x]") if part[6:7] in phase_ids else part for part in parts)


def find(box, *, path="3.txt", held=("1", "2"), done=("2",), own=None, tip=None):
    """Ask with phase 2 done in a commit of its own, and the tip elsewhere."""
    text = PLAN.format(path=path)
    box.write("PLAN.md", own or tick(text, "2"))
    commit = box.commit("phase 2")
    plan = parse_plan(tip or text)
    return [
        (begin.phase_id, begin.commit == commit)
        for begin in find_ready_phases(box.open(), "PLAN.md", plan, held, dict.fromkeys(done, commit))
    ]


def test_a_phase_begins_on_the_one_that_it_waits_for(box):
    """Not one that waits for another too, nor before the one that it waits for is done."""
    assert find(box) == [("3", True)]
    assert find(box, path="2.txt") == [("3", True)]
    assert find(box, done=()) == []
    assert find(box, held=("1", "2", "3")) == []
    text = PLAN.format(path="3.txt")
    assert find(box, held=("2",), tip=tick(text, "1")) == [("3", True)]
    assert find(box, held=(), done=(), tip=tick(text, "1", "2")) == [("3", False), ("4", False)]


def test_a_phase_that_shares_a_path_with_what_is_not_in_that_commit_waits(box):
    """Whether that is at work, or has landed since."""
    assert find(box, path="1.txt") == []
    text = PLAN.format(path="1.txt")
    assert find(box, path="1.txt", held=("2",), tip=tick(text, "1")) == []


def test_a_phase_that_was_changed_since_waits(box):
    text = PLAN.format(path="3.txt")
    for changed in (text.replace("Do it — 3.txt", "Do more — 3.txt"), text.replace("2 — Two", "2 — Too")):
        assert find(box, tip=changed) == []


def test_the_tip_is_where_a_phase_begins_that_waits_for_nothing(box):
    box.write("PLAN.md", PLAN.format(path="3.txt"))
    box.commit("plan")
    plan = parse_plan(PLAN.format(path="3.txt"))
    found = find_ready_phases(box.open(), "PLAN.md", plan, {"1"}, {})
    assert found == (ReadyPhase(phase_id="2"),)
