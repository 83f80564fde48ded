"""The claims ledger: reading, appending, and the snapshot for a prompt."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import RelayError
from relay.ledger import (
    Claim,
    ClaimStatus,
    Conflict,
    Entry,
    Ledger,
    Source,
    StatusChange,
    append_entry,
    parse_ledger,
    render_snapshot,
)
from relay.session.tokens import estimate_tokens

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip)
SOURCES = st.builds(
    Source,
    path=TEXTS,
    blob=st.sampled_from(("", "0123abc", "f" * 64)),
    lines=st.sampled_from(("", "3", "10-24")),
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, ...]:
    """A list of entries that a ledger can hold."""
    made: list[Entry] = []
    claims: list[str] = []
    for number in range(draw(st.integers(0, 8))):
        because = draw(TEXTS)
        kind = draw(st.sampled_from(("claim", "claim", "conflict", "status")))
        names = tuple(draw(st.lists(st.sampled_from(claims), max_size=3))) if claims else ()
        if kind == "claim" or not names:
            sources = tuple(draw(st.lists(SOURCES, max_size=2)))
            claim = Claim(id=f"c{number}", claim=draw(TEXTS), because=because, rests_on=names, sources=sources)
            made.append(claim)
            claims.append(claim.id)
        elif kind == "conflict":
            made.append(Conflict(id=f"n{number}", claims=names, because=because))
        else:
            status = draw(st.sampled_from((ClaimStatus.IN, ClaimStatus.OUT, ClaimStatus.STALE)))
            made.append(StatusChange(id=names[0], status=status, because=because))
    return tuple(made)


def write(*made: Entry) -> str:
    ledger = Ledger()
    for entry in made:
        ledger = append_entry(ledger, entry)
    return ledger.text


def refuse(text: str) -> str:
    with pytest.raises(RelayError) as caught:
        parse_ledger(text)
    return str(caught.value)


ONE = Claim(
    id="c1",
    claim='ids are "random": yes',
    because="two services\nwrite them",
    sources=(Source(path="db/schema.py", blob="1f3c0aa", lines="10-24"),),
)
TWO = Claim(id="c2", claim="no", because="0123", rests_on=("c1",))


def test_a_claim_is_appended_as_a_line_person_can_read() -> None:
    assert write(ONE, TWO) == (
        '- event: "claim"\n'
        '  id: "c1"\n'
        '  claim: "ids are \\"random\\": yes"\n'
        '  because: "two services\\U0000000awrite them"\n'
        '  sources: [{path: "db/schema.py", blob: "1f3c0aa", lines: "10-24"}]\n'
        '- event: "claim"\n'
        '  id: "c2"\n'
        '  claim: "no"\n'
        '  because: "0123"\n'
        '  rests_on: ["c1"]\n'
    )


@given(entries())
def test_what_is_appended_is_read_back_and_nothing_before_it_changes(made: tuple[Entry, ...]) -> None:
    ledger = Ledger()
    for entry in made:
        longer = append_entry(ledger, entry)
        assert longer.text.startswith(ledger.text)
        ledger = longer
    assert ledger == parse_ledger(ledger.text)
    assert ledger.claims == tuple(entry for entry in made if isinstance(entry, Claim))
    assert ledger.conflicts == tuple(entry for entry in made if isinstance(entry, Conflict))
    assert ledger.changes == {entry.id: entry for entry in made if isinstance(entry, StatusChange)}
    assert len(yaml.safe_load(ledger.text) or []) == len(made)
    assert ledger.next_id() not in {entry.id for entry in made}


@pytest.mark.parametrize(
    "text",
    ["", "# our ledger\n", "---\n", "--- # note", "- {event: claim, id: c9, claim: yes, because: 1:30}",
     "# x\r\n- event: claim\r\n  id: c9\r\n  claim: on\r\n  because: 2026-11-20"],
)  # fmt: skip
def test_a_file_that_a_person_wrote_is_appended_to_and_kept(text: str) -> None:
    after = append_entry(parse_ledger(text), ONE)
    assert after.text.startswith(text)
    assert parse_ledger(after.text).claims[-1] == ONE
    assert ("\r\n" in text) == ("\r\n- event" in after.text)


def test_values_are_texts_whatever_they_look_like() -> None:
    claim = parse_ledger("- {event: claim, id: 0123, claim: no, because: 1:30}").claims[0]
    assert (claim.id, claim.claim, claim.because) == ("0123", "no", "1:30")


@pytest.mark.parametrize("text", ["[]", "  - {event: claim, id: c9, claim: a, because: b}\n", "--- []\n...\n"])
def test_a_file_that_cannot_be_appended_to_is_left_alone(text: str) -> None:
    ledger = parse_ledger(text)
    with pytest.raises(RelayError, match="cannot be appended to"):
        append_entry(ledger, ONE)


def test_an_entry_that_does_not_fit_is_refused() -> None:
    ledger = parse_ledger(write(ONE))
    for entry, words in (
        (ONE, "'c1' is taken"),
        (Claim(id="c3", claim="x", because="y", rests_on=("c9",)), "'c9'"),
        (Claim(id="c3", claim=" ", because="y"), "claim is missing"),
        (Claim(id="c 3", claim="x", because="y"), "id 'c 3'"),
        (StatusChange(id="c1", status=ClaimStatus.RESOLVED, because="y"), "allowed: in, out, stale"),
        (StatusChange(id="c7", status=ClaimStatus.OUT, because="y"), "id of an entry above"),
        (Conflict(id="n1", claims=("c1", "c7"), because="y"), "'c7'"),
    ):
        with pytest.raises(RelayError, match=words):
            append_entry(ledger, entry)


def test_undecodable_bytes_do_not_break_the_file() -> None:
    after = append_entry(Ledger(), Claim(id="c1", claim="a\udc80b", because="y"))
    assert parse_ledger(after.text).claims[0].claim == after.claims[0].claim == "a?b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b", "line 1: found something else than a list"),
        ("text", "line 1: found something else than a list"),
        ("# c\n- x", "line 2: found an entry of no known kind"),
        ("- {event: other}", "allowed: a mapping with event: claim, conflict or status"),
        ("-\n  event: claim\n  id: c1\n", "claim is missing"),
        ("- {event: claim, id: c1, claim: a, because: b, note: c}", "found the key 'note'; allowed: event, id, claim"),
        ("- {event: claim, id: c1, claim: [a], because: b}", "claim is missing"),
        ("- {event: claim, id: c1, claim: a, because: b, rests_on: c}", "rests_on: allowed: a list of ids"),
        ("- {event: claim, id: c1, claim: a, because: b, sources: [x]}", "another form of source"),
        ("- {event: claim, id: c1, claim: a, because: b, sources: [{path: ''}]}", "form of source; allowed"),
        ("- {event: claim, id: c1, claim: a, because: b, sources: [{path: x, lines: 0}]}", "lines '0'"),
        ("- {event: claim, id: c1, claim: a, because: b, sources: [{path: x, blob: G}]}", "blob 'G'"),
        ("- {event: claim, id: c1, claim: a, because: b, rests_on: [c1]}", "found the id 'c1'"),
        ("- {event: status, id: c1, status: gone, because: b}", "found the status 'gone'; allowed: in, out"),
        ("- {event: claim, event: claim}", "found a key twice"),
        ("- {event: claim, id: c1, claim: a, because: b}\n" * 2, "line 2: the id 'c1' is taken"),
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
    ids=lambda value: value[:30] if isinstance(value, str) else "",
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
    three = Claim(id="c3", claim="third", because="why")
    four = Claim(id="c4", claim="fourth", because="why", rests_on=("c2",))
    made = (
        ONE, TWO, three, four, Claim(id="c5", claim="fifth", because="why"),
        Conflict(id="n1", claims=("c1", "c3"), because="old"), Conflict(id="n2", claims=("c1", "c4"), because="new"),
        StatusChange(id="n1", status=ClaimStatus.RESOLVED, because="measured"),
        StatusChange(id="c3", status=ClaimStatus.OUT, because="it was wrong"),
        StatusChange(id="c5", status=ClaimStatus.STALE, because="file changed"),
    )  # fmt: skip
    assert render_snapshot(parse_ledger(write(*made)), 1_000) == (
        "Ledger of earlier sessions' claims:\n"
        "- n2 [conflict open] c1, c4: new\n"
        "- n1 [conflict resolved: measured] c1, c3: old\n"
        "- c3 [out: it was wrong] third\n"
        "- c5 [stale: file changed] fifth\n"
        '- c1 [in] ids are "random": yes — two services write them (db/schema.py:10-24)\n'
        "- c2 [in] no — 0123 (rests on c1)\n"
        "- c4 [in] fourth — why (rests on c2)\n"
        "(7 of 7 shown)\n"
    )


def test_a_claim_says_when_what_it_rests_on_does_not_fit() -> None:
    ledger = Ledger(claims=(Claim(id="c1", claim="x" * 290, because="y"), TWO))
    assert "- c2 [in] no — 0123 (rests on c1 (not shown))\n(1 of 2 shown)" in render_snapshot(ledger, 40)


def test_nothing_to_say_is_empty() -> None:
    assert render_snapshot(Ledger(), 1_000) == ""
    assert render_snapshot(Ledger(claims=(ONE,)), 0) == ""
    assert render_snapshot(Ledger(claims=(ONE,)), -5) == ""


def ids_in(snapshot: str) -> list[str]:
    return [line.split()[1] for line in snapshot.splitlines() if line.startswith("- ")]


@given(entries(), st.integers(0, 300))
def test_a_snapshot_keeps_to_its_budget_and_to_one_line_for_each(made: tuple[Entry, ...], budget: int) -> None:
    ledger = parse_ledger(write(*made))
    snapshot = render_snapshot(ledger, budget)
    assert estimate_tokens(snapshot) <= budget
    assert snapshot == render_snapshot(parse_ledger(write(*made)), budget)
    total = len(ledger.claims) + len(ledger.conflicts)
    if snapshot:
        shown = ids_in(snapshot)
        assert len(set(shown)) == len(shown)
        assert snapshot.endswith(f"({len(shown)} of {total} shown)\n")
        assert len(snapshot.splitlines()) == len(shown) + 2


@given(entries(), st.integers(0, 300), TEXTS)
def test_a_claim_of_the_lowest_rank_pushes_nothing_out(made: tuple[Entry, ...], budget: int, text: str) -> None:
    ledger = parse_ledger(write(*made))
    oldest = Claim(id="added", claim=text, because="why")
    more = Ledger(claims=(oldest, *ledger.claims), conflicts=ledger.conflicts, changes=ledger.changes)
    before, after = (ids_in(render_snapshot(one, budget)) for one in (ledger, more))
    assert [name for name in after if name != "added"] == before


@given(entries())
def test_what_is_out_always_carries_its_reason(made: tuple[Entry, ...]) -> None:
    ledger = parse_ledger(write(*made))
    snapshot = render_snapshot(ledger, 10_000)
    for claim in ledger.claims:
        if ledger.status_of(claim) is ClaimStatus.OUT:
            reason = "".join(c if c.isprintable() else " " for c in ledger.changes[claim.id].because)
            assert f"- {claim.id} [out: {' '.join(reason.split())}] " in snapshot


def test_thousands_of_claims_that_rest_on_each_other_are_quick() -> None:
    claims = tuple(
        Claim(id=f"c{n}", claim="x", because="y", rests_on=(f"c{n - 1}",) if n else ()) for n in range(5_000)
    )
    assert render_snapshot(Ledger(claims=claims), 100_000).endswith("(5000 of 5000 shown)\n")


def test_the_format_is_yaml_that_other_tools_read() -> None:
    assert json.dumps(yaml.safe_load(write(ONE))[0]["sources"]) == (
        '[{"path": "db/schema.py", "blob": "1f3c0aa", "lines": "10-24"}]'
    )
