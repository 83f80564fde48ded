"""What is a phase, what is an item, and where they stand."""

import pytest

from relay.base.errors import PlanError
from relay.plan.edit import append_items, append_note
from relay.plan.model import Plan
from relay.plan.parse import parse_plan


def texts(text: str) -> list[str]:
    return [item.text for phase in parse_plan(text).phases for item in phase.items]


def ids(plan: Plan) -> list[str]:
    return [phase.id for phase in plan.phases]


DONE = ("* [x] a", "+ [X] a", "27) [x] a", "> > 1. [x] a")
OPEN = (
    "- [ ] a", "1. [ ] a", "   - [ ] a", "-\t[ ]\ta", "> - [ ] a", "- - [ ] a", "- [-] 1.1 a", "* [~] a", "1. [?] a",
    "- [ ] a\x20\x20\t",
)  # fmt: skip
OPTIONAL = ("- [-] a", "- [>] a", "- [ ]* a")
NO_BOX = (
    "```\n- [ ] no\n```", "~~~~md\n- [ ] no\n~~~\n~~~~", "text\n\n    - [ ] no", "<!-- \n- [ ] no\n\n- [ ] no\n-->",
    "<details>\n- [ ] no\n</details>", "text `- [ ] no`", "text\n2. [ ] no", "- ```\n  - [ ] no\n  ```", "- []",
    "- [ ]", "- [ ]no", "- [ ]*no*", "- [ ]** no", "- [ ]*", "- [-]no", "- [/] no", "- [\u2713] no", "-[ ] no",
    "- [  ] no", "- text [ ] no", "- [x](no)", "- [x]: /no", "- **[ ] no**", "-     [ ] no",
    "- \u2028[ ] no", "- \u2028\n[ ] no", "-\n  [ ] no", "- [a]: /b\n  [ ] no",
)  # fmt: skip


def test_every_way_to_write_a_box_is_read():
    states = {
        **dict.fromkeys((*DONE, "- [X]\\* a"), "done"),
        **dict.fromkeys(OPEN, "open"),
        **dict.fromkeys(OPTIONAL, "optional"),
    }
    items = {line: parse_plan(f"# P\n\n{line}\n").items for line in states}
    assert {line: item.state for line, (item,) in items.items()} == states
    assert {(item.text.removeprefix("1.1 "), item.line) for (item,) in items.values()} == {("a", 3)}
    assert all(f"# P\n\n{line}"[item.mark - 1 : item.mark + 2 : 2] == "[]" for line, (item,) in items.items())


def test_what_only_looks_like_a_box_is_no_item():
    read = {block: texts(f"# P\n- [ ] yes\n\n{block}\n\n# Q\n- [ ] also") for block in NO_BOX}
    assert [block for block in NO_BOX if read[block] != ["yes", "also"]] == []


def test_a_phase_is_done_without_what_is_optional():
    plan = parse_plan("# P\n- [x] a\n- [ ]* b\n- [-]* c\n# Q\n- [?] d\n- [ ]* e\n")
    one, two = plan.phases
    assert (one.done, two.done, plan.next_phase()) == (True, False, two)
    assert [item.text for item in two.open_items] == ["d"]
    ticked = plan.tick(["1.2", "2.1"])
    assert ticked.done
    assert ticked.text == "# P\n- [x] a\n- [x]* b\n- [-]* c\n# Q\n- [x] d\n- [ ]* e\n"


MANUAL = (
    "(manual) look at the page", "Look at the page (Manual)", "[M] look at the page", "**[manual]** look", "Look @me",
    "@me: look", "Task: Conductor - User Manual Verification 'Phase 1' (Protocol in workflow.md)", "Manual testing",
    "**Manual check:** the page", "2.3 Manual verification - open the page",
)  # fmt: skip
WORK = (
    "Document the manual verification", "Write the manual — docs/manual.md", "Test `(manual)` mode", "Mail me@me.org",
    "Automate manual testing", "Take [M](m.md) over", "Add x[M] to the grid", "Manual steps are gone", "@mentions",
)  # fmt: skip


def test_an_item_that_is_marked_for_a_person_is_no_work_for_a_session():
    read = {text: parse_plan(f"# P\n- [ ] {text}\n").items[0].state for text in (*MANUAL, *WORK)}
    assert [text for text in MANUAL if read[text] != "yours"] == []
    assert [text for text in WORK if read[text] != "open"] == []


def test_a_phase_is_done_without_what_is_for_a_person_and_the_plan_names_it():
    plan = parse_plan("# P\n- [x] a\n- [ ] @me look\n# Q\n- [ ] b\n- [ ] (manual) try\n- [ ]* (manual) more\n")
    assert ([phase.done for phase in plan.phases], plan.next_phase()) == ([True, False], plan.phases[1])
    assert [item.id for item in plan.left_to_person] == ["1.2"]
    assert [item.id for item in plan.tick(["2.1"]).left_to_person] == ["1.2", "2.2"]


def test_the_front_matter_adds_marks_of_work_for_a_person():
    text = (
        "---\nrelay: {manual: ['@qa', (by hand)], model: m}\n---\n# P\n- [ ] @QA look\n- [ ] (by hand) try\n- [ ] a\n"
    )
    plan = parse_plan(text)
    assert [item.state for item in plan.items] == ["yours", "yours", "open"]
    assert dict(plan.settings) == {"model": "m"}
    with pytest.raises(PlanError, match="`manual` that is not a list of texts"):
        parse_plan(text.replace("['@qa', (by hand)]", "[1]"))


def test_any_heading_with_items_is_a_phase_and_one_inside_a_list_item_is_none():
    for heading in ("# P", "###### P ##", "P\n=", "P\n---", "   ## P", "> ## P", "two\nlines\n===", "#\tP"):
        assert [phase.start for phase in parse_plan(f"{heading}\n\n> - [ ] a\n").phases] == [0], heading
    assert ids(parse_plan("# P\n- [ ] a\n\n  ## Inner\n\n- [ ] b\n  ===\n")) == ["1"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_heading_with_a_box_and_none_below_is_a_phase_of_one_item(end):
    text = end.join(
        [
            "\ufeff# Plan",
            "## [ ] Phase 1: Base",
            "### 1. [x] Set [up](u) ##",
            "goal",
            "### 2. [ ] Store `a.py` — b.py",
            "#### Notes",
            "- n",
            "",
            "Step 3: [ ] Say it",
            "---",
            "## [ ] Phase 4: [ ] more",
            "- [ ] c",
            "",
        ]
    )
    plan = parse_plan(text)
    assert [(phase.id, phase.title, phase.line) for phase in plan.phases] == [
        ("1", "Set up", 3),
        ("2", "Store a.py — b.py", 5),
        ("3", "Say it", 9),
        ("4", "[ ] more", 11),
    ]
    assert [(item.id, item.text, item.done, item.line) for item in plan.items] == [
        ("1.1", "Set [up](u)", True, 3),
        ("2.1", "Store `a.py` — b.py", False, 5),
        ("3.1", "Say it", False, 9),
        ("4.1", "c", False, 12),
    ]
    assert plan.items[1].paths == ("a.py", "b.py")
    assert plan.tick(["2.1", "3.1"]).text == text.replace("2. [ ]", "2. [x]").replace("3: [ ]", "3: [x]")
    assert append_note(plan, "2", "m").text == text.replace(f"- n{end}", f"- n{end}- m{end}")


TESTS_FIRST = """\
# Tasks
## Phase 1: Setup
- [ ] a
## Phase 2: Story
Goal.
### Tests ⚠️
Verify: `t`
- [x] b
### Implementation
After: none
- [ ] c
### Notes
- n
## Dependencies
"""


def test_a_numbered_phase_holds_the_boxes_of_its_parts():
    plan = parse_plan(TESTS_FIRST)
    assert [(phase.id, phase.title) for phase in plan.phases] == [("1", "Setup"), ("2", "Story")]
    one, two = plan.phases
    assert [(item.id, item.done) for item in two.items] == [("2.1", True), ("2.2", False)]
    assert (one.verify, two.verify, two.own_verify, two.after) == ((), ("t",), ("t",), ("1",))
    assert plan.text[two.end :] == "## Dependencies\n"
    longer = append_items(plan, "2", ["d"])
    assert longer.text == TESTS_FIRST.replace("- [ ] c\n", "- [ ] c\n- [ ] d\n")


PARTS = [
    (["## Phase 1 -", "### Backend", "### Frontend"], ["Phase 1"]),
    (["## Phase 1", "### Backend", "#### Deeper"], ["Phase 1"]),
    (["## Phase 1 -", "### Task 1: a", "### Task 2: b"], ["a", "b"]),
    (["## Phase 1 -", "### Backend", "### Task 2: b", "### End"], ["Phase 1", "b", "End"]),
    (["## Phase 1", "### Task 2: b", "### End"], ["Phase 1", "b", "End"]),
    (["## Phase 1 -", "### 1.1 a", "### 1.2 b"], ["a", "b"]),
    (["## Phase 1 -", "### Week 1", "### Week 2"], ["Week 1", "Week 2"]),
    (["## Phase 1 -", "### User Story 1", "### User Story 2"], ["User Story 1", "User Story 2"]),
    (["## Phase 1 -", "### T1: a", "### T2: b"], ["T1: a", "T2: b"]),
    (["## Phase 1 -", "### Task A: a", "### Task B: b"], ["Task A: a", "Task B: b"]),
    (["## Phase 1 -", "### A. a", "### B. b"], ["A. a", "B. b"]),
    (["## Phase 1 -", "### 1. Why -", "### Tests", "### Code"], ["Phase 1"]),
    (
        ["## Phase 1 -", "### Task 1 -", "#### Tests", "#### Code", "### Task 2 -", "#### Code"],
        ["Task 1", "Task 2"],
    ),
    (["## Phase 1 -", "### Tests", "## Phase 2 -", "### Tests", "### Code"], ["Phase 1", "Phase 2"]),
    (["# Phase 1: the file -", "## Backend", "## Frontend"], ["Backend", "Frontend"]),
    (["# Phase 1 -", "## Tests", "# Phase 2 -", "## Tests"], ["Phase 1", "Phase 2"]),
    (["## 3. Plan -", "### Backend", "### Frontend"], ["Backend", "Frontend"]),
    (["## Sprint 1 -", "### Backend", "### Frontend"], ["Backend", "Frontend"]),
    (["## Phase 1", "### Notes"], ["Phase 1", "Notes"]),
    (["## Setup", "### Tests", "### Code"], ["Setup", "Tests", "Code"]),
    (["## Phase 1 -", "## Setup"], ["Setup"]),
]


def test_which_headings_are_parts_of_a_phase():
    """A heading with `-` has no items of its own; one that only counts itself or stands alone is a phase as ever."""
    wrong = []
    for headings, phases in PARTS:
        plan = parse_plan("".join(f"{h.rstrip(' -')}\n" + "- [ ] x\n" * (not h.endswith("-")) for h in headings))
        read = [phase.title for phase in plan.phases], len(plan.items)
        wrong += [(headings, read)] if read != (phases, sum(not h.endswith("-") for h in headings)) else []
    assert wrong == []


def test_a_plan_without_a_phase_is_an_error_and_never_a_silent_success():
    lines = {
        "": 1, "just text\n": 1, "---\nrelay: {}\n---\n# A\n- plain\n": 4, "text\n\n- [ ] above any heading\n": 3,
        "```\n# A\n- [ ] a\n```\n": 1,
    }  # fmt: skip
    for text, line in lines.items():
        with pytest.raises(PlanError, match=rf"^line {line}: .*\[ \]"):
            parse_plan(text)


NUMBERED = [
    (["Phase 1 — A", "Phase 2 — B"], [("1", "A"), ("2", "B")]),
    (["Phase 2: A", "Phase 1: B"], [("2", "A"), ("1", "B")]),
    (["Task 1: A", "Task 2 B", "Iteration 3. C"], [("1", "A"), ("2", "B"), ("3", "C")]),
    (["Step 3 - A", "Milestone 4", "phase 5) B"], [("3", "A"), ("4", "Milestone 4"), ("5", "B")]),
    (["1. A", "2) B", "3 — C", "4: D"], [("1", "A"), ("2", "B"), ("3", "C"), ("4", "D")]),
    (["Phase 2a — A", "Phase 2b — B"], [("2a", "A"), ("2b", "B")]),
    (["1.1 A", "1.2 B", "2.1. C"], [("1.1", "A"), ("1.2", "B"), ("2.1", "C")]),
    (["**Phase 1** — `a`", "Phase *2*: [b](/u)"], [("1", "a"), ("2", "b")]),
    (["Phase 1: .gitignore", "Phase 2-x"], [("1", ".gitignore"), ("2", "x")]),
    (["Phase #1 A", "🎯 Phase 2 B"], [("1", "A"), ("2", "B")]),
    (["Phase 01", "Phase 02"], [("01", "Phase 01"), ("02", "Phase 02")]),
]
ORDINAL = (
    ["Setup", "Phase 2"], ["Phase 1", "Phase 1"], ["Same", "Same"], ["Phase 2a", "Phase 2A"], ["Phase 2", "Phase 2.1"],
    ["3 little pigs", "2026-11-20 review"], ["Phase 1-2: both", "Phase 3"], ["", "##"],
)  # fmt: skip


def test_distinct_numbers_in_the_headings_are_the_ids_and_else_ordinals():
    plans = [(h, parse_plan("".join(f"## {one}\n- [ ] x\n" for one in h))) for h, _ in NUMBERED]
    assert [(h, [(phase.id, phase.title) for phase in plan.phases]) for h, plan in plans] == NUMBERED
    for headings in ORDINAL:
        assert ids(parse_plan("".join(f"## {one}\n- [ ] x\n" for one in headings))) == ["1", "2"], headings
