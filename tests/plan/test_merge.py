"""A plan that two sides have changed: what both did is in it, and nothing that the other side could not have had."""

from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.edit import append_items, append_note, list_notes, replace_phase
from relay.plan.lineage import PlanMerge, merge_plans, strip_rewrites
from relay.plan.parse import parse_plan
from relay.plan.transitions import check_transition

TEXT = """\
# Greetings

Be brief.

## Phase 1 — One
Verify: `true`
- [ ] a — a.txt

## Phase 2 — Two
After: none
- [ ] b — b.txt
- [ ] b too — b.txt

## Phase 3 — Three
After: none
- [ ] c — c.txt
"""
BASE = parse_plan(TEXT)


def change(plan, old, new):
    assert old in plan.text
    return parse_plan(plan.text.replace(old, new))


def test_ticks_and_notes_of_both_are_there():
    tip = append_note(BASE.tick(["1.1"]), "1", "one is odd")
    own = append_note(BASE.tick(["2.1", "2.2"]), "2", "two is even")
    merge = merge_plans(BASE, tip, own)
    assert merge.left == ()
    assert merge.plan.done_ids == {"1.1", "2.1", "2.2"}
    assert (list_notes(merge.plan, "1"), list_notes(merge.plan, "2")) == (("one is odd",), ("two is even",))
    assert merge.plan.text == merge_plans(BASE, own, tip).plan.text


def test_notes_on_the_same_phase_are_both_kept_once():
    common = append_note(BASE, "3", "known")
    tip, own = append_note(common, "3", "theirs"), append_note(append_note(common, "3", "known"), "3", "ours")
    assert list_notes(merge_plans(common, tip, own).plan, "3") == ("known", "theirs", "known", "ours")


def test_a_phase_that_got_items_and_one_that_was_rewritten_go_together():
    """Each side amended another phase; the items that were put in are ticked too."""
    tip = replace_phase(BASE, "3", "## Phase 3 — Three, otherwise\nAfter: none\n- [ ] d — d.txt\n")
    tip = append_note(tip, "2", "look at d.txt")
    own = append_items(BASE, "2", ["and more — more.txt"])
    own = own.tick([item.id for item in own.phases[1].items])
    merge = merge_plans(BASE, tip, own)
    assert merge.left == ()
    assert merge.plan.phases[1].done
    assert [item.text for item in merge.plan.phases[2].items] == ["d — d.txt"]
    assert list_notes(merge.plan, "2") == ("look at d.txt",)


def test_where_both_rewrote_a_phase_the_others_stays_and_is_told():
    tip = replace_phase(BASE, "3", "## Phase 3 — Theirs\nAfter: none\n- [ ] d — d.txt\n")
    own = replace_phase(BASE.tick(["2.1"]), "3", "## Phase 3 — Ours\nAfter: none\n- [ ] e — e.txt\n")
    merge = merge_plans(BASE, tip, own)
    assert merge.plan.text == tip.tick(["2.1"]).text
    assert merge.left == ("what was changed of phase 3 was left out, since others have changed the plan there too",)


def test_what_is_done_by_now_is_not_rewritten():
    tip = BASE.tick(["3.1"])
    own = replace_phase(BASE.tick(["2.1"]), "3", "## Phase 3 — Ours\nAfter: none\n- [ ] e — e.txt\n")
    merge = merge_plans(BASE, tip, own)
    assert merge.plan.text == tip.tick(["2.1"]).text
    assert "phase 3" in merge.left[0]


def test_new_phases_of_both_stand_one_behind_the_other():
    """The last line of one side's file has no ending."""
    tip = parse_plan(f"{TEXT}\n## Theirs\nAfter: none\n- [ ] t")
    own = parse_plan(f"{TEXT}\n## Ours\nAfter: none\n- [ ] o\n").tick(["2.1"])
    merge = merge_plans(BASE, tip, own)
    assert merge.left == ()
    assert [phase.title for phase in merge.plan.phases] == ["One", "Two", "Three", "Ours", "Theirs"]
    ours = merge_plans(BASE, own, tip)
    assert [phase.title for phase in ours.plan.phases] == ["One", "Two", "Three", "Theirs", "Ours"]


def test_phases_that_would_change_the_others_names_are_left():
    """Both called their new phase 4."""
    tip = parse_plan(f"{TEXT}\n## Phase 4 — Theirs\nAfter: none\n- [ ] t\n").tick(["4.1"])
    own = parse_plan(f"{TEXT}\n## Phase 4 — Ours\nAfter: none\n- [ ] o\n").tick(["2.1"])
    merge = merge_plans(BASE, tip, own)
    assert merge.plan.text == tip.tick(["2.1"]).text
    assert "phase 4" in merge.left[0]


def test_what_was_done_in_a_phase_that_is_gone_is_told():
    tip = change(BASE, "## Phase 2 — Two\nAfter: none\n- [ ] b — b.txt\n- [ ] b too — b.txt\n\n", "")
    merge = merge_plans(BASE, tip, append_note(BASE.tick(["2.1"]), "2", "ours"))
    assert merge.plan.text == tip.text
    assert [words.partition(",")[0] for words in merge.left] == [
        "a note on phase 2 was left out",
        "the tick of item 2.1 was left out",
    ]


def test_a_note_that_would_be_code_is_told():
    tip = change(BASE, "- [ ] c — c.txt\n", "- [ ] c — c.txt\n\n```\nnothing ends it\n")
    merge = merge_plans(BASE, tip, append_note(BASE, "3", "ours"))
    assert merge.plan.text == tip.text
    assert "close the code fence or HTML that it ends with" in merge.left[0]


def test_a_tick_that_was_taken_back_stays_so():
    common = BASE.tick(["1.1"])
    assert merge_plans(common, BASE, common.tick(["2.1"])).plan.text == BASE.tick(["2.1"]).text


def test_the_text_around_belongs_to_whoever_changed_it():
    tip = change(BASE, "Be brief.", "Be long.")
    own = change(BASE, "Be brief.", "Be short.").tick(["1.1"])
    merge = merge_plans(BASE, tip, own)
    assert merge.plan.text == tip.tick(["1.1"]).text
    assert "the text around" in merge.left[0]


def test_what_cannot_be_read_together_is_left():
    """All phases are gone when the one has dropped the first two and the other the third."""
    first, rest = TEXT.split("## Phase 1", maxsplit=1)[0], TEXT.split("## Phase 3")
    tip = parse_plan(f"{first}## Phase 3{rest[1]}")
    merge = merge_plans(BASE, tip, parse_plan(rest[0]))
    assert merge.plan.text == tip.text
    assert "phase 3 was left out" in merge.left[0]


def test_a_phase_that_would_wait_for_ever_is_left():
    """It comes after one that the other side has dropped."""
    tip = change(BASE, "\n## Phase 3 — Three\nAfter: none\n- [ ] c — c.txt\n", "")
    own = change(BASE, "- [ ] b too — b.txt\n", "- [ ] b too — b.txt\n\n## Phase 2b\nAfter: 3\n- [ ] x\n").tick(["2.1"])
    merge = merge_plans(BASE, tip, own)
    assert merge.plan.text == tip.tick(["2.1"]).text
    assert "was left out" in merge.left[0]


def test_of_what_somebody_else_rewrote_only_what_sessions_do_is_taken():
    own = append_items(append_note(BASE.tick(["1.1"]), "2", "ours"), "3", ["more"])
    assert strip_rewrites(BASE, own) == PlanMerge(plan=own)
    evil = parse_plan(
        own.text.replace("Be brief.", "Obey.")
        .replace("- [ ] b —", "- [ ] other —")
        .replace("After: none", "After: 1", 1)
    )
    stripped = strip_rewrites(BASE, evil)
    assert stripped.plan.text == append_items(own, "2", ["other — b.txt"]).text
    assert stripped.left == ("of the plan as it was changed elsewhere only added items, notes and ticks are taken",)
    odd = parse_plan(own.text.replace("- [ ] more", "- [ ] more\n- [ ] [x] even more"))
    assert strip_rewrites(BASE, odd).left


EDITS = st.sampled_from(["tick", "note", "items", "rewrite", "add"])


@st.composite
def edited(draw, name):
    """The plan as one side's sessions may leave it: always a legal change."""
    plan = BASE
    for number, edit in enumerate(draw(st.lists(EDITS, max_size=4))):
        phase = draw(st.sampled_from(plan.phases))
        words = f"{name} {number}"
        try:
            match edit:
                case "tick":
                    plan = plan.tick([item.id for item in phase.items])
                case "note":
                    plan = append_note(plan, phase.id, words)
                case "items":
                    plan = append_items(plan, phase.id, [words])
                case "rewrite":
                    plan = replace_phase(plan, phase.id, f"## {words}\nAfter: none\n- [ ] do {words}\n")
                case _:
                    plan = parse_plan(f"{plan.text}\n## {words}\nAfter: none\n- [ ] do {words}\n")
        except PlanError:
            continue  # a phase that is done stays as it is
    return plan


@given(edited("theirs"), edited("ours"))
def test_a_merge_is_a_legal_change_that_loses_nothing_of_the_others(tip, own):
    merge = merge_plans(BASE, tip, own)
    merged = merge.plan
    still_open = [phase.id for phase in tip.phases if not phase.done]
    opened = merged.untick(merged.done_ids - tip.done_ids)
    assert not check_transition(tip, opened, may_tick=(), amendable=still_open)
    assert not check_transition(opened, merged, may_tick=merged.done_ids)
    assert tip.done_ids <= merged.done_ids
    if not merge.left:
        notes = {note for plan in (tip, own) for phase in plan.phases for note in list_notes(plan, phase.id)}
        there = {note for phase in merged.phases for note in list_notes(merged, phase.id)}
        assert {note for note in notes if note.startswith(("ours", "theirs"))} == there
        done = {item.text for plan in (tip, own) for item in plan.items if item.done}
        assert done == {item.text for item in merged.items if item.done}


@given(edited("ours"))
def test_a_side_that_did_nothing_changes_nothing(own):
    assert merge_plans(BASE, own, BASE).plan.text == own.text
    merge = merge_plans(BASE, BASE, own)
    assert (merge.plan.text.split(), merge.left) == (own.text.split(), ())
