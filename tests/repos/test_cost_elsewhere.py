"""What sessions cost is counted wherever the user goes while a phase is open."""

import json

import pytest

from relay.session.events import ResponseReceived
from relay.session.values import SessionKind
from tests.effort import take_each
from tests.scripted import ScriptedRunner
from tests.scripts import HELLO

WORLD = """\
  - turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: block, input: {reason: lunch}}]
"""


@pytest.fixture
def opened(stage):
    """A repository with phase 1 done and phase 2 open; nothing of it is uncommitted. Returns what all of it cost."""

    def act():
        stage.run(HELLO + WORLD)
        (stage.root / "world.txt").unlink()
        return sum(event.cost_usd for event in stage.seen(ResponseReceived))

    return stage.arrange("opened", act)


def count(stage):
    """What status says, and that a run counts the same."""
    status = stage.relay("status", "--json")
    assert status.returncode == 0, status.stderr
    spent = json.loads(status.stdout)["spent"]["usd"]
    with stage._open(SessionKind.RUN, "sessions: []", flags={}) as ctx:
        assert ctx.meter.total.cost_usd == pytest.approx(spent)
    return pytest.approx(spent, abs=2e-6)


def amend_and_merge(stage):
    stage.git("branch", "old")
    stage.git("commit", "-q", "--amend", "-m", stage.git("log", "-1", "--format=%B").replace("greet", "hail"))
    stage.git("merge", "-q", "-s", "ours", "-m", "both", "old")


def rebase_to_a_new_branch(stage):
    """The commit that brought the plan is another one then."""
    stage.git("switch", "-qc", "feature")
    stage.git("-c", "user.name=Else", "rebase", "-q", "--force-rebase", "--root")


def rewind(stage):
    assert stage.relay("rewind", "1", "--yes").returncode == 0
    stage.git("switch", "-q", "main-before-1")


@pytest.mark.parametrize(
    ("where", "go"),
    take_each(
        3,
        [
            ("nowhere", lambda _: None),
            ("to a new branch", lambda stage: stage.git("switch", "-qc", "feature")),
            ("with the branch", lambda stage: stage.git("branch", "-m", "trunk")),
            ("before the phase", rewind),
            ("amended", amend_and_merge),
            ("rewritten", rebase_to_a_new_branch),
        ],
    ),
)
def test_an_open_phase_is_counted_wherever_the_user_goes(stage, opened, where, go):
    go(stage)

    assert count(stage) == opened, where


def test_a_phase_that_is_finished_by_hand_has_cost_what_its_sessions_did(stage, opened):
    """The run that closes it keeps that, and counts it once."""
    stage.write("world.txt", "world\n")
    stage.edit("- [ ]", "- [x]")
    stage.commit("by hand")
    assert count(stage) == opened

    stage.play(ScriptedRunner([]))

    assert stage.git("for-each-ref", "refs/relay/leg") == ""
    assert count(stage) == opened
