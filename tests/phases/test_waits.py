"""What a phase at which nobody is waits for."""

from typing import Any

from relay.base.errors import ExitCode
from relay.plan.parse import parse_plan
from relay.run.phases.jobs import JobEnd, JobTable, find_code, tell_waits

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
    def __init__(self, merges, *, has_asked=False):
        self.merges = merges
        self.child = self
        self.has_asked = has_asked


def tell(**state):
    return dict(tell_waits(parse_plan(PLAN), JobTable(**state), jobs=1))


def test_each_kind_of_waiting_is_told_and_what_is_done_or_at_work_is_not():
    two, landing = {"2": _Working("")}, {"2": _Working("c0ffee")}
    assert tell(working=two) == {
        "3": "comes after 2",
        "4": "waits for a path of a phase at work",
        "5": "waits for the first answer of 2",
    }
    rows: list[tuple[str, dict[str, Any], str | None]] = [
        ("5", {"working": two, "is_warm": True}, "waits for a place"),
        ("5", {"working": landing, "is_warm": True}, "waits for money of phases at work"),
        ("5", {"working": {"2": _Working("c0ffee", has_asked=True)}, "is_warm": True}, "waits for a place"),
        ("5", {"working": two, "foreign": {"5": "another relay has it"}}, "another relay has it"),
        ("5", {"working": two, "stopped": {"5": None}}, None),
        ("4", {"pending": {"4": "c0ffee"}}, "done and waits to be landed"),
        ("4", {"pending": {"4": "c0ffee"}, "working": landing}, "done and waits for phase 2 to land"),
        ("3", {"pending": {"3": "c0ffee"}}, "done and waits for phase 2 to land"),
        ("3", {"pending": {"3": "c0ffee"}, "in_the_way": {"3": "a.txt is"}}, "done and waits: a.txt is"),
    ]
    assert [(phase_id, state, tell(**state).get(phase_id)) for phase_id, state, _ in rows] == rows


def test_a_run_that_leaves_phases_open_is_the_user_s_where_each_stopped_phase_is():
    users, other = JobEnd(exit_code=ExitCode.USER, reason=""), JobEnd(exit_code=ExitCode.STOPPED, reason="")
    rows = [({}, ExitCode.STOPPED), ({"1": users}, ExitCode.USER), ({"1": users, "2": other}, ExitCode.STOPPED)]
    assert [(stopped, find_code(stopped)) for stopped, _ in rows] == rows
