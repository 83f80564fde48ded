"""Phases and items are known by what they say, wherever they stand."""

from hypothesis import given
from hypothesis import strategies as st

from relay.plan.lineage import find_lineage, has_heirs
from relay.plan.model import Plan
from relay.plan.parse import parse_plan

BASE = "## Alpha\n- [x] a — a.py\n- [x] run tests\n## Beta\n- [ ] b — b.py\n- [ ] run tests\n"
ZETA = "## Zeta\n- [ ] z — z.py\n- [ ] run tests\n"
SAME = "## Check\n- [ ] run tests\n"


def follow(before: str, after: str) -> tuple[dict[str, str], dict[str, str]]:
    found = find_lineage(parse_plan(before), parse_plan(after))
    return dict(found.phases), dict(found.items)


OTHER = BASE.replace("## Beta\n- [ ] b — b.py", "## Other\n- [ ] other{} — {}.py")
PHASES = {
    "unchanged": (BASE, {"1": "1", "2": "2"}),
    "inserted above": (ZETA + BASE, {"1": "2", "2": "3"}),
    "inserted between": (BASE.replace("## Beta", ZETA + "## Beta"), {"1": "1", "2": "3"}),
    "dropped": (BASE.split("## Beta")[1].join(["## Beta", ""]), {"2": "1"}),
    "both": (ZETA + BASE.replace("Alpha", "First").replace("] b ", "] bb "), {"1": "2", "2": "3"}),
    "another title": (BASE.replace("Alpha", "First"), {"1": "1", "2": "2"}),
    "other items": (BASE.replace("- [ ] b — b.py", "- [ ] c\n- [ ] d"), {"1": "1", "2": "2"}),
    "joined": (BASE.replace("## Beta\n", ""), {"1": "1", "2": "1"}),
    "split": (
        BASE.replace("## Beta\n- [ ] b — b.py", "## B one\n- [ ] b — b.py\n## B two\n- [ ] c"), {"1": "1", "2": "2"},
    ),
    "written anew for the same file": (OTHER.format("wise", "b"), {"1": "1", "2": "2"}),
    "another phase in its place": (OTHER.format("", "c"), {"1": "1"}),
}  # fmt: skip


def test_a_phase_is_known_by_its_words_and_its_items():
    assert {name: follow(BASE, after)[0] for name, (after, _) in PHASES.items()} == {
        name: phases for name, (_, phases) in PHASES.items()
    }


def test_items_go_with_their_phase_and_alone_where_their_words_are_unique():
    """What is said twice is told apart by its phase."""
    moved = "## Beta\n- [ ] run tests\n- [x] a — a.py\n## Alpha\n- [x] run tests\n- [ ] new\n"

    assert follow(BASE, moved)[1] == {"1.1": "1.2", "1.2": "2.1", "2.2": "1.1"}


def test_phases_that_say_the_same_keep_their_order():
    """What a tick tells of them counts first, then where they stand."""
    done = SAME.replace("[ ]", "[x]")

    assert follow(SAME * 2, ZETA + SAME * 2)[0] == {"1": "2", "2": "3"}
    assert follow(SAME * 2, SAME * 2 + ZETA)[0] == {"1": "1", "2": "2"}
    assert follow(done, SAME + done)[0] == {"1": "2"}
    assert follow(SAME + done, done + ZETA + SAME)[0] == {"1": "3", "2": "1"}
    assert follow(ZETA + SAME * 2, SAME.replace("[ ]", "[x]") + BASE + SAME)[0] == {"2": "1", "3": "4"}


def test_a_phase_that_is_called_by_its_number_is_known_by_its_items():
    """`## Phase 2` has no title that could be another's by chance."""
    before = "## Phase 1\n- [ ] a — a.py\n## Phase 2\n- [ ] b — b.py\n"
    after = "## Phase 1\n- [ ] a — a.py\n## Phase 2\n- [ ] z — z.py\n## Phase 3\n- [ ] b — b.py\n"

    assert follow(before, after) == ({"1": "1", "2": "3"}, {"1.1": "1.1", "2.1": "3.1"})
    assert follow(before, after.partition("## Phase 3")[0]) == ({"1": "1"}, {"1.1": "1.1"})


def test_titles_that_repeat_do_not_pair_phases():
    """Each of them could be the one."""
    before = "## Tests\n- [ ] a\n## Tests\n- [ ] b\n"

    assert follow(before, "## Tests\n- [ ] c\n") == ({}, {})
    assert follow(before, "## Tests\n- [ ] bb\n- [ ] b\n## Tests\n- [ ] c\n")[0] == {"1": "2", "2": "1"}


phases = st.builds(
    lambda title, items: f"## {title}\n" + "".join(f"- [{done}] {text}\n" for text, done in items),
    st.sampled_from(["Alpha", "Beta", "Tests", "Phase 1", "Phase 2"]),
    st.lists(st.tuples(st.sampled_from(["a — a.py", "b — b.py", "run tests"]), st.sampled_from("x ")), min_size=1),
)
plans = st.lists(phases, min_size=1, max_size=5).map("".join).map(parse_plan)


@given(plans, plans)
def test_every_pair_is_of_parts_that_there_are(before: Plan, after: Plan):
    """No item has two heirs; items that pair say the same; a plan's lineage to itself is every part."""
    found = find_lineage(before, after)
    texts = [{item.id: item.text for item in plan.items} for plan in (before, after)]

    assert found.phases.keys() <= {phase.id for phase in before.phases}
    assert set(found.phases.values()) <= {phase.id for phase in after.phases}
    assert len(set(found.items.values())) == len(found.items)
    assert all(texts[0][old] == texts[1][new] for old, new in found.items.items())
    heirs = [*found.items.values(), *found.reworded.values()]
    assert len(set(heirs)) == len(heirs)
    assert found.items.keys().isdisjoint(found.reworded)
    itself = find_lineage(before, before)
    assert all(old == new for old, new in (*itself.phases.items(), *itself.items.items()))
    assert len(itself.items) == len(before.items)


@given(plans, plans, st.integers(0, 5))
def test_an_insertion_moves_what_stands_below_it(before: Plan, other: Plan, at: int):
    """Whatever the new phases say, also the same as the old ones but for ticks."""
    cut = [phase.start for phase in before.phases][at % len(before.phases)]
    done = other.tick([item.id for item in other.items]).text
    before = before.untick(before.done_ids)
    after = parse_plan(before.text[:cut] + done + before.text[cut:])
    order, many = [phase.id for phase in after.phases], len(other.phases)
    place = at % len(before.phases)

    assert [order.index(find_lineage(before, after).phases[phase.id]) for phase in before.phases] == [
        number if number < place else number + many for number in range(len(before.phases))
    ]


HEIRS = {
    None: True,
    "no plan": True,
    BASE: True,
    "## Zeta\n- [ ] otherwise\n": True,
    "## Beta\n- [ ] b — b.py\n": False,
}


def test_a_plan_goes_on_where_anything_of_it_is_left() -> None:
    assert {before: has_heirs(before, ZETA) for before in HEIRS} == HEIRS
