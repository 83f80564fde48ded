"""Whether claims hold: cases by hand, and what is true of every ledger."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relay.ledger.belief import ClaimStatus, Judgement, find_beside, judge
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
)

A, B = Source(path="a.py", lines="3-9", blob="0123abc"), Source(path="b.py", blob="0123abc")
NOW = replace(A, blob="fedcba9")
CHANGED = {A: "a.py:3-9 has changed", B: "b.py is gone"}
GONE = {**CHANGED, NOW: "a.py:3-9 has changed again"}


def at(second: int, *, session: str = "ab12") -> Stamp:
    return Stamp(session=session, at=f"2026-11-20T10:00:{second:02d}Z")


def say(name: str, *sources: Source, kind: Kind = Kind.DECISION, stamp: Stamp | None = None, **ids: str) -> Claim:
    """A claim; ids are given as words, such as ``rests_on="c1 c2"``."""
    lists = {key: tuple(value.split()) for key, value in ids.items()}
    return Claim(id=name, claim=name, because="so", kind=kind, sources=sources, stamp=stamp or Stamp(), **lists)


def back(name: str, second: int = 1) -> Retraction:
    return Retraction(of=name, because="wrong", stamp=at(second))


def look(name: str, *sources: Source, second: int = 2) -> Confirmation:
    return Confirmation(of=name, because="seen", sources=sources, stamp=at(second))


def clash(*names: str, name: str = "n1") -> Nogood:
    return Nogood(id=name, claims=names, because="measured")


def ask(*made: Entry, changed: Mapping[Source, str] | None = None) -> Judgement:
    return judge(Ledger(entries=made), changed or {})


def show(judgement: Judgement) -> str:
    """The statuses in one line, ``c1 in, c2 out``, and the open contradictions behind them."""
    known = [f"{name} {belief.status}" for name, belief in judgement.beliefs.items()]
    return ", ".join(known + [nogood.id for nogood in judgement.contradictions])


PERSON = at(1, session="")
CHAIN = (say("c1"), say("c2", rests_on="c1"), say("c3", rests_on="c2 c4"), say("c4"))
ROW = (say("c1"), say("c2", replaces="c1"), say("c3", replaces="c2"))
PAIR = (say("c1"), say("c2"), clash("c1", "c2"))
CASES: dict[str, tuple[tuple[Entry, ...], str]] = {
    "what rests on claims that hold": (CHAIN, "c1 in, c2 in, c3 in, c4 in"),
    "a retraction cascades": ((*CHAIN, back("c1")), "c1 out, c2 out, c3 out, c4 in"),
    "one of two grounds falls": ((*CHAIN, back("c4")), "c1 in, c2 in, c3 out, c4 out"),
    "a replacement cascades": ((*CHAIN, say("c5", replaces="c1")), "c1 out, c2 out, c3 out, c4 in, c5 in"),
    "an unknown ground": ((say("c1", rests_on="gone"),), "c1 out"),
    "a circle of grounds": ((say("c1", rests_on="c2"), say("c2", rests_on="c1"), say("c3", rests_on="c2")),
                            "c1 out, c2 out, c3 out"),
    "a claim that rests on itself": ((say("c1", rests_on="c1"),), "c1 out"),
    "a ground that is named twice": ((say("c1"), say("c2", rests_on="c1 c1")), "c1 in, c2 in"),
    "a confirmation after a retraction": ((*CHAIN, back("c1"), look("c1")), "c1 in, c2 in, c3 in, c4 in"),
    "a confirmation before it": ((*CHAIN, look("c1", second=0), back("c1")), "c1 out, c2 out, c3 out, c4 in"),
    "both in one second": ((say("c1"), look("c1", second=1), back("c1")), "c1 out"),
    "both in one second, the other way": ((say("c1"), back("c1"), look("c1", second=1)), "c1 out"),
    "a second retraction": ((say("c1"), back("c1"), look("c1"), back("c1", 3)), "c1 out"),
    "a confirmation needs no ground": ((*CHAIN, back("c1"), look("c2")), "c1 out, c2 in, c3 in, c4 in"),
    "a confirmed circle": ((say("c1", rests_on="c2"), say("c2", rests_on="c1"), look("c2")), "c1 in, c2 in"),
    "a row of replacements": (ROW, "c1 out, c2 out, c3 in"),
    "the last of them is taken back": ((*ROW, back("c3")), "c1 out, c2 out, c3 out"),
    "all are taken back": ((*ROW, back("c2"), back("c3")), "c1 out, c2 out, c3 out"),
    "a replaced claim is confirmed": ((*ROW, look("c1")), "c1 out, c2 out, c3 in"),
    "a replacement that rests on what fell": ((say("c1"), say("c2", replaces="c1", rests_on="gone")),
                                              "c1 out, c2 out"),
    "a circle of replacements": ((say("c1", replaces="c2"), say("c2", replaces="c1")), "c1 out, c2 out"),
    "a claim that replaces itself": ((say("c1", replaces="c1"),), "c1 in"),
    "a claim that replaces its own ground": ((say("c1"), say("c2", rests_on="c1", replaces="c1"), say("c3")),
                                             "c1 out, c2 out, c3 in"),
    "entries about unknown claims": ((say("c1", replaces="gone"), back("gone"), look("gone"), clash("gone")), "c1 in"),
    "a changed source": ((say("c1", A), say("c2", rests_on="c1"), say("c3", rests_on="c2"), say("c4", NOW)),
                         "c1 stale, c2 in doubt, c3 in doubt, c4 in"),
    "it is confirmed where it stands now": ((say("c1", A), say("c2", rests_on="c1"), look("c1", NOW)),
                                            "c1 in, c2 in"),
    "it is confirmed without a source": ((say("c1", A), look("c1")), "c1 in"),
    "what rests on it is confirmed": ((say("c1", A), say("c2", rests_on="c1"), look("c2")), "c1 stale, c2 in"),
    "the last look counts": ((say("c1", NOW), look("c1", NOW), look("c1", A, second=3)), "c1 stale"),
    "a contradiction": (PAIR, "c1 in doubt, c2 in doubt, n1"),
    "a contradiction cascades": ((*PAIR, say("c3", rests_on="c2"), say("c4")),
                                 "c1 in doubt, c2 in doubt, c3 in doubt, c4 in, n1"),
    "a claim of it is taken back": ((*PAIR, back("c2")), "c1 in, c2 out"),
    "a claim of it is replaced": ((*PAIR, say("c3", replaces="c1")), "c1 out, c2 in, c3 in"),
    "the ground of a claim of it falls": (
        (say("c1", rests_on="c3"), say("c2"), say("c3"), clash("c1", "c2"), back("c3")), "c1 out, c2 in, c3 out"),
    "it is taken back itself": ((*PAIR, back("n1")), "c1 in, c2 in"),
    "it is replaced itself": ((*PAIR, say("c3", replaces="n1")), "c1 in, c2 in, c3 in"),
    "confirming a side does not settle it": ((*PAIR, look("c1")), "c1 in doubt, c2 in doubt, n1"),
    "a person against a session": ((say("c1", stamp=PERSON), say("c2"), clash("c1", "c2")), "c1 in, c2 in doubt, n1"),
    "a person against a person": ((say("c1", stamp=PERSON), say("c2", stamp=PERSON), clash("c1", "c2")),
                                  "c1 in doubt, c2 in doubt, n1"),
    "two contradictions": ((*PAIR, say("c3"), clash("c2", "c3", name="n2"), back("c1")),
                           "c1 out, c2 in doubt, c3 in doubt, n2"),
    "a claim that contradicts itself": ((say("c1"), clash("c1")), "c1 in doubt, n1"),
    "a contradiction of nothing": ((say("c1"), clash()), "c1 in"),
    "stale and contradicted": ((say("c1", A), say("c2"), clash("c1", "c2")), "c1 stale, c2 in doubt, n1"),
}  # fmt: skip


def test_where_claims_stand() -> None:
    found = {case: show(ask(*made, changed=CHANGED)) for case, (made, _) in CASES.items()}
    assert found == {case: known for case, (_, known) in CASES.items()}
    assert ask(say("c1", A, B), changed=CHANGED)["c1"].because == "a.py:3-9 has changed; b.py is gone"


NAMES = tuple(f"c{number}" for number in range(5))
SOME = st.lists(st.sampled_from((*NAMES, "gone")), max_size=2, unique=True).map(tuple)


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[Entry, ...]:
    """Small ledgers, some entries of the same second."""
    made: list[Entry] = [
        Claim(
            id=name,
            claim=name,
            because="so",
            kind=draw(st.sampled_from(Kind)),
            rests_on=draw(SOME),
            replaces=draw(SOME),
            sources=tuple(draw(st.sets(st.sampled_from((A, B)), max_size=1))),
            stamp=at(draw(st.integers(0, 3)), session=draw(st.sampled_from(("", "ab12")))),
        )
        for name in NAMES
    ]
    for _ in range(draw(st.integers(0, 4))):
        name, stamp = draw(st.sampled_from((*NAMES, "n0"))), at(draw(st.integers(0, 3)))
        looked = Confirmation(of=name, because="so", sources=draw(st.sampled_from(((), (A,), (NOW,)))), stamp=stamp)
        later: tuple[Entry, ...] = (Retraction(of=name, because="so", stamp=stamp), looked)
        made.append(later[draw(st.integers(0, 1))])
    made += [Nogood(id=f"n{n}", claims=draw(SOME), because="so") for n in range(draw(st.integers(0, 2)))]
    return tuple(made)


def label(judgement: Judgement) -> tuple[dict[str, ClaimStatus], set[str]]:
    """What must not depend on order or ids."""
    statuses = {name: belief.status for name, belief in judgement.beliefs.items()}
    return statuses, {nogood.id for nogood in judgement.contradictions}


@given(ledgers(), st.randoms(use_true_random=False))
def test_the_order_of_the_entries_says_nothing(made: tuple[Entry, ...], random: Random) -> None:
    shuffled = list(made)
    random.shuffle(shuffled)
    assert label(ask(*made, changed=CHANGED)) == label(ask(*shuffled, changed=CHANGED))


@given(ledgers(), st.permutations((*NAMES, "n0", "n1")))
def test_ids_say_nothing(made: tuple[Entry, ...], others: list[str]) -> None:
    ids = dict(zip((*NAMES, "n0", "n1"), (f"{other}x" for other in others), strict=True))

    def name(known: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(ids.get(one, one) for one in known)

    def rename(entry: Entry) -> Entry:
        match entry:
            case Claim():
                return replace(entry, id=ids[entry.id], rests_on=name(entry.rests_on), replaces=name(entry.replaces))
            case Nogood():
                return replace(entry, id=ids[entry.id], claims=name(entry.claims))
            case _:
                return replace(entry, of=ids[entry.of])

    statuses, unsettled = label(ask(*made, changed=CHANGED))
    after = label(ask(*map(rename, made), changed=CHANGED))
    assert after == ({ids[one]: status for one, status in statuses.items()}, {ids[one] for one in unsettled})


@given(ledgers())
def test_a_changed_source_takes_nothing_out(made: tuple[Entry, ...]) -> None:
    before, after = (label(ask(*made, changed=changed))[0] for changed in ({}, GONE))
    assert [n for n, s in before.items() if s is ClaimStatus.OUT] == [
        n for n, s in after.items() if s is ClaimStatus.OUT
    ]


@given(ledgers(), st.sampled_from(NAMES))
def test_a_replaced_claim_does_not_come_back(made: tuple[Entry, ...], name: str) -> None:
    """Whatever is said after it."""
    if any(isinstance(one, Claim) and one.id != name and name in one.replaces for one in made):
        assert ask(*made)[name].status is ClaimStatus.OUT


@given(ledgers(), st.sampled_from(NAMES))
def test_to_take_back_and_to_confirm_again_brings_back_all_that_was_in(made: tuple[Entry, ...], name: str) -> None:
    before = label(ask(*made))[0]
    if before[name] is ClaimStatus.IN:
        assert ask(*made, back(name, 30))[name].status is ClaimStatus.OUT
        after = label(ask(*made, back(name, 30), look(name, second=31)))[0]
        assert {n for n, s in before.items() if s is ClaimStatus.IN} <= {
            n for n, s in after.items() if s is ClaimStatus.IN
        }


@given(ledgers())
def test_what_cannot_hold_together_does_not(made: tuple[Entry, ...]) -> None:
    """Of claims of which a session's contradicts others, not all are in until that is settled."""
    judgement = ask(*made)
    for nogood in judgement.contradictions:
        assert any(judgement[name].status is not ClaimStatus.IN for name in nogood.claims)


@given(ledgers(), st.integers(0, 2**12 - 1))
def test_two_branches_say_the_same_however_they_are_joined(made: tuple[Entry, ...], sides: int) -> None:
    """Each entry stands on one side, on the other, or on both; git's union has our lines first or theirs."""
    ours = tuple(entry for n, entry in enumerate(made) if sides >> n & 1 or not n % 3)
    theirs = tuple(entry for n, entry in enumerate(made) if not sides >> n & 1 or not n % 3)
    known = label(ask(*made, changed=CHANGED))
    for one, other in ((ours, theirs), (theirs, ours)):
        joined = merge_entries(append_entry(Ledger(), *one), other)
        assert label(judge(joined, CHANGED)) == known


def find_near(claim: str, *standing: str | Claim, cites: Source | None = None) -> str:
    """The ids beside a new claim; a text becomes a claim with the next id."""
    made = [one if isinstance(one, Claim) else replace(say(f"c{n}"), claim=one) for n, one in enumerate(standing)]
    new = replace(say("new", *([cites] if cites else []), replaces="c9"), claim=claim)
    ledger = Ledger(entries=tuple(made))
    return " ".join(other.id for other in find_beside(ledger, judge(ledger, {}), new))


def test_two_rare_words_put_a_claim_beside_another_in_any_language() -> None:
    for one, other in (
        ("A must never be 2", "A must be 2"),
        ("Retry counts must never be 2", "the retry-count has to be 2"),
        ("Ключи занимают 32 символа", "Ключи никогда не занимают 64 символов"),
        ("鍵は三十二桁で保存する", "鍵は六十四桁で保存しない"),
        ("कुंजी हमेशा ३२ अंकों की है", "कुंजी ६४ अंकों की है"),
        ("Schlüssel haben 32 Stellen", "SCHLÜSSEL sind 64 Stellen lang"),
    ):
        assert find_near(one, other) == find_near(other, one) == "c0", one
        assert find_near(one, "Logs go to stderr", other, "Names are unique") == "c1", one


def test_a_place_puts_a_claim_beside_another_the_nearest_in_words_first() -> None:
    standing = (say("c0", A), say("c1", A, kind=Kind.CONSTRAINT), say("c9", A), replace(say("c3"), claim="md5 digest"))
    assert find_near("a digest by md5", *standing, cites=replace(A, lines="90")) == "c3 c1 c0"
    gone = (*standing, say("c4", replaces="c1"))
    assert find_near("a digest by md5", *gone, cites=A) == "c3 c0"
