"""Killed while phases land: the next parent finds everything where git says it is, and pays for nothing twice.

Every call of it: ``python -m rigs.crash.landing``.
"""

from collections.abc import Iterator
from itertools import product

import pytest

from rigs.crash.landing import LandingRig, open_landing_rig
from rigs.crash.tracer import Fault, Starter, find_obstacle
from tests.effort import NIGHTLY

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
PARTS = 23
PLACES = range(PARTS) if NIGHTLY else [9]
MODES = "ba" if NIGHTLY else "b"


@pytest.fixture(scope="module")
def rig(starter: Starter) -> Iterator[LandingRig]:
    """One rig for each worker."""
    with open_landing_rig(starter=starter) as made:
        yield made


@pytest.mark.parametrize(("part", "mode"), list(product(PLACES, MODES)))
def test_killed_while_phases_land(rig, part, mode):
    """Parent and child at once, before or after a call that changes files."""
    hits, wrong = rig.try_faults(Fault(at=1 + rig.count * part // PARTS, mode=mode))
    assert not wrong, (hits, wrong)
    assert hits


@pytest.mark.nightly
@pytest.mark.parametrize("part", PLACES)
def test_one_is_killed_alone(rig, part):
    """The parent goes on without a child, a child hands over without its parent, both without a git."""
    hits, wrong = rig.try_faults(Fault(at=1 + rig.count * part // PARTS, mode="o"))
    assert not wrong, (hits, wrong)
    assert hits


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8 if NIGHTLY else 1))
def test_killed_again_while_it_recovers(rig, seed):
    hits, wrong = rig.try_faults(*rig.make_chain(seed))
    assert not wrong, (hits, wrong)
