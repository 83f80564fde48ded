"""What a plan says beside its boxes reaches the session of the phase that it is about, within a bound."""

import pytest

from relay.plan.check import check_plan
from relay.plan.edit import split_at_headings
from relay.plan.excerpt import MAX_CHARS, cut_excerpt, cut_excerpts
from relay.plan.parse import parse_plan

PLAN = """\
# Work
The goal.

## Phase 1 — Base
Prose below it.

- a plain bullet

| old | new |
|-----|-----|
| a   | b   |

- [ ] Do it — a.py

### Design
Why so.

## Phase 2 — Api
For both halves.

### 2.1 Read
- [ ] Read — b.py

### 2.2 Write
- [ ] Write — c.py

### Rationale
For both, too.

## Auth
- [ ] Own — d.py
### Sub
- [ ] Below — e.py
### On both
For Auth and Sub.

## Task 9: Without a box
Nobody asks for this.
### Its details
Nor for this.

## Success criteria
- [ ] It is fast

## Risks
For everybody.
"""


def list_beside(text):
    plan = parse_plan(text)
    return [(phase.title, excerpt.beside) for phase, excerpt in zip(plan.phases, cut_excerpts(plan), strict=True)]


def test_each_phase_gets_the_text_that_is_about_it():
    """Its own as it stands; that of a heading above it, or beside it below the same heading; that of the whole plan."""
    plan = parse_plan(PLAN)
    [first, *_] = cut_excerpts(plan)
    assert first.goal == "# Work\nThe goal."
    assert first.phase == PLAN[PLAN.index("## Phase 1") : PLAN.index("## Phase 2")].strip()
    risks = "## Risks\nFor everybody."
    both = "## Phase 2 — Api\nFor both halves.\n\n### Rationale\nFor both, too."
    on_both = "### On both\nFor Auth and Sub."
    assert list_beside(PLAN) == [
        ("Base", risks),
        ("Read", f"{both}\n\n{risks}"),
        ("Write", f"{both}\n\n{risks}"),
        ("Auth", f"{on_both}\n\n{risks}"),
        ("Sub", f"{on_both}\n\n{risks}"),
    ]
    assert not any("Nobody" in beside or "Nor for" in beside or "fast" in beside for _, beside in list_beside(PLAN))


def test_a_text_that_is_too_long_is_cut_at_a_line_with_every_item_and_command_and_check_says_so():
    long = "".join(f"line {n} of the prose\n" for n in range(2_000))
    text = (
        f"# W\n\n## Phase 1 — A\n{long}\nVerify: `make a`\n- [ ] One — a.py\n- [ ] Two — b.py\n\n## Risks\n{long}{long}"
    )
    plan = parse_plan(text)
    [found] = cut_excerpts(plan)
    assert found.chars < 2 * MAX_CHARS + 1_000
    shown = found.phase.splitlines()
    cut = next(line for line in shown if line.startswith("[cut by relay: read lines "))
    first, last = int(cut.split()[5]), int(cut.split()[7])
    whole = text.splitlines()
    assert shown[shown.index(cut) - 1] == whole[first - 2]
    assert whole[last].startswith("## Risks")
    assert shown[-3:] == ["Verify: `make a`", "- [ ] One — a.py", "- [ ] Two — b.py"]
    [warning] = [one.message for one in check_plan(plan) if "first message" in one.message]
    assert f"{found.left_chars:,} characters of what the plan says to phase 1 do not fit" in warning
    done = parse_plan(text.replace("[ ]", "[x]"))
    assert not [one for one in check_plan(done) if "first message" in one.message]


@pytest.mark.parametrize("prose", ["", "line of prose\n" * 4_000], ids=["whole", "cut"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_each_item_gets_its_id_once_and_a_claim_its_sign(prose, ending):
    """Where the item's line stands in the part that was cut, too; nothing else is changed."""
    text = f"## Phase 1 — A\n- [x] a\n- [ ] b\n{prose}\n- [ ] 1.3: c\n  - [X] d — d.py\n- [ ]* e\n- [>] f\n- [ ]\\* g\n"
    plan = parse_plan(text.replace("\n", ending))
    plain, labelled = cut_excerpts(plan)[0].phase, cut_excerpt(plan, plan.phases[0], ("1.2", "1.4")).phase
    items = [line.rstrip() for line in labelled.splitlines() if "- [" in line]
    assert items == [
        "- [x] 1.1 a",
        "- [~] 1.2 b",
        "- [ ] 1.3: c",
        "  - [~] 1.4 d — d.py",
        "- [ ]* 1.5 e",
        "- [>]* 1.6 f",
        "- [ ]* 1.7 g",
    ]
    undone = (
        labelled.replace("[~] 1.2", "[ ]")
        .replace("[~] 1.4", "[X]")
        .replace(" 1.1 a", " a")
        .replace(" 1.5 e", " e")
        .replace("* 1.6 f", " f")
        .replace("* 1.7 g", "\\* g")
    )
    assert undone == plain


PARTS = """\
# Work

## Phase 1 — First
Verify: `true`
- [x] Was — a.py

## Phase 2 — Two halves
For both.
Runner: claude
After: none
Verify: `make all`
{own}
### Schema
Verify: `make schema`
- [{mark}] Table — b.py

Api
---
- [ ] Read — c.py
### Deep
- [ ] Write — d.py

## Phase 3 — Last
Verify: `true`
- [ ] End — e.py
"""


@pytest.mark.parametrize("own", ["", "- [ ] Own — o.py\n"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_sub_headings_with_boxes_become_phases_by_a_number(own, ending):
    """Lines are only numbered and one gate is repeated; an item of the heading itself stays a phase before them."""
    text = PARTS.format(own=own, mark="x").replace("Api\n---", "### Api").replace("\n", ending)
    plan = parse_plan(text)
    split = split_at_headings(plan, "2")
    assert split is not None
    expected = text.replace("### Schema", "### Phase 2a — Schema").replace("### Deep", "### Phase 2c — Deep")
    runs, order = f"{ending}Runner: claude", "" if own else f"{ending}After: none"
    expected = expected.replace("### Api", f"### Phase 2b — Api{runs}").replace(
        "2a — Schema", f"2a — Schema{runs}{order}"
    )
    expected = expected.replace("2c — Deep", f"2c — Deep{runs}{ending}Verify: `make all`")
    assert split.text == expected
    stays = ["2"] if own else []
    assert [phase.id for phase in split.phases] == ["1", *stays, "2a", "2b", "2c", "3"]
    by_id = {phase.id: phase for phase in split.phases}
    assert by_id["2" if own else "2a"].after == ()
    assert by_id["2c"].own_verify == ("make all",)
    assert ("For both." in cut_excerpt(split, by_id["2b"], ()).beside) == (not own)


NO_SPLIT = [
    ("## Phase 2 — Two halves", "## Two halves"),  # its parts are phases already
    ("## Phase 2 —", "## Phase 2a —"),  # no number is left below it
    ("### Deep\n", "### Group\n#### Deep\n"),  # the item is of no part
    ("## Phase 3 — Last\n", "## Phase 3 — Last\nAfter: 2\n"),  # there would be no phase 2
    ("Verify: `make all`", "Verify: `` echo `make` ``"),
    ("### Deep\n", "".join(f"### D{n}\n- [ ] Do {n} — d{n}.py\n" for n in range(30))),
]


def test_what_a_number_cannot_split_is_left_to_a_session():
    text = PARTS.format(own="", mark=" ").replace("Api\n---", "### Api")
    plans = [(parse_plan(text.replace(*pair)), "2a" if "2a" in pair[1] else "2") for pair in NO_SPLIT]
    assert [split_at_headings(*one) for one in plans] == [None] * len(NO_SPLIT)


@pytest.mark.parametrize("short", [0, 10])
def test_a_goal_of_one_long_line_is_cut_and_not_dropped(short):
    text = "# Work\n" + "short\n" * short + "x" * 54_000 + "\n\n## Phase 1\nVerify: `t`\n- [ ] a — a.py\n"
    excerpt = cut_excerpt(parse_plan(text), parse_plan(text).phases[0], ())
    assert excerpt.goal.count("x") > MAX_CHARS - 200
    assert f"[cut by relay: read lines {2 + short} to " in excerpt.goal
    assert excerpt.left_chars == len(text.partition("## Phase")[0]) - MAX_CHARS
