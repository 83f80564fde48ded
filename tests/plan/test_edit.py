"""Edits change what was asked for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan import edit
from relay.plan.operations import check_change
from relay.plan.outline import MAX_CHARS
from relay.plan.parse import parse_plan

PLAN = """# Plan

## Phase 1 — A
Verify: `t`
- [x] one
- [ ] two
  - [ ] two and a half
    more

## Phase 2 — B
- [ ] three
"""

BLOCKS = (
    "text\n## not a heading\n- [ ] not an item",
    "```",
    "~~~ x",
    "<!-- swallow the rest",
    "<div>",
    "> quote",
    "1. [ ] x",
    "---",
    "***",
    "===",
    "* * *",
    "[a]: /b",
    "Verify: `rm -rf /`",
    "After: 9",
    "\ttabs\x00 and \u202ebidi",
    "-",
    "+",
    "1)",
)
"""What Markdown, or relay, would take for more than text."""
PLANS = (
    PLAN,
    "# Plan\nGoal.\n\n## Part\nVerify: `t`\n\n### Phase 1\n- [ ] one\n",
    "Goal.\r\n\r\n## Phase 1\r\n- [ ] one\r\n",
    "## Phase 1\n- [ ] one",
    "# Plan\n\n## Assumptions\n\n- known\n## Phase 1\n- [ ] one\n",
    "---\nverify: [t]\n---\n# Plan\n~~~\nx\n~~~\n# Phase 1\n- [ ] one\n",
)


def tick_items(text, item_ids):
    return parse_plan(text).tick(item_ids).text


def append_note(text, phase_id, note):
    return edit.append_note(parse_plan(text), phase_id, note).text


def append_items(text, phase_id, lines):
    return edit.append_items(parse_plan(text), phase_id, lines).text


def replace_phase(text, phase_id, markdown):
    return edit.replace_phase(parse_plan(text), phase_id, markdown).text


def test_a_tick_changes_one_character():
    assert tick_items(PLAN, ["1.2"]) == PLAN.replace("[ ] two\n", "[x] two\n")


def test_several_items_are_ticked_at_once_and_twice_is_once():
    ticked = tick_items(PLAN, ["2.1", "1.3", "2.1"])
    assert [item.id for phase in parse_plan(ticked).phases for item in phase.open_items] == ["1.2"]
    assert tick_items(ticked, ["2.1"]) == ticked


@pytest.mark.parametrize("box", ["x", "X"])
def test_a_box_that_is_ticked_stays_as_it_is(box):
    text = PLAN.replace("[x]", f"[{box}]")
    assert tick_items(text, ["1.1"]) == text


@pytest.mark.parametrize("item", ["1.4", "3.1", "", "1", "1.1.1"])
def test_a_tick_of_an_unknown_item_is_not_passed_over(item):
    """A claim must not get lost; taking back a tick that is not there has nothing to lose."""
    with pytest.raises(LookupError):
        tick_items(PLAN, ["2.1", item])
    assert parse_plan(PLAN).untick([item]).text == PLAN


def test_a_tick_is_taken_back_whatever_its_sign():
    text = PLAN.replace("[x] one", "[X] one")
    assert parse_plan(text).untick(["1.1", "1.2"]).text == PLAN.replace("[x] one", "[ ] one")


def test_a_note_makes_the_notes_and_the_next_one_joins_them():
    once = append_note(PLAN, "1", "chose B-trees")
    assert once == PLAN.replace("    more\n", "    more\n### Notes\n- chose B-trees\n")
    twice = append_note(once, "1", "and not hashes")
    assert twice == once.replace("B-trees\n", "B-trees\n- and not hashes\n")


def test_a_note_goes_to_the_phase_it_is_for():
    noted = append_note(append_note(PLAN, "2", "b"), "1", "a")
    assert noted == PLAN.replace("    more\n", "    more\n### Notes\n- a\n") + "### Notes\n- b\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_note_keeps_the_line_ending_of_the_file(end):
    noted = append_note(PLAN.replace("\n", end), "2", "b")
    assert noted == PLAN.replace("\n", end) + f"### Notes{end}- b{end}"


def test_a_last_line_without_an_ending_gets_one():
    assert append_note("# P\n- [ ] a", "1", "n") == "# P\n- [ ] a\n## Notes\n- n\n"
    assert append_note("# P\n- [ ] a\n## Notes\n- m", "1", "n") == "# P\n- [ ] a\n## Notes\n- m\n- n\n"
    assert append_items("# P\n- [ ] a", "1", ["b"]) == "# P\n- [ ] a\n- [ ] b\n"


@pytest.mark.parametrize("note", BLOCKS)
def test_a_note_is_one_line_of_text_whatever_it_says(note):
    noted = append_note(PLAN, "1", note)
    before, after = parse_plan(PLAN), parse_plan(noted)
    assert [(p.id, p.title, p.verify, p.after) for p in after.phases] == [
        (p.id, p.title, p.verify, p.after) for p in before.phases
    ]
    assert [item.text for phase in after.phases for item in phase.items] == [
        item.text for phase in before.phases for item in phase.items
    ]
    assert noted.count("\n") == PLAN.count("\n") + 2
    assert check_change(parse_plan(PLAN), parse_plan(noted), may_tick=()) == ()


@given(texts=st.lists(st.text() | st.sampled_from(BLOCKS), max_size=3), plan=st.sampled_from(PLANS))
def test_entries_above_the_phases_leave_them_as_they_are(texts, plan):
    before = parse_plan(plan)
    try:
        after = edit.append_entries(before, "Assumptions", texts)
    except PlanError:
        assert not before.title  # what stands above the phases holds for all of them
        return
    assert (after.title, after.settings) == (before.title, before.settings)
    assert [(plan[p.start : p.end], p.verify, p.after) for p in before.phases] == [
        (after.text[p.start : p.end], p.verify, p.after) for p in after.phases
    ]


def test_a_plan_without_a_title_gets_none_and_keeps_its_settings():
    plan = parse_plan("---\nverify: [t]\n---\n# Phase 1\n- [ ] one\n")
    noted = edit.append_entries(plan, "Assumptions", ["x"])
    assert noted.text == "---\nverify: [t]\n---\n\n**Assumptions**\n\n- x\n# Phase 1\n- [ ] one\n"
    assert edit.append_entries(plan, "Assumptions", []) is plan


def test_entries_do_not_take_the_heading_below_them_for_their_own():
    underlined = edit.append_entries(parse_plan("# P\nOne\n===\n- [ ] one\n"), "Assumptions", ["x"])
    assert underlined.text == "# P\n\n## Assumptions\n\n- x\n\nOne\n===\n- [ ] one\n"
    with pytest.raises(PlanError, match="does not end there"):
        edit.append_entries(parse_plan("# P\n\n   One\n   ===\n- [ ] one\n"), "Assumptions", ["x"])


def test_entries_stand_below_their_heading_and_above_what_the_phases_belong_to():
    assert edit.append_entries(parse_plan(PLANS[1]), "Assumptions", ["x", " ", "# y"]).text == (
        "# Plan\nGoal.\n\n## Assumptions\n\n- x\n- \\# y\n\n## Part\nVerify: `t`\n\n### Phase 1\n- [ ] one\n"
    )


@pytest.mark.parametrize("note", ["", " \n\t", "\u2028"])
def test_an_empty_note_is_refused(note):
    with pytest.raises(PlanError, match="empty note"):
        append_note(PLAN, "1", note)


def test_a_note_stays_apart_from_an_underlined_heading_below():
    text = "One\n---\n- [ ] a\n### Notes\n- m\n\nTwo\n---\n- [ ] b\n"
    assert append_note(text, "1", "n") == text.replace("- m\n", "- m\n- n\n")
    tight = "One\n---\n- [ ] a\n### More\nTwo\n---\n- [ ] b\n"
    noted = append_note(tight, "1", "n")
    assert [phase.title for phase in parse_plan(noted).phases] == ["One", "Two"]


def test_what_is_there_is_not_written_again():
    once = append_note(append_items(PLAN, "2", ["four"]), "2", "* n")
    assert append_note(once, "2", "* n") == append_items(once, "2", ["- [ ] four", "three"]) == once
    with pytest.raises(PlanError, match="would not be read as one"):
        append_note(f"{once}\n```\ncode\n", "2", "m")


def test_a_note_does_not_take_in_an_indented_heading_below():
    text = "  # One\n  - [ ] a\n\n  # Two\n  - [ ] b\n"
    noted = append_note(append_note(text, "1", "n"), "1", "m")
    assert noted == text.replace("- [ ] a\n", "- [ ] a\n## Notes\n-   n\n-   m\n")


def test_a_note_below_html_is_separated_from_it():
    noted = append_note("# P\n- [ ] a\n\n<div>\nx\n</div>\n", "1", "n")
    assert noted.endswith("</div>\n\n## Notes\n- n\n")


@pytest.mark.parametrize("tail", ["```\ncode\n", "<!-- open\n"])
def test_a_note_that_would_be_swallowed_is_refused(tail):
    with pytest.raises(PlanError, match="would not be read as one"):
        append_note(f"# P\n- [ ] a\n\n{tail}", "1", "n")


def test_notes_of_a_quoted_phase_and_of_the_sixth_level_are_read():
    for text in ("> # P\n> - [ ] a\n", "###### P\n- [ ] a\n"):
        noted = append_note(append_note(text, "1", "n"), "1", "m")
        assert len(parse_plan(noted).phases) == 1
        assert noted.endswith("- n\n- m\n")


@pytest.mark.parametrize(
    ("items", "added"),
    [
        ("- [ ] a\n", "- [ ] new\n"),
        ("* [x] a\n* [ ] b\n", "* [ ] new\n"),
        ("3) [ ] a\n", "4) [ ] new\n"),
        ("999999999. [ ] a\n", "999999999. [ ] new\n"),
        ("  -\t[ ] a\n", "  -\t[ ] new\n"),
        ("> 1. [ ] a\n", "> 2. [ ] new\n"),
        ("- [ ] a\n  - [ ] b\n\n    more\n", "- [ ] new\n"),
        ("- group\n  - [ ] a\n", "  - [ ] new\n"),
    ],
)
@pytest.mark.parametrize("rest", ["", "\n", "\n\ntext\n", "## Notes\n- n\n", "# Q\n- [ ] z\n"])
def test_items_are_appended_in_the_style_of_the_last(items, added, rest):
    text = f"# P\n{items}{rest}"
    assert append_items(text, "1", ["new"]) == f"# P\n{items}{added}{rest}"


def test_items_may_come_with_a_box_and_on_several_lines():
    longer = append_items(PLAN, "2", ["- [ ] a — x.py", "2. [ ] b\n  goes on", "[ ] c", "# d", "- e"])
    texts = [item.text for item in parse_plan(longer).phases[1].items]
    assert texts == ["three", "a — x.py", "b goes on", "c", "# d", "- e"]


def test_numbers_go_on_counting():
    assert append_items("# P\n1. [ ] a\n", "1", ["b", "c"]) == "# P\n1. [ ] a\n2. [ ] b\n3. [ ] c\n"


@pytest.mark.parametrize(
    ("phase", "lines", "words"),
    [
        ("1", ["- [x] done"], "is ticked"),
        ("1", ["- [ ]"], "empty item"),
        ("1", [""], "empty item"),
        ("9", ["a"], "no phase 9; there are 1, 2"),
    ],
)
def test_items_that_cannot_be_added_are_refused(phase, lines, words):
    with pytest.raises(PlanError, match=words):
        append_items(PLAN, phase, lines)


def test_a_phase_that_is_done_gets_no_items_and_is_not_replaced():
    done = tick_items(PLAN, ["2.1"])
    with pytest.raises(PlanError, match="phase 2 is done"):
        append_items(done, "2", ["x"])
    with pytest.raises(PlanError, match="phase 2 is done"):
        replace_phase(done, "2", "## Phase 2\n- [ ] x\n")


def test_no_items_change_nothing():
    assert append_items(PLAN, "2", []) == PLAN


def test_an_open_phase_is_split_and_its_ticks_and_notes_stay():
    text = append_note(PLAN, "1", "kept")
    split = replace_phase(
        text, "1", "## Phase 1a — A\nVerify: `t`\n- [x] one\n\n## Phase 1b — AA\nVerify: `t`\n- [ ] two, smaller\n"
    )
    plan = parse_plan(split)
    assert [(phase.id, phase.after) for phase in plan.phases] == [("1a", ()), ("1b", ("1a",)), ("2", ("1b",))]
    assert "### Notes\n- kept\n\n## Phase 2 — B\n- [ ] three\n" in split
    assert split.startswith("# Plan\n\n## Phase 1a — A\n")


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("## Phase 1\n- [ ] two\n", "`one` is gone"),
        ("## Phase 1\n- [ ] one\n- [x] one more\n", "`one` is gone or has moved; ticked items stay, in their order"),
        ("## Phase 1\n- [x] one\n- [x] two\n", "`two` is ticked, and not in phase 1"),
        ("no heading\n", "no phase found"),
        ("intro\n\n## Phase 1\n- [x] one\n", "must begin with a heading"),
        ("## Phase 1\n- [x] one\n```\n", "end what it begins: fences and HTML"),
        ("## Phase 1\n- [x] one\n# Part\nVerify: `true`\n", "would change phase 2, or its gate"),
    ],
)
def test_a_replacement_that_would_break_a_promise_is_refused(markdown, words):
    with pytest.raises(PlanError, match=words):
        replace_phase(PLAN, "1", markdown)


def test_a_phase_that_others_name_keeps_its_number():
    text = f"{PLAN}After: 1\n".replace("- [ ] three\nAfter: 1", "After: 1\n\n- [ ] three")
    with pytest.raises(PlanError, match="what phase 2 comes after"):
        replace_phase(text, "1", "## Phase 1a\n- [x] one\n## Phase 1b\n- [ ] two\n")
    assert replace_phase(text, "1", "## Phase 0\n- [x] one\n## Phase 1\n- [ ] two\n")


TWO = "# A\n- [ ] a\n# AA\n- [ ] aa\n"
BESIDE = [  # a plan, the text in place of its phase 1, and the refusal
    ("# A\n- [ ] a\n# B\nAfter: none\n\n- [x] b\n- [ ] c\n", TWO, "phase 2 would be phase 3"),
    ("# A\n- [ ] a\n# B\nAfter: none\n\n- [ ] b\n", TWO, ""),
    ("# A\n- [ ] a\n# B\n- [ ] b\n# C\nAfter: 1, 2\n\n- [ ] c\n", TWO, "what phase 3 comes after would change"),
    ("# Phase 1\n- [ ] b\n# Phase 3\nAfter: 1\n\n- [ ] c\n", "# Phase 4\n- [ ] b\n", "what phase 3 comes after"),
    ("# A\n- [ ] a\n# B\n- [ ] b\n", TWO, ""),
    ("# A\n- [ ] a\n# B\n- [ ] b\n", "# A\n- [ ] a\n<!--\n", "end what it begins"),
    ("# A\n- [ ] a\n\n# Later\ntext\n", "# A\n- [ ] a\n```\n", "end what it begins"),
    ("# A\n- [x] same\n- [x] same\n- [ ] a\n", "# A\n- [x] same\n- [ ] a\n", "`same` is gone or has moved"),
]


def test_the_phases_beside_a_replacement_keep_their_order_and_what_is_ticked_its_id():
    wrong = []
    for text, markdown, words in BESIDE:
        try:
            told = ""
            edit.replace_phase(parse_plan(text), "1", markdown)
        except PlanError as error:
            told = error.message
        if (words not in told) if words else told:
            wrong.append((text, markdown, told))
    assert not wrong


def test_a_replacement_takes_the_line_ending_of_the_file():
    text = PLAN.replace("\n", "\r\n")
    replaced = replace_phase(text, "2", "## Phase 2\n- [ ] x\r\n- [ ] y")
    assert replaced.endswith("## Phase 2\r\n- [ ] x\r\n- [ ] y\r\n")
    assert replaced.count("\n") == replaced.count("\r\n")


def test_a_note_that_would_make_the_plan_too_long_to_be_read_is_refused():
    plan = parse_plan("## Phase 1\n- [ ] a\n\n" + "x" * (MAX_CHARS - 22))

    with pytest.raises(PlanError, match="a note at the end of phase 1 would not be read as one"):
        edit.append_note(plan, "1", "more")


SAID = st.text(min_size=1).map(lambda text: f"a{text}b")


@given(SAID, SAID)
def test_a_question_is_found_again_whatever_it_says(question, assumed):
    plan = parse_plan(PLAN)
    noted = edit.append_note(
        edit.append_note(plan, "1", "question: of whom?"), "1", edit.render_question(question, assumed)
    )
    [found] = edit.list_questions(noted)
    [said] = [note for note in edit.list_notes(noted, "1") if "(assumed: " in note]
    assert found.text == f"phase 1: {said.removeprefix('question: ')}"
    assert edit.list_questions(edit.append_note(plan, "2", "why? (assumed: so)")) == edit.list_questions(plan) == ()
