"""The numbered items of a list are the phases of a plan as Kiro and its like write it."""

from itertools import pairwise

import pytest

from relay.base.errors import PlanError
from relay.plan.check import check_plan
from relay.plan.edit import append_items, append_note, list_notes, replace_phase
from relay.plan.operations import check_change
from relay.plan.parse import parse_plan

KIRO = """\
# Implementation Plan: Notes

## Overview
Three steps.

## Tasks
Verify: `make test`

- [x] 1. Set up the project
  - Create the package
  - _Requirements: 1.1_

- [ ] 2. Store notes
  - [ ] 2.1 Write `src/store.py`
    - _Requirements: 2.1_

  - [ ]* 2.2 Write property tests
    - **Validates: Requirements 2.1**
- [ ] 3. Checkpoint - Ensure all tests pass
  - Ask the user if questions arise
- [ ] 4. Search notes — src/search.py
  After: 1
  Verify: `make search`
- [ ] 5. Final checkpoint

## Notes
- Tasks with `*` are optional
"""
FLAT = """\
# Implementation Plan

- [x] 1. Log
  - _Requirements: 1.1_

- [ ] 2. Validate
- [ ] 2.1 Create the function in src/export.py
  - details
- [ ]* 2.2 Test it

- [ ] 3. Fix the rest
- [ ] 3.1 Fix council.py"""
PARENTS = """\
## Relevant Files
- `src/a.py`

## Tasks

- [ ] 1.0 Set up
  - [x] 1.1 Make it
- [ ] 2.0 Use it
  - [ ] 2.1 Call it
  - [ ] 2.2 Say it

and a last word
"""
STARS = KIRO.replace("- [", "* [").replace("  - ", "  * ")
PLANS = {
    "kiro": KIRO,
    "flat": FLAT,
    "parents": PARENTS,
    "stars": STARS,
    "crlf": KIRO.replace("\n", "\r\n"),
    "wide": KIRO.replace("\n  ", "\n    "),
    "headless": "- [ ] 1. A\n  - [ ] 1.1 a\n- [ ] 2. B\n",
}


def outline(text: str) -> list[tuple[str, str, list[str]]]:
    return [(phase.id, phase.title, [item.id for item in phase.items]) for phase in parse_plan(text).phases]


def test_a_numbered_item_is_a_phase_with_what_belongs_to_it():
    plan = parse_plan(KIRO)
    assert outline(KIRO) == [
        ("1", "Set up the project", ["1"]),
        ("2", "Store notes", ["2", "2.1", "2.2", "3"]),
        ("4", "Search notes — src/search.py", ["4", "5"]),
    ]
    assert plan.title == "Implementation Plan: Notes"
    assert plan.preamble.endswith("Verify: `make test`\n\n")
    assert plan.text[plan.phases[1].start :].startswith("- [ ] 2. Store")
    assert plan.text[plan.phases[1].end :].startswith("- [ ] 4. Search")
    assert [(phase.verify, phase.after) for phase in plan.phases] == [
        (("make test",), ()),
        (("make test",), ("1",)),
        (("make test", "make search"), ("1",)),
    ]
    assert [violation.message for violation in check_plan(plan)] == [
        "items 3, 5 name no file or folder; add it at the end, as in ` — src/keys.py`"
    ]


def test_sub_items_may_stand_beside_their_item_and_a_whole_number_may_end_in_0():
    assert outline(FLAT) == [
        ("1", "Log", ["1"]),
        ("2", "Validate", ["2", "2.1", "2.2"]),
        ("3", "Fix the rest", ["3", "3.1"]),
    ]
    assert outline(PARENTS) == [("1.0", "Set up", ["1.0", "1.1"]), ("2.0", "Use it", ["2.0", "2.1", "2.2"])]


NO_PARTS = (
    "# P\n## Phase 1: A\n### Tasks\n- [ ] 1. a\n  - [ ] 1.1 b\n- [ ] 2. c\n",
    "# P\n## 3. Backend\n- [ ] 1. a\n  - [ ] 1.1 b\n- [ ] 2. c\n",
    "# Phase 1\n- [ ] 1. a\n  - [ ] 1.1 b\n- [ ] 2. c\n# Phase 2\n",
    "# P\n## Tasks\n- [ ] 1. a\n  - [ ] b\n- [ ] 2. c\n",
    "# P\n## Tasks\n- [ ] 1. a\n  - [ ] 1.1 b\n",
    "# P\n## Tasks\n- [ ] 1.1 a\n- [ ] 1.2 b\n- [ ] 2.1 c\n",
)


def test_other_lists_stay_items_of_their_heading():
    assert [text for text in NO_PARTS if len(parse_plan(text).phases) != 1] == []


@pytest.mark.parametrize("text", PLANS.values(), ids=PLANS)
def test_notes_and_items_are_put_in_legally_and_nothing_else_moves(text):
    plan = parse_plan(text)
    assert all(one.end <= other.start for one, other in pairwise(plan.phases))
    assert all(phase.start <= item.mark < phase.end for phase in plan.phases for item in phase.items)
    for phase in plan.phases:
        noted = append_note(append_note(plan, phase.id, "first"), phase.id, "second")
        assert list_notes(noted)[phase.id] == ("first", "second")
        assert check_change(plan, noted, may_tick=()) == ()
        for before in (plan, noted) if not phase.done else ():
            longer = append_items(before, phase.id, ["do more", "and more"])
            grown = longer.find_phase(phase.id)
            assert grown is not None
            assert [item.text for item in grown.items][-2:] == ["do more", "and more"]
            assert check_change(plan, longer, may_tick=()) == ()


def test_a_note_stands_in_the_item_that_it_is_about():
    noted = append_note(parse_plan(KIRO), "4", "# why")
    assert noted.text == KIRO.replace("checkpoint\n\n", "checkpoint\n  - Notes\n    - \\# why\n\n")
    above = "  - Ask the user if questions arise\n"
    noted = append_items(append_note(parse_plan(KIRO), "2", "why"), "2", ["more"])
    assert noted.text == KIRO.replace(above, f"{above}- [ ] more\n  - Notes\n    - why\n")
    single = append_items(append_note(parse_plan("- [ ] 1. A\n- [ ] 2. B\n  - [ ] 2.1 b\n"), "1", "why"), "1", ["more"])
    assert single.text == "- [ ] 1. A\n  - [ ] more\n  - Notes\n    - why\n- [ ] 2. B\n  - [ ] 2.1 b\n"


def test_notes_are_changed_by_nobody_and_only_the_last_bullet_is_one():
    noted = append_note(parse_plan(KIRO), "4", "first")
    for old, new in (("- first", "- second"), ("    - first\n", ""), ("    - first\n", "    - first\n    - [ ] x\n")):
        assert old in noted.text
        assert check_change(noted, parse_plan(noted.text.replace(old, new, 1)), may_tick=()) != ()
    assert list_notes(parse_plan("- [ ] 1. A\n  - Notes\n    - x\n  - y\n  - [ ] 1.1 a\n- [ ] 2. B\n"))["1"] == ()


def test_what_a_numbered_item_cannot_take_is_refused():
    swallowed = "- [ ] 1. A\n  - [ ] 1.1 a\n- [ ] 2. B\n  - [ ] 2.1 c\n<!-- x\n"
    with pytest.raises(PlanError, match="a note at the end of phase 2 would not be read as one; close the code fence"):
        append_note(parse_plan(swallowed), "2", "hello")
    with pytest.raises(PlanError):  # it would be a phase
        append_items(parse_plan(FLAT), "3", ["4. Another phase"])
    with pytest.raises(PlanError, match="phase 2 is an item of a list: number its parts"):
        replace_phase(parse_plan(KIRO), "2", "## Phase 2: A\n- [ ] a\n")
