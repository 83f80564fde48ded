"""Everything that makes `relay check` complain."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.check import check_order, check_plan, find_obscurity
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
        (f"{GOOD}\n- []\n", 5, "`[]` is no item"),
        ("# P\n\n## Phase 1 — A\nIn: ../up\nVerify: `t`\n- [ ] a — x.py\n", 4, "`In: ../up` names no place"),
        (f"{GOOD}- [ ]b\n", 4, "`[ ]b` is no item"),
        (f"{GOOD}- [ ]\n", 4, "is no item"),
        (f"{GOOD}- [ ] \xa0\n", 4, "is no item"),
        (f"{GOOD}- [  ] b\n", 4, "is no item"),
        (f"{GOOD}- [x ] b\n", 4, "is no item"),
        (f"{GOOD}- [✓] b\n", 4, "is no item"),
        (f"{GOOD}- [x]（Plan#6）\n", 4, "is no item"),  # as people write it
        (f"{GOOD}-[ ] b\n", 4, "`-[ ] b` is no item"),
        (f"{GOOD}\n1.[x] b\n", 5, "is no item"),
        (f"{GOOD}\n• [ ] b\n", 5, "is no item"),
        (f"{GOOD}\n```\n- [ ] b\n", 5, "code fence is not closed"),
        (f"{GOOD}\n<!--\n- [ ] b\n", 5, "comment is not closed"),
        (f"- [ ] x — y.py\n{GOOD}", 1, "above the first heading"),
        (f"{GOOD}- [ ] a — x.py\n", 4, "item 1.2 says the same as item 1.1"),
        ("##\nVerify: `t`\n- [ ] a — x.py\n", 1, "heading is empty"),
        (f"{GOOD}\nAfter: 7\n", 1, "comes after 7, which is no phase; there are 1"),
        (f"{GOOD}\nAfter: 1\n", 1, "wait for each other: 1 → 1"),
        (f"# Phase 1\nVerify: `t`\nAfter: 2\n- [ ] a — x.py\n{GOOD.replace('P', 'Phase 2')}", 1, "1 → 2 → 1"),
        (f"{GOOD}\nVerify: `t`\n---\n", 5, "underlines it"),
        (f"{GOOD}- [ ] b — x.py\rc\n", 4, "lone carriage return"),
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
        (f"{GOOD}\n<details>\n- [ ] b\n</details>\n", 5, "inside this HTML"),
        (f"{GOOD}\nVerify:\n", 5, "names no command"),
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


@pytest.mark.parametrize("text", ["- []", "-[ ] b", "• [ ] b"])
def test_what_looks_like_an_item_is_named_where_no_phase_is_found(text):
    with pytest.raises(PlanError) as caught:
        parse_plan(f"# P\n\n\n{text}\n")
    assert caught.value.line == 4
    assert caught.value.message.startswith("no phase found: ")
    assert "write `- [ ] text` or `- [x] text`, or `- [>] text` to put it off" in caught.value.message


@pytest.mark.parametrize("heading", ["## [ ] B — y.py", "## [x] Done", "## [a](b) c", "## [ ](b) c", "## [1] c"])
def test_brackets_in_a_heading_are_a_box_or_nothing(heading):
    assert found(f"# P\nVerify: `t`\n- [ ] a — x.py\n{heading}\nVerify: `t`\n") == []


def test_what_is_alike_is_said_once_and_of_open_work_only():
    phase = "## Phase {0}\n- [x] {0} a\n- [{1}] {0} b — /etc/x.toml\n- [{1}] {0} c\n"
    text = "".join(phase.format(n, "x" if n < 3 else " ") for n in range(1, 6))
    assert [(line, message.partition(";")[0]) for line, _, message in found(text)] == [
        (9, "phases 3, 4, 5 have no `Verify:` line"),
        (11, "`/etc/x.toml`, `/etc/x.toml`, `/etc/x.toml` lead out of the repository"),
        (11, "items 3.2, 3.3, 4.2, 4.3, 5.2, 5.3 name no file or folder"),
    ]
    assert found(text.replace("[ ]", "[x]")) == []


def test_numbers_of_items_that_are_not_their_ids_are_named():
    text = "# P\nVerify: `t`\n- [ ] 1.1 a — x.py\n- [ ] 1.1 b — x.py\n- [ ] 1.3 c — x.py\n- [x] 1.3 d — x.py\n"
    violation = only(text)
    assert violation.warning
    assert "the one that says 1.1 is item 1/1, 1.1 is item 1.2, 1.3 is item 1/3" in violation.message
    assert (
        "the item that says 1.1 is item 1/1"
        in only(text.replace("- [ ] 1.1 b", "- [x] 1.1 b").replace("3 d", "4 d")).message
    )


def test_signs_of_kiro_are_said_to_be_open_or_optional():
    assert "item 1.1 has neither blank nor `x` in its box" in only("# P\nVerify: `t`\n- [?] a — x.py\n").message
    two = only("# P\nVerify: `t`\n- [-] 1.1 a — x.py\n- [~] 1.2 b — x.py\n")
    assert "items 1.1, 1.2 have neither blank nor `x` in their boxes, and are open" in two.message
    assert "all items of phase 1 are optional" in only("# P\nVerify: `t`\n- [ ]* a — x.py\n").message
    assert found("# P\nVerify: `t`\n- [x] a — x.py\n- [ ]* b\n") == []


FOREIGN = {
    "a plan of Cursor": "---\nname: Keys\ntodos:\n  - id: a\n    status: pending\n---\n# Keys\n\nWe add keys.\n",
    "a prd.json": '{"project": "x", "userStories": [{"id": "US-001", "title": "Add", "passes": false}]}',
    "a task of Backlog.md": "---\nid: task-1\nstatus: To Do\n---\n\n## Acceptance Criteria\n- [ ] #1 it is\n",
    "a plan of Claude Code's plan mode": "# Plan: Keys\n\n## Approach\n1. Add\n\n## Verification\n- pytest\n",
}


def test_a_plan_of_another_tool_without_boxes_is_named_with_the_command_that_makes_a_plan_of_it():
    for words, text in FOREIGN.items():
        with pytest.raises(PlanError, match=f"this looks like {words}") as caught:
            parse_plan(text)
        assert "relay plan --plan NEW.md - < FILE" in str(caught.value.hint), words


def test_the_log_of_an_exec_plan_is_said_to_be_no_list_of_work():
    progress = "## Progress\nVerify: `t`\n- [ ] (10:00Z) Begun — a.py\n"
    text = f"# Keys\n\n## Purpose / Big Picture\nx\n\n{progress}\n## Plan of Work\ny\n"
    assert "this looks like an ExecPlan: its `Progress` is a log of what was done" in only(text).message
    assert found(text + "\n## Phase 2\nVerify: `t`\n- [ ] b — b.py\n") == []


def test_items_for_a_person_are_named_before_a_run():
    violation = only("# P\nVerify: `t`\n- [ ] a — x.py\n- [ ] (manual) look\n")
    assert (violation.line, violation.warning) == (4, True)
    assert violation.message == "item 1.2 is for a person: no session ticks it"
    (*_, passed), (*_, named) = found("# P\nVerify: `t`\n- [ ] (manual) look\n")
    assert "item 1.1 is for a person" in named
    assert "all items of phase 1 are optional (`[ ]*`), put off or for a person" in passed


@pytest.mark.parametrize("sign", list("->"))
def test_a_box_that_is_put_off_is_passed_over_and_said(sign):
    """`[-]` before a number is Kiro's sign for begun, and stays work."""
    text = f"# P\nVerify: `t`\n- [{sign}] a — x.py\n- [ ] b — x.py\n"
    violation = only(text)
    assert (violation.line, violation.warning) == (3, True)
    assert violation.message.startswith("item 1.1 is put off (`[>]`, `[-]`), so relay passes over it; write `[ ]`")
    assert [item.id for item in parse_plan(text).phases[0].open_items] == ["1.2"]
    assert parse_plan(text).tick(["1.2"]).done
    assert parse_plan(text).tick(["1.1"]).text == text.replace(f"[{sign}]", "[x]")
    said = [message for _, _, message in found(text.replace("- [ ] b", f"- [{sign}] b"))]
    assert any("items 1.1, 1.2 are put off" in message for message in said)
    assert any("all items of phase 1 are optional (`[ ]*`), put off or" in message for message in said)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Verify: `next_work()`", "is a call"),
        ("Verify: `store.next_work(1)`", "is a call"),
        ("Verify: `data.json`", "`data.json` is a file"),
        ("Verify: `✅ Milestone archived`", "no command begins like that"),
        ("Verify: тесты проходят", "no command begins like that"),  # prose
        ("## Validation Commands\nrun it", "nothing in this section is read"),
        ("## Validation Commands\n- [ ] `pytest` — x.py", "the boxes here make this section a phase"),
    ],
)
def test_what_is_no_command_is_named(line, words):
    text = GOOD.replace("Verify: `t`", f"Verify: `t`\n\n{line}") if line.startswith("V") else f"{GOOD}{line}\n"
    assert words in only(text).message


@pytest.mark.parametrize(
    "command",
    [
        "make all",
        "npm test",
        "test -s data.json",
        "./check.py",
        "scripts/check.sh",
        "go test ./...",
        "cargo test --all",
        "not-a-word",
    ],
)
def test_commands_are_taken_for_commands(command):
    assert found(GOOD.replace("`t`", command)) == []
    assert found(GOOD.replace("`t`", f"`{command}`")) == []


def test_statements_of_finished_phases_are_not_judged():
    done = "# Phase 1\nVerify: `data.json`\nAfter: the schema\n- [x] a\n### Validation Commands\ntext\n"
    assert found(f"{done}{GOOD.replace('# P', '# Phase 2')}") == []


def test_a_number_that_restarts_under_another_heading_is_a_warning():
    text = "".join(
        f"## {name}\n### Task 1\nVerify: `t`\n- [ ] a — x.py\n### Task 2\nVerify: `t`\n- [ ] a — x.py\n"
        for name in "AB"
    )
    violation = only(text)
    assert (violation.line, violation.warning) == (9, True)
    assert (
        "these headings say 1, but relay counts it as phase 3, 2, but relay counts it as phase 4" in violation.message
    )


def test_a_number_used_twice_is_an_error():
    first, second = (GOOD.replace("# P", "# Phase 1 — A"), GOOD.replace("# P", "# Phase 1 — B"))
    violation = only(first + second)
    assert (violation.line, violation.warning) == (4, False)
    assert "phase number 1 is taken by line 1" in violation.message


def test_the_same_text_under_different_parents_is_fine():
    text = "# P\nVerify: `t`\n- [ ] a — x.py\n  - [ ] test — y.py\n- [ ] b — x.py\n  - [ ] test — y.py\n"
    assert found(text) == []


def test_links_references_alerts_and_choices_are_no_near_boxes():
    assert found(f"{GOOD}\n- [x](y)\n- [1]: z\n- [ ](u)\n\n> [!NOTE]\n> text\n\n- [^1] foot\n") == []
    assert found(f"{GOOD}\n[ ] Yes / [ ] No\n") == []
    assert found(f"{GOOD}\n- ( ) Yes\n- (x) No\n- [/](u)\n") == []


@pytest.mark.parametrize(
    "typed",
    ["* [] b", "-[ ] b", "- [  ] b", "- [ x] b", "- [ ]b", "1.[ ] b", "• [ ] b", "– [ ] b", "— [x] b", "- [/] b"]
    + [f"- [{sign}] b" for sign in ("!", "<", "*", "_", "✅", "☑️", ".", "+", "=", "⏳", "\\", *"voTPD1")],
)
@pytest.mark.parametrize("before", ["", "\n"])
def test_a_mistyped_box_is_named_with_its_line_and_what_is_allowed(typed, before):
    ((line, _, message),) = [one for one in found(f"{GOOD}{before}{typed}\n") if not one[1]]
    assert line == 4 + len(before)
    assert message.endswith("` is no item; write `- [ ] text` or `- [x] text`, or `- [>] text` to put it off")


@pytest.mark.parametrize("sign", list("voTPD1"))
def test_a_letter_or_digit_in_brackets_is_a_warning_where_no_box_is(sign):
    """There it marks a source in a list of sources; beside boxes it is a box of a kind that relay does not know."""
    ((line, warning, message),) = found(f"{GOOD}## Sources\n- [{sign}] b\n")
    assert (line, warning) == (5, True)
    assert message.startswith(f"`[{sign}] b` is no item; ")
    assert message.endswith(" if it is work")


def test_violations_are_in_line_order():
    lines = [line for line, _, _ in found("# A\n- [ ] a\n- []\n# B\n- [ ] b\n- []\n")]
    assert lines == sorted(lines)


def test_a_long_circle_of_phases_is_found_without_recursion():
    phases = "".join(f"# Phase {n}\nVerify: `t`\nAfter: {n % 1200 + 1}\n- [ ] a — x.py\n" for n in range(1, 1201))
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


def test_a_command_with_an_arabic_letter_mark_is_an_error():
    """It turns what stands behind it around and has no width."""
    assert "U+061C" in find_obscurity("rm \u061c/ -rf")


def test_a_command_too_long_to_be_reviewed_is_an_error():
    assert find_obscurity("x" * 4_001) == "has 4,001 characters; 4,000 are allowed, put the rest into a script"
    assert find_obscurity("x" * 4_000) == ""


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 6), max_size=3)), min_size=1, max_size=5))
def test_where_no_phase_can_begin_the_order_says_why(phases):
    """A run stops with that line: there is one whenever nothing is next and not all is done."""
    plan = parse_plan(
        "".join(
            f"## {number}. P\nAfter: {', '.join(map(str, after)) or 'none'}\n- [{'x' if done else ' '}] a — a.py\n\n"
            for number, (done, after) in enumerate(phases, start=1)
        )
    )
    event(f"{plan.next_phase() is None and not plan.done}")
    if plan.next_phase() is None and not plan.done:
        assert [found.line for found in check_order(plan)]
