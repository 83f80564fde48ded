"""Edits change what was asked for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan import edit
from relay.plan.model import is_reformatted
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
    "text\n## not a heading\n- [ ] not an item", "```", "~~~ x", "<!-- swallow the rest", "<div>", "> quote",
    "1. [ ] x", "---", "***", "===", "* * *", "[a]: /b", "Verify: `rm -rf /`", "After: 9", "\ttabs\x00 and \u202ebidi",
    "-", "+", "1)",
)  # fmt: skip
"""What Markdown, or relay, would take for more than text."""
PLANS = (
    PLAN,
    "# Plan\nGoal.\n\n## Part\nVerify: `t`\n\n### Phase 1\n- [ ] one\n",
    "Goal.\r\n\r\n## Phase 1\r\n- [ ] one\r\n",
    "## Phase 1\n- [ ] one",
    "# Plan\n\n## Assumptions\n\n- known\n## Phase 1\n- [ ] one\n",
    "---\nverify: [t]\n---\n# Plan\n~~~\nx\n~~~\n# Phase 1\n- [ ] one\n",
)


def append_note(text, phase_id, note):
    return edit.append_note(parse_plan(text), phase_id, note).text


def append_items(text, phase_id, lines):
    return edit.append_items(parse_plan(text), phase_id, lines).text


def replace_phase(text, phase_id, markdown):
    return edit.replace_phase(parse_plan(text), phase_id, markdown).text


def list_refused(change, rows):
    """Return the rows (arguments, then words of the refusal) that are done, or refused with other words."""
    wrong = []
    for *given_, words in rows:
        try:
            wrong.append((given_, change(*given_)))
        except PlanError as error:
            wrong += [] if words in error.message else [(given_, error.message)]
    return wrong


def test_a_tick_of_an_unknown_item_is_not_passed_over_and_one_that_is_not_there_cannot_be_taken_back():
    """A claim must not get lost."""
    plan = parse_plan(PLAN.replace("[x]", "[X]"))
    for item in ("1.4", "3.1", "", "1", "1.1.1"):
        with pytest.raises(LookupError):
            plan.tick(["2.1", item])
        assert plan.untick([item]) is plan
    assert plan.untick(["1.1", "1.2"]).text == PLAN.replace("[x]", "[ ]")


NOTED = [
    (PLAN, "1", PLAN.replace("    more\n", "    more\n### Notes\n- n\n- m\n")),
    ("# P\r\n- [ ] a\r\n", "1", "# P\r\n- [ ] a\r\n## Notes\r\n- n\r\n- m\r\n"),
    ("# P\r- [ ] a", "1", "# P\r- [ ] a\r## Notes\r- n\r- m\r"),
    ("# P\n- [ ] a\n## Notes\n- n", "1", "# P\n- [ ] a\n## Notes\n- n\n- m\n"),
    ("# P\n- [ ] a\n\n<div>\nx\n</div>\n", "1", "# P\n- [ ] a\n\n<div>\nx\n</div>\n\n## Notes\n- n\n- m\n"),
    ("> # P\n> - [ ] a\n", "1", "> # P\n> - [ ] a\n## Notes\n- n\n- m\n"),
    ("###### P\n- [ ] a\n", "1", "###### P\n- [ ] a\n###### Notes\n- n\n- m\n"),
    # An underlined and an indented heading below stay headings.
    ("One\n---\n- [ ] a\n\nTwo\n---\n- [ ] b\n", "1", "One\n---\n- [ ] a\n### Notes\n- n\n- m\n\nTwo\n---\n- [ ] b\n"),
    ("  # One\n  - [ ] a\n\n  # Two\n  - [ ] b\n", "1",
     "  # One\n  - [ ] a\n## Notes\n-   n\n-   m\n\n  # Two\n  - [ ] b\n"),
]  # fmt: skip


def test_notes_stand_at_the_end_of_their_phase_with_its_line_ends():
    wrong = []
    for text, phase_id, expected in NOTED:
        noted = append_note(append_note(append_note(text, phase_id, "n"), phase_id, "m"), phase_id, "n")
        wrong += [(text, noted)] if noted != expected else []
    assert wrong == []


@pytest.mark.parametrize("note", BLOCKS)
def test_a_note_is_one_line_of_text_whatever_it_says(note):
    noted = append_note(PLAN, "1", note)
    before, after = parse_plan(PLAN), parse_plan(noted)
    assert [(p.id, p.title, p.verify, p.after, [i.text for i in p.items]) for p in after.phases] == [
        (p.id, p.title, p.verify, p.after, [i.text for i in p.items]) for p in before.phases
    ]
    assert noted.count("\n") == PLAN.count("\n") + 2
    assert check_change(before, after, may_tick=()) == ()


def test_a_note_that_is_none_or_would_be_swallowed_is_refused():
    full = "## Phase 1\n- [ ] a\n\n" + "x" * (MAX_CHARS - 22)
    rows = [
        *((PLAN, "1", note, "empty note") for note in ("", " \n\t", "\u2028")),
        ("# P\n- [ ] a\n\n```\ncode\n", "1", "n", "would not be read as one"),
        ("# P\n- [ ] a\n\n<!-- open\n", "1", "n", "would not be read as one"),
        (full, "1", "more", "would not be read as one"),
    ]
    assert list_refused(append_note, rows) == []


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


def test_entries_stand_below_their_heading_and_above_what_the_phases_belong_to():
    texts = {
        PLANS[1]: "# Plan\nGoal.\n\n## Assumptions\n\n- x\n- \\# y\n\n## Part\nVerify: `t`\n\n### Phase 1\n- [ ] one\n",
        "# P\nOne\n===\n- [ ] one\n": "# P\n\n## Assumptions\n\n- x\n- \\# y\n\nOne\n===\n- [ ] one\n",
        "---\nverify: [t]\n---\n# Phase 1\n- [ ] one\n":
            "---\nverify: [t]\n---\n\n**Assumptions**\n\n- x\n- \\# y\n# Phase 1\n- [ ] one\n",
    }  # fmt: skip
    found = {text: edit.append_entries(parse_plan(text), "Assumptions", ["x", " ", "# y"]).text for text in texts}
    assert found == texts
    with pytest.raises(PlanError, match="does not end there"):
        edit.append_entries(parse_plan("# P\n\n   One\n   ===\n- [ ] one\n"), "Assumptions", ["x"])


ADDED = {
    "- [ ] a\n": "- [ ] new\n",
    "* [x] a\n* [ ] b\n": "* [ ] new\n",
    "3) [ ] a\n": "4) [ ] new\n",
    "  -\t[ ] a\n": "  -\t[ ] new\n",
    "> 1. [ ] a\n": "> 2. [ ] new\n",
    "- [ ] a\n  - [ ] b\n\n    more\n": "- [ ] new\n",
    "- group\n  - [ ] a\n": "  - [ ] new\n",
}


@pytest.mark.parametrize("rest", ["", "\n", "\n\ntext\n", "## Notes\n- n\n", "# Q\n- [ ] z\n"])
def test_items_are_appended_in_the_style_of_the_last(rest):
    longer = {items: append_items(f"# P\n{items}{rest}", "1", ["new"]) for items in ADDED}
    assert longer == {items: f"# P\n{items}{added}{rest}" for items, added in ADDED.items()}


def test_items_may_come_with_a_box_and_on_several_lines_and_are_not_written_again():
    longer = append_items(PLAN, "2", ["- [ ] a — x.py", "2. [ ] b\n  goes on", "[ ] c", "# d", "- e"])
    texts = [item.text for item in parse_plan(longer).phases[1].items]
    assert texts == ["three", "a — x.py", "b goes on", "c", "# d", "- e"]
    assert append_items(longer, "2", ["- [ ] c", "three"]) == longer
    assert append_items("# P\n1. [ ] a\n", "1", ["b", "c"]) == "# P\n1. [ ] a\n2. [ ] b\n3. [ ] c\n"


def test_items_that_cannot_be_added_are_refused():
    rows = [
        (PLAN, "1", ["- [x] done"], "is ticked"),
        (PLAN, "1", ["- [ ]"], "empty item"),
        (PLAN, "1", [""], "empty item"),
        (PLAN, "9", ["a"], "no phase 9; there are 1, 2"),
        (PLAN.replace("[ ] three", "[x] three"), "2", ["x"], "phase 2 is done"),
    ]
    assert list_refused(append_items, rows) == []


def test_an_open_phase_is_split_and_its_ticks_its_notes_and_the_files_line_ends_stay():
    text = append_note(PLAN, "1", "kept").replace("\n", "\r\n")
    new = "## Phase 1a — A\nVerify: `t`\n- [x] one\r\n\r\n## Phase 1b — AA\nVerify: `t`\n- [ ] two, smaller\n"
    split = replace_phase(text, "1", new)
    plan = parse_plan(split)
    assert [(phase.id, phase.after) for phase in plan.phases] == [("1a", ()), ("1b", ("1a",)), ("2", ("1b",))]
    assert "### Notes\r\n- kept\r\n\r\n## Phase 2 — B\r\n- [ ] three\r\n" in split
    assert split.startswith("# Plan\r\n\r\n## Phase 1a — A\r\n")
    assert split.count("\n") == split.count("\r\n")


NAMED = PLAN.replace("B\n", "B\nAfter: 1\n\n")
TWO = "# A\n- [ ] a\n# AA\n- [ ] aa\n"
BROKEN = [  # a plan, the text in place of its phase 1, and the refusal
    (PLAN, "## Phase 1\n- [ ] two\n", "`one` is gone"),
    (PLAN, "## Phase 1\n- [ ] one\n- [x] one more\n", "`one` is gone or has moved; ticked items stay, in their order"),
    (PLAN, "## Phase 1\n- [x] one\n- [x] two\n", "`two` is ticked, and not in phase 1"),
    (PLAN, "no heading\n", "no phase found"),
    (PLAN, "intro\n\n## Phase 1\n- [x] one\n", "must begin with a heading"),
    (PLAN, "## Phase 1\n- [x] one\n```\n", "end what it begins: fences and HTML"),
    (PLAN, "## Phase 1\n- [x] one\n# Part\nVerify: `true`\n", "would change phase 2, or its gate"),
    (PLAN.replace("[ ]", "[x]"), "## Phase 1\n- [x] one\n", "phase 1 is done"),
    (NAMED, "## Phase 1a\n- [x] one\n## Phase 1b\n- [ ] two\n", "what phase 2 comes after"),
    ("# A\n- [ ] a\n# B\nAfter: none\n\n- [x] b\n- [ ] c\n", TWO, "phase 2 would be phase 3"),
    ("# A\n- [ ] a\n# B\n- [ ] b\n# C\nAfter: 1, 2\n\n- [ ] c\n", TWO, "what phase 3 comes after would change"),
    ("# Phase 1\n- [ ] b\n# Phase 3\nAfter: 1\n\n- [ ] c\n", "# Phase 4\n- [ ] b\n", "what phase 3 comes after"),
    ("# A\n- [ ] a\n# B\n- [ ] b\n", "# A\n- [ ] a\n<!--\n", "end what it begins"),
    ("# A\n- [ ] a\n\n# Later\ntext\n", "# A\n- [ ] a\n```\n", "end what it begins"),
    ("# A\n- [x] same\n- [x] same\n- [ ] a\n", "# A\n- [x] same\n- [ ] a\n", "`same` is gone or has moved"),
]


def test_a_replacement_that_would_break_a_promise_is_refused():
    assert list_refused(lambda text, markdown: replace_phase(text, "1", markdown), BROKEN) == []
    for text, markdown in (
        (NAMED, "## Phase 0\n- [x] one\n## Phase 1\n- [ ] two\n"),
        ("# A\n- [ ] a\n# B\nAfter: none\n\n- [ ] b\n", TWO),
        ("# A\n- [ ] a\n# B\n- [ ] b\n", TWO),
    ):
        assert markdown.strip() in replace_phase(text, "1", markdown)


ANSWERED = "# P\n\n### Phase 1 — One\nVerify: `make a` and `` echo `x` ``\n- [x] a\n\n### Phase 3 — Three\n- [ ] c\n"


def append_phase(text, title="Answer", said=("look *here*",)):
    return edit.append_phase(parse_plan(text), title, said=said, items=["Settle 11"])


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_a_new_phase_stands_behind_the_others_with_their_commands_and_a_free_number(ending):
    text = ANSWERED.rstrip("\n") + ending
    longer = append_phase(text)
    new = longer.phases[-1]
    assert longer.text.startswith(text)
    assert (new.id, new.title, [item.text for item in new.items]) == ("4", "Answer", ["Settle 11"])
    assert (new.own_verify, longer.done_ids) == (("make a", "echo `x`"), {"1.1"})
    there = append_phase(text.replace("Verify", "In: packages/api\nVerify")).phases[-1]
    wanted = ("cd packages/api && make a", "cd packages/api && echo `x`")
    assert (there.own_verify, there.find_wish("in")) == (wanted, ("", 0))
    assert append_phase("# P\n\n## Phase 1 — One\n- [ ] a\n").phases[-1].own_verify == ()


def test_a_new_phase_that_would_be_read_otherwise_is_refused():
    words = "would not be read as one"
    rows = [
        (f"{ANSWERED}\n```\n- [ ] x\n", "Answer", words),
        (f"{ANSWERED}<!--\n", "A", words),
        (ANSWERED, "A ", words),
    ]
    assert list_refused(append_phase, rows) == []


@given(st.lists(st.text(max_size=80), max_size=3))
def test_words_of_others_are_quoted_in_a_new_phase_and_say_nothing_to_relay(said):
    longer = append_phase(ANSWERED, said=said)
    assert [item.text for item in longer.phases[-1].items] == ["Settle 11"]
    assert [phase.id for phase in longer.phases] == ["1", "3", "4"]


SAID = st.text(min_size=1).map(lambda text: f"a{text}b")


@given(SAID, SAID)
def test_a_question_is_found_again_whatever_it_says(question, assumed):
    plan = parse_plan(PLAN)
    noted = edit.append_note(
        edit.append_note(plan, "1", "question: of whom?"), "1", edit.render_question(question, assumed)
    )
    [found] = edit.list_questions(noted)
    [said] = [note for note in edit.list_notes(noted)["1"] if "(assumed: " in note]
    assert found.text == f"phase 1: {said.removeprefix('question: ')}"
    assert edit.list_questions(edit.append_note(plan, "2", "why? (assumed: so)")) == edit.list_questions(plan) == ()


FORMED = """\
---
relay: {max_sessions: 3}
---
# Keys

Some *prose*.

## Phase 1 — Schema
Verify: `pytest -q`, `ruff check .`
* [ ] Add the `api_keys` table — db/schema.py
* [x] Migrate — db/migrations/

## Phase 2 — Routes
After: 1
Model: a-model
Tools: web-docs
**Files:**
- `src/a-b.py`

* [ ] Serve — app/web.py

## Phase 3 — Pages
After: 1
* [ ] Say so — docs/keys.md
"""
FORM = {"* [": "- [", "*prose*": "_prose_", "\n": "\r\n", "# Keys\n": "# Keys  \n\n\n", "`\n* [": "`\n\n* ["}
MEANING = {
    "prose": "pose", "Migrate": "migrate", "`pytest -q`": "`pytest  -q`", "`ruff check .`": "`ruff check ..`",
    "[ ] Add": "[x] Add", "[x] Migrate": "[ ] Migrate", "db/schema.py": "db/schema..py", "src/a-b.py": "src/a_b.py",
    "a-model": "a_model", "After: 1": "After: _1_", "web-docs": "web_docs", "[ ] Serve": "[ ]* Serve",
    "* [x] Migrate": "  * [x] Migrate", "max_sessions: 3": 'max_sessions: "3"', "## Phase 2": "### Phase 2",
}  # fmt: skip


def test_a_formatter_may_change_the_form_of_a_plan_and_nothing_that_it_asks_for():
    """As a commit hook does, which must not be able to change a command by its quotes or blanks."""
    plan = parse_plan(FORMED)
    taken = [
        old for old, new in {**FORM, **MEANING}.items() if is_reformatted(plan, parse_plan(FORMED.replace(old, new)))
    ]
    assert taken == [*FORM]
    assert all(old in FORMED for old in MEANING)
