"""Properties of plans that nobody wrote: generated ones, and text that only resembles Markdown."""

import random
import re
from dataclasses import dataclass

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from relay.base.errors import PlanError
from relay.plan.check import check_plan
from relay.plan.edit import replace_phase
from relay.plan.model import Plan
from relay.plan.operations import (
    AddItems,
    AddNote,
    Operation,
    Tick,
    check_change,
    read_operations,
    replay,
    run_operation,
)
from relay.plan.outline import read_outline
from relay.plan.parse import parse_plan

EXAMPLES = settings().max_examples
"""Of the profile: what is worth more than others get is a multiple of it, and grows and shrinks with it."""

WORDS = st.text(st.sampled_from("abc xyz`_*/.—\u2028\x0bé\U0001f600\udc80\0[]()#>-"), min_size=0, max_size=12)
TEXTS = st.builds("{}{}{}".format, st.sampled_from("abcdefgh"), WORDS, st.sampled_from("uvw"))
BULLETS = st.sampled_from(["- ", "* ", "+ ", "1. ", "2) ", "> - ", "  - ", "-\t"])
PIECES = [
    "- [ ] ", "- [x] ", "* [X] ", "1. [ ] ", "2) [x] ", "- ", "> ", ">", "    ", "  ", "\t", " ", "# ", "## ", "### ",
    "text", "a `b/c.py` d", " — x/y.py", "```", "~~~", "<!--", "-->", "<div>", "<details>", "---", "===", "[x]: /u",
    "[ ]", "- []", "\n", "\n", "\n\n", "\r\n", "\r", "\u2028", "\0", "\ufeff", "Phase 1 — A", "Task 2", "2.1 T",
    "Verify: `t`", "Verify:", "After: 1", "After: none", "### Notes\n", "- [ ] a\n", "- [-] b\n", "- [ ]* ",
    "- [~]* 1.2 c\n", "## Phase 3\n", "***", "\\", "\udc80", "---\nrelay: {verify: [t]}\n---\n", "    - [ ] deep",
    "\x0b", "\x85", "\xa0", "[a](b)", "|a|b|\n|-|-|\n",
]  # fmt: skip
NEAR_MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A plan as it was written down, with what must be read from it."""

    text: str
    items: tuple[tuple[bool, str], ...]
    notes: tuple[bool, ...]
    """For each phase, whether it has Notes."""


@st.composite
def plans(draw, *, flat: bool = False) -> Written:
    """Plans with phases on several levels; on one level only when `flat`."""
    headings = [["## Phase {0} — T"], ["Step {0}", "---"], *([] if flat else [["### Task {0}"]])]
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines = draw(st.sampled_from([[], ["---", "relay: {verify: [t]}", "other: [1]", "---"]]))
    lines = [*lines, *draw(st.sampled_from([[], ["# Plan", "Goal.", ""], ["Title", "===", "Verify: `all`", ""]]))]
    items, notes = [], []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        lines += [line.format(number) for line in draw(st.sampled_from(headings))]
        lines += draw(st.lists(st.sampled_from(["Verify: `v`", "", "prose", "", "```\n- [ ] code\n```"]), max_size=2))
        lines.append("")
        bullet = draw(BULLETS)
        parts = draw(st.sets(st.integers(0, 2), max_size=2))
        for at in range(draw(st.integers(1, 4))):
            lines += ["", "#### Tests", ""] if at in parts else []
            done, text = draw(st.booleans()), draw(TEXTS)
            items.append((done, text.strip(" \t")))
            lines.append(f"{bullet}[{'x' if done else ' '}] {text}")
        lines.append("")
        notes.append(draw(st.booleans()))
        lines += ["#### Notes", "- first note", ""] if notes[-1] else []
    lines += draw(st.sampled_from([[], ["# Appendix", "text"]]))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    text = bom + "\n".join(lines).replace("\n", end) + draw(st.sampled_from(["", end]))
    return Written(text=text, items=tuple(items), notes=tuple(notes))


def parse_or_refuse(text: str) -> Plan | str:
    try:
        return parse_plan(text)
    except PlanError as error:
        return str(error)


def boxes(plan: Plan) -> list[tuple[str, str, bool]]:
    return [(item.id, item.text, item.done) for phase in plan.phases for item in phase.items]


def open_ids(plan: Plan) -> list[str]:
    return [item.id for phase in plan.phases for item in phase.open_items]


def judge(before: str, after: str, *, may_tick=()):
    """What is no plan any more is no operation either: nobody can make a value of it."""
    changed = parse_or_refuse(after)
    return (changed,) if isinstance(changed, str) else check_change(parse_plan(before), changed, may_tick=may_tick)


_BOX = re.compile(r"\[.\]")


def keeps(lines: list[str], others: list[str]) -> bool:
    """Whether all of the lines stand among the others, in their order."""
    ahead = iter(others)
    return all(line in ahead for line in lines)


@given(plans())
def test_what_was_written_is_what_is_read(written):
    plan = parse_plan(written.text)
    assert tuple((done, text) for _, text, done in boxes(plan)) == written.items
    assert [phase.id for phase in plan.phases] == [str(n + 1) for n in range(len(written.notes))]


@given(st.one_of(plans().map(lambda written: written.text), NEAR_MARKDOWN))
@example("# P\n- [ ] a\r")
@example("\ufeff\ufeff# P\n- [ ] a")
@example("### Notes\n- [ ] 1. [ ] ")
def test_spans_tile_the_text_and_hold_their_items(text):
    plan = parse_or_refuse(text)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    done = 0
    pieces = []
    for phase in plan.phases:
        assert done <= phase.start < phase.end <= len(text)
        pieces += [text[done : phase.start], text[phase.start : phase.end]]
        done = phase.end
        for item in phase.items:
            assert phase.start < item.mark < phase.end
            assert text[item.mark - 1 : item.mark + 2] == f"[{text[item.mark]}]"
            assert item.done == (text[item.mark] in "xX")
            assert item.line == text[: item.mark].replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert "".join((*pieces, text[done:])) == text
    assert text[: plan.phases[0].start].endswith(plan.preamble)
    for ids in ([phase.id for phase in plan.phases], [item.id for phase in plan.phases for item in phase.items]):
        assert len(set(ids)) == len(ids)  # a box that prints "1." in phase 1 is item 1


@given(st.one_of(st.text(), NEAR_MARKDOWN, st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))))
@settings(max_examples=3 * EXAMPLES)
def test_any_text_is_read_or_refused_by_line(text):
    plan = parse_or_refuse(text)
    if isinstance(plan, str):
        assert plan.startswith("line ")
    else:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        assert all(0 < violation.line <= lines and violation.message for violation in check_plan(plan))


DISPUTED = re.compile(r"\[[ xX]\][ \t]*(?:[-+*>#<`~\[=\d]|\s|\Z|[\x00-\x20])|\[[\-~?>]\]|\[[ xX]\]\\?\*")
"""A box before what would open another block. markdown-it takes the box off and reads on, so that `- [ ] - [x] a` is
two tasks; GitHub's specification has the box *in* a paragraph, so that it is one, and micromark reads it so too. Kiro's
boxes (`[-]`, `[ ]*`) are none for it."""


@given(NEAR_MARKDOWN)
@settings(max_examples=3 * EXAMPLES)
def test_boxes_are_those_of_an_independent_reader_of_task_lists(text):
    assume(not DISPUTED.search(text) and not text.startswith(("\ufeff", "---")))
    peer = MarkdownIt("gfm-like2", {"maxNesting": 100, "alerts": False}).disable(["linkify", "table"])
    tokens = [token for token in peer.parse(text) if token.type == "list_item_open" and "checked" in token.meta]
    theirs = [(token.map[0] + 1, token.meta["checked"]) for token in tokens if token.map]
    sections = read_outline(text).sections
    ours = [(box.line, box.done) for section in sections for box in section.boxes if box != section.box]
    assert ours == theirs


@given(plans(), st.randoms(use_true_random=False))
def test_a_tick_changes_one_byte_and_one_box(written, chance):
    plan = parse_plan(written.text)
    assume(open_ids(plan))
    ticked_id = chance.choice(open_ids(plan))
    ticked = plan.tick([ticked_id]).text
    before, after = (text.encode("utf-8", "surrogateescape") for text in (written.text, ticked))
    assert len(before) == len(after)
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [(ord(" "), ord("x"))]
    assert boxes(parse_plan(ticked)) == [(i, text, done or i == ticked_id) for i, text, done in boxes(plan)]


@st.composite
def operations(draw, plan: Plan) -> tuple[list[Operation], Plan]:
    """What sessions may do to a plan, in any order, and the plan that it makes."""
    done: list[Operation] = []
    for kind in draw(st.lists(st.sampled_from("tni"), max_size=5)):
        phase = draw(st.sampled_from(plan.phases))
        item = draw(st.sampled_from(phase.items))
        words = draw(st.one_of(TEXTS, NEAR_MARKDOWN))
        added = AddNote(phase_id=phase.id, text=words), AddItems(phase_id=phase.id, texts=(words,))
        one: Operation = Tick(item_id=item.id, text=item.text) if kind == "t" else added[kind == "i"]
        try:
            plan = run_operation(plan, one)
        except PlanError:
            continue  # empty, in a phase that is done, or not to be read as what it is
        done.append(one)
    return done, plan


@given(st.one_of(plans().map(lambda written: written.text), NEAR_MARKDOWN), st.data())
@settings(max_examples=2 * EXAMPLES)
def test_what_operations_made_of_a_plan_is_read_as_them_and_they_make_it_again(text, data):
    """In any order, each more than once: the same bytes. So they need no record beside the plan."""
    plan = parse_or_refuse(text)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    done, own = data.draw(operations(plan))
    assert keeps(*(_BOX.sub("[ ]", one.text).splitlines() for one in (plan, own)))
    assert [(p.id, p.title, p.verify, p.after) for p in own.phases] == [
        (p.id, p.title, p.verify, p.after) for p in plan.phases
    ]
    assert keeps([f"{i.id} {i.text}" for i in plan.items], [f"{i.id} {i.text}" for i in own.items])
    assert plan.done_ids <= own.done_ids
    assert check_change(plan, own, may_tick=own.done_ids - plan.done_ids) == ()
    again = replay(read_operations(plan, own), own, plan)
    assert (again.plan.text, again.left, again.reworded) == (own.text, (), {})
    assert replay(read_operations(plan, own), own, own).plan.text == own.text
    for one in data.draw(st.permutations(done)):
        assert run_operation(own, one).text == own.text


def mutate(text: str, plan: Plan, allowed: list[str], chance: random.Random) -> str:
    """Return the text with one change that is never legal, or as it is where the draw cannot be made."""
    items = [item for phase in plan.phases for item in phase.items]
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    at = chance.randrange(len(text))
    match chance.randrange(6):
        case 0:
            item = chance.choice(items)
            other = "x" if not item.done and item.id not in allowed else chance.choice("X-" if item.done else "X.")
            return f"{text[: item.mark]}{other}{text[item.mark + 1 :]}"
        case 1:
            marks = {item.mark for item in items if item.id in allowed}
            new = chance.choice("aZ \t#`-x\r\n\0")
            return text if at in marks else f"{text[:at]}{new}{text[at + 1 :]}"
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[one], lines[two] = lines[two], lines[one]
            return "".join(lines)
        case 4:
            del lines[chance.randrange(len(lines))]
            return "".join(lines)
        case _:
            place = chance.choice([plan.phases[0].start, *(item.mark - 1 for item in items)])
            return text[:place] + chance.choice(["\n", "x", "- [ ] new\n", "Verify: `true`\n"]) + text[place:]


@given(plans(), st.randoms(use_true_random=False))
def test_a_change_that_no_operations_make_is_refused(written, chance):
    plan = parse_plan(written.text)
    allowed = [item_id for item_id in open_ids(plan) if chance.random() < 0.5]
    after = mutate(written.text, plan, allowed, chance)
    assume(after != written.text)
    assert judge(written.text, after, may_tick=allowed) != ()


@given(plans(flat=True), st.randoms(use_true_random=False))
def test_a_phase_is_replaced_around_its_ticks_only(written, chance):
    plan = parse_plan(written.text)
    phase = chance.choice(plan.phases)
    assume(not phase.done)
    kept = [item.text for item in phase.items if item.done]
    news = [f"- [x] {text}" for text in kept]
    for n in range(chance.randrange(1, 4)):
        news.insert(chance.randrange(len(news) + 1), f"- [ ] new {n}")

    def rewrite(lines: list[str]) -> str:
        body = "\n".join([f"## Phase {phase.id}", "Verify: `other`", "", *lines, "", ""])
        try:
            return replace_phase(plan, phase.id, body).text
        except PlanError as error:
            return error.message

    done = plan.done_ids - {item.id for item in phase.items}
    replaced = rewrite(news)
    assert replaced.startswith(written.text[: phase.start])
    assert replaced.endswith(written.text[phase.end :])
    assert parse_plan(replaced).done_ids >= done
    assert "is ticked, and not in phase" in rewrite([*news, "- [x] extra"])
    if kept:
        assert "ticked items stay" in rewrite([line for line in news if line != f"- [x] {kept[0]}"])
        assert "ticked items stay" in rewrite([line.replace("[x]", "[ ]") for line in news])
    if kept != kept[::-1]:
        turned = [line for line in news if "[ ]" in line] + [f"- [x] {text}" for text in reversed(kept)]
        assert "ticked items stay" in rewrite(turned)
