"""A gate that is red and green on the same files: it is said, and no session is paid for what chance repairs."""

import pytest

from relay.base.errors import ExitCode
from relay.gate.model import CommandCheck, Outcome
from relay.run.commit.candidate import Refused
from relay.session.events import Noticed, RequestStarted
from relay.session.values import SessionKind
from tests.commit.candidate import WHOLE, commit_claims
from tests.scripted import ScriptedRunner

ONCE = 'test -e "$TMPDIR/once" || { touch "$TMPDIR/once"; false; }'
"""Red for the first time in each gate, green for the second."""
FLAKY = "is flaky: red and green on the same files, 1 time"


def plan(stage, *, document, own):
    front = f"---\nrelay:\n  verify:\n    - '{document}'\n---\n" if document else ""
    stage.write("PLAN.md", f"{front}# P\n\n## Phase 1\nVerify: `{own}`\n- [ ] Say hello — hello.txt\n")
    stage.commit()


def test_a_red_that_no_change_explains_is_run_again_before_a_session_is_paid(stage):
    plan(stage, document=f"! test -e hello.txt || {ONCE}", own="grep -q hello hello.txt")
    ended = stage.run(WHOLE)
    assert ended.exit_code == ExitCode.DONE, ended
    assert len(stage.seen(RequestStarted)) == 3, "no repair was asked for"
    assert any(FLAKY in event.text for event in stage.seen(Noticed))
    message = " ".join(stage.git("show", "-s", "--format=%B").split())
    assert "Relay-Doubt: `! test -e hello.txt" in message
    assert FLAKY in message
    assert "flaky" in stage.relay("status").stdout


@pytest.mark.nightly
def test_a_repair_that_changed_nothing_is_not_paid_twice(stage):
    plan(stage, document="", own=f"test -e hello.txt && {{ {ONCE} }}".replace("; }; }", "; }; }"))
    ended = stage.run(WHOLE)
    assert ended.exit_code == ExitCode.DONE, ended
    assert len(stage.seen(RequestStarted)) == 4, "one repair was asked for"
    assert FLAKY in " ".join(stage.git("show", "-s", "--format=%B").split())


def test_the_third_time_stops_the_phase_and_names_the_test(stage):
    plan(stage, document=f"! test -e hello.txt || {ONCE}", own="true && test -e hello.txt")
    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
        command = f"! test -e hello.txt || {ONCE}"
        red = CommandCheck(
            command=command, exit_code=1, status=Outcome.FAILED, duration_s=1, output_tail="", failures=("test_a",)
        )
        ctx.memory.flaky["1"] = [red, red]
        refused = commit_claims(stage, ctx, lambda head: head.tick(["1.1"]))
    assert isinstance(refused, Refused)
    assert "3 times (test_a)" in refused.for_user
    assert refused.for_model == "", "no session could repair it"
