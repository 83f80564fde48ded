"""How long claims held, and which were used again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.ledger.belief import Life, find_half_life, find_lives, find_uses
from relay.ledger.model import Claim, Confirmation, Ledger, Nogood, Retraction, Stamp

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def claim(name: str, hour: int | None = 10, session: str = "s1", **given: tuple[str, ...]) -> Claim:
    return Claim(id=name, claim="x", because="y", stamp=at(hour, session), **given)  # type: ignore[arg-type]


def at(hour: int | None, session: str = "s1") -> Stamp:
    return Stamp(session=session, at="" if hour is None else f"2026-11-20T{hour:02}:00:00Z")


def test_a_life_ends_with_the_first_entry_that_takes_the_claim_back_or_replaces_it() -> None:
    ledger = Ledger(
        entries=(
            claim("taken"),
            claim("replaced", 9),
            claim("held"),
            claim("old", None),
            claim("new", 11, replaces=("replaced",)),
            Retraction(of="taken", because="z", stamp=at(11)),
            Retraction(of="taken", because="z", stamp=at(12)),
            Retraction(of="held", because="by an older relay", stamp=at(None)),
            Confirmation(of="taken", because="z", stamp=at(12)),
            Nogood(id="n", claims=("held", "new"), because="z", stamp=at(12)),
        )
    )
    assert {name: (life.seconds / 3600, life.ended) for name, life in find_lives(ledger, NOW).items()} == {
        "taken": (1, True), "replaced": (2, True), "held": (2, False), "new": (1, False),
    }  # fmt: skip


def test_a_clock_that_ran_backwards_makes_no_negative_life() -> None:
    ledger = Ledger(entries=(claim("c", 11), Retraction(of="c", because="z", stamp=at(10))))
    assert find_lives(ledger, NOW)["c"] == Life(seconds=0, ended=True)


@pytest.mark.parametrize(
    ("lives", "half_life"),
    [
        ([], None),
        ([(1, False)], None),
        ([(1, True)], 1),
        ([(1, True), (2, True)], 1),
        ([(1, True), (2, True), (3, True)], 2),
        ([(n, True) for n in range(1, 7)], 3),
        ([(1, True), (5, False), (5, False)], None),
        # Four, of which one is lost from sight before two end: 3/4, then 3/4 x 1/2.
        ([(1, True), (2, False), (3, True), (9, False)], 3),
        ([(10, True), (10, False), (10, False)], None),  # of the same age, those that ended come first
    ],
)
def test_a_half_life_counts_what_still_holds(lives: list[tuple[int, bool]], half_life: float | None) -> None:
    assert find_half_life(Life(seconds=s, ended=ended) for s, ended in lives) == half_life


@given(st.lists(st.builds(Life, seconds=st.floats(0, 1e9), ended=st.booleans())), st.randoms())
def test_a_half_life_does_not_depend_on_the_order(lives: list[Life], random: object) -> None:
    shuffled = list(lives)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = find_half_life(lives)
    assert found == find_half_life(shuffled)
    assert found is None or any(life.seconds == found and life.ended for life in lives)


def test_a_claim_is_used_again_by_another_session_or_a_person() -> None:
    ledger = Ledger(
        entries=(
            claim("a"),
            claim("b", rests_on=("a",)),
            claim("c", session="s2", rests_on=("a", "b", "gone")),
            Confirmation(of="a", because="z", stamp=at(11, "s3")),
            Confirmation(of="a", because="z", stamp=at(11, "s3")),
            Confirmation(of="c", because="z", stamp=at(11, "s2")),
            Confirmation(of="b", because="z", stamp=at(11, "")),
            Retraction(of="a", because="z", stamp=at(11, "s4")),
        )
    )
    assert find_uses(ledger) == {"a": ("c", "s3"), "b": ("c", "")}
