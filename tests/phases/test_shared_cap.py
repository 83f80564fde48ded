"""One cap for all that are at work."""

import math

from hypothesis import given
from hypothesis import strategies as st

from relay.run.phases.jobs import SharedCap, count_places
from relay.session.usage import Spent, Usage


def share(usd=math.inf, spent=0.0, tokens=math.inf):
    return SharedCap((usd, tokens), Spent(usage=Usage(input_tokens=10), cost_usd=spent))


def test_what_is_left_is_for_all_who_can_start_now():
    shared = share(20.0, 2.0, tokens=40)
    assert shared.take("1", 3) == (6.0, 10.0)
    assert shared.take("2", 2) == (6.0, 10.0)
    shared.give_back("1", (1.0, 5))
    assert shared.offer(1) == (11.0, 15.0)
    shared.give_back("2", (None, 0))  # unknown: it may have spent all
    assert shared.offer(1) == (11.0, 25.0)


@given(st.integers(2, 5), st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.5)), max_size=20))
def test_who_becomes_ready_finds_a_part_of_it(jobs, acts):
    """A phase that starts, or is merged, while others are at work leaves something for those that they make ready."""
    shared = share(20.0)
    working: dict[int, float] = {}
    for name, part in acts:
        if name in working:
            shared.give_back(str(name), (working.pop(name) * part, 0))
        elif len(working) < jobs:
            places = count_places(jobs - len(working), ready=jobs, waiting=9, is_alone=not working)
            working[name] = shared.take(str(name), places)[0]
        assert len(working) == jobs or shared.offer(1)[0]


def test_who_alone_can_start_has_all_of_it_and_what_a_landing_makes_ready_needs_a_share():
    assert count_places(3, ready=1, waiting=8, is_alone=True) == 1
    assert count_places(2, ready=1, waiting=1, is_alone=False) == 1
    assert count_places(2, ready=1, waiting=8, is_alone=False) == 2


def test_without_a_cap_nothing_is_set_aside():
    """A person may set one meanwhile."""
    shared = share()
    assert shared.take("1", 3) == (math.inf, math.inf)
    shared.caps = 20.0, math.inf
    assert shared.offer(2) == (10.0, math.inf)
    shared.give_back("1", (5.0, 1))
    assert shared.offer(1) == (15.0, math.inf)


@given(st.floats(0, 100), st.floats(0, 50), st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 1))))
def test_the_cap_is_never_passed(cap, spent, acts):
    """Whoever takes, spends at most what it took: the sum stays below the cap."""
    shared, shares, total = share(cap, spent), {}, spent
    for name, takes, part in acts:
        if takes and name not in shares:
            shares[name] = shared.take(name, 2)[0]
        elif name in shares:
            total += (own := shares.pop(name) * part)
            shared.give_back(name, (own, 0))
        assert total + sum(shares.values()) <= max(cap, spent) + 1e-6
