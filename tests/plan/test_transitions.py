"""What a change may not do, in words, and the changes that are easy to get wrong; the properties cover the rest."""

import pytest

from relay.plan import transitions
from relay.plan.parse import parse_plan

PLAN = """---
relay: {verify: [t]}
---
# Plan
Goal.

## Phase 1 — A
Verify: `a`
- [x] one
- [ ] two
### Notes
- first

### Risks
- r

## Phase 2 — B
- [ ] three
- [ ] four

## Later
text
"""


def check_transition(before: str, after: str, *, may_tick=(), amendable=()):
    plans = (parse_plan(text) for text in (before, after))
    return transitions.check_transition(*plans, may_tick=may_tick, amendable=amendable)


def judge(old: str, new: str, *, may_tick=(), amendable=()) -> list[tuple[int, str]]:
    assert old in PLAN
    changed = PLAN.replace(old, new, 1)
    return [(v.line, v.message) for v in check_transition(PLAN, changed, may_tick=may_tick, amendable=amendable)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[ ] two", "[x] two"),
        ("- first\n", "- first\n- second\n"),
        ("- first\n", "- first\n\n- second\nand more\n"),
        ("- first\n", "- first\n```\n- [ ] code\n```\n"),
        ("- [ ] four\n", "- [ ] four\n### Notes\n- n\n"),
        ("- [ ] four\n", "- [ ] four\n\n### Notes\n\n- n\n"),
        ("- [ ] four\n\n", "- [ ] four\n\n### Notes\n- n\n\n"),
    ],
)
def test_ticks_and_notes_are_legal(old, new):
    assert judge(old, new, may_tick=["1.2"]) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[x] one", "[ ] one", 9, "the box of item 1.1 was changed"),
        ("[x] one", "[X] one", 9, "the box of item 1.1 was changed"),
        ("[ ] three", "[x] three", 18, "item 2.1 was ticked; only 1.2 may be ticked"),
        ("[ ] two", "[X] two", 10, "ticked with `X`"),
        ("[ ] two", "[-] two", 10, "the box of item 1.2 holds `-` now; an open one is `[ ]`"),
        ("[ ] two", "[ ]* two", 10, "found `- [ ]* two`"),
        ("[ ] two", "[ ] too", 10, "found `- [ ] too` where `- [ ] two` stood"),
        ("- [ ] two\n", "", 13, "`- [ ] two` is gone"),
        ("- [ ] three\n- [ ] four", "- [ ] four\n- [ ] three", 18, "found `- [ ] four`"),
        ("- [ ] four\n", "- [ ] four\n- [ ] five\n", 20, "five"),
        ("- [ ] four\n\n", "- [ ] four\n### Notes\n- n\n", 20, "more than a Notes section was added"),
        ("Verify: `a`", "Verify: `true`", 8, "found `Verify: `true``"),
        ("verify: [t]", "verify: []", 1, "front matter"),
        ("verify: [t]", "verify: [t], max_cost_usd: 9", 1, "front matter"),
        ("Goal.", "Goal!", 5, "Goal!"),
        ("## Later", "## Sooner", 21, "Sooner"),
        ("- first", "- First", 11, "Notes were changed"),
        ("- first\n", "- zeroth\n- first\n", 11, "Notes were changed"),
        ("- first", "- first, and more", 11, "Notes were changed"),
        ("- first\n", "- first, until Friday\n\n", 11, "Notes were changed"),
        ("- first\n\n", "- first\n", 11, "Notes were changed"),
        ("- first\n\n", "- first\n- second\n", 11, "Notes were changed"),
        ("- r\n", "- r\n- s\n", 16, "`- s` was added"),
        ("### Notes\n- first\n\n", "", 7, "came or went"),
        ("### Risks", "### Notes", 17, "`### Risks` stood"),
        ("- [ ] four\n", "- [ ] four\n### Notes\n- n\n### Notes\n- m\n", 17, "came or went"),
        ("- [ ] four\n", "- [ ] four\n### Notes\n- [ ] n\n", 20, "Notes"),
        ("- [ ] four\n", "- [ ] four\n## Notes\n- n\n", 20, "Notes"),
        ("- first\n", "- first\n```\n", 0, ""),
        ("- first\n", "- first\n## Phase 3\n- [ ] x\n", 13, "Phase 3"),
        ("text\n", "text", 22, "line ending"),
        ("text\n", "text\n\n", 23, "added"),
        ("## Phase 2", "\n## Phase 2", 0, ""),
        ("two\n", "two\r\n", 7, "line endings were changed"),
        (" three", "  three", 18, "found `- [ ]  three`"),
        ("- [ ] three", " - [ ] three", 18, "only the blanks or the line ending of this line were changed"),
    ],
)
def test_everything_else_is_refused_with_its_line(old, new, line, words):
    violations = judge(old, new, may_tick=["1.2"])
    assert violations
    if line:
        assert violations[0][0] == line, violations
    assert any(part in violations[0][1] for part in words.split("|")), violations


@pytest.mark.parametrize(
    ("after", "legal"),
    [
        ("\n", True),
        ("\n- m", True),
        ("\n- m\n", True),
        ("\n\n- m\n", True),
        ("\r\n- m\r\n", True),
        (" and more", False),
        (" and more\n", False),
        ("- m\n", False),
        (" \n- m\n", False),
    ],
)
def test_notes_that_end_without_a_line_ending_go_on_below(after, legal):
    text = "# P\n- [ ] a\n## Notes\n- n"
    assert (check_transition(text, text + after, may_tick=()) == ()) is legal


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- [ ] two\n", ""),
        ("- [ ] two\n", "- [ ] new\n- [ ] two, better\n"),
        ("- [x] one\n- [ ] two\n", "- [ ] zero\n- [x] one\n"),
        ("Verify: `a`", "Verify: `b`"),
        ("## Phase 1 — A", "## Phase 1 — AA"),
        ("### Notes\n- first\n\n", ""),
        ("- [ ] two\n", "## Phase 1b — half\n- [ ] two\n"),
        ("- [ ] two\n", "- [x] two\n- [ ] more\n"),
    ],
)
def test_an_amendable_phase_may_change_around_its_ticks(old, new):
    assert judge(old, new, may_tick=["1.2"], amendable=["1"]) == []
    assert judge(old, new, may_tick=["1.2"]) != [] or new == "- [x] two\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[x] one", "[ ] one", 7, "item 1.1 `one` is gone or has moved; ticked items stay"),
        ("[x] one", "[x] won", 7, "item 1.1 `one` is gone"),
        ("- [x] one\n", "", 7, "item 1.1 `one` is gone"),
        ("- [ ] two", "- [x] too", 10, "`too` is ticked; only 1.2 may be ticked"),
        ("- [ ] two", "- [ ] two\n- [x] extra", 11, "`extra` is ticked; only 1.2 may be ticked"),
        ("[ ] three", "[x] three", 18, "item 2.1 was ticked"),
        ("[ ] three", "[ ] tree", 18, "stood"),
        ("## Later", "## Sooner", 21, "Sooner"),
        ("- first\n", "- first\n# Part two\nVerify: `true`\n", 19, "gate of phase 2"),
    ],
)
def test_an_amendable_phase_keeps_its_ticks_and_leaves_the_others_alone(old, new, line, words):
    violations = judge(old, new, may_tick=["1.2"], amendable=["1"])
    assert violations
    assert violations[0][0] == line
    assert words in violations[0][1]


def test_a_ticked_item_whose_phase_is_gone_is_missed_at_the_end():
    before = "# Phase 1\n- [ ] a\n# Phase 2\n- [x] b\n- [ ] c\n"
    (violation,) = check_transition(before, "# Phase 1\n- [ ] a\n", may_tick=(), amendable=["2"])
    assert (violation.line, "`b` is gone" in violation.message) == (2, True)


@pytest.mark.parametrize("waits", ["2, 3", "3, 2"])
def test_what_comes_after_a_dropped_phase_comes_after_what_that_waited_for(waits):
    """Phase 5 comes after the one above it: 4, which waited for 2, and for 3, which waited for 1."""
    dropped = ("# Phase 3\nAfter: 1\n\n- [ ] c\n", f"# Phase 4\nAfter: {waits}\n\n- [ ] d\n")
    first = "# Phase 1\n- [ ] a\n# Phase 2\nAfter: none\n\n- [ ] b\n"
    last = "# Phase 5\n- [ ] e\n# Phase 6\nAfter: 9\n\n- [ ] f\n"
    before = f"{first}{''.join(dropped)}{last}"
    assert check_transition(before, f"{first}{last}", may_tick=(), amendable=["3", "4"]) == ()
    other = f"{first}# Phase 7\nAfter: none\n\n- [ ] g\n{last}"
    assert check_transition(before, other.replace("# Phase 7", "# Phase 3"), may_tick=(), amendable=["3"]) != ()


def test_blanks_below_notes_that_go_are_no_note():
    before = "# P\n- [ ] a\n## Notes\n- n\n  "
    assert check_transition(before, before[:-2], may_tick=()) != ()


def test_a_done_phase_is_never_amendable():
    before = "# Phase 1\n- [x] a\n# Phase 2\n- [ ] b\n"
    assert check_transition(before, before.replace("[x] a", "[x] a\n- [ ] c"), may_tick=(), amendable=["1"])


def test_an_open_phase_may_be_dropped_and_its_followers_move_up():
    before = "# Phase 1\n- [x] a\n# Phase 2\n- [ ] b\n# Phase 3\n- [ ] c\n"
    after = before.replace("# Phase 2\n- [ ] b\n", "")
    assert check_transition(before, after, may_tick=(), amendable=["2"]) == ()
    assert check_transition(before, after, may_tick=(), amendable=["3"]) != ()


def test_a_phase_with_ticks_keeps_its_id():
    before = "# A\n- [ ] a\n# B\nAfter: none\n\n- [x] b\n- [ ] c\n"
    after = before.replace("# A\n- [ ] a\n", "# A\n- [ ] a\n# AA\n- [ ] aa\n")
    (violation,) = check_transition(before, after, may_tick=(), amendable=["1"])
    assert "phase 2 became phase 3" in violation.message


def test_an_open_phase_may_get_another_number():
    before = "# A\n- [ ] a\n# B\nAfter: none\n\n- [ ] b\n"
    after = before.replace("# A\n- [ ] a\n", "# A\n- [ ] a\n# AA\n- [ ] aa\n")
    assert check_transition(before, after, may_tick=(), amendable=["1"]) == ()


def test_a_phase_waits_for_no_phase_less_than_before():
    """`After: 1, 2` names both halves of A once it is split, and B no more."""
    before = "# A\n- [ ] a\n# B\n- [ ] b\n# C\nAfter: 1, 2\n\n- [ ] c\n"
    after = before.replace("# A\n- [ ] a\n", "# A one\n- [ ] a\n# A two\n- [ ] aa\n")
    (violation,) = check_transition(before, after, may_tick=(), amendable=["1"])
    assert "what phase 3 comes after was changed" in violation.message


def test_a_swallowed_dependency_is_seen():
    before = "# Phase 1\n- [x] a\n# Phase 2\n- [ ] b\n# Phase 3\nAfter: 2\n\n- [ ] c\n"
    after = before.replace("# Phase 2\n- [ ] b\n", "# Phase 4\n- [ ] b\n")
    (violation,) = check_transition(before, after, may_tick=(), amendable=["2"])
    assert "what phase 3 comes after was changed" in violation.message


def test_ticked_items_of_equal_text_are_matched_every_way():
    before = "# P\n- [ ] same\n- [x] same\n- [ ] same\n"
    after = "# P\n- [x] same\n- [ ] other\n"
    assert check_transition(before, after, may_tick=["1.1", "1.3"], amendable=["1"]) == ()
    twice = "# P\n- [x] same\n- [x] same\n- [x] same\n- [x] same\n"
    assert check_transition(before, twice, may_tick=["1.1", "1.3"], amendable=["1"]) != ()


def test_several_amendable_phases_are_lined_up_between_the_others():
    before = "".join(f"# Phase {n}\n- [ ] item {n}\n" for n in range(1, 7))
    after = before.replace("# Phase 2\n- [ ] item 2\n", "# Phase 2\n- [ ] x\n# Phase 2b\n- [ ] y\n")
    after = after.replace("# Phase 5\n- [ ] item 5\n", "")
    assert check_transition(before, after, may_tick=(), amendable=["2", "5"]) == ()
    assert check_transition(before, after, may_tick=(), amendable=["2", "4"]) != ()
    assert check_transition(before, after.replace("item 3", "item three"), may_tick=(), amendable=["2", "5"]) != ()


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        (
            "- [ ] loose\n\n# P\n- [ ] a\n",
            "- [x] loose\n\n# P\n- [ ] a\n",
            1,
            "a box outside of the phases was changed",
        ),
        (
            "# P\n- [ ] a\n# Exit criteria\n- [ ] b\n",
            "# P\n- [ ] a\n# Exit criteria\n- [x] b\n",
            3,
            "a box outside of the phases was changed",
        ),
        ("# P\n- [x] a\n", "# P\n- [X] a\n", 2, "the box of item 1.1 was changed; a tick stays as it is"),
    ],
)
def test_a_box_is_not_changed_where_nothing_is_ticked(before, after, line, words):
    (violation,) = transitions.check_transition(parse_plan(before), parse_plan(after), may_tick=("1.1",))

    assert violation.line == line
    assert words in violation.message
