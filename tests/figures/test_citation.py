"""What a claim cites of a file, and whether the file still says it."""

import hashlib

from hypothesis import assume, given
from hypothesis import strategies as st

from relay.ledger.citation import (
    MAX_CITED_BYTES,
    MAX_COMPARED_LINES,
    cite,
    explain_missing,
    find_change,
    parse_place,
)
from relay.ledger.model import Source

FILE = b"one\ntwo\nthree\nfour\nfive\n"


def make_id(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def look(lines: str, now: bytes | None, *, then: bytes = FILE) -> str:
    return find_change(cite(Source(path="a.py", lines=lines), then, make_id), now, make_id)


BECAME = (
    ("2-3", FILE, ""),
    ("2-3", b"zero\n" + FILE, ""),
    ("2-3", FILE.replace(b"five", b"5"), ""),
    ("2-3", FILE.replace(b"\n", b"\r\n"), ""),
    ("2-3", FILE.replace(b"\n", b"\r\n").replace(b"one", b"1"), ""),
    ("2-3", FILE.replace(b"two", b"2"), "a.py:2-3 has changed"),
    ("2-3", FILE.replace(b"two\n", b"two\nand a half\n"), "a.py:2-3 has changed"),
    ("2-3", b"", "a.py:2-3 has changed"),
    ("2-3", None, "a.py:2-3 is gone"),
    ("5", FILE.removesuffix(b"\n"), ""),
    ("4-9", FILE + b"six\n", ""),
    ("4-9", FILE.replace(b"five", b"5"), "a.py:4-5 has changed"),
    ("", FILE, ""),
    ("", FILE + b"six\n", "a.py has changed"),
    ("", FILE.replace(b"\n", b"\r\n"), ""),
    ("2-3", b"one\nfour\nfive\ntwo\nthree\n", ""),
    ("7-9", FILE + b"six\n", "a.py has changed"),
)


def test_what_became_of_the_cited_lines() -> None:
    assert [row for row in BECAME if look(*row[:2]) != row[2]] == []


def test_line_ends_are_those_that_git_and_an_editor_see() -> None:
    """A file of Windows's is the same as long as it stays one; a lone carriage return ends no line."""
    windows = FILE.replace(b"\n", b"\r\n")
    assert look("", windows, then=windows) == ""
    assert look("2", b"a\rB\nc\n", then=b"a\rb\nc\n") == ""
    assert look("2", b"a\rb\nC\n", then=b"a\rb\nc\n") == "a.py:2 has changed"


TWINS = b"def a(x):\n    y = x\n    return y\n\ndef b(x):\n    y = 2 * x\n    return y\n"


def test_lines_that_stand_twice_or_say_nothing_are_compared_with_all_of_the_file() -> None:
    """One of two copies may have been changed, and a bracket stands in every function."""
    texts = [bool(cite(Source(path="a.py", lines=lines), TWINS, make_id).text) for lines in ("7", "6", "6-7", "4")]
    assert texts == [False, True, True, False]
    assert look("7", TWINS, then=TWINS) == look("6", b"import os\n" + TWINS, then=TWINS) == ""
    assert look("7", b"import os\n" + TWINS, then=TWINS) == "a.py:7 has changed"


def test_what_was_not_written_down_is_not_compared() -> None:
    assert find_change(Source(path="a.py", lines="2-3"), b"else", make_id) == ""
    assert find_change(Source(path="a.py", lines="2-3", blob="0123abc"), b"else", make_id) == "a.py:2-3 has changed"
    assert find_change(Source(path="a.py", text="0123abc", blob="0123abc"), b"else", make_id) == "a.py has changed"


def test_a_large_file_is_looked_through_only_so_far() -> None:
    then = b"".join(b"%d\n" % n for n in range(MAX_COMPARED_LINES // 250))
    assert look("1-1000", then + b"x\n", then=then) == ""
    assert look("1-1000", b"x\n" + then, then=then) == "a.py:1-1000 has changed"


def test_a_place_is_a_path_with_or_without_lines() -> None:
    places = {"a::b.py:3": ("a::b.py", "3"), "a:b.py:3-9": ("a:b.py", "3-9")}
    places |= {text: (text, "") for text in ("a.py", "a.py::", "a.py::Client.send", "a.py:x", "")}
    assert {text: parse_place(text) for text in places} == {
        text: Source(path=path, lines=lines) for text, (path, lines) in places.items()
    }


LINES = st.lists(st.sampled_from((b"a", b"b", b"")), min_size=1, max_size=6)


@given(LINES, LINES, LINES, st.booleans())
def test_lines_that_moved_whole_still_say_the_same(
    before: list[bytes],
    cited: list[bytes],
    after: list[bytes],
    ends: bool,  # noqa: FBT001  # drawn
) -> None:
    first = len(before) + 1
    windows = zip(*((*before, *cited, *after)[n:] for n in range(len(cited))), strict=False)
    assume(sum(list(window) == cited for window in windows) == 1 and any(cited))
    tail = b"\n" if ends else b"x"
    then = b"\n".join((*before, *cited, *after)) + tail
    lines = f"{first}-{first + len(cited) - 1}"
    assert look(lines, b"\n".join((*after, *cited, *before, b"end")), then=then) == ""


def test_why_lines_cannot_be_cited() -> None:
    rows = (
        ("a.py", b"(", ""),
        ("a.py:1-9", FILE, ""),
        ("a.py:6-9", FILE, "a.py:6-9: the file has 5 lines"),
        ("a.py:2", b"one", "a.py:2: the file has 1 line"),
        ("a.py:99", b"\n" * (MAX_CITED_BYTES + 1), ""),
    )
    for place, data, words in rows:
        told = explain_missing(parse_place(place), data)
        assert (words in told, bool(told)) == (True, bool(words)), place
