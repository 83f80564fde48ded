"""A regular expression of a module does what a compiled one does, and is compiled when it is first used."""

import re

import pytest

from relay.regexes import regex


def test_it_does_what_a_compiled_one_does() -> None:
    ours, theirs = regex(r"(?P<word>a+)", re.IGNORECASE), re.compile(r"(?P<word>a+)", re.IGNORECASE)
    assert ours.findall("aA b a") == theirs.findall("aA b a")
    assert ours.sub("-", "AB") == theirs.sub("-", "AB")
    assert (ours.pattern, ours.groups, dict(ours.groupindex)) == (
        theirs.pattern,
        theirs.groups,
        dict(theirs.groupindex),
    )
    assert regex(rb"\d").fullmatch(b"1")


def test_a_wrong_one_is_found_when_it_is_used() -> None:
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.match("a")
