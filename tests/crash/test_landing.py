"""Killed while phases land: the next parent finds everything where git says it is, and pays for nothing twice.

Every call of it: ``python -m rigs.crash.landing``.
"""

from collections.abc import Iterator

import pytest

from rigs.crash.landing import LandingRig, make_chain, open_landing_rig
from rigs.crash.tracer import Fault, Starter, find_obstacle
from tests.effort import NIGHTLY

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
PARTS = 23
MERGED = Fault(at=1, on="refs/heads/relay-jobs/main/2.lock")
"""The first phase has landed, and the second one, which is merged, is about to be put on it."""


@pytest.fixture(scope="module")
def rig(starter: Starter) -> Iterator[LandingRig]:
    """One rig for each worker."""
    with open_landing_rig(starter=starter) as made:
        yield made


@pytest.fixture(scope="module")
def calls(rig):
    """How many calls change files."""
    return rig.count() if NIGHTLY else 0


@pytest.mark.parametrize("fault", [(part, mode) for part in range(PARTS) for mode in "ba"] if NIGHTLY else [MERGED])
def test_killed_while_phases_land(rig, calls, fault):
    """Parent and child at once, before or after a call that changes files."""
    if not isinstance(fault, Fault):
        fault = Fault(at=1 + calls * fault[0] // PARTS, mode=fault[1])
    hits, wrong = rig.try_faults(fault)
    assert not wrong, (hits, wrong)
    assert hits


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_one_is_killed_alone(rig, calls, part):
    """The parent goes on without a child, a child hands over without its parent, both without a git."""
    hits, wrong = rig.try_faults(Fault(at=1 + calls * part // PARTS, mode="o"))
    assert not wrong, (hits, wrong)
    assert hits


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_killed_again_while_it_recovers(rig, calls, seed):
    hits, wrong = rig.try_faults(*make_chain(calls, seed))
    assert not wrong, (hits, wrong)
