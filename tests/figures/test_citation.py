"""What a claim cites of a file, and whether the file still says it."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.ledger import Source
from relay.ledger.citation import MAX_COMPARED_LINES, cite, find_change, parse_place

FILE = b"one\ntwo\nthree\nfour\nfive\n"


def make_id(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def look(lines: str, now: bytes | None, *, then: bytes = FILE) -> str:
    return find_change(cite("a.py", lines, then, make_id), now, make_id)


@pytest.mark.parametrize(
    ("lines", "now", "words"),
    [
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
        ("7-9", FILE + b"six\n", "a.py has changed"),
    ],
)
def test_what_became_of_the_cited_lines(lines: str, now: bytes | None, words: str) -> None:
    assert look(lines, now) == words


def test_what_was_not_written_down_is_not_compared() -> None:
    assert find_change(Source(path="a.py", lines="2-3"), b"else", make_id) == ""
    assert find_change(Source(path="a.py", lines="2-3", blob="0123abc"), b"else", make_id) == "a.py:2-3 has changed"


def test_a_large_file_is_looked_through_only_so_far() -> None:
    then = b"".join(b"%d\n" % n for n in range(MAX_COMPARED_LINES // 250))
    assert look("1-1000", then + b"x\n", then=then) == ""
    assert look("1-1000", b"x\n" + then, then=then) == "a.py:1-1000 has changed"


@pytest.mark.parametrize(
    ("text", "path", "lines"),
    [
        ("a.py", "a.py", ""),
        ("a.py:3", "a.py", "3"),
        ("a:b.py:3-9", "a:b.py", "3-9"),
        ("a.py:x", "a.py:x", ""),
        ("", "", ""),
    ],
)
def test_a_place_is_a_path_with_or_without_lines(text: str, path: str, lines: str) -> None:
    assert parse_place(text) == Source(path=path, lines=lines)


LINES = st.lists(st.sampled_from((b"a", b"b", b"")), min_size=1, max_size=6)


@given(LINES, LINES, LINES, st.booleans())
def test_lines_that_moved_whole_still_say_the_same(
    before: list[bytes],
    cited: list[bytes],
    after: list[bytes],
    ends: bool,  # noqa: FBT001  # drawn
) -> None:
    first = len(before) + 1
    tail = b"\n" if ends else b"x"
    then = b"\n".join((*before, *cited, *after)) + tail
    lines = f"{first}-{first + len(cited) - 1}"
    assert look(lines, b"\n".join((*after, *cited, *before, b"end")), then=then) == ""
