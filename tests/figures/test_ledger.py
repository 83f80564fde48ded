"""The claims ledger: reading, appending, joining, and the snapshot for a prompt."""

import json
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from relay.base.errors import RelayError
from relay.ledger.belief import judge
from relay.ledger.model import (
    Claim,
    Confirmation,
    Entry,
    Kind,
    Ledger,
    Nogood,
    Retraction,
    Source,
    Stamp,
    append_entry,
    merge_entries,
    parse_ledger,
    render_stamp_time,
)
from relay.ledger.snapshot import Topic, list_shown, render_snapshot
from relay.session.usage import estimate_tokens
from tests.figures.ledgers import TEXTS, entries


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


OLD = """\
- event: "claim"
  id: "c1"
  claim: "ids are random"
  because: "two services\\U0000000awrite them"
  rests_on: ["c2"]
  sources: [{path: "db/schema.py", blob: "1f3c0aa", lines: "10-24"}]
- event: claim
  id: c2
  claim: no
  because: 1:30
"""


def test_a_ledger_of_an_older_relay_is_read_and_grows_by_lines() -> None:
    ledger = parse_ledger(OLD)
    assert ledger.entries == (
        Claim(
            id="c1",
            claim="ids are random",
            because="two services\nwrite them",
            rests_on=("c2",),
            sources=(Source(path="db/schema.py", blob="1f3c0aa", lines="10-24"),),
        ),
        Claim(id="c2", claim="no", because="1:30"),
    )
    new = Claim(id="c3", claim="x", because="y")
    assert append_entry(ledger, new).text == OLD + write(new)


@given(entries())
def test_what_is_appended_is_read_back_and_nothing_before_it_changes(made: tuple[Entry, ...]) -> None:
    ledger = Ledger()
    for entry in made:
        longer = append_entry(ledger, entry)
        assert longer.text.startswith(ledger.text)
        ledger = longer
    assert ledger == parse_ledger(ledger.text)
    assert ledger.entries == made
    assert ledger.text == write(*made)
    assert len(ledger.text.split("\n")) == len(made) + 1
    assert len(yaml.safe_load(ledger.text) or []) == len(made)


def test_pages_of_text_in_one_line_are_read_back() -> None:
    claim = Claim(id="c1", claim="ä\n" * 2_000, because="'\"\\" * 1_300, sources=(Source(path="p" * 4_000),))
    assert parse_ledger(write(claim)).entries == (claim,)


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


@pytest.mark.parametrize("text", ["[]", "  - {event: claim, id: c9, claim: a, because: b}\n", "--- []\n...\n", "- ["])
def test_a_file_that_cannot_be_appended_to_is_left_alone(text: str) -> None:
    ledger = Ledger(text=text) if text == "- [" else parse_ledger(text)
    with pytest.raises(RelayError, match="cannot be appended to"):
        append_entry(ledger, ONE)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Claim(id="c1", claim="x", because="y"), "'c1' is that of another entry"),
        (Nogood(id="c1", claims=(), because="y"), "'c1' is that of another entry"),
        (Claim(id="c3", claim=" ", because="y"), "claim is missing"),
        (Claim(id="c 3", claim="x", because="y"), "id 'c 3'"),
        (Retraction(of="", because="y"), "of is missing"),
        (Retraction(of="c1", because="y", stamp=Stamp(at="today")), "the time 'today'"),
        (Claim(id="c3", claim="x", because="y", sources=(Source(path="a\0"),)), "another form of source"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(entry: Entry, words: str) -> None:
    with pytest.raises(RelayError, match=words):
        append_entry(Ledger(text=write(ONE), entries=(ONE,)), entry)


def test_undecodable_bytes_do_not_break_the_file() -> None:
    after = append_entry(Ledger(), Claim(id="c1", claim="a\udc80b", because="y"))
    assert parse_ledger(after.text).claims["c1"].claim == after.claims["c1"].claim == "a?b"


CLAIM = "event: claim, id: c1, claim: a, because: b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b", "line 1: found something else than a list"),
        ("text", "line 1: found something else than a list"),
        ("# c\n- x", "line 2: found an entry of no known kind"),
        ("- {event: other}", "allowed: a mapping with event: claim, retract, confirm, nogood"),
        ("- {event: [claim]}", "found an entry of no known kind"),
        ("-\n  event: claim\n  id: c1\n", "claim is missing"),
        (f"- {{{CLAIM}, note: c}}", "found the key 'note'; allowed: event, id, claim"),
        ("- {event: claim, id: c1, claim: [a], because: b}", "claim is missing"),
        (f"- {{{CLAIM}, kind: hunch}}", "found the kind 'hunch'; allowed: constraint, warning"),
        (f"- {{{CLAIM}, rests_on: c}}", "rests_on: allowed: a list of ids"),
        (f"- {{{CLAIM}, replaces: [[c]]}}", "replaces: allowed: a list of ids"),
        (f"- {{{CLAIM}, sources: x}}", "sources: allowed: a list of sources"),
        (f"- {{{CLAIM}, sources: [x]}}", "another form of source"),
        (f"- {{{CLAIM}, sources: [{{path: ''}}]}}", "form of source; allowed"),
        (f'- {{{CLAIM}, sources: [{{path: "\\0"}}]}}', "form of source; allowed"),
        (f"- {{{CLAIM}, sources: [{{path: x, lines: 0}}]}}", "lines '0'"),
        (f"- {{{CLAIM}, sources: [{{path: x, blob: G}}]}}", "blob 'G'"),
        (f"- {{{CLAIM}, sources: [{{path: x, text: 1}}]}}", "text '1'"),
        (f"- {{{CLAIM}, at: 2026-13-20T10:00:00Z}}", "the time '2026-13-20T10:00:00Z'"),
        (f"- {{{CLAIM}, phase: [1]}}", "phase: allowed: a text"),
        ("- {event: retract, of: c 1, because: b}", "found the id 'c 1'"),
        ("- {event: claim, event: claim}", "found a key twice"),
        (f"- {{{CLAIM}}}\n- {{{CLAIM}, kind: warning}}\n", "line 2: the id 'c1' is that of another entry"),
        (f"- {{{CLAIM}}}\n<<<<<<< HEAD\n=======\n>>>>>>> b", "line 2: a merge left its marks here"),
        ("- &a x", "an anchor, an alias or a tag"),
        ("- *a", "an anchor, an alias or a tag"),
        ("- !!python/object:os.system x", "an anchor, an alias or a tag"),
        ("- {event: claim, <<: {id: c1}}", "claim is missing|found the key"),
        ("[]\n---\n[]", "line 2: found a second document"),
        ("- [", "line 1: no YAML|line 2: no YAML"),
        ("\t- x", "line 1: no YAML"),
        ("- a\0", "no YAML"),
        ("- \udc80", "no YAML"),
        ("- [[[[[[x]]]]]]", "nested more deeply"),
        ("[" * 500_000, "no YAML|nested more deeply"),
        ("- " * 500_000, "nested more deeply"),
        ("#" * (2 * 1024 * 1024 + 1), "found 2,097,153 characters"),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_anything_else_is_refused_with_its_line_and_soon(text: str, words: str) -> None:
    message = refuse(text)
    assert any(part in message for part in words.split("|"))
    assert "\n" not in message


@given(st.text(st.sampled_from("-[]{}:,#&*!|>\"'% \n\tabcevntlim01")) | st.text())
def test_any_text_is_a_ledger_or_a_readable_error(text: str) -> None:
    try:
        ledger = parse_ledger(text)
    except RelayError:
        return
    assert isinstance(ledger, Ledger)


def test_a_snapshot_puts_what_must_not_be_missed_first() -> None:
    gone, read = Source(path="db.py", lines="3", blob="0123abc"), Source(path="doc/a.md", blob="0123abc")
    made = (
        Claim(id="c1", claim="ids are random", because="why", sources=(read,)),
        Claim(id="c2", claim="so keys too", because="why", rests_on=("c1",)),
        Claim(id="c3", claim="three", because="why"),
        Claim(id="c4", claim="four", because="why", kind=Kind.DEAD_END),
        Claim(id="c5", claim="five", because="db", sources=(gone,)),
        Claim(id="c6", claim="six", because="rests", rests_on=("c5",)),
        Claim(id="c7", claim="old", because="why"),
        Claim(id="c8", claim="new", because="why", replaces=("c7",)),
        Claim(id="c9", claim="no network", because="asked", kind=Kind.CONSTRAINT, sources=(read,)),
        Nogood(id="n1", claims=("c3", "c4"), because="measured"),
        Retraction(of="c2", because="wrong"),
    )
    assert snap(*made, changed={gone: "db.py:3 has changed"}, topic=Topic(paths=frozenset({"doc"}))) == (
        "- c9 constraint: no network — asked (doc/a.md)\n"
        "- c1 decision: ids are random — why (doc/a.md)\n"
        "- n1 CONTRADICTION of c3, c4: measured\n"
        "- c5 decision, STALE (db.py:3 has changed): five — db (db.py:3)\n"
        "- c6 decision, in doubt (rests on c5): six — rests (rests on c5)\n"
        "- c2 decision, OUT (taken back: wrong): so keys too\n"
        "- c4 dead end, OUT (cannot hold together with c3: measured): four\n"
        "- c3 decision: three — why\n"
        "- c8 decision: new — why (replaces c7)\n"
        "- c7 decision, OUT (replaced by c8): old\n"
        "STALE or in doubt: look again, and `record` that it holds (`confirms`) or what does (`replaces`).\n"
        "(10 of 10 shown)\n"
    )


@pytest.mark.parametrize(
    ("claim", "near"),
    [
        ({"sources": (Source(path="src/a.py"),)}, True),
        ({"sources": (Source(path="src"),)}, True),
        ({"sources": (Source(path="srcs/a.py"),)}, False),
        ({"stamp": Stamp(phase="2")}, True),
        ({"stamp": Stamp(phase="1")}, False),
        ({"kind": Kind.WARNING}, True),
        ({"kind": Kind.WARNING, "sources": (Source(path="b"),)}, False),
        ({}, False),
    ],
)
def test_what_is_about_a_phase(claim: dict[str, object], near: bool) -> None:  # noqa: FBT001  # a row of a table
    topic = Topic(paths=frozenset({"src"}), phase="2")
    made = Claim(**{"id": "c1", "claim": "x", "because": "y", **claim})  # type: ignore[arg-type]  # rows are of one type
    assert topic.covers(made) is near
    assert not Topic().covers(Claim(id="c1", claim="x", because="y"))


def test_a_claim_says_when_what_it_rests_on_does_not_fit() -> None:
    one, two = Claim(id="c1", claim="x" * 290, because="y"), Claim(id="c2", claim="no", because="so", rests_on=("c1",))
    assert "- c2 decision: no — so (rests on c1 (not shown))\n(1 of 2 shown)" in snap(one, two, budget=40)
    assert "(rests on c1)" in snap(one, two, budget=400)


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
    total = len(ledger.claims) + len(judge(ledger, changed).contradictions)
    assert not snapshot or snapshot.endswith(f"({len(shown)} of {total} shown)\n")
    advised = "STALE or in doubt: look" in snapshot
    assert advised == any(", STALE (" in line or ", in doubt (" in line for line in snapshot.splitlines())


@given(entries(), st.integers(0, 300), TEXTS)
def test_a_claim_of_the_lowest_rank_pushes_nothing_out(made: tuple[Entry, ...], budget: int, text: str) -> None:
    adder = Claim(id="adder", claim="x", because="y", replaces=("added",))
    lowest = Claim(id="added", claim=text, because="why", kind=Kind.DEAD_END)
    everything = snap(*made, adder, lowest, budget=10_000)
    assume(ids_in(everything)[-1] == "added")  # its own words decide between it and another replaced dead end
    before, after = snap(*made, adder, budget=budget), snap(*made, adder, lowest, budget=budget)
    assert [name for name in ids_in(after) if name != "added"] == ids_in(before)


@given(entries())
def test_what_a_snapshot_shows_is_found_in_it_again(made: tuple[Entry, ...]) -> None:
    ledger = Ledger(entries=made)
    text = render_snapshot(ledger, judge(ledger, {}), 10_000)
    shown = list_shown(ledger, text)
    assert [claim["id"] for claim in shown] == [line.split()[1] for line in text.splitlines() if is_claim(line)]
    assert {claim["id"] for claim in shown} == set(ledger.claims)
    assert all(claim["paths"] == sorted({s.path for s in ledger.claims[claim["id"]].sources}) for claim in shown)
    assert sum(claim["tokens"] for claim in shown) >= sum(map(len, filter(is_claim, text.splitlines()))) // 4


def is_claim(line: str) -> bool:
    return line.startswith("- ") and " CONTRADICTION of " not in line


@given(entries())
def test_what_is_out_always_carries_its_reason(made: tuple[Entry, ...]) -> None:
    ledger = Ledger(entries=made)
    beliefs = judge(ledger, {}).beliefs
    lines = {line.split()[1]: line for line in snap(*made, budget=10_000).splitlines() if line.startswith("- ")}
    for name, belief in beliefs.items():
        assert belief.status == "in" or belief.because
        assert (", OUT (" in lines[name]) == (belief.status == "out") or ", OUT (" in ledger.claims[name].claim


def test_thousands_of_claims_that_rest_on_each_other_are_quick() -> None:
    claims = [Claim(id=f"c{n}", claim="x", because="y", rests_on=(f"c{n - 1}",) if n else ()) for n in range(3_000)]
    assert snap(*claims, budget=100_000).endswith("(3000 of 3000 shown)\n")
    newer = [Claim(id=f"c{n}", claim="x", because="y", replaces=(f"c{n - 1}",) if n else ()) for n in range(3_000)]
    assert snap(*newer, budget=100_000).endswith("(3000 of 3000 shown)\n")


def test_the_format_is_yaml_that_other_tools_read() -> None:
    assert json.dumps(yaml.safe_load(write(ONE))[0]["sources"]) == (
        '[{"path": "db/schema.py", "lines": "10-24", "blob": "1f3c0aa", "text": "77ab03c"}]'
    )
