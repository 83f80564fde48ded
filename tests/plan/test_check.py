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


def list_wrong(rows: list[tuple[str, int, str]], *, warning: bool) -> list[object]:
    """Return the rows (text, line, words) that have another error, or another warning alone."""
    wrong: list[object] = []
    for text, line, words in rows:
        said = [one for one in found(text) if warning or not one[1]]
        if [(at, is_warning, words in message) for at, is_warning, message in said] != [(line, warning, True)]:
            wrong.append((text, said))
    return wrong


FINE = (
    GOOD,
    # Brackets in a heading are a box or nothing.
    *(f"{GOOD}## {h}\nVerify: `t`\n" for h in ("[ ] B — y.py", "[x] Done", "[a](b) c", "[ ](b) c", "[1] c")),
    # Links, references, alerts and choices are no near boxes.
    f"{GOOD}\n- [x](y)\n- [1]: z\n- [ ](u)\n\n> [!NOTE]\n> text\n\n- [^1] foot\n",
    f"{GOOD}\n[ ] Yes / [ ] No\n\n- ( ) Yes\n- (x) No\n- [/](u)\n",
    # The same text under different parents.
    "# P\nVerify: `t`\n- [ ] a — x.py\n  - [ ] test — y.py\n- [ ] b — x.py\n  - [ ] test — y.py\n",
    # A finished phase.
    "# Phase 1\nVerify: `data.json`\nAfter: the schema\n- [x] a\n### Validation Commands\ntext\n# Phase 2\n" + GOOD[4:],
    "# P\nVerify: `t`\n- [x] a — x.py\n- [ ]* b\n",
    *(
        GOOD.replace("`t`", command)
        for command in (
            "make all", "`npm test`", "test -s data.json", "`./check.py`", "scripts/check.sh", "go test ./...",
            "not-a-word",
        )
    ),
)  # fmt: skip
ERRORS = [
    ("# P\n\n## Phase 1 — A\nIn: ../up\nVerify: `t`\n- [ ] a — x.py\n", 4, "`In: ../up` names no place"),
    (f"{GOOD}- [ ]\n", 4, "is no item"),
    (f"{GOOD}- [ ] \xa0\n", 4, "is no item"),
    (f"{GOOD}- [x]（Plan#6）\n", 4, "is no item"),  # as people write it
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
    (f"# Phase 1 — A\n{GOOD[4:]}# Phase 1 — B\n{GOOD[4:]}", 4, "phase number 1 is taken by line 1"),
    ("# P\nVerify: `t\u202e`\n\n" + "".join(f"## Phase {n}\n- [ ] a{n} — x.py\n\n" for n in range(1, 9)), 4, "U+202E"),
]  # fmt: skip
WARNINGS = [
    ("# P\n- [ ] a — x.py\n", 1, "has no `Verify:` line"),
    ("# P\nVerify: `t`\n- [ ] a\n", 3, "item 1.1 names no file"),
    (f"{GOOD}\n<details>\n- [ ] b\n</details>\n", 5, "inside this HTML"),
    (f"{GOOD}\nVerify:\n", 5, "names no command"),
    (f"{GOOD}\nAfter: the schema\n", 5, "read as prose"),
    (f"{GOOD}- [ ] b — x.py, `../y.py`\n", 4, "leads out of the repository"),
    ("# P\nVerify: `t`\n- [ ] a — x.py\n## Notes\n- [ ] b — y.py\n", 4, "phase of its own"),
    (f"# Phase 2\n{GOOD[4:]}# Rest\n{GOOD[4:]}", 1, "says 2, but relay counts it as phase 1"),
    ("".join(f"## {n}\n### Task 1\n{GOOD[4:]}### Task 2\n{GOOD[4:]}" for n in "AB"), 9,
     "these headings say 1, but relay counts it as phase 3, 2, but relay counts it as phase 4"),
    ("# P\nVerify: `t`\n- [?] a — x.py\n", 3, "item 1.1 has neither blank nor `x` in its box"),
    ("# P\nVerify: `t`\n- [-] 1.1 a — x.py\n- [~] 1.2 b — x.py\n", 3,
     "items 1.1, 1.2 have neither blank nor `x` in their boxes, and are open"),
    ("# P\nVerify: `t`\n- [ ]* a — x.py\n", 1, "all items of phase 1 are optional"),
    ("# P\nVerify: `t`\n- [ ] a — x.py\n- [ ] (manual) look\n", 4, "item 1.2 is for a person: no session ticks it"),
    (f"{GOOD}## Validation Commands\nrun it\n", 4, "nothing in this section is read"),
    (f"{GOOD}## Validation Commands\n- [ ] `pytest` — x.py\n", 4, "the boxes here make this section a phase"),
]  # fmt: skip


def test_a_plan_that_is_right_has_nothing():
    assert [(text, found(text)) for text in FINE if found(text)] == []


def test_what_would_lose_work_is_an_error():
    assert list_wrong(ERRORS, warning=False) == []


def test_what_weakens_a_plan_is_a_warning():
    assert list_wrong(WARNINGS, warning=True) == []


@pytest.mark.parametrize("text", ["- []", "-[ ] b", "• [ ] b", "- [!] b"])
def test_what_looks_like_an_item_is_named_where_no_phase_is_found(text):
    with pytest.raises(PlanError, match=r"no phase found: .* write `- \[ \] text` or `- \[x\] text`, or") as caught:
        parse_plan(f"# P\n\n## Phase 1 — a\n{text}\n")
    assert caught.value.line == 4


def test_what_may_be_a_source_is_named_where_nothing_else_says_why_there_is_no_phase():
    with pytest.raises(PlanError, match=r"no phase found: `\[a\] b` is no item; .* if it is work") as caught:
        parse_plan("# P\n\n- [a] b\n")
    assert caught.value.line == 3


def test_what_is_alike_is_said_once_of_open_work_only_and_in_line_order():
    phase = "## Phase {0}\n- [x] {0} a\n- [{1}] {0} b — /etc/x.toml\n- [{1}] {0} c\n"
    text = "".join(phase.format(n, "x" if n < 3 else " ") for n in range(1, 6))
    assert [(line, message.partition(";")[0]) for line, _, message in found(text)] == [
        (9, "phases 3, 4, 5 have no `Verify:` line"),
        (11, "`/etc/x.toml`, `/etc/x.toml`, `/etc/x.toml` lead out of the repository"),
        (11, "items 3.2, 3.3, 4.2, 4.3, 5.2, 5.3 name no file or folder"),
    ]
    assert found(text.replace("[ ]", "[x]")) == []


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
    progress = "## Progress\nVerify: `t`\n- [ ] (10:00Z) Begun — a.py\n"
    text = f"# Keys\n\n## Purpose / Big Picture\nx\n\n{progress}\n## Plan of Work\ny\n"
    assert "this looks like an ExecPlan: its `Progress` is a log of what was done" in only(text).message
    assert found(text + "\n## Phase 2\nVerify: `t`\n- [ ] b — b.py\n") == []


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


MISTYPED = [
    *("- []", "-[ ] b", "- [  ] b", "- [ x] b", "- [x ] b", "- [ ]b", "1.[ ] b", "• [ ] b", "– [ ] b", "— [x] b",
      "- [/] b"),
    *(f"- [{sign}] b" for sign in ("!", "<", "*", "_", "✅", "☑️", "✓", ".", "+", "=", "⏳", "\\", *"voTPD1")),
]  # fmt: skip


def test_a_mistyped_box_is_named_with_its_line_and_what_is_allowed():
    """A letter or digit marks a source in a list of sources: where no box is beside it, it is a warning."""
    words = "` is no item; write `- [ ] text` or `- [x] text`, or `- [>] text` to put it off"
    rows = [(f"{GOOD}{before}{typed}\n", 4 + len(before), words) for typed in MISTYPED for before in ("", "\n")]
    assert list_wrong(rows, warning=False) == []
    rows = [(f"{GOOD}## Sources\n- [{sign}] b\n", 5, f"`[{sign}] b{words} if it is work") for sign in "voTPD1"]
    assert list_wrong(rows, warning=True) == []


def test_a_command_that_nobody_can_review_is_an_error():
    """An Arabic letter mark turns what stands behind it around and has no width."""
    assert "U+061C" in find_obscurity("rm \u061c/ -rf")
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
