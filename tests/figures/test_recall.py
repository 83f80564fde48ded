"""What a call names of what a session was shown, and how large the layers of a context may be."""

from typing import Any

import pytest

from relay.session.layers import LAYERS, NOTE, PHASE, describe_note, sum_layers
from relay.session.recall import LARGE_TOKENS, MOST_NAMES, MOST_THINGS, Recall

LARGE = "\n".join(f"the line of number {n}" for n in range(LARGE_TOKENS))


@pytest.mark.parametrize(
    ("given_", "used"),
    [
        ({"path": "src/app/web.py"}, True),
        ({"command": "sed -n 1,9p ./src/app/web.py:12"}, True),
        ({"edits": [{"old": "  the line of number 7\n", "new": ""}]}, True),
        ({"command": "ls src"}, False),
        ({"old": "the line", "offset": 3, "path": None}, False),
    ],
)
def test_a_call_uses_what_it_names(given_: Any, *, used: bool) -> None:
    recall = Recall()
    recall.show("c1", f"src/app/web.py:3: found\n{LARGE}")
    recall.show("c2", "src/app/web.py:3: too small to be followed")
    assert recall.find_uses(given_) == (("c1",) if used else ())
    assert recall.find_uses(given_) == ()


def test_a_listing_shows_last_parts_and_showing_a_file_again_uses_nothing_of_it() -> None:
    recall = Recall()
    recall.show("ls", f"web.py\n{LARGE}")
    assert recall.find_uses({"path": "src/app/web.py"}) == ("ls",)
    recall.show("r1", "pass", path="a.py")
    assert recall.find_uses({"path": "a.py", "offset": 9}, path="a.py") == ()
    assert recall.find_uses({"command": "pytest a.py"}) == ("r1",)


def test_preloads_are_followed_from_the_first_message() -> None:
    recall = Recall([("app/web.py", "import flask_of_old"), ("Makefile", "all:")])
    assert recall.find_uses({"path": "app/web.py"}, path="app/web.py") == ()
    assert recall.find_uses({"path": "app/web.py", "old": "import flask_of_old"}) == ("preload app/web.py",)
    assert recall.find_uses({"path": "Makefile"}) == ("preload Makefile",)


def test_what_is_followed_has_a_bound() -> None:
    recall = Recall()
    for n in range(MOST_THINGS + 1):
        recall.show(f"c{n}", "", path=f"file{n}.py")
    assert recall.find_uses({"command": "cat file0.py file1.py"}) == ("c1",)
    recall.show("many", "\n".join(f"a{n}.py" for n in range(MOST_NAMES + 9)), path="big")
    assert recall.find_uses({"path": f"a{MOST_NAMES + 5}.py"}) == ()
    assert recall.find_uses({"path": "a5.py"}) == ("many",)


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


def test_a_note_too_large_says_so_and_what_to_do() -> None:
    assert describe_note("2", "x" * 4 * NOTE.find_most(100_000), 100_000) == ""
    words = describe_note("2", "x" * 4 * 5_001, 100_000)
    assert "phase 2 takes about 5,001 tokens, and should take 5,000" in words
    assert "relay say" in words
