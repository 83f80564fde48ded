"""How a phase is sized."""

from dataclasses import replace

from relay.plan.parse import parse_plan
from relay.run.planning.submission import describe_layers, measure_phases, size_phase, suggest_parts
from relay.session.usage import MAX_READ_BYTES


def make_phase(n, done=0):
    items = "".join(f"- [{'x' if i <= done else ' '}] item {i}\n" for i in range(1, n + 1))
    return parse_plan(f"# Plan\n\n## Phase 1 — t\n{items}").phases[0]


def size(phase, **kw):
    return size_phase(phase, **{"file_bytes": (), "text_bytes": (0, 0), "rules_bytes": 0, "line_tokens": 100_000, **kw})


def test_the_stated_formula():
    """1,300 fixed + texts and files at bytes/3 + 4,000 for each open item."""
    made = size(make_phase(2), file_bytes=(3_000, 10 * MAX_READ_BYTES), text_bytes=(240, 60), rules_bytes=600)
    assert made.fixed_tokens == 1_300 + 100 + 200
    assert made.reading_tokens == 1_000 + -(-MAX_READ_BYTES // 3)
    assert made.work_tokens == 8_000
    assert made.turns == 11
    assert not made.too_big


def test_each_title_is_looked_at_once_however_many_phases_there_are(tmp_path):
    """Every session is shown all of them."""
    looks = []

    class Title(str):
        __slots__ = ()

        def __len__(self):
            looks.append(self)
            return str.__len__(self)

    plan = parse_plan("# Plan\n" + "".join(f"\n## Phase {n} — t\n- [ ] item\n" for n in range(1, 51)))
    counted = replace(plan, phases=tuple(replace(phase, title=Title(phase.title)) for phase in plan.phases))
    sizes = measure_phases(tmp_path, counted, find_line=lambda _: 100_000, rules_bytes=0)
    assert sizes == measure_phases(tmp_path, plan, find_line=lambda _: 100_000, rules_bytes=0)
    assert len(looks) == len(sizes) == 50


def test_ticked_items_cost_nothing():
    assert size(make_phase(3, done=3)).turns == 0
    assert size(make_phase(3, done=2)).work_tokens == 4_000


def test_a_phase_past_the_line_is_too_big_and_says_into_how_many():
    made = size(make_phase(40))
    assert made.too_big
    assert suggest_parts(made) == 2
    assert suggest_parts(replace(made, line_tokens=1_000)) == 1


def test_texts_that_are_too_large_for_their_layer_are_named_with_what_to_do():
    """At a line of 100,000 tokens the plan should take 7,000 of them, a phase 13,000; a done phase costs nothing."""
    fits = size(make_phase(2), text_bytes=(3 * 7_000, 3 * 13_000))
    assert describe_layers([fits]) == ()
    wide, long = describe_layers([size(make_phase(2), text_bytes=(3 * 7_001, 3 * 13_001)), fits])
    assert "about 7k tokens of each session, and should take 7k: shorten its goal" in wide
    assert "phase 1 (about 13k); move detail into files" in long
    assert describe_layers([size(make_phase(2, done=2), text_bytes=(99_000, 99_000))]) == ()
