"""What items are called: a number that one of them prints is the id of that one and of no other."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.edit import append_items
from relay.plan.parse import parse_plan
from relay.plan.text import find_printed_number, fold_number


def ids(*phases: str) -> list[str]:
    """Return the ids of the items of unnumbered phases, each written as its items with ``;`` between them."""
    text = "".join(
        f"## {'ABC'[at]}\n" + "".join(f"- [ ] {item.strip()}\n" for item in phase.split(";"))
        for at, phase in enumerate(phases)
    )
    return [item.id for item in parse_plan(text).items]


NUMBERS = {
    **dict.fromkeys(
        ("1.1 Create a", "1.1. a", "**1.1** a", "**1.1: a**", "[1.1] a", "(1.1) a", "Task 1.1: a", "1.1"), "1.1"
    ),
    "1. Set up": "1", "2) Set up": "2", "3: Set up": "3", "1.2.3a — a": "1.2.3a", "**Step 2.3** a": "2.3",
    "1.5x faster": "1.5x",
    **dict.fromkeys(
        ("Step 2: a", "T001 [P] a", "a) b", "3 little pigs", "2026-11-20 review", "1.1/2.2 a", "a 1.1 b", ""), ""
    ),
}  # fmt: skip
IDS = {
    ("a; b",): ["1.1", "1.2"],
    ("1. Set up; 1.1 a; 1.2 b; 2. Finish",): ["1", "1.1", "1.2", "2"],
    ("1. A; 1.1 a", "2. B; 2.1 b"): ["1", "1.1", "2", "2.1"],
    ("1. A; 2. B", "1. C; 2. D"): ["1.1", "1.2", "2.1", "2.2"],
    ("x; 01.1 a",): ["1/1", "01.1"],
    ("2.1 a; 2.2 b", "x; y; z"): ["2.1", "2.2", "2/1", "2/2", "2.3"],
    ("1.1 a; 1.2 b", "1.1 c; 1.2 d"): ["1/1", "1/2", "2.1", "2.2"],
    ("1.1 a; 1.1 b; 1.3 c",): ["1/1", "1.2", "1.3"],
    ("Task 1: A; Task 1.1: a",): ["1/1", "1.1"],
    ("T001 a; T002 b",): ["1.1", "1.2"],
}


def test_a_number_that_one_item_prints_is_its_id():
    assert {text: find_printed_number(text) for text in NUMBERS} == NUMBERS
    assert {phases: ids(*phases) for phases in IDS} == IDS


PRINTED = st.sampled_from(
    ["", "1. ", "2) ", "1.1 ", "1.2 ", "**1.3** ", "2.1. ", "Task 1.2: ", "Step 1: ", "01.1 ", "1.1a "]
)
PHASES = st.lists(st.lists(PRINTED, min_size=1, max_size=6), min_size=1, max_size=3)


@given(PHASES, PRINTED)
def test_no_item_has_an_id_that_another_prints_and_what_is_appended_changes_none(phases, number):
    written = [[f"{number}w{at}" for at, number in enumerate(phase)] for phase in phases]
    plan = parse_plan(
        "".join(f"## {'ABC'[at]}\n" + "".join(f"- [ ] {text}\n" for text in phase) for at, phase in enumerate(written))
    )
    found = [item.id for item in plan.items]
    printed = [fold_number(find_printed_number(text)) for phase in written for text in phase]
    assert len(set(found)) == len(found)
    for at, item_id in enumerate(found):
        others = [number for other, number in enumerate(printed) if other != at]
        assert fold_number(item_id) not in others
        if "." in printed[at] and printed[at] not in others:
            assert fold_number(item_id) == printed[at]
    with contextlib.suppress(PlanError):
        longer = append_items(plan, plan.phases[-1].id, [f"{number}new"])
        assert [item.id for item in longer.items][: len(found)] == found


def test_an_appended_number_is_the_new_items_id():
    plan = parse_plan("## A\n- [ ] 1.1 a\n")
    assert [item.id for item in append_items(plan, "1", ["1.2 b", "c"]).items] == ["1.1", "1.2", "1.3"]
    with pytest.raises(PlanError, match=r"what item 1\.1 is called"):
        append_items(plan, "1", ["1.1 again"])


def test_what_a_heading_says_is_found_where_relay_counts_otherwise() -> None:
    plan = parse_plan("## Phase 1: A\n- [ ] a\n## Phase 7: B\n- [ ] b\n## C\n- [ ] c\n## Phase 9: D\n- [ ] d\n")
    assert [phase.id for number in ("07", "9") for phase in plan.list_saying(number)] == ["2", "4"]
    assert [*plan.list_saying("1"), *plan.list_saying("3"), *plan.list_saying("8")] == []
