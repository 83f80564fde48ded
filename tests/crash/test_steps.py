"""A worker of many that ends at a step that has a name; all of them: ``python -m rigs.crash.fleet steps``."""

from collections.abc import Iterator

import pytest

from rigs.crash.steps import STEPS, StepRig, open_step_rig
from rigs.crash.tracer import Starter, find_obstacle
from tests.effort import THOROUGH, take_turns

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
SAMPLE = ("the second request", "the commit", "the clone follows")


@pytest.fixture(scope="module")
def rig(starter: Starter) -> Iterator[StepRig]:
    """One rig for each worker."""
    with open_step_rig(starter) as made:
        yield made


@pytest.mark.parametrize(("name", "mode"), take_turns(STEPS if THOROUGH else SAMPLE, "bxa"))
def test_whoever_goes_on_pays_nothing_twice_and_loses_nothing(rig, name, mode):
    trial = rig.try_step(name, mode, other=mode != "b")
    assert not trial.wrong, trial
