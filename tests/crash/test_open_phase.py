"""Killed as an open phase is put on what its user committed: the next run goes on with all of both.

Every call of it: ``python -m rigs.crash.open_phase``.
"""

import pytest

from rigs.crash.landing import make_chain
from rigs.crash.open_phase import open_phase_rig
from rigs.crash.tracer import Fault, Starter, find_obstacle
from tests.effort import NIGHTLY

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
REOPENED = Fault(at=1, mode="a", on="refs/relay/leg/relay-jobs%2Fmain%2F1.lock")
"""The phase begins again where it left the branch, and its work tree has not moved."""


def test_killed_as_it_goes_on(starter: Starter) -> None:
    with open_phase_rig(starter=starter) as rig:
        trials = [(REOPENED,), *(make_chain(rig.count(), seed) for seed in range(8) if NIGHTLY)]
        for faults in trials:
            hits, wrong = rig.try_faults(*faults)
            assert not wrong, (hits, wrong)
            assert hits, faults
