"""One cap for all that are at work."""

from hypothesis import given
from hypothesis import strategies as st

from relay.run.phases.jobs import SharedCap, count_places


def test_what_is_left_is_for_all_who_can_start_now():
    shared = SharedCap(20.0, 2.0)
    first = shared.take("1", 3)
    assert first is not None
    assert (first.amount, first.is_all) == (6.0, False)
    second = shared.take("2", 2)
    assert second is not None
    assert second.amount == 6.0
    shared.give_back("1", 1.0)
    assert shared.left == 11.0


@given(st.integers(2, 5), st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.5)), max_size=20))
def test_who_becomes_ready_finds_a_part_of_it(jobs, acts):
    """A phase that starts, or is merged, while others are at work leaves something for those that they make ready."""
    shared = SharedCap(20.0, 0.0)
    working: dict[int, float] = {}
    for name, part in acts:
        if name in working:
            shared.give_back(str(name), working.pop(name) * part)
        elif len(working) < jobs:
            places = count_places(jobs - len(working), ready=jobs, waiting=9, is_alone=not working)
            share = shared.take(str(name), places)
            assert share is not None
            working[name] = share.amount
        assert len(working) == jobs or shared.left


def test_who_alone_can_start_has_all_of_it():
    assert count_places(3, ready=1, waiting=8, is_alone=True) == 1
    assert count_places(2, ready=1, waiting=1, is_alone=False) == 1


def test_who_is_alone_has_all_of_it():
    shared = SharedCap(20.0, 2.0)
    share = shared.take("1", 1)
    assert share is not None
    assert (share.amount, share.is_all) == (18.0, True)
    shared.give_back("1", None)  # it was killed: it may have spent all
    assert shared.left == 0.0


def test_without_a_cap_nothing_is_set_aside():
    shared = SharedCap(None, 2.0)
    assert shared.take("1", 3) is None
    assert shared.left is None
    shared.give_back("1", 5.0)


@given(st.floats(0, 100), st.floats(0, 50), st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 1))))
def test_the_cap_is_never_passed(cap, spent, acts):
    """Whoever takes, spends at most what it took: the sum stays below the cap."""
    shared, shares, total = SharedCap(cap, spent), {}, spent
    for name, takes, part in acts:
        if takes and name not in shares:
            share = shared.take(name, 2)
            assert share is not None
            shares[name] = share.amount
        elif name in shares:
            total += (own := shares.pop(name) * part)
            shared.give_back(name, own)
        assert total + sum(shares.values()) <= max(cap, spent) + 1e-6
