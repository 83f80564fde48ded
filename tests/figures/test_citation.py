"""What a claim cites of a file, and whether the file still says it."""

import hashlib

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from relay.ledger.citation import (
    MAX_CITED_BYTES,
    MAX_COMPARED_LINES,
    MAX_PARSED_BYTES,
    cite,
    explain_missing,
    find_change,
    parse_place,
    read_names,
)
from relay.ledger.model import Source

FILE = b"one\ntwo\nthree\nfour\nfive\n"


def make_id(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def look(lines: str, now: bytes | None, *, then: bytes = FILE) -> str:
    return find_change(cite(Source(path="a.py", lines=lines), then, make_id), now, make_id)


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
        ("", FILE.replace(b"\n", b"\r\n"), ""),
        ("2-3", b"one\nfour\nfive\ntwo\nthree\n", ""),
        ("7-9", FILE + b"six\n", "a.py has changed"),
    ],
)
def test_what_became_of_the_cited_lines(lines: str, now: bytes | None, words: str) -> None:
    assert look(lines, now) == words


CODE = b"def one():\n    return {\n    }\n\n\ndef two():\n    return {\n    }\n"


@pytest.mark.parametrize(
    ("lines", "cited", "then"),
    [
        ("3", "2-4", CODE),
        ("4", "2-6", CODE),
        ("8", "7-8", CODE),
        ("2-3", "2-3", CODE),
        ("2", "", b"{\n}\n"),
        ("1", "", b"\n" * 100_000),
        ("2", "2", "(\nключ\n)\n".encode()),
    ],
)
def test_lines_without_a_word_take_in_those_around_them(lines: str, cited: str, then: bytes) -> None:
    """A bracket stands in every function: which one was meant, only its neighbours tell."""
    assert cite(Source(path="a.py", lines=lines), then, make_id).lines == cited


def test_a_cited_bracket_is_that_of_its_function() -> None:
    assert look("8", CODE.replace(b"def two():\n    return {", b"def two():\n    return 2, {"), then=CODE) != ""
    assert look("8", CODE.replace(b"def one():\n    return {", b"def one():\n    return 1, {"), then=CODE) == ""


def test_line_ends_are_those_that_git_and_an_editor_see() -> None:
    """A file of Windows's is the same as long as it stays one; a lone carriage return ends no line."""
    windows = FILE.replace(b"\n", b"\r\n")
    assert look("", windows, then=windows) == ""
    assert look("2", b"a\rB\nc\n", then=b"a\rb\nc\n") == ""
    assert look("2", b"a\rb\nC\n", then=b"a\rb\nc\n") == "a.py:2 has changed"


TWINS = b"def a(x):\n    y = x\n    return y\n\ndef b(x):\n    y = 2 * x\n    return y\n"
SECOND = TWINS.replace(b"    return y\n\n", b"    return x\n\n")
FIRST = b"    return y + 1\n".join(TWINS.rsplit(b"    return y\n", 1))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (FIRST, "a.py:7 has changed"),
        (b"import os\n" + FIRST, "a.py:7 has changed"),
        (SECOND, ""),
        (b"import os\n" + TWINS, ""),
        (b"import os\n" + TWINS + TWINS, ""),
    ],
)
def test_of_lines_that_stand_twice_in_a_file_the_cited_one_is_meant(now: bytes, words: str) -> None:
    """What stands in another function says nothing of it; of fewer than there were one has been changed."""
    assert look("7", now, then=TWINS) == words
    copies = [cite(Source(path="a.py", lines=lines), TWINS, make_id).copies for lines in ("7", "6", "6-7")]
    assert copies == ["2", "", ""]


def test_what_was_not_written_down_is_not_compared() -> None:
    assert find_change(Source(path="a.py", lines="2-3"), b"else", make_id) == ""
    assert find_change(Source(path="a.py", lines="2-3", blob="0123abc"), b"else", make_id) == "a.py:2-3 has changed"
    assert find_change(Source(path="a.py", text="0123abc", blob="0123abc"), b"else", make_id) == "a.py has changed"


def test_a_large_file_is_looked_through_only_so_far() -> None:
    then = b"".join(b"%d\n" % n for n in range(MAX_COMPARED_LINES // 250))
    assert look("1-1000", then + b"x\n", then=then) == ""
    assert look("1-1000", b"x\n" + then, then=then) == "a.py:1-1000 has changed"


@pytest.mark.parametrize(
    ("text", "path", "lines"),
    [
        ("a.py", "a.py", ""),
        ("a::b.py:3", "a::b.py", "3"),
        ("a.py::", "a.py::", ""),
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
    windows = zip(*((*before, *cited, *after)[n:] for n in range(len(cited))), strict=False)
    assume(sum(list(window) == cited for window in windows) == 1 and any(cited))
    tail = b"\n" if ends else b"x"
    then = b"\n".join((*before, *cited, *after)) + tail
    lines = f"{first}-{first + len(cited) - 1}"
    assert look(lines, b"\n".join((*after, *cited, *before, b"end")), then=then) == ""


CLIENT = b"""\
import os

LIMIT = 3
a: int = 1

class Client:
    timeout = 5

    @property
    def state(self): return 1

    @state.setter
    def state(self, to):
        pass

    async def send(self):
        def inner():
            return 1
        return inner()

if os.name == "nt":
    def join(): return 1
else:
    def join(): return 2
x, y = 1, 2
self.z = 1
"""
SEND = b"""\
    async def send(self):
        def inner():
            return 1
        return inner()
"""


def look_up(symbol: str, now: bytes | None, *, then: bytes = CLIENT) -> str:
    source = cite(Source(path="a.py", symbol=symbol), then, make_id)
    assert source.symbol == symbol
    return find_change(source, now, make_id)


def test_names_and_where_they_stand() -> None:
    assert read_names("a.py", CLIENT).spans == {
        "LIMIT": (3, 3),
        "a": (4, 4),
        "Client": (6, 19),
        "Client.timeout": (7, 7),
        "Client.state": (9, 14),
        "Client.send": (16, 19),
        "Client.send.inner": (17, 18),
        "join": (22, 24),
    }


@pytest.mark.parametrize(
    ("symbol", "now", "words"),
    [
        ("Client.send", CLIENT, ""),
        ("Client.send", b"# moved\n" * 9 + CLIENT.replace(b"LIMIT", b"MAX"), ""),
        ("Client.send", CLIENT.replace(b"\n", b"\r\n"), ""),
        ("Client.send", CLIENT.replace(b"\n", b"\r"), ""),
        ("Client.send", CLIENT.replace(b"return inner()", b"return 2"), "a.py::Client.send has changed"),
        ("Client.send", CLIENT.replace(SEND, SEND + b"        go()\n"), "a.py::Client.send has changed"),
        ("Client.state", CLIENT.replace(b"@property", b"@cached"), "a.py::Client.state has changed"),
        ("Client.send", CLIENT.replace(b"Client", b"Server"), "a.py::Client.send is gone"),
        ("Client.send", b"", "a.py::Client.send is gone"),
        ("Client.send", None, "a.py::Client.send is gone"),
        ("Client.send", CLIENT + b"(", ""),
        ("Client.send", SEND, ""),
        ("Client.send", CLIENT.replace(b"return inner()", b"("), "a.py::Client.send has changed"),
    ],
)  # fmt: skip
def test_what_became_of_a_symbol(symbol: str, now: bytes | None, words: str) -> None:
    assert look_up(symbol, now) == words


def test_a_symbol_that_is_not_there_any_more_is_cited_as_the_file() -> None:
    assert cite(Source(path="a.py", symbol="b"), CLIENT, make_id) == cite(Source(path="a.py"), CLIENT, make_id)


def test_a_symbol_whose_text_was_not_written_down_has_changed_with_its_file() -> None:
    source = Source(path="a.py", symbol="Client", blob="0123abc")
    assert find_change(source, CLIENT, make_id) == "a.py::Client has changed"
    assert find_change(source, b"(", make_id) == "a.py::Client has changed"


@pytest.mark.parametrize(
    ("place", "data", "words"),
    [
        ("a.py", b"(", ""),
        ("a.py:1-9", FILE, ""),
        ("a.py:6-9", FILE, "a.py:6-9: the file has 5 lines"),
        ("a.py:2", b"one", "a.py:2: the file has 1 line"),
        ("a.py:99", b"\n" * (MAX_CITED_BYTES + 1), ""),
        ("a.py::Client", CLIENT, ""),
        ("a.py::send", CLIENT, "there is no such name; near it: Client.send"),
        ("a.py::Cleint::state", CLIENT, "there is no such name; near it: Client.state"),
        ("a.py::LIMTI", CLIENT, "there is no such name; near it: LIMIT"),
        ("a.py::q", CLIENT, "there is no such name. Else cite lines: a.py:10-20"),
        ("src/a.rs::Client", b"struct Client;", "names are found in Python files (.py, .pyi) only"),
        ("a.py::x", b"def f(:", "relay runs on cannot parse it: invalid syntax, line 1"),
        ("a.py::x", b"x" * (MAX_PARSED_BYTES + 1), "names are found in files of up to 512 KiB"),
        ("a.py::x", b"x = 1\0", "relay runs on cannot parse it"),  # "null bytes", since Python 3.11.4
        ("a.py::x", b"x = " + b"(" * 90_000, "too many nested parentheses"),
        ("a.py::x", b"x = " + b"-" * 90_000 + b"1", "relay runs on cannot parse it"),
        ("a.py::x", b"x = a" + b".a" * 50_000, "relay runs on cannot parse it"),
        ("a.py::x", b"# coding: nonsense\nx = 1", "relay runs on cannot parse it"),
        ("a.py::x", b"x = '\\d'", ""),
        ("a.py::x", b"".join(b"%sclass x:\n" % (b" " * depth) for depth in range(99)), "relay runs on cannot parse it"),
    ],
)
def test_why_a_symbol_or_lines_cannot_be_cited(place: str, data: bytes, words: str) -> None:
    told = explain_missing(parse_place(place), data)
    assert words in told
    assert bool(told) == bool(words)


@given(st.text(alphabet="abC.:_1ß -"), st.integers(1, 3))
@example("1::C", 1)
def test_a_place_with_a_symbol_reads_back(path: str, depth: int) -> None:
    source = Source(path=f"{path}.py", symbol=".".join(["Name"] * depth))
    assert parse_place(str(source)) == source
    assert parse_place(str(source).replace("Name.", "Name::")) == source
