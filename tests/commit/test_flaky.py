"""A gate that is red and green on the same files: it is said, and no session is paid for what chance repairs."""

from relay.base.errors import ExitCode
from relay.gate.model import CommandCheck, Outcome
from relay.run.commit.candidate import PhaseCommit, Refused
from relay.session.events import Noticed, RequestStarted
from relay.session.values import SessionKind
from tests.commit.candidate import WHOLE, commit_claims, commit_each
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


def test_a_repair_that_changed_nothing_is_not_paid_twice(stage, tmp_path):
    """One command is red and green in the second gate, the other red in the first one and green in the second."""
    here = f"test -e hello.txt && {{ {ONCE} }}".replace("; }; }", "; }; }")
    there = f"test -e hello.txt && {{ test -e {tmp_path}/once || {{ touch {tmp_path}/once; false; }}; }}"
    plan(stage, document="", own=f"{here}`, `{there}")
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=ScriptedRunner([])) as ctx:
        red, made = commit_each(stage, ctx, [lambda head: head.tick(["1.1"])] * 2)
    assert isinstance(red, Refused)
    assert red.for_model, "one repair is asked for"
    assert isinstance(made, PhaseCommit), made
    assert " ".join(stage.git("show", "-s", "--format=%B").split()).count(FLAKY) == 2


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
