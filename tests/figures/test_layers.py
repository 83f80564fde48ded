"""The layers of a context, by numbers that can be checked by hand."""

import pytest

from relay.insight.figures import read_figures
from relay.session.layers import LAYERS, NOTE, PHASE, describe_note, sum_layers
from tests.figures.streams import call, log, over, parts, session, start, turn


def test_every_source_has_one_layer_and_an_unknown_one_counts_as_history() -> None:
    sources = [source for layer in LAYERS for source in layer.sources]
    assert len(sources) == len(set(sources))
    found = sum_layers([("tool read", 5), ("tool bash", 6), ("tools", 7), ("from tomorrow", 8), ("handoff_note", 9)])
    assert {name: size for name, size in found.items() if size} == {
        "results": 11, "rules": 7, "history": 8, "handoff note": 9,
    }  # fmt: skip


@pytest.mark.parametrize(("line", "most"), [(100_000, 13_000), (20_000, 4_000), (1_000, 4_000)])
def test_the_most_follows_the_line_down_to_a_least(line: int, most: int) -> None:
    assert PHASE.find_most(line) == most


def test_a_session_s_layers_add_up_to_its_context() -> None:
    """2,400 in the first prompt, 3,000 of a result and 600 of answers; the cap and the budget cut something."""
    prompt: tuple[dict[str, object], ...] = parts(system=600, tools=600, rules=300, plan=400, phase=300, ledger=200)
    prompt = tuple(
        {**part, "cut_tokens": 70, "most_tokens": 250} if part["source"] == "ledger" else part for part in prompt
    )
    steps = (*turn(1, 2_400, 500), *call("bash", "make", 3_000, cut_bytes=400), *turn(2, 5_900, 100))
    (one,) = read_figures(log([start(), session(prompt=prompt), *steps, over()])).sessions
    found = {layer.name: layer for layer in one.layers}
    assert {name: layer.tokens for name, layer in found.items()} == {
        "rules": 1_500, "plan": 400, "phase": 300, "handoff note": 0, "ledger": 200, "preload": 0, "results": 3_000,
        "history": 600,
    }  # fmt: skip
    assert sum(layer.share for layer in one.layers) == pytest.approx(1)
    assert (found["results"].share, found["results"].most_tokens) == (0.5, 24_000)
    assert (found["ledger"].most_tokens, found["ledger"].cut_tokens, found["results"].cut_tokens) == (250, 70, 100)
    (none,) = read_figures(log([start(), session(prompt=prompt), over()])).sessions
    assert none.layers == []
    old = (*turn(1, 9), *call("bash", "x", 1, cut_bytes=None), *turn(2, 19))
    (unknown,) = read_figures(log([start(), session(), *old, over()])).sessions
    assert {layer.name: layer.cut_tokens for layer in unknown.layers}["results"] is None


def test_a_note_too_large_says_so_and_what_to_do() -> None:
    assert describe_note("2", "x" * 4 * NOTE.find_most(100_000), 100_000) == ""
    words = describe_note("2", "x" * 4 * 5_001, 100_000)
    assert "phase 2 takes about 5,001 tokens, and should take 5,000" in words
    assert "relay say" in words
