"""What the commits under refs/relay/ say: one JSON value, whoever pushed it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from relay.base.errors import RepoError
from relay.git.message import CommitText, parse_message, render_message
from relay.git.message import read_text as read_commit
from relay.session.usage import Spent
from relay.store.attempts import read_attempt
from relay.store.ref_notes import Carried, Course, Ending, Notes, ReviewNote, make_message, read_notes

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates too: names that are no UTF-8
NAMES = TEXTS.filter(lambda text: "\0" not in text)
MANY = st.lists(TEXTS, max_size=3).map(tuple)
REVIEWS = st.builds(ReviewNote, number=st.integers(0, 9), tree=st.just("ab" * 20), findings=MANY)
CARRIED = st.builds(
    Carried,
    said=MANY,
    reviews=st.lists(REVIEWS, max_size=2).map(tuple),
    evidence=st.dictionaries(TEXTS, TEXTS, max_size=3),
    repairs=st.dictionaries(TEXTS, st.integers(0, 9), max_size=3),
    rungs=MANY,
)
NOTES = st.builds(
    Notes,
    plan=NAMES,
    session=NAMES,
    base=st.sampled_from(["", "0" * 40, "f" * 64]),
    skipped=st.lists(st.tuples(NAMES, TEXTS), max_size=3).map(tuple),
    handoff_note=TEXTS,
    course=st.builds(Course, number=st.integers(0, 99), baseline=TEXTS),
    carried=CARRIED,
    ending=st.builds(Ending, error=TEXTS, proposed=st.none() | TEXTS, left=MANY),
)


def read(text: str) -> Notes | None:
    """Read what a commit with this message says."""
    return read_notes(CommitText(commit="", tree="", parents=(), time=0, message=parse_message(text)))


@given(NOTES)
def test_what_is_noted_is_read_back(notes):
    text = render_message(make_message("relay: x", notes)).decode()
    assert read(text) == notes
    assert text.isascii()  # no setting of a log's encoding changes it


HOSTILE = [
    "",
    "Relay-Session: aaaa1111",
    "[]",
    "null",
    '{"session": "s"',
    '{"session": "s"} and more',
    '{"session": 1}',
    '{"session": "a\\u0000b"}',
    '{"base": "--upload-pack=x"}',
    '{"base": "HEAD"}',
    f'{{"base": "{"a" * 40}\\n"}}',
    '{"wip": "refs/heads/main"}',
    '{"wip": "refs/relay/wip/a b"}',
    '{"items": "2.1"}',
    '{"items": ["2.1", null]}',
    '{"skipped": [["a"]]}',
    '{"ending": {"wait_until": NaN}}',
    '{"ending": {"wait_until": 1e999}}',
    '{"ending": {"wait_until": -1}}',
    '{"course": {"tries": 1e40}}',
    '{"course": {"tries": true}}',
    '{"carried": {"merges": "main"}}',
    '{"carried": {"repairs": {"s": "9"}}}',
    '{"carried": {"reviews": [{"number": 1}]}}',
    "{" * 100_000,
    '{"carried":' * 50_000,
    f'{{"handoff_note": "{"x" * (1 << 24)}"}}',
]


def test_what_is_not_relay_s_is_none():
    believed = [text[:60] for text in HOSTILE if read(f"relay: x\n\n{text}") is not None]
    assert believed == []


def test_a_key_of_a_newer_relay_is_ignored():
    assert read('relay: x\n\n{"session": "s", "later": [1]}') == Notes(session="s")


@pytest.mark.parametrize("cost", ["", "free", "-1 USD", "1e9 USD", "nan USD"])
def test_cost_that_is_not_relay_s_is_unknown(cost):
    notes = Notes(usage="input=1 output=1", cost=cost)
    assert notes.spent.cost_usd is None
    assert Notes().spent == Spent()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=CARRIED, other=CARRIED)
def test_what_is_kept_is_kept_once_whoever_joins_it(one, other):
    both = one.join(other)
    assert both.join(other) == both.join(one.join(other)) == both
    assert convert(json.loads(json.dumps(to_builtins(both))), Carried) == both
    assert {*one.said, *other.said} == {*both.said}


def test_an_attempt_that_is_not_relay_s_is_named_with_the_way_out(box):
    repo = box.open()
    box.git("update-ref", "refs/relay/leg/main", "HEAD")
    with pytest.raises(RepoError, match=r"refs/relay/leg/main names \w+, which is not relay's") as error:
        read_attempt(repo)
    assert error.value.hint == "git update-ref -d refs/relay/leg/main"
    assert read_notes(read_commit(repo, "HEAD")) is None
