"""Who is taken for dead: by this machine's clock alone."""

from hypothesis import given
from hypothesis import strategies as st

from relay.base.values import dataclass
from relay.fleet.claims import NOBODY, Claims, LeaseClock


@dataclass(slots=True)
class Clock:
    """Mutable: it goes."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def claim(commit, *, lease_s=60, expires_s=0):
    return NOBODY.__class__(
        phase_id="1", worker="w", attempt=1, state=NOBODY.state, expires_s=expires_s, reserved_usd=None, seen_usd=0.0,
        lease_s=lease_s, commit=commit,
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans())), st.integers(-(10**9), 10**9))
def test_a_claim_is_dead_when_it_has_not_moved_for_its_lease(steps, skew):
    """Whatever its holder's clock says."""
    clock, moved_at, number = Clock(), 0.0, 0
    lease_clock = LeaseClock(clock)
    for passed, moves in [(0.0, True), *steps]:
        clock.now += passed
        if moves:
            moved_at, number = clock.now, number + 1
        held = claim(str(number), expires_s=int(clock.now) + skew)
        lease_clock.note(Claims(held=(held,)))
        assert lease_clock.find_wait_s(held) == 60 - (clock.now - moved_at)


def test_a_claim_that_was_not_seen_before_is_watched_for_all_of_its_lease():
    clock = Clock()
    lease_clock = LeaseClock(clock)
    assert lease_clock.find_wait_s(claim("a")) == 60
    lease_clock.note(Claims(held=(claim("a"), claim("b"))))
    clock.now += 70
    lease_clock.note(Claims(held=(claim("b"),)))
    assert (lease_clock.find_wait_s(claim("a")), lease_clock.find_wait_s(claim("b"))) == (60, -10)
    assert lease_clock.find_wait_s(claim("c", lease_s=0)) == 300
