"""Everything that makes `relay check` complain."""

import pytest

from relay.plan.check import check_plan, find_obscurity
from relay.plan.model import Violation
from relay.plan.parse import parse_plan

GOOD = "# P\nVerify: `t`\n- [ ] a — x.py\n"


def found(text: str) -> list[tuple[int, bool, str]]:
    return [(v.line, v.warning, v.message) for v in check_plan(parse_plan(text))]


def only(text: str) -> Violation:
    (violation,) = check_plan(parse_plan(text))
    return violation


def test_a_plan_that_is_right_has_nothing():
    assert found(GOOD) == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"{GOOD}\n- []\n", 5, "`[]` is not a box"),
        (f"{GOOD}- [ ]b\n", 4, "`[ ]b` is not a box"),
        (f"{GOOD}- [ ]\n", 4, "is not a box"),
        (f"{GOOD}- [ ] \xa0\n", 4, "is not a box"),
        (f"{GOOD}- [ ]\xa0b\n", 4, "is not a box"),
        (f"{GOOD}- \u200a[ ] b\n", 4, "is not a box"),
        (f"{GOOD}- [  ] b\n", 4, "is not a box"),
        (f"{GOOD}- [x ] b\n", 4, "is not a box"),
        (f"{GOOD}- [✓] b\n", 4, "is not a box"),
        (f"{GOOD}-[ ] b\n", 4, "is not a list item"),
        (f"{GOOD}\n1.[x] b\n", 5, "is not a list item"),
        (f"{GOOD}\n• [ ] b\n", 5, "is not a list item"),
        (f"{GOOD}\n```\n- [ ] b\n", 5, "code fence is not closed"),
        (f"{GOOD}\n<!--\n- [ ] b\n", 5, "comment is not closed"),
        (f"- [ ] x — y.py\n{GOOD}", 1, "above the first heading"),
        (f"{GOOD}- [ ] a — x.py\n", 4, "item 1.2 says the same as item 1.1"),
        ("##\nVerify: `t`\n- [ ] a — x.py\n", 1, "heading is empty"),
        (f"{GOOD}\nAfter: 7\n", 1, "comes after 7, which is no phase; there are 1"),
        (f"{GOOD}\nAfter: 1\n", 1, "wait for each other: 1 → 1"),
        (f"# Phase 1\nVerify: `t`\nAfter: 2\n- [ ] a — x.py\n{GOOD.replace('P', 'Phase 2')}", 1, "1 → 2 → 1"),
        (f"{GOOD}\nVerify: `t`\n---\n", 5, "underlines it"),
    ],
)
def test_what_would_lose_work_is_an_error(text, line, words):
    violations = check_plan(parse_plan(text))
    errors = [violation for violation in violations if not violation.warning]
    assert [(error.line, words in error.message) for error in errors] == [(line, True)]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# P\n- [ ] a — x.py\n", 1, "has no `Verify:` line"),
        ("# P\nVerify: `t`\n- [ ] a\n", 3, "item 1.1 names no file"),
        (f"{GOOD}\n[ ] b\n", 5, "has no bullet"),
        (f"{GOOD}\n<details>\n- [ ] b\n</details>\n", 5, "inside this HTML"),
        (f"{GOOD}\nVerify:\n", 5, "names no command"),
        (f"{GOOD}\nVerify: Open the page and look\n", 5, "relay will run `Open the page and look`"),
        (f"{GOOD}\nAfter: the schema\n", 5, "read as prose"),
        (f"{GOOD}- [ ] b — x.py, `../y.py`\n", 4, "leads out of the repository"),
        (
            "# P\n- [ ] a — x.py\n## Notes\n- [ ] b — y.py\n".replace("# P\n", "# P\nVerify: `t`\n"),
            4,
            "phase of its own",
        ),
        (f"# Phase 2\n{GOOD[4:]}# Rest\n{GOOD[4:]}", 1, "says 2, but relay counts it as phase 1"),
    ],
)
def test_what_weakens_a_plan_is_a_warning(text, line, words):
    violation = only(text)
    assert (violation.line, violation.warning) == (line, True)
    assert words in violation.message


def test_a_number_used_twice_is_an_error():
    first, second = (GOOD.replace("# P", "# Phase 1 — A"), GOOD.replace("# P", "# Phase 1 — B"))
    violation = only(first + second)
    assert (violation.line, violation.warning) == (4, False)
    assert "phase number 1 is taken by line 1" in violation.message


def test_the_same_text_under_different_parents_is_fine():
    text = "# P\nVerify: `t`\n- [ ] a — x.py\n  - [ ] test — y.py\n- [ ] b — x.py\n  - [ ] test — y.py\n"
    assert found(text) == []


def test_links_references_and_alerts_are_no_near_boxes():
    assert found(f"{GOOD}\n- [x](y)\n- [a] b\n- [1]: z\n- [ ](u)\n\n> [!NOTE]\n> text\n\n- [^1] foot\n") == []


def test_violations_are_in_line_order():
    lines = [line for line, _, _ in found("# A\n- [ ] a\n- []\n# B\n- [ ] b\n- []\n")]
    assert lines == sorted(lines)


def test_a_long_circle_of_phases_is_found_without_recursion():
    phases = "".join(f"# Phase {n}\nVerify: `t`\nAfter: {n % 3000 + 1}\n- [ ] a — x.py\n" for n in range(1, 3001))
    errors = [message for _, warning, message in found(phases) if not warning]
    assert len(errors) == 1
    assert errors[0].startswith("phases wait for each other: 1 → 2 → 3")


def test_a_command_of_all_phases_that_a_screen_hides_is_said_once():
    text = "# P\nVerify: `t\u202e`\n\n" + "".join(f"## Phase {n}\n- [ ] a{n} — x.py\n\n" for n in range(1, 41))
    errors = [violation for violation in check_plan(parse_plan(text)) if not violation.warning]
    assert [(error.line, "U+202E" in error.message) for error in errors] == [(4, True)]


def test_a_phase_that_waits_for_two_is_in_no_circle():
    waits = {1: "", 2: "After: 1\n", 3: "After: 1, 2\n"}
    text = "".join(f"## Phase {n}\n{after}Verify: `make`\n- [ ] x{n} — a.py\n" for n, after in waits.items())

    assert not any("wait for each other" in words for _, _, words in found(text))
    circle = text.replace("After: 1\n", "After: 3\n")
    assert any("wait for each other" in words for _, _, words in found(circle))


def test_a_command_too_long_to_be_reviewed_is_an_error():
    assert find_obscurity("x" * 4_001) == "has 4,001 characters; 4,000 are allowed, put the rest into a script"
    assert find_obscurity("x" * 4_000) == ""
