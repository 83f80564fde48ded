"""Whether claims hold: cases by hand, and what is true of every ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.ledger.belief import MAX_CULPRITS, MAX_ROUNDS, Belief, ClaimStatus, find_beside, judge, rank_claims
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
CHANGED = {A: "a.py:3-9 has changed", B: "b.py is gone"}


def at(second: int, *, session: str = "ab12") -> Stamp:
    return Stamp(session=session, at=f"2026-11-20T10:00:{second:02d}Z")


def say(name: str, *sources: Source, kind: Kind = Kind.DECISION, stamp: Stamp | None = None, **ids: str) -> Claim:
    """A claim; ids are given as words, such as ``rests_on="c1 c2"``."""
    lists = {key: tuple(value.split()) for key, value in ids.items()}
    return Claim(id=name, claim=name, because="so", kind=kind, sources=sources, stamp=stamp or Stamp(), **lists)


def ask(*made: Entry, changed: Mapping[Source, str] | None = None) -> Mapping[str, Belief]:
    return judge(Ledger(entries=made), changed or {}).beliefs


def show(*made: Entry, changed: Mapping[Source, str] | None = None) -> str:
    """The labels in one line: ``c1 in, c2 out``."""
    return ", ".join(f"{name} {belief.status}" for name, belief in ask(*made, changed=changed).items())


def test_how_much_rests_on_a_claim_counts_each_once_directly_or_in_turn() -> None:
    """Also where two ways lead to it, where the same is named twice, and where what is named is not known."""
    made = (say("a"), say("b", rests_on="a gone"), say("c", rests_on="a a"), say("d", rests_on="b c"), say("e"))
    for order in (made, made[::-1]):
        ranks = rank_claims(Ledger(entries=order))
        assert {name: support for name, (_, _, _, support, *_) in sorted(ranks.items())} == {
            "a": 3,
            "b": 1,
            "c": 1,
            "d": 0,
            "e": 0,
        }


def test_a_retraction_takes_out_what_rests_on_it() -> None:
    made = (say("c1"), say("c2", rests_on="c1"), say("c3", rests_on="c2 c4"), say("c4"))
    assert show(*made) == "c1 in, c2 in, c3 in, c4 in"
    beliefs = ask(*made, Retraction(of="c1", because="measured"))
    assert [belief.status for belief in beliefs.values()] == ["out", "out", "out", "in"]
    assert [belief.because for belief in beliefs.values()] == [
        "taken back: measured", "rests on c1", "rests on c2", "",
    ]  # fmt: skip
    assert beliefs["c3"].by == ("c2",)


def test_what_rests_on_nothing_that_is_known_or_only_on_itself_is_out() -> None:
    assert show(say("c1", rests_on="gone"), say("c2", rests_on="c3"), say("c3", rests_on="c2")) == (
        "c1 out, c2 out, c3 out"
    )


def test_a_confirmation_is_a_ground_of_its_own_and_ends_an_earlier_retraction() -> None:
    base = (say("c1"), say("c2", rests_on="c1"), Retraction(of="c1", because="wrong", stamp=at(1)))
    assert show(*base) == "c1 out, c2 out"
    assert show(*base, Confirmation(of="c2", because="seen")) == "c1 out, c2 in"
    assert show(*base, Confirmation(of="c1", because="not wrong", stamp=at(2))) == "c1 in, c2 in"
    assert show(*base, Confirmation(of="c1", because="too early", stamp=at(0))) == "c1 out, c2 out"
    # Of the same second, as two branches may write them, the retraction counts.
    tied = (Confirmation(of="c1", because="not wrong", stamp=at(1)), Retraction(of="c1", because="no", stamp=at(1)))
    assert show(say("c1"), *tied) == show(say("c1"), *reversed(tied)) == "c1 out"
    again = Retraction(of="c1", because="wrong after all", stamp=at(3))
    beliefs = ask(*base, Confirmation(of="c1", because="not wrong", stamp=at(2)), again)
    assert beliefs["c1"].because == "taken back: wrong after all"


def test_what_is_replaced_stays_out_and_comes_back_when_all_that_replaced_it_is_taken_back() -> None:
    made = (say("c1"), say("c2", replaces="c1"), say("c3", replaces="c2"))
    assert show(*made) == "c1 out, c2 out, c3 in"
    assert ask(*made)["c1"] == Belief(status=ClaimStatus.OUT, because="replaced by c2", by=("c2",))
    assert show(*made, Retraction(of="c2", because="x")) == "c1 out, c2 out, c3 in"
    assert show(*made, Retraction(of="c3", because="x")) == "c1 out, c2 in, c3 out"
    assert show(*made, Retraction(of="c3", because="x"), Retraction(of="c2", because="x")) == "c1 in, c2 out, c3 out"


def test_what_replaces_nothing_that_is_known_is_simply_in() -> None:
    made = (Retraction(of="gone", because="x"), Confirmation(of="gone", because="x"))
    nogoods = (Nogood(id="n1", claims=(), because="x"), Nogood(id="n2", claims=("gone",), because="x"))
    assert show(say("c1", replaces="gone"), *made, *nogoods) == "c1 in"


def test_what_is_in_only_when_it_is_out_is_told_and_takes_nothing_else_along() -> None:
    beliefs = ask(say("c1"), say("c2", rests_on="c1", replaces="c1"), say("c3"), say("c4", rests_on="c3"))
    assert [belief.status for belief in beliefs.values()] == ["in doubt", "in doubt", "in", "in"]
    assert beliefs["c1"].because == "whether it holds depends on itself, by c2"
    assert beliefs["c2"].by == ("c1",)
    assert show(say("c1", replaces="c2"), say("c2", replaces="c1")) == "c1 in doubt, c2 in doubt"


def test_what_a_changed_source_says_is_stale_and_what_rests_on_that_is_in_doubt() -> None:
    made = (say("c1", A, B), say("c2", rests_on="c1"), say("c3", rests_on="c2"), say("c4", B))
    beliefs = ask(*made, changed={A: CHANGED[A]})
    assert [belief.status for belief in beliefs.values()] == ["stale", "in doubt", "in doubt", "in"]
    assert [belief.because for belief in beliefs.values()] == ["a.py:3-9 has changed", "rests on c1", "rests on c2", ""]
    assert ask(*made, changed=CHANGED)["c1"].because == "a.py:3-9 has changed; b.py is gone"
    both = ask(say("c1", A), say("c2"), say("c3", rests_on="c1 c2"), changed=CHANGED)
    assert both["c3"].because == "rests on c1"  # not on what is sound


def test_whoever_looks_again_ends_the_doubt() -> None:
    made = (say("c1", A), say("c2", rests_on="c1"))
    now = replace(A, blob="fedcba9")
    looked = Confirmation(of="c1", because="still so", sources=(now,))
    assert show(*made, looked, changed=CHANGED) == "c1 in, c2 in"
    assert show(*made, looked, changed={**CHANGED, now: "a.py:3-9 has changed"}) == "c1 stale, c2 in doubt"
    assert show(*made, Confirmation(of="c2", because="seen"), changed=CHANGED) == "c1 stale, c2 in"


PERSON = at(1, session="")
GATED = Source(path="tests/keys/test_a.py", lines="3", blob="0123abc")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (say("c1"), say("c2", kind=Kind.CONSTRAINT)),
        (say("c1", kind=Kind.OBSERVATION), say("c2")),
        (say("c1", kind=Kind.CONSTRAINT), say("c2", stamp=PERSON)),
        (say("c1"), say("c2", A)),
        (say("c1", kind=Kind.CONSTRAINT), say("c2", A)),
        (say("c1", A, kind=Kind.CONSTRAINT), say("c2", A, B)),
        (say("c1", A, B), say("c2", GATED)),
        (say("c1", GATED, A, B, kind=Kind.CONSTRAINT), say("c2", stamp=PERSON)),
        (say("c2"), say("c1", stamp=at(1))),
        (say("c1"), say("c2")),
    ],
)
def test_of_two_that_cannot_both_hold_the_less_entrenched_is_out(one: Claim, two: Claim) -> None:
    nogood = Nogood(id="n1", claims=("c1", "c2"), because="measured")
    judgement = judge(Ledger(entries=(one, two, nogood)), {}, {"tests/keys"})
    assert judgement[one.id] == Belief(
        status=ClaimStatus.OUT, because=f"cannot hold together with {two.id}: measured", by=("n1", two.id)
    )
    assert judgement[two.id].status is ClaimStatus.IN
    assert judgement.contradictions == (nogood,)
    settled = judge(Ledger(entries=(one, two, nogood, Retraction(of=two.id, because="x"))), {})
    assert (settled[one.id].status, settled.contradictions) == (ClaimStatus.IN, ())


@pytest.mark.parametrize("names", ["n1 n2", "n2 n1"])
def test_nothing_is_out_because_of_what_is_out_itself(names: str) -> None:
    """The middle one of three is out, since it contradicts the best entrenched: the third has no other against it."""
    first, second = names.split()
    made = (say("c1", kind=Kind.DEAD_END), say("c2"), say("c3", kind=Kind.CONSTRAINT))
    one, two = Nogood(id=first, claims=("c1", "c2"), because="x"), Nogood(id=second, claims=("c2", "c3"), because="y")
    judgement = judge(Ledger(entries=(*made, one, two)), {})
    assert [belief.status for belief in judgement.beliefs.values()] == ["in", "out", "in"]
    assert judgement["c2"].because == "cannot hold together with c3: y"
    assert judgement.contradictions == (one, two)


def test_what_is_let_in_may_make_room_for_another() -> None:
    """The third stands against the fourth alone, and replaces what the second could not hold together with."""
    made = (
        say("c1", kind=Kind.CONSTRAINT), say("c2", kind=Kind.WARNING), say("c3", replaces="c1"),
        say("c4", kind=Kind.DEAD_END),
        Nogood(id="n1", claims=("c1", "c2"), because="x"), Nogood(id="n2", claims=("c3", "c4"), because="y"),
    )  # fmt: skip
    assert show(*made) == "c1 out, c2 in, c3 in, c4 out"


def test_what_a_claim_goes_back_to_is_given_up_not_the_claim() -> None:
    made = (
        say("c1"),
        say("c2"),
        say("c3", rests_on="c1 c2"),
        say("c4", kind=Kind.CONSTRAINT),
        say("c5", rests_on="c2"),
    )
    nogood = Nogood(id="n1", claims=("c3", "c4"), because="x")
    assert show(*made, nogood) == "c1 out, c2 in, c3 out, c4 in, c5 in"
    assert show(*made, Nogood(id="n1", claims=("c3", "c5", "c4"), because="x")).startswith("c1 out, c2 in")
    looked = Confirmation(of="c3", because="seen itself")
    assert show(*made, nogood, looked) == "c1 in, c2 in, c3 out, c4 in, c5 in"


def test_a_ledger_that_somebody_made_to_be_endless_ends() -> None:
    pairs = MAX_CULPRITS // 2 + 2
    made = [say(f"c{number:04}") for number in range(2 * pairs)]
    nogoods = [Nogood(id=f"n{n:04}", claims=(f"c{2 * n:04}", f"c{2 * n + 1:04}"), because="x") for n in range(pairs)]
    judgement = judge(Ledger(entries=(*made, *nogoods)), {})
    assert sum(belief.status is ClaimStatus.OUT for belief in judgement.beliefs.values()) == pairs - 2
    assert len(judgement.contradictions) == pairs
    # Each pair of claims is settled one round after the one before.
    rounds: list[Entry] = [say("c0000"), say("d0000", replaces="c0000")]
    for number in range(1, 2 * MAX_ROUNDS + 10):
        rounds.append(say(f"c{number:04}", rests_on=f"c{number - 1:04}"))
        rounds.append(say(f"d{number:04}", replaces=f"c{number:04}", rests_on=f"d{number - 1:04}"))
    beliefs = ask(*rounds)
    assert beliefs["d0001"].status is ClaimStatus.IN
    alternating = [say("c0000")]
    for number in range(1, 3 * MAX_ROUNDS):
        alternating.append(say(f"b{number:04}"))
        alternating.append(say(f"c{number:04}", replaces=f"b{number:04}", rests_on=f"b{number - 1:04}"))
    assert all(belief.status in ClaimStatus for belief in ask(*alternating).values())


NAMES = tuple(f"c{number}" for number in range(5))
SOME = st.lists(st.sampled_from((*NAMES, "gone")), max_size=2, unique=True).map(tuple)


@st.composite
def ledgers(draw: st.DrawFn, *, nogoods: bool = True) -> tuple[Entry, ...]:
    """Small ledgers with every entry at a time of its own."""
    times = draw(st.permutations(range(20)))
    made: list[Entry] = [
        Claim(
            id=name,
            claim=name,
            because="so",
            kind=draw(st.sampled_from(Kind)),
            rests_on=draw(SOME),
            replaces=draw(SOME),
            sources=tuple(draw(st.sets(st.sampled_from((A, B)), max_size=1))),
            stamp=at(times[place]),
        )
        for place, name in enumerate(NAMES)
    ]
    for place in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from((Retraction, Confirmation)))
        made.append(kind(of=draw(st.sampled_from(NAMES)), because="so", stamp=at(times[5 + place])))
    if nogoods:
        made += [Nogood(id=f"n{n}", claims=draw(SOME), because="so") for n in range(draw(st.integers(0, 2)))]
    return tuple(made)


def test_a_confirmation_with_another_source_is_further_evidence() -> None:
    made = (say("c1", A), say("c2", A, kind=Kind.CONSTRAINT), Nogood(id="n1", claims=("c1", "c2"), because="x"))
    assert show(*made) == "c1 out, c2 in"
    assert show(*made, Confirmation(of="c1", because="seen there too", sources=(B,))) == "c1 in, c2 out"


def tangle(dice: Random) -> tuple[Entry, ...]:
    """Claims of which many contradict each other, some said in the same second."""
    made: list[Entry] = []
    for place, name in enumerate(NAMES):
        sources = dice.choice([(), (A,), (A, B), (GATED,)])
        rests_on, replaces = (dice.choice(["", "", "", *NAMES[:place]]) for _ in "ab")
        stamp = at(dice.randrange(3))
        kind = dice.choice([*Kind])
        made.append(say(name, *sources, kind=kind, stamp=stamp, rests_on=rests_on, replaces=replaces))
    pairs = (dice.sample(NAMES, dice.choice((2, 2, 3))) for _ in range(dice.randint(2, 4)))
    return (*made, *(Nogood(id=f"n{n}", claims=tuple(pair), because="so") for n, pair in enumerate(pairs)))


@given(ledgers(), st.randoms(use_true_random=False))
def test_the_order_of_the_entries_says_nothing(made: tuple[Entry, ...], random: object) -> None:
    shuffled = list(made)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    beliefs, others = ask(*made, changed=CHANGED), ask(*shuffled, changed=CHANGED)
    assert {n: b.status for n, b in beliefs.items()} == {n: b.status for n, b in others.items()}


def rename(made: tuple[Entry, ...], ids: Mapping[str, str]) -> tuple[Entry, ...]:
    """The same claims and contradictions with other ids."""

    def name(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(ids[one] for one in names)

    return tuple(
        replace(entry, id=ids[entry.id], rests_on=name(entry.rests_on), replaces=name(entry.replaces))
        if isinstance(entry, Claim)
        else replace(entry, id=ids[entry.id], claims=name(entry.claims))
        for entry in made
        if isinstance(entry, Claim | Nogood)
    )


def test_ids_say_nothing() -> None:
    """Of one in twenty such ledgers other claims held where their ids, or those of contradictions, were others."""
    for seed in range(300):
        dice = Random(seed)
        made, others = tangle(dice), ("n0", "n1", "n2", "n3")
        ids = dict(zip((*NAMES, *others), (*dice.sample(NAMES, 5), *dice.sample(others, 4)), strict=True))
        before, after = (judge(Ledger(entries=entries), {}) for entries in (made, rename(made, ids)))
        assert {ids[name]: belief.status for name, belief in before.beliefs.items()} == {
            name: belief.status for name, belief in after.beliefs.items()
        }
        assert {ids[nogood.id] for nogood in before.contradictions} == {nogood.id for nogood in after.contradictions}


def test_each_claim_that_a_contradiction_keeps_out_would_make_it_whole() -> None:
    for seed in range(300):
        made = tangle(Random(seed))
        judgement = judge(Ledger(entries=made), {})
        nogoods = {nogood.id: nogood for nogood in judgement.contradictions}
        blamed = {n: nogoods[b.by[0]] for n, b in judgement.beliefs.items() if b.by and b.by[0] in nogoods}
        plain = [entry for entry in made if isinstance(entry, Claim)]
        for name, nogood in blamed.items():
            others = (Retraction(of=other, because="x") for other in blamed if other != name)
            beliefs = ask(*plain, *others)
            assert all(beliefs[member].status is ClaimStatus.IN for member in nogood.claims)


@given(ledgers())
def test_a_changed_source_takes_nothing_out(made: tuple[Entry, ...]) -> None:
    before, after = ask(*made), ask(*made, changed=CHANGED)
    assert {n for n, b in before.items() if b.status is ClaimStatus.OUT} == {
        n for n, b in after.items() if b.status is ClaimStatus.OUT
    }


@given(ledgers(nogoods=False), st.sampled_from(NAMES))
def test_to_take_back_and_to_confirm_again_changes_nothing(made: tuple[Entry, ...], name: str) -> None:
    before = ask(*made)
    if before[name].status is ClaimStatus.IN:
        back = (Retraction(of=name, because="x", stamp=at(30)), Confirmation(of=name, because="y", stamp=at(31)))
        assert ask(*made, back[0])[name].status is ClaimStatus.OUT
        assert {n: b.status for n, b in ask(*made, *back).items()} == {n: b.status for n, b in before.items()}


@given(ledgers())
def test_what_cannot_hold_together_does_not(made: tuple[Entry, ...]) -> None:
    ledger = Ledger(entries=made)
    beliefs = judge(ledger, {}).beliefs
    for nogood in ledger.nogoods:
        assert not nogood.claims or not all(n in beliefs and beliefs[n].status is ClaimStatus.IN for n in nogood.claims)


def iter_models(claims: Mapping[str, Claim], made: tuple[Entry, ...]) -> Iterator[frozenset[str]]:
    """Every set of claims that is what follows when just those that are not in it are out: Doyle's labellings."""
    ends = {
        name: max((e.stamp.at for e in made if isinstance(e, Retraction) and e.of == name), default="")
        for name in claims
    }
    looks = {name: [e.stamp.at for e in made if isinstance(e, Confirmation) and e.of == name] for name in claims}
    for model in chain.from_iterable(combinations(claims, size) for size in range(len(claims) + 1)):
        replaced = {below for name in model for below in claims[name].replaces}
        while more := {b for name in replaced & claims.keys() for b in claims[name].replaces} - replaced:
            replaced |= more
        found: set[str] = set()
        for _ in claims:
            found |= {
                name
                for name, claim in claims.items()
                if name not in replaced
                and (not ends[name] or max(looks[name], default="") > ends[name])
                and (looks[name] or set(claim.rests_on) <= found)
            }
        if found == set(model):
            yield frozenset(model)


@given(ledgers(nogoods=False))
def test_where_there_is_one_labelling_it_is_found_and_no_other_contradicts_it(made: tuple[Entry, ...]) -> None:
    claims = Ledger(entries=made).claims
    beliefs = ask(*made)
    inside = {name for name, belief in beliefs.items() if belief.status is ClaimStatus.IN}
    possible = {name for name, belief in beliefs.items() if belief.status is not ClaimStatus.OUT}
    models = tuple(iter_models(claims, made))
    assert all(inside <= model <= possible for model in models)
    if inside == possible:
        assert models == (frozenset(inside),)


@given(ledgers(), st.integers(0, 2**12 - 1))
def test_two_branches_say_the_same_however_they_are_joined(made: tuple[Entry, ...], sides: int) -> None:
    """Each entry stands on one side, on the other, or on both; git's union has our lines first or theirs."""
    ours = tuple(entry for n, entry in enumerate(made) if sides >> n & 1 or not n % 3)
    theirs = tuple(entry for n, entry in enumerate(made) if not sides >> n & 1 or not n % 3)
    known = judge(Ledger(entries=made), CHANGED)
    for one, other in ((ours, theirs), (theirs, ours)):
        found = judge(merge_entries(append_entry(Ledger(), *one), other), CHANGED)
        assert {n: b.status for n, b in found.beliefs.items()} == {n: b.status for n, b in known.beliefs.items()}
        assert set(found.contradictions) == set(known.contradictions)


def find_near(claim: str, *standing: str | Claim, cites: Source | None = None) -> str:
    """The ids beside a new claim; a text becomes a claim with the next id."""
    made = [one if isinstance(one, Claim) else replace(say(f"c{n}"), claim=one) for n, one in enumerate(standing)]
    new = replace(say("new", *([cites] if cites else []), replaces="c9"), claim=claim)
    ledger = Ledger(entries=tuple(made))
    return " ".join(other.id for other in find_beside(ledger, judge(ledger, {}), new))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A must never be 2", "A must be 2"),
        ("Retry counts must never be 2", "the retry-count has to be 2"),
        ("Ключи занимают 32 символа", "Ключи никогда не занимают 64 символов"),
        ("鍵は三十二桁で保存する", "鍵は六十四桁で保存しない"),
        ("कुंजी हमेशा ३२ अंकों की है", "कुंजी ६४ अंकों की है"),
        ("Schlüssel haben 32 Stellen", "SCHLÜSSEL sind 64 Stellen lang"),
    ],
)
def test_two_rare_words_put_a_claim_beside_another_in_any_language(one: str, other: str) -> None:
    assert find_near(one, other) == find_near(other, one) == "c0"
    assert find_near(one, "Logs go to stderr", other, "Names are unique") == "c1"


def test_words_that_the_whole_ledger_has_put_nothing_beside_anything() -> None:
    usual = [f"the {thing} is kept as it was" for thing in ("width", "colour", "limit", "path", "order")]
    assert find_near("the digest is kept as md5", *usual) == ""
    assert find_near("the digest is kept as md5", *usual, "no digest but md5") == "c5"


def test_a_place_puts_a_claim_beside_another_the_nearest_in_words_first() -> None:
    standing = (say("c0", A), say("c1", A, kind=Kind.CONSTRAINT), say("c9", A), replace(say("c3"), claim="md5 digest"))
    assert find_near("a digest by md5", *standing, cites=replace(A, lines="90")) == "c3 c1 c0"
    gone = (*standing, say("c4", replaces="c1"))
    assert find_near("a digest by md5", *gone, cites=A) == "c3 c0"
