"""A sample of what `make crash` does in full: die at a system call, run again, nothing lost and nothing twice.

`make test` takes one of each kind, `make test-nightly` six times as many.
"""

import errno
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.tree import is_temporary
from rigs.crash.rig import Rig, open_rig
from rigs.crash.tracer import Fault, Starter, find_obstacle
from tests.effort import NIGHTLY

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
PARTS, LANDINGS = 97, 10
"""A job is cut into so many parts; a test's number picks the end of one of the first.

The others are its landings: a trial has no such calls, since a file that a person saves is in their way (and
`test_landing.py` has).
"""
STRIDE = 1 if NIGHTLY else 6


@pytest.fixture(scope="module")
def rig(starter: Starter) -> Iterator[Rig]:
    """One rig for each worker; commands run unconfined, so that git and files are what is tested."""
    with open_rig(sandbox="off", starter=starter) as made:
        yield made


def place(rig, part):
    """Return a call of the job: the same share of the way, however long the job is."""
    return 1 + rig.reference.count * part // (PARTS + LANDINGS)


def test_what_a_commit_holds_is_on_the_disk_before_its_commit_point(rig):
    """What a command of the session wrote, too: else a power cut leaves a commit whose files are empty."""
    calls = [call.partition(" ") for call in rig.reference.calls]
    points = [at for at, (name, _, on) in enumerate(calls) if name == "rename" and on.endswith("/refs/heads/main.lock")]
    for path in ("app.txt", "extra.txt", "sub/is.txt"):  # of phase 1, whose commit comes behind that of the plan
        synced = [at for at, (name, _, on) in enumerate(calls) if name == "fsync" and on.endswith(f"/{path}")]
        assert points[0] < synced[0] < points[1], path


def test_killed_at_the_commit_point_of_the_plan_alone_and_halfway_when_it_goes_on(rig):
    """Of a plan that is committed no attempt is open that would say what is left to be done: a note does."""
    at = rig.reference.find_call("rename", "refs/heads/main.lock")
    trial = rig.try_faults([Fault(at=at, mode="b"), Fault(at=place(rig, 50), mode="b")])
    assert not trial.wrong, trial
    assert len(trial.hits) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(2, PARTS, 8))
def test_killed_before_a_call(rig, part):
    """Everything is killed before a call that changes files."""
    trial = rig.try_faults([Fault(at=place(rig, part), mode="b")])
    assert not trial.wrong, trial
    assert trial.hits


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(6, PARTS, 16 * STRIDE))
def test_killed_after_a_call(rig, part):
    """The same, when the call has been made."""
    trial = rig.try_faults([Fault(at=place(rig, part), mode="a")])
    assert not trial.wrong, trial
    assert trial.hits


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(3, PARTS, 16 * STRIDE))
def test_killed_in_the_middle_of_a_write(rig, part):
    """Half of the bytes are there."""
    writes = rig.reference.writes
    trial = rig.try_faults([Fault(at=writes[len(writes) * part // PARTS], mode="t")])
    assert not trial.wrong, trial


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6 // STRIDE))
def test_killed_again_while_it_recovers(rig, seed):
    """Two or three kills in a row."""
    trial = rig.try_faults(rig.make_chain(seed))
    assert not trial.wrong, trial


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("part", "error", "mode"),
    [
        (11, errno.ENOSPC, "e"), (67, errno.ENOSPC, "E"), (67, errno.EIO, "e"), (11, errno.EIO, "E"),
        (67, errno.ENOSPC, "e"), (11, errno.ENOSPC, "E"), (11, errno.EIO, "e"), (67, errno.EIO, "E"),
    ][: 8 // STRIDE],
)  # fmt: skip
def test_a_call_fails(rig, part, error, mode):
    """A full or a broken disk, for a moment or until the run has ended."""
    trial = rig.try_faults([Fault(at=place(rig, part), mode=mode, error=error)])
    assert not trial.wrong, trial


def test_a_disk_that_is_full_as_the_index_takes_its_place_behind_a_commit(rig):
    """The next run has it follow."""
    at = rig.reference.find_call("rename", "/relay/held-index")
    trial = rig.try_faults([Fault(at=at, mode="E", error=errno.ENOSPC)])
    assert not trial.wrong, trial


@pytest.mark.nightly
def test_killed_behind_the_commit_point_of_the_plan_alone(rig):
    """The index follows."""
    at = rig.reference.find_call("rename", "refs/heads/main.lock")
    trial = rig.try_faults([Fault(at=at, mode="a")])
    assert not trial.wrong, trial


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [Fault(mode="t"), Fault(mode="e", error=errno.ENOSPC)])
def test_no_half_written_file_stays_in_the_work_tree(rig, fault):
    """Relay's own temporary file beside the plan: killed in it, or the disk is full."""
    at = next(at for at, call in enumerate(rig.reference.calls, 1) if call.startswith("write ") and ".relay-" in call)
    trial = rig.try_faults([replace(fault, at=at)])
    assert not trial.wrong, trial


@pytest.mark.nightly
def test_a_freshly_started_relay_is_no_different(rig):
    """The same through `python -m relay`, without a warm process."""
    trial = rig.try_faults([Fault(at=place(rig, 41), mode="b")], python=True)
    assert not trial.wrong, trial
    assert trial.hits


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap")
def test_in_the_sandbox(starter):
    """The tracer follows into the namespaces; nothing there outlives the run, and the proof of it leaves no file."""
    with open_rig(sandbox="auto", starter=starter) as confined:
        proof = next(at for at, call in enumerate(confined.reference.calls, 1) if is_temporary(Path(call).name))
        trial = confined.try_faults(Fault(at=at, mode="a") for at in (proof, place(confined, 60)))
        assert not trial.wrong, trial
        assert len(trial.hits) == 2
