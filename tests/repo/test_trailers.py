"""Commit text: what relay writes is read back, whatever is in it."""

import re
import string
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from relay.git.message import Message, disarm, make_line, parse_message, read_text, render_message
from relay.git.names import parse_path, render_path, render_ref_part
from relay.git.objects import write_commit
from relay.session.usage import Spent, Usage
from relay.store.trailers import (
    parse_cost,
    parse_spent,
    parse_usage,
    render_cost,
    render_spent,
    render_usage,
)

KEYS = st.sampled_from(["Relay-Plan", "Relay-Phase", "Relay-Items", "Relay-Gate", "X-Other"])
FOLDED = st.text(alphabet="ab: \t\xa0\u2003", min_size=60, max_size=300)
COUNTS = st.integers(min_value=0, max_value=10**12)
SLOW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(
    subject=st.text(max_size=60),
    body=st.text(max_size=200),
    trailers=st.lists(st.tuples(KEYS, st.text(max_size=80) | FOLDED), min_size=1, max_size=6),
)
@example(subject="s", body="Relay-Plan: forged\nRelay-Status: done", trailers=[("Relay-Plan", "a\nRelay-Gate: pass")])
@example(
    subject="# x", body="---\n#c\n\nSigned-off-by: x <x@x>", trailers=[("Relay-Plan", "\n folded"), ("X-Other", "# y")]
)
@example(subject="", body="\n\n\n", trailers=[("Relay-Phase", "a\0b\x85c\u2028d")])
def test_trailers_come_back_as_one_line_each(box, subject, body, trailers):
    """As git itself shows them, where nothing is configured."""
    repo = box.open()
    message = Message(subject=subject, body=body, trailers=tuple(trailers))
    commit = write_commit(repo, repo.empty_tree, (), message)
    expected = tuple((key, make_line(value)) for key, value in trailers if make_line(value))
    assume(expected)
    assert read_text(repo, commit).found == expected
    shown = box.git("log", "-1", "--format=%(trailers:only=true,unfold=true)", commit).decode().rstrip("\n")
    assert shown == "\n".join(f"{key}: {value}" for key, value in expected)


@given(value=FOLDED)
def test_a_long_trailer_fits_a_linter_of_72_columns(value):
    """Gitlint and commitlint make no exception for trailers; a word stays whole."""
    text = render_message(Message(subject="s", trailers=(("Relay-Doubt", value),))).decode()
    assert not [line for line in text.split("\n") if len(line) > 72 and re.search(r"\S \S", line)]


@SLOW
@given(body=st.text(alphabet=string.printable, max_size=300))
def test_a_body_comes_back_without_the_trailers(box, body):
    repo = box.open()
    commit = write_commit(repo, repo.empty_tree, (), Message(subject="s", body=body, trailers=(("Relay-Phase", "1"),)))
    found = read_text(repo, commit).message
    lines = [line for line in found.body.split("\n") if line.strip()]
    clean = "".join(c if c in {"\n", "\t"} or c.isprintable() else " " for c in body.replace("\r\n", "\n"))
    assert lines == [line for line in clean.split("\n") if line.strip()] or found.body.strip() == clean.strip()
    assert found.subject == "s"


TASTES = (
    ("core.commentChar", "R"),
    ("trailer.separators", "="),
    ("i18n.commitEncoding", "latin1"),
    ("i18n.logOutputEncoding", "latin1"),
    ("trailer.relay.key", "Relay-Plan: "),
    ("trailer.ifexists", "replace"),
)


def test_the_repository_s_taste_in_trailers_does_not_matter(box):
    """With these settings git's own %(trailers) shows none."""
    for key, value in TASTES:
        box.git("config", key, value)
    repo = box.open()
    commit = write_commit(repo, repo.empty_tree, (), Message(subject="ü", trailers=(("Relay-Plan", "ü"),)))
    text = read_text(repo, commit)
    assert (text.get("Relay-Plan"), text.message.subject) == ("ü", "ü")


def test_only_the_last_paragraph_counts():
    for text, trailers in {
        "Relay-Plan: a": (),
        "s\n\nRelay-Plan: a": (("Relay-Plan", "a"),),
        "s\n\nRelay-Plan: a\n(cherry picked from commit abc)\n": (("Relay-Plan", "a"),),
        "s\n\nRelay-Plan: a\n  folded\nB :c\n": (("Relay-Plan", "a folded"), ("B", "c")),
        "s\n\nRelay-Plan: a\nprose\n": (),
        "s\n\nRelay-Plan: a\n\nprose\n": (),
        "s\n\nRelay-Plan: a\n\nRelay-Plan: b\n \n\n": (("Relay-Plan", "b"),),
        "": (),
    }.items():
        assert parse_message(text).trailers == trailers, text


def test_a_reader_of_the_log_sees_what_is_there():
    """Nothing in a message turns text around or has no width; what joins an emoji stays."""
    text = "a\u202eb\u200bc\u061cd\ufeffe \U0001f469\u200d\U0001f4bb"
    shown = render_message(Message(subject=text, body=text)).decode()
    assert shown == "abcde \U0001f469\u200d\U0001f4bb\n\nabcde \U0001f469\u200d\U0001f4bb\n"


def test_the_first_of_two_equal_keys_counts(box):
    """A line that somebody appends to a message does not take back what the commit cost."""
    repo = box.open()
    message = Message(subject="s", trailers=(("Relay-Cost", "2.50 USD"), ("Relay-Cost", "0.00 USD")))
    assert read_text(repo, write_commit(repo, repo.empty_tree, (), message)).get("Relay-Cost") == "2.50 USD"


@given(st.builds(Usage, input_tokens=COUNTS, cache_read_tokens=COUNTS, cache_write_5m_tokens=COUNTS,
                 cache_write_1h_tokens=COUNTS, output_tokens=COUNTS, thinking_tokens=COUNTS))  # fmt: skip
def test_usage_comes_back(usage):
    assert parse_usage(render_usage(usage)) == usage


def test_unknown_usage_and_cost_stay_unknown():
    assert parse_usage(render_usage(None)) is None
    assert parse_usage("") is None
    assert parse_cost(render_cost(None)) is None
    assert [render_cost(value) for value in (float("nan"), float("inf"), -1.0)] == ["unknown"] * 3
    assert parse_cost("0 EUR") is None


@given(st.integers(min_value=0, max_value=10**12))
def test_cost_comes_back_to_a_millionth(micros):
    assert parse_cost(render_cost(micros / 1e6)) == pytest.approx(micros / 1e6, abs=1e-9)


@given(st.binary(min_size=1, max_size=40).filter(lambda b: b"\0" not in b))
@example(b'"')
@example(b'"a"')
@example(b"\\101")
@example(b" a ")
def test_a_path_of_any_bytes_fits_in_a_trailer(raw):
    path = raw.decode(errors="surrogateescape")
    line = render_path(path)
    assert line.isprintable()
    assert make_line(line) == line
    assert parse_path(line) == path


@given(st.text(alphabet="a/%2F", min_size=1), st.text(alphabet="a/%2F", min_size=1))
def test_branch_names_stay_apart_in_refs(one, other):
    assert "/" not in render_ref_part(one)
    assert (render_ref_part(one) == render_ref_part(other)) == (one == other)


def test_what_was_spent_survives_as_trailers():
    """A cost that is no more than that stays one; what is unknown has no bound."""
    for cost, estimated in product((None, 0.0, 0.42), (True, False)):
        spent = Spent(usage=Usage(input_tokens=3, output_tokens=4), cost_usd=cost, estimated=estimated)
        (_, usage), (_, written) = render_spent(spent)
        assert parse_spent(usage, written) == replace(spent, estimated=estimated and cost is not None)
        assert written.startswith("~") == (estimated and cost is not None)


def test_orders_to_a_forge_are_disarmed():
    """No session keeps the checks of a push from running, and none closes an issue; its words stay."""
    plan = "## Phase 1 - Fix #7 [skip ci]"
    for text, left in {
        "Add it [skip ci]": "Add it (skip ci)",
        "Add it [CI Skip]": "Add it (CI Skip)",
        "[skip azurepipelines] x ***NO_CI***": "(skip azurepipelines) x (NO_CI)",
        "evidence\nskip-checks: true": "evidence\n(skip-checks) true",
        "Parse it, closes #7": "Parse it, see #7",
        "Fixes: org/repo.js#12, resolves GH-3": "see org/repo.js#12, see GH-3",
        "implements https://git.invalid/org/repo/-/issues/4": "see https://git.invalid/org/repo/-/issues/4",
    }.items():
        assert disarm(text, given="## Phase 1") == left
    for text in ("Fix #7", "Add it [skip ci]", "Fixes the list [no items] of #12", "prefix #7 [x]"):
        assert disarm(text, given=plan) == text
