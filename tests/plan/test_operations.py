"""What relay does to a plan, done again on what others made of it: their words stay, and its work is there or told."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.edit import append_items, append_note, list_notes
from relay.plan.lineage import check_ticks_kept
from relay.plan.model import Item, Phase, Plan
from relay.plan.operations import Replayed, check_change, describe_reworded, read_operations, replay
from relay.plan.parse import find_plan_in, parse_plan

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
EXAMPLES = settings().max_examples


def change(plan: Plan, *pairs: tuple[str, str]) -> Plan:
    text = plan.text
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_plan(text)


def merge(tip: Plan, own: Plan, base: Plan = BASE) -> Replayed:
    return replay(read_operations(base, own), own, tip)


def test_a_person_s_words_stay_and_work_that_has_no_place_is_told_with_its_text():
    own = append_items(append_note(BASE.tick(["2.1", "3.1"]), "2", "ours"), "2", ["new"])
    gone = TEXT[TEXT.index("## Phase 2") : TEXT.index("## Phase 3")]
    merged = merge(change(BASE, (gone, ""), ("Be brief.", "Be long.")), own)
    assert merged.plan.text == change(BASE, (gone, ""), ("Be brief.", "Be long."), ("[ ] c", "[x] c")).text
    assert merged.left == (
        "items for phase 2 left out, since the phase is gone: new",
        "a note for phase 2 left out, since the phase is gone: ours",
        "the tick of item 2.1 left out, since it is gone: b — b.txt",
    )
    done = merge(BASE.tick(["2.1", "2.2"]), append_items(BASE, "2", ["new"]))
    assert done.left == (
        "items for phase 2 left out, since phase 2 is done; only open phases change, write a new one: new",
    )
    own = append_items(BASE, "2", ["new"])
    assert merge(own.tick(["2.1", "2.2", "2.3"]), own).left == ()  # they are there
    code = change(BASE, ("- [ ] c — c.txt\n", "- [ ] c — c.txt\n\n```\nnothing ends it\n"))
    (told,) = merge(code, append_note(BASE, "3", "ours")).left
    assert "close the code fence or HTML that it ends with: ours" in told


def test_items_that_a_session_adds_are_no_rewritten_phase():
    """However many, and where its heading is only a number."""
    plan = parse_plan("## Phase 1\n- [ ] a\n\n## Phase 2\n- [ ] c\n- [ ] c\n")
    assert check_change(plan, append_items(plan, "1", ["b", "c"]), may_tick=()) == ()
    assert append_items(plan, "1", ["- [ ] - [ ] b"]).items[1].text == "b"  # or it would not be read as added


def test_a_tick_that_was_taken_back_stays_so():
    common = BASE.tick(["1.1"])
    assert merge(BASE, common.tick(["2.1"]), common).plan.text == BASE.tick(["2.1"]).text


REWORDED = {
    "words more": ("- [ ] b — b.txt", "- [ ] do b, and well — b.txt", True),
    "words fewer": ("- [ ] b too — b.txt", "- [ ] too — b.txt", True),
    "no path any more": ("- [ ] b too — b.txt", "- [ ] b, too", True),
    "beside a new one": ("- [ ] b — b.txt\n", "- [ ] x\n- [ ] b, done well — b.txt\n- [ ] y\n", True),
    "in a renamed phase": ("Two\nAfter: none\n- [ ] b — b.txt", "2\nAfter: none\n- [ ] the b — b.txt", True),
    "with other line ends": ("- [ ] b — b.txt\n", "- [ ] b, well — b.txt\r\n", True),
    "gone": ("- [ ] b — b.txt\n", "", False),
    "another in its place": ("- [ ] b — b.txt", "- [ ] z — b.txt", False),
    "for another file": ("- [ ] b — b.txt", "- [ ] b, well — z.txt", False),
    "two could be it": ("- [ ] b — b.txt\n", "- [ ] b one — b.txt\n- [ ] b two — b.txt\n", False),
    "moved and reworded": ("b — b.txt\n- [ ] b too — b.txt\n", "b too — b.txt\n- [ ] b, well — b.txt\n", False),
}  # fmt: skip


def test_a_tick_goes_to_the_item_that_a_person_reworded_and_to_no_other():
    """The one in its place that says more or less of the same; where that is in doubt it is told and stays open."""
    own, wrong = BASE.tick(["2.1", "2.2"]), []
    for name, (old, new, is_found) in REWORDED.items():
        merged = merge(change(BASE, (old, new)), own)
        said = describe_reworded(own, merged.plan, merged.reworded)
        counts = (len(merged.plan.done_ids), len(merged.reworded), len(said), len(merged.left))
        if counts != ((2, 1, 1, 0) if is_found else (1, 0, 0, 1)):
            wrong.append((name, counts, merged.left, merged.plan.text))
    assert not wrong
    assert describe_reworded(own, merge(change(BASE, REWORDED["words more"][:2]), own).plan, ["2.1"]) == (
        "item 2.1 was done as `b — b.txt`, and was reworded meanwhile: `do b, and well — b.txt`",
    )


def test_many_items_written_anew_in_one_place_are_compared_with_nothing():
    before = parse_plan("# P\n- [ ] a\n" + "".join(f"- [ ] do {n}\n" for n in range(21)))
    anew = parse_plan(before.text.replace("do ", "really do "))
    assert merge(anew, before.tick(["1.9"]), before).left == ("the tick of item 1.9 left out, since it is gone: do 7",)


def test_what_only_a_person_does_is_no_operation():
    """Of a plan from elsewhere its other changes are not taken: gates, settings, goals, new phases."""
    own = append_items(append_note(BASE.tick(["1.1"]), "2", "ours"), "3", ["more"])
    evil = change(
        own, ("Be brief.", "Obey."), ("After: none", "After: 1"), ("## Phase 3", "## Evil\n- [x] e\n\n## Phase 3")
    )
    evil = change(evil, ("Verify: `true`", "Verify: `:`"))
    merged = merge(BASE, evil)
    assert merged.plan.text == own.text
    assert merged.left == ("the tick of item 3.1 left out, since it is gone: e",)
    assert check_change(BASE, evil, may_tick=evil.done_ids)
    assert check_change(BASE, own, may_tick=own.done_ids) == ()


SESSIONS = """---
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


REFUSED = [
    ("[x] one", "[ ] one", 9),
    ("[ ] three", "[x] three", 18),
    ("[ ] two", "[-] two", 10),
    ("[ ] two", "[ ] too", 10),
    ("- [ ] two\n", "", 10),
    ("- [ ] two\n", "- [ ] two\n- [x] new\n", 11),
    ("Verify: `a`", "Verify: `true`", 8),
    ("verify: [t]", "verify: [t], max_cost_usd: 9", 2),
    ("Goal.", "Goal!", 5),
    ("- first\n", "- zeroth\n- first\n", 12),
    ("- first\n", "- first\n\n- second\nand more\n", 13),
    ("### Notes\n- first\n\n", "", 11),
    ("### Risks", "### Notes", 13),
    ("- first\n", "- first\n## Phase 3\n- [ ] x\n", 13),
    ("text\n", "text\n\n", 23),
    ("two\n", "two\r\n", 10),
]


def test_everything_else_is_refused_with_its_line():
    before, wrong = parse_plan(SESSIONS), []
    for old, new, line in REFUSED:
        found = check_change(before, change(before, (old, new)), may_tick=["1.2"])
        if [one.line for one in found] != [line] or not re.search(
            r"was ticked; only 1\.2|found .* where .* belongs", found[0].message
        ):
            wrong.append((old, new, found))
    assert not wrong
    (said,) = check_change(before, before.tick(["1.2"]), may_tick=())
    assert said.message == "item 1.2 was ticked; nothing may be ticked"


def edit(kind: str, plan: Plan, item: Item, other: Phase, words: str) -> str:
    """Return the text after an edit at an item, or at two phases."""
    text, phase = plan.text, next(one for one in plan.phases if item in one.items)
    begin, stop = text.rindex("\n", 0, item.mark) + 1, text.index("\n", item.mark) + 1
    line, block, rest = text[begin:stop], text[phase.start : phase.end], text[:begin] + text[stop:]
    new = f"\n## {words}\nAfter: none\n"
    swapped = f"{text[: phase.start]}{text[other.start : other.end]}\n{text[phase.end : other.start]}{block}\n"
    return {
        "reword": text.replace(f"] {item.text}", f"] {words}, {item.text}", 1),
        "shorten": text.replace(f"] {item.text}", f"] {item.text.split()[-1]}", 1),
        "drop": rest,
        "insert": f"{text[:begin]}- [ ] {words}\n{text[begin:]}",
        "move": rest.replace(f"{other.heading}\n", f"{other.heading}\n\n{line}", 1),
        "tick": f"{text[: item.mark]}x{text[item.mark + 1 :]}",
        "untick": f"{text[: item.mark]} {text[item.mark + 1 :]}",
        "phase above": f"{text[: phase.start]}{new}- [ ] {words}\n\n{text[phase.start :]}",
        "phase below": f"{text[: phase.end]}{new}- [ ] {words}\n\n{text[phase.end :]}",
        "rename": text.replace(phase.heading, words, 1),
        "drop phase": text.replace(block, "", 1),
        "swap phases": f"{swapped}{text[other.end :]}" if phase.end <= other.start else text,
        "split": f"{text[:begin]}{new}{text[begin:]}",
        "join": re.sub(rf"(?m)^#+ {re.escape(phase.heading)}\r?\n", "", text),
        "line ends": re.sub(r"\r?\n", "\r\n", text),
        "goal": text.replace("Be brief.", words),
        "gate": text.replace("Verify: `true`", f"Verify: `{words}`"),
    }[kind]


EDITS = st.sampled_from([
    "reword", "shorten", "drop", "insert", "move", "untick", "tick",
    "phase above", "phase below", "rename", "drop phase", "swap phases", "split", "join", "line ends", "goal", "gate",
])  # fmt: skip


@st.composite
def edited(draw, plan: Plan, name: str) -> Plan:
    """What a person may make of a plan, boxes too."""
    for number, kind in enumerate(draw(st.lists(EDITS, max_size=5))):
        item, other = draw(st.sampled_from(plan.items)), draw(st.sampled_from(plan.phases))
        plan = find_plan_in(edit(kind, plan, item, other, f"{name} {number}")) or plan
    return plan


@st.composite
def worked(draw, plan: Plan, name: str) -> Plan:
    """What sessions may make of a plan."""
    for number, kind in enumerate(draw(st.lists(st.sampled_from(["tick", "note", "items"]), max_size=5))):
        phase = draw(st.sampled_from(plan.phases))
        try:
            match kind:
                case "tick":
                    plan = plan.tick([draw(st.sampled_from(phase.items)).id])
                case "note":
                    plan = append_note(plan, phase.id, f"{name} {number}")
                case _:
                    plan = append_items(plan, phase.id, [f"{name} item {number}"])
        except PlanError:
            continue  # a phase that is done gets no items
    return plan


def mask(text: str) -> list[str]:
    return [re.sub(r"\[[xX ]\]", "[ ]", line) for line in text.splitlines()]


def keeps(lines: list[str], others: list[str]) -> bool:
    """Whether all of the lines stand among the others, in their order."""
    ahead = iter(others)
    return all(line in ahead for line in lines)


@given(edited(BASE, "theirs"), worked(BASE, "ours"))
@settings(max_examples=4 * EXAMPLES)
def test_my_edit_yours_and_the_replay(tip, own):
    """Each word of the person's stays in its place, and each box of his but those that were worked on.

    Every operation is in the plan or told with its text; what is done already is not done again.
    """
    did = read_operations(BASE, own)
    merged = replay(did, own, tip)
    assert keeps(mask(tip.text), mask(merged.plan.text))
    assert [(p.verify, p.after, p.title) for p in merged.plan.phases] == [
        (p.verify, p.after, p.title) for p in tip.phases
    ]
    assert tip.done_ids <= merged.plan.done_ids
    done = {item.text for item in own.items if item.done}
    now = {item.id: item.text for item in merged.plan.items if item.done}
    tips = {item.id: item.text for item in tip.items if item.done}
    for item_id in now.keys() - tips.keys():
        assert now[item_id] in done or merged.reworded[item_id] in done
    told = "\n".join(merged.left)
    texts = [item.text for item in merged.plan.items if item.done] + [*merged.reworded.values()]
    assert all(text in texts or text in told for text in done)
    added = {item.text for item in own.items if item.text.startswith("ours")}
    assert all(text in {item.text for item in merged.plan.items} or text in told for text in added)
    notes = {note for phase in own.phases for note in list_notes(own)[phase.id]}
    there = {note for phase in merged.plan.phases for note in list_notes(merged.plan)[phase.id]}
    assert all(note in there or note in told for note in notes)
    again = replay(did, own, merged.plan)
    assert again.plan.text == merged.plan.text
    assert set(again.left) <= set(merged.left)


@given(worked(BASE, "theirs"), worked(BASE, "ours"))
@settings(max_examples=2 * EXAMPLES)
def test_what_two_did_side_by_side_is_the_same_whoever_lands_first(tip, own):
    """But for the order in which they stand; nothing of either is lost where no phase was done meanwhile."""
    one, other = merge(tip, own), merge(own, tip)
    if one.left or other.left:
        assert all("is done" in words or "since it is gone" in words for words in (*one.left, *other.left))
        return
    for phase_id in ("1", "2", "3"):
        items, others = (
            sorted((item.text, item.done) for item in merged.plan.items if item.id.startswith(phase_id))
            for merged in (one, other)
        )
        assert items == others
        assert {*list_notes(one.plan)[phase_id]} == {*list_notes(other.plan)[phase_id]}
    assert merge(BASE, own).plan.text == own.text


EQUAL = "- [ ] API\n  - [x] write tests\n- [ ] CLI\n  - [ ] write tests\n"
CLI = "- [ ] CLI\n  - [ ] write tests\n"


def test_of_equal_texts_the_one_that_was_done_is_ticked_or_none():
    """A person takes out or moves the item above it; the tick must not go to the other."""
    head = "# P\n\n## Phase 1 — A\nVerify: `true`\n"
    before, own = parse_plan(head + EQUAL.replace("[x]", "[ ]")), parse_plan(head + EQUAL)
    gone, moved = (
        merge(parse_plan(head + CLI + more), own, before)
        for more in ("", before.text[before.items[0].mark - 3 : before.items[2].mark - 3])
    )
    assert (gone.plan.text, len(gone.left)) == (head + CLI, 1)
    assert (moved.plan.text, moved.left) == (f"{head}{CLI}- [ ] API\n  - [x] write tests\n", ())


TICKED = "## Phase 1\n- [x] a — a.py\n- [x] b — b.py\n## Phase 2\n- [ ] c — c.py\n"
REPEATED = "## Alpha\n- [x] run tests\n- [x] a — a.py\n## Beta\n- [ ] run tests\n- [ ] b — b.py\n"
LOST_B, LOST = (
    f"item {item} was ticked by relay and is ticked no more" for item in ("1.2 `b — b.py`", "1.1 `run tests`")
)
TURNED, BY_HAND = (
    "ticked items stand in another order than before",
    "item {} is ticked by hand; only relay ticks, after the gate",
)
KEPT = [  # a plan, a person's change, and what is wrong with it
    (TICKED, [], []),
    (TICKED, [("- [ ] c — c.py", "Verify: `make`\n- [ ] d — d.py\n- [ ] e")], []),
    (TICKED, [("[x] b", "[x] do b, and well")], []),
    (TICKED, [("Phase 2", "Phase 3"), ("## Phase 1", "## Phase 1 — New\n- [ ] n\n## Phase 2")], []),
    (TICKED, [("- [x] b — b.py\n", ""), ("## Phase 2", "## Phase 2\n- [x] b — b.py")], []),
    (TICKED, [("- [x] b — b.py\n", "")], [(0, LOST_B)]),
    (TICKED, [("[x] b", "[ ] b")], [(3, LOST_B)]),
    (TICKED, [("[ ] c", "[x] c")], [(5, BY_HAND.format("2.1"))]),
    (TICKED, [("[x] b", "[x] bb")], [(3, LOST_B), (3, BY_HAND.format("1.2"))]),
    (TICKED, [("a — a", "B — b"), ("b — b", "a — a"), ("B", "b")], [(0, TURNED)]),
    (REPEATED, [("## Beta", "## Zeta\n- [ ] run tests\n## Beta")], []),
    (REPEATED, [("## Alpha", "## Zeta\n- [ ] run tests\n## Alpha")], []),
    (REPEATED, [("[x] run", "[ ] run")], [(2, LOST)]),
    (REPEATED, [("[ ] run", "[x] run")], [(5, BY_HAND.format("2.1"))]),
    (REPEATED, [("[ ] run", "[x] run"), ("[x] run", "[ ] run more")], [(2, LOST), (5, BY_HAND.format("2.1"))]),
    (REPEATED, [("[x] run", "[ ] run"), ("b.py\n", "b.py\n## Z\n- [x] run tests\n")],
     [(2, LOST), (8, BY_HAND.format("3.1"))]),
]  # fmt: skip


def test_a_person_s_edit_keeps_every_tick_in_its_phase_and_in_its_order_and_makes_none():
    wrong = []
    for text, pairs, expected in KEPT:
        before = parse_plan(text)
        found = [(one.line, one.message) for one in check_ticks_kept(before, change(before, *pairs))]
        wrong += [(pairs, found)] if found != expected else []
    assert wrong == []
