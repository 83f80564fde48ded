"""A change that a person asked for may change everything but what relay has ticked."""

import pytest

from relay.plan.lineage import check_ticks_kept
from relay.plan.parse import parse_plan

BEFORE = "## Phase 1\n- [x] a — a.py\n- [x] b — b.py\n## Phase 2\n- [ ] c — c.py\n"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (BEFORE, []),
        (BEFORE.replace("- [ ] c — c.py", "Verify: `make`\n- [ ] d — d.py\n- [ ] e"), []),
        (
            BEFORE.replace("- [x] b — b.py\n", ""),
            [(0, "item 1.2 `b — b.py` was ticked by relay and is ticked no more")],
        ),
        (BEFORE.replace("[x] b", "[ ] b"), [(3, "item 1.2 `b — b.py` was ticked by relay and is ticked no more")]),
        (BEFORE.replace("[ ] c", "[x] c"), [(5, "item 2.1 is ticked by hand; only relay ticks, after the gate")]),
        (BEFORE.replace("[x] b", "[x] do b, and well"), []),
        (
            BEFORE.replace("[x] b", "[x] bb"),
            [
                (3, "item 1.2 `b — b.py` was ticked by relay and is ticked no more"),
                (3, "item 1.2 is ticked by hand; only relay ticks, after the gate"),
            ],
        ),
        ("## Phase 1\n- [x] b — b.py\n- [x] a — a.py\n", [(0, "ticked items stand in another order than before")]),
        ("## Phase 1 — New\n- [ ] n\n" + BEFORE.replace("Phase 2", "Phase 3").replace("Phase 1", "Phase 2"), []),
        (BEFORE.replace("- [x] b — b.py\n", "").replace("## Phase 2", "## Phase 2\n- [x] b — b.py"), []),
    ],
)
def test_what_is_ticked_keeps_its_tick_and_its_order(after, found):
    violations = check_ticks_kept(parse_plan(BEFORE), parse_plan(after))

    assert [(violation.line, violation.message) for violation in violations] == found


REPEATED = "## Alpha\n- [x] run tests\n- [x] a — a.py\n## Beta\n- [ ] run tests\n- [ ] b — b.py\n"
LOST = "item 1.1 `run tests` was ticked by relay and is ticked no more"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (REPEATED, []),
        (REPEATED.replace("## Beta", "## Zeta\n- [ ] run tests\n## Beta"), []),
        ("## Zeta\n- [ ] run tests\n" + REPEATED, []),
        (
            REPEATED.replace("[x] run tests", "[ ] run more tests").replace("[ ] run tests", "[x] run tests"),
            [(2, LOST), (5, "item 2.1 is ticked by hand; only relay ticks, after the gate")],
        ),
        (
            REPEATED.replace("[x] run", "[ ] run") + "## Zeta\n- [x] run tests\n",
            [(2, LOST), (8, "item 3.1 is ticked by hand; only relay ticks, after the gate")],
        ),
        (REPEATED.replace("[ ] run", "[x] run"), [(5, "item 2.1 is ticked by hand; only relay ticks, after the gate")]),
        (REPEATED.replace("[x] run", "[ ] run"), [(2, LOST)]),
    ],
)
def test_a_tick_stays_in_its_phase_where_another_says_the_same(after, found):
    """It is no tick of the other one; how often each is ticked counts."""
    violations = check_ticks_kept(parse_plan(REPEATED), parse_plan(after))

    assert [(violation.line, violation.message) for violation in violations] == found
