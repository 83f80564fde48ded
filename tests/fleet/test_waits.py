"""What a phase at which nobody is waits for."""

import pytest

from relay.plan.parse import parse_plan
from relay.run.phases.jobs import JobTable, tell_waits

PLAN = """\
# Plan

## Phase 1 — One
After: none
- [x] Done — a.txt

## Phase 2 — Two
After: 1
- [ ] Two — b.txt

## Phase 3 — Three
After: 2
- [ ] Three — c.txt

## Phase 4 — Four
After: none
- [ ] Four — b.txt

## Phase 5 — Five
After: none
- [ ] Five — d.txt
"""


class _Working:
    def __init__(self, merges):
        self.merges = merges
        self.child = self
        self.has_asked = False


def tell(**state):
    return dict(tell_waits(parse_plan(PLAN), JobTable(**state), jobs=1))


def test_each_kind_of_waiting_is_told_and_what_is_done_or_at_work_is_not():
    two = {"2": _Working("")}
    assert tell(working=two) == {
        "3": "comes after 2",
        "4": "waits for a path of a phase at work",
        "5": "waits for the first answer of 2",
    }
    assert tell(working=two, is_warm=True)["5"] == "waits for a place"
    landing = {"2": _Working("c0ffee")}
    assert tell(working=landing, is_warm=True)["5"] == "waits for money of phases at work"
    assert tell(working=two, foreign=frozenset("5"))["5"] == "another relay is at work on it"
    assert "5" not in tell(working=two, stopped={"5": None})


@pytest.mark.parametrize(("state", "after"), [({}, "the others"), ({"working": {"2": _Working("c0ffee")}}, "2")])
def test_what_is_done_waits_for_those_that_land_before_it(state, after):
    assert tell(pending={"4": "c0ffee"}, **state)["4"] == f"done; lands after {after}"
    assert tell(pending={"3": "c0ffee"}, **state)["3"] == "done; lands after 2"
