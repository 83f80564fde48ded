"""What stands beside the boxes of a plan is named, and boxes that are conditions are no work."""

from pathlib import Path

import pytest

from relay.base.errors import PlanError
from relay.plan.check import check_plan, list_unboxed, require_covered
from relay.plan.parse import parse_plan

UNBOXED = sorted((Path(__file__).parent / "formats" / "unboxed").iterdir())
BESIDE = "# P\n\n## Task 1: A\nprose\n\n## Task 2: B\n### Steps\n\n## Harness\n- [ ] it runs — run.py\n"


def read(name: str) -> str:
    return next(path for path in UNBOXED if path.stem == name).read_bytes().decode()


def list_errors(text: str) -> list[tuple[int, str]]:
    return [(v.line, v.message) for v in check_plan(parse_plan(text)) if not v.warning]


def list_warnings(text: str, words: str) -> list[int]:
    return [v.line for v in check_plan(parse_plan(text)) if v.warning and words in v.message]


def test_tasks_without_a_box_are_an_error_that_names_them():
    words = "`Task 1: A`, `Task 2: B` hold no box, so relay would pass over them and run only `Harness`"
    assert list_errors(BESIDE) == [(3, words)]
    with pytest.raises(PlanError, match="Task 1: A"):
        require_covered(parse_plan(BESIDE).outline)


ROADMAP = """\
# Roadmap
Verify: `test -f app.py`

## Phases

- [{0}] **Phase 1: Base** - set up
- [ ] [Phase 2: Language](#two) - two languages
- [ ] **Phase 3: Goals**

## Phase Details

### Phase 1: Base
- [{0}] 01-01: set up app.py

### Phase 2: Language
- [ ] 02-01: routes in app.py

### Phase 3: Goals
**Plans**: TBD
"""


@pytest.mark.parametrize("state", [" ", "x"])
def test_a_list_that_repeats_the_headings_of_phases_is_an_overview_and_no_work(state):
    """GSD writes it so; a phase of it that has no box is named, and numbers are those of the headings."""
    plan = parse_plan(ROADMAP.format(state))
    assert [(phase.id, phase.title, len(phase.items)) for phase in plan.phases] == [
        ("1", "Base", 1),
        ("2", "Language", 1),
    ]
    said = {one.line: one.message for one in check_plan(plan)}
    assert "read as an overview" in said[4]
    assert "`Phase 3: Goals` holds no box" in said[18]
    assert plan.tick(["1.1", "2.1"]).text.count("[x]") == 2 + (state == "x")


def test_a_list_is_the_work_where_its_headings_hold_no_box_or_are_others():
    text = "# P\n## Phases\n- [ ] **Phase 1: A**\n- [ ] **Phase 2: B**\n## Details\n### Phase 1: A\n### Phase 2: B\n"
    (phase,) = parse_plan(text).phases
    assert [item.text for item in phase.items] == ["**Phase 1: A**", "**Phase 2: B**"]
    text = "# P\n## Next\n- [ ] Phase 1: C\n- [ ] Phase 2: B\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n"
    assert len(parse_plan(text).items) == 4


def test_a_plan_of_tasks_without_a_box_is_none_and_says_which():
    with pytest.raises(PlanError, match="no phase found: `Task 1: Skeleton`, `Task 2: Defaults`, `Task 3: Rest` hold"):
        parse_plan(read("superpowers"))
    with pytest.raises(PlanError, match="no phase found: `Task 1: Write the store`, `Task 2: Sync` hold no box") as got:
        parse_plan(read("gsd_tasks"))
    assert got.value.line == 23


HELD = (
    "# P\n## Phase 1: A\n- [ ] a\n### Task 1: detail\n### Task 2: detail\n### Task 3: detail\n",
    "# P\n## Phase 1: A\n### Task 1.1: x\n- [ ] a\n### Task 1.2: y\n- [ ] b\n",
    "# P\n## Task 1: A ✅\n## Task 2: B (done)\n## Task 3: C - Completed\n## Work\n- [ ] a\n",
    "# P\n## Phases\n- [ ] **Phase 1: A**\n- [ ] carry out step 2\n## Details\n### Phase 1: A\n### Step 2: B\n",
    "# Phase 3: the whole document\n## Backend\n- [ ] a\n",
    "# P\n## Work\n- [ ] a\n```\n## Task 1: A\n## Task 2: B\n<task>\n<task>\n```\n",
    "# P\n## Work\n- [ ] a\n# Q\n<!--\n<task>\n<task>\n-->\n```\n<task>\n<task>",
    "# P\n## 1. Goal\n## 2. Scope\n## Work\n- [ ] a\n",
)


def test_what_a_phase_holds_or_an_item_names_or_is_done_is_not_passed_over():
    assert [text for text in HELD if list_unboxed(parse_plan(text).outline)] == []


def test_fewer_without_a_box_than_with_one_are_a_warning():
    text = "# P\n## Task 1: A\n- [ ] a\n## Task 2: B\n- [ ] b\n## Task 3: Later\n"
    assert list_errors(text) == []
    assert list_warnings(text, "`Task 3: Later` holds no box, so relay would pass over it") == [6]
    require_covered(parse_plan(text).outline)


CONDITIONS = (
    "Success Criteria", "✅ Acceptance criteria:", "Overall Success Criteria (measurable)", "Definition of Done",
    "Self-Review Checklist", "Self review — before you hand in", "Constitution Check", "Final verification checklist",
    "**Done when**", "验收标准",
)  # fmt: skip
ALIKE = ("Phase 2: Acceptance criteria", "2. Success criteria", "Successful logins", "Acceptance tests", "Review")


def test_conditions_of_the_whole_are_no_phase_and_said_once_and_what_counts_itself_is_work():
    text = "# P\n## Phase 1: A\n- [ ] a\n\n## {}\n- [ ] b\n\n## Exit criteria\n- [ ] c\n"
    for title in CONDITIONS:
        plan = parse_plan(text.format(title))
        assert [(phase.id, len(phase.items)) for phase in plan.phases] == [("1", 1)], title
        assert list_warnings(plan.text, "are read as conditions") == [5], title
        assert plan.tick(["1.1"]).done
    assert [title for title in ALIKE if len(parse_plan(text.format(title)).phases) != 2] == []
    assert list_warnings("# P\n## Task 1: A\n- [ ] a\n## Success criteria\n- [x] b\n", "conditions") == []


def test_a_plan_of_conditions_alone_is_none_and_says_why():
    with pytest.raises(PlanError, match="no phase found: the boxes below `Success criteria` are read as conditions"):
        parse_plan("# P\nprose\n## Success criteria\n- [ ] a\n")


def test_a_task_of_gsd_beside_a_phase_is_named_and_one_that_is_shown_or_for_a_person_is_not():
    task = '<task type="auto">\n  <name>Sync\n  it</name>\n</task>\n\n'
    shown = '```\n<task>\n```\n\n<!--\n<task>\n-->\n\n<task type="checkpoint:human-verify">\n</task>\n\n'
    text = f"## Work\n- [ ] a — a.py\n\n# Rest\n<tasks>\n{task}{shown}{task}"
    assert [(unit.line, unit.title) for unit in list_unboxed(parse_plan(text).outline)] == [
        (6, "Sync it"),
        (22, "Sync it"),
    ]
