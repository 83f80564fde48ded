"""A phase that relay appends: quoted words of anybody, items of relay's own, and no other phase changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.edit import append_phase
from relay.plan.parse import parse_plan

PLAN = "# P\n\n### Phase 1 — One\nVerify: `make a` and `` echo `x` ``\n- [x] a\n\n### Phase 3 — Three\n- [ ] c\n"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_it_stands_behind_the_others_with_their_commands_and_a_free_number(ending: str) -> None:
    plan = parse_plan(PLAN.rstrip("\n") + ending)
    longer = append_phase(plan, "Answer", said=["look *here*"], items=["Settle 11"])
    assert longer.text.startswith(plan.text)
    new = longer.phases[-1]
    assert (new.id, new.title, [item.text for item in new.items]) == ("4", "Answer", ["Settle 11"])
    assert new.own_verify == ("make a", "echo `x`")
    assert longer.done_ids == plan.done_ids


def test_each_command_keeps_the_directory_of_its_phase() -> None:
    plan = parse_plan(
        PLAN.replace("Verify", "In: packages/api\nVerify").replace("- [ ] c", "Verify: `make c`\n- [ ] c")
    )
    new = append_phase(plan, "Answer", said=["x"], items=["b"]).phases[-1]
    wanted = ("cd packages/api && make a", "cd packages/api && echo `x`", "make c")
    assert (new.own_verify, new.find_wish("in")) == (wanted, ("", 0))


def test_without_a_command_there_is_no_gate() -> None:
    plan = parse_plan("# P\n\n## Phase 1 — One\n- [ ] a\n")
    assert append_phase(plan, "Answer", said=[], items=["b"]).phases[-1].own_verify == ()


@pytest.mark.parametrize("end", ["```\n- [ ] not an item", "<!--"])
def test_a_plan_whose_end_would_swallow_it_is_refused(end: str) -> None:
    with pytest.raises(PlanError, match="would not be read as one"):
        append_phase(parse_plan(f"{PLAN}\n{end}\n"), "Answer", said=["x"], items=["b"])


def test_a_title_that_would_be_read_otherwise_is_refused() -> None:
    with pytest.raises(PlanError, match="would not be read as one"):
        append_phase(parse_plan(PLAN), "Answer ", said=[], items=["b"])


@given(st.lists(st.text(max_size=80), max_size=3))
def test_words_of_others_are_quoted_and_say_nothing_to_relay(said: list[str]) -> None:
    longer = append_phase(parse_plan(PLAN), "Answer", said=said, items=["b"])
    assert [item.text for item in longer.phases[-1].items] == ["b"]
    assert [phase.id for phase in longer.phases] == ["1", "3", "4"]
