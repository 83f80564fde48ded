"""A child is heard: what it says it has cost is what its parent takes for spent."""

import os
import select

import pytest

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.run.phases.jobs import JobRun
from relay.run.phases.landing import Job
from relay.session.events import ResponseReceived, RunEnded
from relay.session.records import Recorder, render_record
from relay.session.usage import Usage

ANSWERED = ResponseReceived(
    turn=1, model="m", usage=Usage(), cost_usd=0.5, fill_tokens=None, soft_tokens=1, hard_tokens=1, window_tokens=1,
    stop_reason="", duration_s=0,
)  # fmt: skip
ENDED = RunEnded(exit_code=0, reason="done", next_command="", spent_usd=9.0)


@pytest.mark.parametrize(
    ("says", "spent"), [((ANSWERED, ANSWERED, ENDED), 1.0), ((ANSWERED, ANSWERED), None)], ids=["ends", "is lost"]
)
def test_what_a_child_has_cost(stage, tmp_path, says, spent):
    """Its answers; of one that was lost nobody knows."""
    recorder = Recorder(lambda: 0.0)
    lines = "".join(f"{render_record(recorder.record(event))}\n" for event in says)
    program = tmp_path / "stand_in" / "relay"
    program.mkdir(parents=True)
    (program / "__init__.py").touch()
    (program / "__main__.py").write_text(f"print({lines!r}, end='')\n")
    job = Job(phase_id="1", plan_path="PLAN.md", repo=open_repo(stage.root))
    child = JobRun(job.repo.root, ("run", "--phase", "1"), {**os.environ, "PYTHONPATH": str(program.parent)})
    while not child.has_ended:
        select.select(child.descriptors, [], [], 0.1)
    heard = list(child.hear())
    end = child.close()
    assert [record.event for record in heard] == list(says)
    assert (end.exit_code, end.spent and end.spent.cost_usd) == (ExitCode.DONE, spent)
