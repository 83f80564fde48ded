"""The claims ledger: reading, appending, joining, and the snapshot for a prompt."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from relay.base.errors import RelayError
from relay.ledger.belief import judge
from relay.ledger.model import (
    Claim,
    Confirmation,
    Entry,
    Kind,
    Ledger,
    Nogood,
    Record,
    Retraction,
    Source,
    Stamp,
    append_entry,
    make_entries,
    merge_entries,
    parse_ledger,
    render_stamp_time,
)
from relay.ledger.snapshot import Topic, explain_claim, render_snapshot
from relay.session.usage import estimate_tokens
from tests.figures.ledgers import entries


def write(*made: Entry) -> str:
    return append_entry(Ledger(), *made).text


def snap(
    *made: Entry, budget: int = 1_000, changed: dict[Source, str] | None = None, topic: Topic | None = None
) -> str:
    ledger = Ledger(entries=made)
    return render_snapshot(ledger, judge(ledger, changed or {}), budget, topic=topic)


def refuse(text: str) -> str:
    with pytest.raises(RelayError) as caught:
        parse_ledger(text)
    return str(caught.value)


ONE = Claim(
    id="c1",
    claim='ids are "random": yes',
    because="two services\nwrite them",
    sources=(Source(path="db/schema.py", lines="10-24", blob="1f3c0aa", text="77ab03c"),),
    stamp=Stamp(phase="1", session="ab12", at="2026-11-20T10:00:00Z"),
)
TWO = Claim(id="c2", claim="no", because="0123", kind=Kind.DEAD_END, rests_on=("c1",), replaces=("c0",))


def test_an_entry_is_one_line_that_a_person_can_read() -> None:
    made = (
        ONE, TWO,
        Retraction(of="c1", because="measured", stamp=Stamp(at="2026-11-20T10:00:00Z")),
        Confirmation(of="c1", because="read", sources=(Source(path="a"),)),
        Nogood(id="n1", claims=("c1", "c2"), because="both"),
    )  # fmt: skip
    assert write(*made) == (
        '- {event: "claim", id: "c1", kind: "decision", claim: "ids are \\"random\\": yes", '
        'because: "two services\\nwrite them", '
        'sources: [{path: "db/schema.py", lines: "10-24", blob: "1f3c0aa", text: "77ab03c"}], '
        'phase: "1", session: "ab12", at: "2026-11-20T10:00:00Z"}\n'
        '- {event: "claim", id: "c2", kind: "dead end", claim: "no", because: "0123", '
        'rests_on: ["c1"], replaces: ["c0"]}\n'
        '- {event: "retract", of: "c1", because: "measured", at: "2026-11-20T10:00:00Z"}\n'
        '- {event: "confirm", of: "c1", because: "read", sources: [{path: "a"}]}\n'
        '- {event: "nogood", id: "n1", because: "both", claims: ["c1", "c2"]}\n'
    )


@given(entries())
def test_what_is_appended_is_read_back_and_nothing_before_it_changes(made: tuple[Entry, ...]) -> None:
    ledger = Ledger()
    for entry in made:
        longer = append_entry(ledger, entry)
        assert longer.text.startswith(ledger.text)
        ledger = longer
    assert ledger == parse_ledger(ledger.text) == append_entry(ledger, *made)  # an entry that is said again is there
    assert ledger.entries == made
    assert ledger.text == write(*made)
    assert len(ledger.text.split("\n")) == len(made) + 1
    assert len(yaml.safe_load(ledger.text) or []) == len(made)


@given(entries(), entries())
def test_the_union_of_two_branches_has_each_entry_once(ours: tuple[Entry, ...], theirs: tuple[Entry, ...]) -> None:
    mine = append_entry(Ledger(), *ours)
    both = merge_entries(mine, theirs)
    assert both.text.startswith(mine.text)
    assert both.entries[: len(ours)] == ours
    assert {getattr(e, "id", e) for e in both.entries} == {getattr(e, "id", e) for e in (*ours, *theirs)}
    assert merge_entries(both, theirs) is both


def test_an_entry_that_a_merge_doubled_counts_once() -> None:
    assert parse_ledger(write(ONE, TWO) + write(ONE)).entries == (ONE, TWO)


def test_ids_come_from_the_words_and_are_free() -> None:
    ledger = Ledger()
    first = ledger.make_id("c", ("ab12", "a claim"))
    assert first == Ledger(entries=(ONE,)).make_id("c", ("ab12", "a claim"))
    assert (len(first), first[0]) == (7, "c")
    taken = Ledger(entries=(Claim(id=first, claim="x", because="y"),))
    second = taken.make_id("c", ("ab12", "a claim"))
    assert second.startswith(first)
    assert len(second) == 8
    assert Ledger().make_id("c", ("cd34", "a claim")) != first


def test_what_is_said_later_has_a_later_time_whatever_the_clock_says() -> None:
    now = render_stamp_time(datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC))
    assert now == ONE.stamp.at
    ledger = Ledger(entries=(ONE, Retraction(of="c1", because="x", stamp=Stamp(at="2026-11-20T10:00:59Z"))))
    assert ledger.make_time(now, ["c1"]) == "2026-11-20T10:01:00Z"
    assert ledger.make_time(now, ["c2"]) == now
    assert ledger.make_time("2026-11-20T11:00:00Z", ["c1"]) == "2026-11-20T11:00:00Z"
    for last in ("9999-12-31T23:59:59Z", "9999-02-30T10:00:00Z"):  # a hostile ledger has one; nothing can follow it
        assert parse_ledger(write(structs.replace(ONE, stamp=Stamp(at=last)))).make_time(now, ["c1"]) == last


NOW = "2026-11-20T10:00:00Z"
SAID = Stamp(session="ab12", phase="2", at=NOW)
LATER = replace(SAID, at="2026-11-20T10:00:01Z")
CITED = (Source(path="a.py"),)


@pytest.mark.parametrize(
    ("record", "made"),
    [
        (Record(claim="x", because="y", kind=Kind.WARNING, rests_on=("c2",), sources=CITED),
         (Claim(id="c", claim="x", because="y", kind=Kind.WARNING, rests_on=("c2",), sources=CITED, stamp=SAID),)),
        (Record(claim="x", because="y", replaces=("c1",), contradicts=("c2", "c3"), sources=()),
         (Claim(id="c", claim="x", because="y", replaces=("c1",), stamp=LATER),
          Nogood(id="n", claims=("c", "c2"), because="y", stamp=LATER),
          Nogood(id="n", claims=("c", "c3"), because="y", stamp=LATER))),
        (Record(claim="", because="y", contradicts=("c1", "c2"), sources=()),
         (Nogood(id="n", claims=("c1", "c2"), because="y", stamp=LATER),)),
        (Record(claim="", because="y", confirms=("c1", "c2"), sources=CITED),
         (Confirmation(of="c1", because="y", sources=CITED, stamp=LATER),
          Confirmation(of="c2", because="y", sources=CITED, stamp=LATER))),
        (Record(claim="", because="y", sources=()), ()),
    ],
)  # fmt: skip
def test_what_is_said_becomes_entries_later_than_those_it_names(record: Record, made: tuple[Entry, ...]) -> None:
    ledger = append_entry(Ledger(), ONE, TWO)
    found = make_entries(ledger, record, SAID)
    ids = {entry.id: entry.id[0] for entry in found if isinstance(entry, Claim | Nogood)}
    plain = [
        structs.replace(entry, id=ids[entry.id], claims=tuple(ids.get(name, name) for name in entry.claims))
        if isinstance(entry, Nogood)
        else structs.replace(entry, id=ids[entry.id])
        if isinstance(entry, Claim)
        else entry
        for entry in found
    ]
    assert tuple(plain) == made
    assert append_entry(ledger, *found).entries[2:] == found


@pytest.mark.parametrize(
    "text",
    ["", "# our ledger\n", "---\n", "--- # note", "- {event: claim, id: c9, claim: yes, because: 1:30}",
     "# x\r\n- event: claim\r\n  id: c9\r\n  claim: on\r\n  because: 2026-11-20"],
)  # fmt: skip
def test_a_file_that_a_person_wrote_is_appended_to_and_kept(text: str) -> None:
    after = append_entry(parse_ledger(text), ONE)
    assert after.text.startswith(text)
    assert parse_ledger(after.text).entries[-1] == ONE
    assert ("\r\n" in text) == ("\r\n- {event" in after.text)


OPEN_END = "- event: claim\n  id: c9\n  claim: a\n  because: |+\n    b"
"""A line end behind it would be part of its last text."""


@pytest.mark.parametrize(
    "text", ["[]", "  - {event: claim, id: c9, claim: a, because: b}\n", "--- []\n...\n", "- [", OPEN_END]
)
def test_a_file_that_cannot_be_appended_to_is_left_alone(text: str) -> None:
    ledger = Ledger(text=text) if text == "- [" else parse_ledger(text)
    with pytest.raises(RelayError, match="cannot be appended to"):
        append_entry(ledger, ONE)


UNFIT = (
    (Nogood(id="c1", claims=(), because="y"), "c1 is that of another entry"),
    (Claim(id="c3", claim=" ", because="y"), "claim: a text"),
    (Claim(id="c 3", claim="x", because="y"), "id: letters"),
    (Retraction(of="c1", because="y", stamp=Stamp(at="today")), "allowed: at: UTC"),
    (Claim(id="c3", claim="x", because="y", sources=(Source(path="a\0"),)), "path: a path"),
)


def test_an_entry_that_does_not_fit_is_refused() -> None:
    for entry, words in UNFIT:
        with pytest.raises(RelayError, match=words):
            append_entry(Ledger(text=write(ONE), entries=(ONE,)), entry)


def test_undecodable_bytes_do_not_break_the_file() -> None:
    after = append_entry(Ledger(), Claim(id="c1", claim="a\udc80b", because="y"))
    assert parse_ledger(after.text).claims["c1"].claim == after.claims["c1"].claim == "a?b"


CLAIM = "event: claim, id: c1, claim: a, because: b"


REFUSED = (
    ("a: b", "line 1: found something else than a list"),
    ("# c\n- x", "line 2: found an entry of no known kind"),
    ("- {event: other}", "allowed: a mapping with event: claim, retract, confirm, nogood"),
    ("- {event: [claim]}", "found an entry of no known kind"),
    ("-\n  event: claim\n  id: c1\n", "line 2: this claim does not fit; allowed: a table with some of id, kind, claim"),
    ("- {event: claim, id: c1, claim: [a], because: b}", "allowed: claim: a text that is not blank"),
    (f"- {{{CLAIM}, note: c}}", "sources, phase, session, at"),
    (f"- {{{CLAIM}, kind: {'x' * 10_000}}}", "allowed: kind: One of constraint, warning"),
    (f"- {{{CLAIM}, rests_on: c}}", "rests_on: a list of ids"),
    (f'- {{{CLAIM}, rests_on: ["a\\nb"]}}', "rests_on: a list of ids"),
    (f"- {{{CLAIM}, sources: x}}", "sources: a list of sources"),
    (f"- {{{CLAIM}, sources: [x]}}", "sources: a table with some of path, lines, blob, text"),
    (f"- {{{CLAIM}, sources: [{{lines: 3}}]}}", "sources: a table with some of path"),
    (f'- {{{CLAIM}, sources: [{{path: "\\0"}}]}}', "sources.path: a path"),
    (f"- {{{CLAIM}, sources: [{{path: x, lines: 0}}]}}", "sources.lines: 12 or 12-40"),
    (f"- {{{CLAIM}, sources: [{{path: x, blob: G}}]}}", "sources.blob: a hex id"),
    (f"- {{{CLAIM}, at: 2026-13-20T10:00:00Z}}", "allowed: at: UTC such as"),
    (f"- {{{CLAIM}, phase: [1]}}", "allowed: phase: a string"),
    ("- {event: claim, event: claim}", "found a key twice"),
    (f"- {{{CLAIM}}}\n- {{{CLAIM}, kind: warning}}\n", "line 2: the id c1 is that of another entry"),
    (f"- {{{CLAIM}}}\n<<<<<<< HEAD\n=======\n>>>>>>> b", "line 2: a merge left its marks here"),
    ("- &a x", "an anchor, an alias or a tag"),
    ("- !!python/object:os.system x", "an anchor, an alias or a tag"),
    ("[]\n---\n[]", "line 2: the ledger is not valid YAML: but found another document"),
    ("\t- x", "line 1: the ledger is not valid YAML"),
    ("- \udc80", "not valid YAML"),
    ("- " * 500_000, "nested more than 4"),
    ("#" * (8 * 1024 * 1024 + 1), "has 8,388,609 characters"),
)


def test_anything_else_is_refused_with_its_line_and_soon() -> None:
    told = {text[-40:]: (refuse(text), words) for text, words in REFUSED}
    assert {text: said for text, (said, words) in told.items() if words not in said or "\n" in said} == {}


@given(st.text(st.sampled_from("-[]{}:,#&*!|>\"'% \n\tabcevntlim01")) | st.text())
def test_any_text_is_a_ledger_or_a_readable_error(text: str) -> None:
    try:
        ledger = parse_ledger(text)
    except RelayError:
        return
    assert isinstance(ledger, Ledger)


SESSION = Stamp(session="ab12")
ORDER: tuple[Entry, ...] = (
    Claim(id="c1", claim="guess", because="why", stamp=SESSION),
    Claim(id="c2", claim="new", because="why", replaces=("c3",)),
    Claim(id="c3", claim="old", because="why"),
    Claim(id="c4", claim="fell", because="why"),
    Retraction(of="c4", because="wrong"),
    Claim(id="c5", claim="went along", because="why", rests_on=("c4",)),
    Claim(id="c6", claim="cited", because="why", sources=(Source(path="doc/a.md", blob="0123abc"),)),
    Claim(id="c7", claim="built on it", because="why", rests_on=("c6",)),
    Claim(id="c8", claim="seen twice", because="why"),
    Confirmation(of="c8", because="read"),
    Claim(id="c9", claim="a person's", because="asked", stamp=Stamp(at="2026-11-20T10:00:00Z")),
    Claim(id="d1", claim="changed", because="db", sources=(Source(path="db.py", lines="3", blob="0123abc"),)),
    Claim(id="d2", claim="rests", because="so", rests_on=("d1",)),
    Claim(id="d3", claim="beware", because="burnt", kind=Kind.WARNING),
    Claim(id="d4", claim="no network", because="asked", kind=Kind.CONSTRAINT),
    Claim(id="d5", claim="four", because="why", kind=Kind.DEAD_END),
    Claim(id="d6", claim="five", because="why"),
    Nogood(id="n1", claims=("d5", "d6"), because="measured"),
)
CHANGED = {Source(path="db.py", lines="3", blob="0123abc"): "db.py:3 has changed"}
LINES = """\
- n1 CONTRADICTION of d5, d6: measured
- d6 decision, in doubt (cannot hold together with d5: measured): five — why
- d5 dead end, in doubt (cannot hold together with d6: measured): four — why
- d4 constraint: no network — asked
- d3 warning: beware — burnt
- d1 decision, STALE (db.py:3 has changed): changed — db (db.py:3)
- d2 decision, in doubt (rests on d1): rests — so (rests on d1)
- c9 decision: a person's — asked
- c8 decision: seen twice — why
- c7 decision: built on it — why (rests on c6)
- c6 decision: cited — why (doc/a.md)
- c5 decision, OUT (rests on c4): went along
- c4 decision, OUT (taken back: wrong): fell
- c2 decision: new — why (replaces c3)
- c1 decision: guess — why
- c3 decision, OUT (replaced by c2): old
To do: settle n1: say what `replaces` one of its claims, or n1 itself if all of them hold.
To do: look at d1 again: say that it holds (`confirms`) or what `replaces` it.
(15 claims: 8 IN, 3 in doubt, 1 STALE, 3 OUT; 15 shown)
"""


def test_a_snapshot_puts_what_must_not_be_missed_first() -> None:
    """Contradictions and warnings, then what was confirmed, guesses last; and what is to be done."""
    assert snap(*ORDER, changed=CHANGED) == LINES


def test_what_the_next_phase_is_about_comes_before_the_rest_and_contradictions_before_both() -> None:
    shown = ids_in(snap(*ORDER, changed=CHANGED, topic=Topic(paths=frozenset({"doc"}))))
    assert shown == ["n1", "d6", "d5", "d4", "d3", "c6", "d1", "d2", "c9", "c8", "c7", "c5", "c4", "c2", "c1", "c3"]


def test_a_budget_leaves_out_what_matters_less() -> None:
    """It is counted all the same, and nobody is told to look at a claim that is not shown."""
    known, shown = LINES.splitlines(), snap(*ORDER, changed=CHANGED, budget=120).splitlines()
    assert shown[:5] == known[:5]
    assert set(shown[:-1]) < set(known)
    assert "d1" not in "".join(shown[5:])
    assert shown[-1] == "(15 claims: 8 IN, 3 in doubt, 1 STALE, 3 OUT; 6 shown)"
    assert snap(*ORDER, changed=CHANGED, budget=20) == ""


def test_what_is_about_a_phase() -> None:
    rows: tuple[tuple[dict[str, object], bool], ...] = (
        ({"sources": (Source(path="src/a.py"),)}, True),
        ({"sources": (Source(path="src"),)}, True),
        ({"sources": (Source(path="srcs/a.py"),)}, False),
        ({"stamp": Stamp(phase="2")}, True),
        ({"stamp": Stamp(phase="1")}, False),
        ({"kind": Kind.WARNING}, True),
        ({"kind": Kind.WARNING, "sources": (Source(path="b"),)}, False),
        ({}, False),
    )
    topic = Topic(paths=frozenset({"src"}), phase="2")
    for given_, near in rows:
        made = Claim(**{"id": "c1", "claim": "x", "because": "y", **given_})  # type: ignore[arg-type]  # of one type
        assert topic.covers(made) is near, given_
    assert not Topic().covers(Claim(id="c1", claim="x", because="y"))


def test_nothing_to_say_is_empty() -> None:
    assert snap() == ""
    assert snap(ONE, budget=0) == ""
    assert snap(ONE, budget=-5) == ""


def ids_in(snapshot: str) -> list[str]:
    return [line.split()[1] for line in snapshot.splitlines() if line.startswith("- ")]


@given(entries(), st.integers(0, 300), st.data())
def test_a_snapshot_keeps_to_its_budget_and_to_one_line_for_each(
    made: tuple[Entry, ...], budget: int, data: st.DataObject
) -> None:
    ledger = Ledger(entries=made)
    cited = data.draw(st.sets(st.sampled_from(ledger.sources))) if ledger.sources else set()
    changed = dict.fromkeys(cited, "it has changed")
    snapshot = snap(*made, budget=budget, changed=changed)
    assert estimate_tokens(snapshot) <= budget
    assert snapshot == snap(*made, budget=budget, changed=changed)
    shown = ids_in(snapshot)
    assert len(set(shown)) == len(shown)
    claims = sum(name in ledger.claims for name in shown)
    assert not snapshot or snapshot.endswith(f"; {claims} shown)\n")
    judgement = judge(ledger, changed)
    stale = [name for name in shown if name in ledger.claims and judgement[name].status == "stale"]
    assert ("\nTo do: look at" in snapshot) == bool(stale)
    assert ("\nTo do: settle" in snapshot) == (claims < len(shown))
    for name in ledger.claims:  # each can be explained
        lines = explain_claim(ledger, judgement, changed, name)
        assert lines[0].startswith(f"{name} ")
        assert all(line.isprintable() for line in lines)
