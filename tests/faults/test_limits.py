"""What outlives a process: limits that reset later, sessions that fail at the same place, spend of what was cut."""

import json
import re
import time

import pytest

from relay.base.errors import ExitCode, RunnerError
from relay.base.interrupts import Interrupts, Urgency
from relay.git.repository import open_repo
from relay.run.planning.planner import PlanTask
from relay.session.events import RetryScheduled, SessionEnded, SessionStarted
from relay.session.values import SessionEnd
from relay.store.attempts import find_repeated_error, note_wait, read_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.ref_notes import Ending
from tests.cli.documents import read_document
from tests.effort import take_each

PLAN = """\
# Log

## Phase 1 — Write
Verify: `grep -qx once log.txt`
- [ ] Write it once — log.txt
- [ ] Read it — log.txt
- [ ] Read it again — log.txt
- [ ] Read it twice — log.txt
"""


def bash(command, **more):
    return {"tools": [{"name": "bash", "input": {"command": command}}], **more}


def tick(*items, **more):
    return {"tools": [{"name": "tick", "input": {"item": item, "evidence": "seen"}} for item in items], **more}


def hand_off(step="go on"):
    return {"tools": [{"name": "hand_off", "input": {"next_step": step, "learned": [], "dead_ends": []}}]}


END = {"text": "Commit: Write it once"}
FAR = {"kind": "rate_limit", "retry_after": "36000", "times": "always"}
FINISH = [bash("grep -qx once log.txt || echo once >> log.txt"), tick("1.1", "1.2", "1.3", "1.4"), END]


def script(*sessions, **top):
    return json.dumps({"sessions": [{"turns": turns} for turns in sessions], **top})


@pytest.fixture
def stage(stage):
    """The plan of this module, committed."""
    stage.write("PLAN.md", PLAN)
    stage.arrange("plan", lambda: stage.commit("plan"))  # the very commit, or no limit would be the same
    return stage


def find_attempt(stage):
    attempt = read_attempt(open_repo(stage.root))
    assert attempt is not None
    return attempt


def save_limit(stage, until, model="claude-opus-5-5"):
    """Leave an attempt behind whose session met a limit."""
    if read_attempt(open_repo(stage.root)) is None:
        stage.arrange("limit", lambda: stage.run(script([bash("echo once >> log.txt"), {"text": "no", "fault": FAR}])))
    attempt = find_attempt(stage)
    ending = Ending(end=SessionEnd.LIMIT, **note_wait(until, model))
    save_wip(open_repo(stage.root), attempt, WipRecord(spend=attempt.spend, handoff_note="b", ending=ending))


def wait_with(stage, act):
    """Have something happen instead of each wait."""
    stage.interrupts.close()
    stage.interrupts = Interrupts(sleep=lambda _: act())


def test_a_limit_is_kept_in_git_and_the_next_run_says_until_when(stage):
    """Ten hours away: the run stops with the time, and running it again asks nobody."""
    ended = stage.run(script([bash("echo once >> log.txt"), {"text": "no", "fault": FAR}]))

    assert ended.exit_code == ExitCode.STOPPED
    assert "It resets at" in ended.reason
    assert "in 9 h 59 min" in ended.reason or "in 10 h 0 min" in ended.reason
    assert ended.next_command == "relay run"
    ending = find_attempt(stage).ending
    assert (ending.limited, bool(ending.wait_until)) == ("claude-opus-5-5", True)

    again = stage.run(script())

    assert again.exit_code == ExitCode.STOPPED
    assert "resets at" in again.reason
    assert "RELAY_MAX_WAIT_S=0 tries at once" in again.reason
    assert [r.path for r in stage.server.requests if r.path == "/v1/messages"] == []
    assert stage.waits == []


def test_a_run_waits_for_a_limit_that_resets_soon(stage):
    """With the countdown of any other wait; then it goes on where it was."""
    save_limit(stage, time.time() + 600)

    ended = stage.run(script(FINISH))

    assert ended.exit_code == ExitCode.DONE, ended
    (retry,) = stage.seen(RetryScheduled)
    assert stage.waits == [retry.wait_s]
    assert 540 < retry.wait_s <= 600
    assert "usage limit of the last session resets at" in retry.reason
    assert stage.git("show", "HEAD:log.txt") == "once\n"
    assert [session.number for session in stage.seen(SessionStarted)] == [1]  # a limit is not an session of the phase


def ask_status(stage, *flags):
    """Return what `relay status` prints."""
    said = stage.relay("status", *flags)
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.nightly
def test_status_says_until_when_a_limit_lasts(stage):
    """While it lasts, and whose it is; not when it is past."""
    until = int(time.time()) + 3 * 3_600 + 30
    save_limit(stage, until)
    assert re.search(
        r"^limit  the usage limit of claude-opus-5-5 resets at .*\d\d:\d\d, in 3 h 0 min$",
        ask_status(stage),
        re.MULTILINE,
    )
    assert read_document("relay status", ask_status(stage, "--json"))["limit"] == {
        "model": "claude-opus-5-5",
        "resets_at": until,
    }

    save_limit(stage, time.time() - 5)
    assert "limit" not in ask_status(stage)
    assert json.loads(ask_status(stage, "--json"))["limit"] is None


def test_a_limit_that_does_not_hold_is_not_waited_for(stage):
    """It is past, unknown, another model's, or the user wants to know now: the endpoint is asked at once."""
    rows: list[tuple[float | None, dict[str, object]]] = [
        (-5, {}), (None, {}), (36_000, {"model": "claude-sonnet-5-5"}), (36_000, {"max_wait_s": 0})
    ]  # fmt: skip
    for until_s, flags in rows:
        save_limit(stage, None if until_s is None else time.time() + until_s)
        stage.run(script([{"text": "no", "fault": FAR}]), **flags)
        asked = [r.path for r in stage.server.requests if r.path == "/v1/messages"]
        assert (len(asked), stage.waits) == (1, []), (until_s, flags)


def test_a_wait_can_be_interrupted(stage):
    """Ctrl-C ends it; nothing was asked."""
    save_limit(stage, time.time() + 600)
    wait_with(stage, lambda: stage.interrupts.request(Urgency.FINISH_TURN))

    ended = stage.run(script(FINISH))

    assert ended.exit_code == ExitCode.INTERRUPTED
    assert [r.path for r in stage.server.requests if r.path == "/v1/messages"] == []


@pytest.mark.nightly
def test_a_long_wait_is_in_git_before_it_begins(stage):
    """A run that is killed while it waits must not ask again at once."""
    found = []
    wait_with(stage, lambda: found.append(find_attempt(stage).ending.wait_until))

    fault = {"kind": "rate_limit", "retry_after": "900"}
    ended = stage.run(script([{**FINISH[0], "fault": fault}, *FINISH[1:]]))

    assert ended.exit_code == ExitCode.DONE, ended
    assert [bool(words) for words in found] == [True]


def test_limits_do_not_use_a_phase_up(stage):
    """Sessions that met a limit say nothing about the size of the phase."""
    for _ in range(2):
        stage.run(script([{"text": "no", "fault": FAR}]), max_sessions=2, max_wait_s=0)
        assert [session.end for session in stage.seen(SessionEnded)] == [SessionEnd.LIMIT]

    ended = stage.run(script([bash("echo once >> log.txt"), hand_off()], FINISH), max_sessions=2, max_wait_s=0)

    assert ended.exit_code == ExitCode.DONE, ended
    assert [session.number for session in stage.seen(SessionStarted)] == [1, 2]


STUCK = bash("echo 'no such table: keys, line '$RANDOM >&2; exit 3")


def test_three_sessions_that_end_at_the_same_item_with_the_same_error_stop_the_run(stage):
    """Also over runs, since what was before is read from git, and although each ticks something else."""
    sessions = [[tick(item), STUCK, hand_off()] for item in ("1.2", "1.3", "1.4")]
    ended = stage.run(script(*sessions[:2]), max_sessions=2)
    assert (ended.exit_code, "is stuck" in ended.reason) == (ExitCode.STOPPED, False)

    ended = stage.run(script(*sessions[2:]))

    assert ended.exit_code == ExitCode.STOPPED
    assert "phase 1 is stuck: 3 sessions in a row ended with the same error at 1.1: bash: exit 3" in ended.reason
    assert "no such table: keys" in ended.reason
    assert ended.next_command.startswith("relay plan --revise")
    assert len(stage.seen(SessionStarted)) == 1


@pytest.mark.parametrize(
    "second",
    take_each(
        3,
        [
            pytest.param([bash("echo 'another thing' >&2; exit 3"), hand_off()], id="another error"),
            pytest.param([STUCK, tick("1.1"), hand_off()], id="another item"),
            pytest.param([STUCK, bash("true"), hand_off()], id="overcome"),
        ],
    ),
)
def test_sessions_that_get_further_are_not_stuck(stage, second):
    """One that ends otherwise in between starts the count afresh."""
    stage.write("log.txt", "once\n")
    stage.commit("log")
    first = [tick("1.2"), STUCK, hand_off()]
    stage.run(script(first, second, [tick("1.3"), STUCK, {"text": "Enough."}, {"text": "Enough."}]), max_sessions=3)

    assert find_repeated_error(open_repo(stage.root), find_attempt(stage))[0] == 1


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda stage, play: stage.run(play), id="run"),
        pytest.param(lambda stage, play: stage.plan(play, PlanTask(feature="x", force=True)), id="plan"),
    ],
)
def test_a_key_that_is_refused_at_the_start_changes_nothing(stage, act):
    """No attempt is open, no file was written, no event was told."""
    fault = {"kind": "status", "status": 401, "message": "invalid x-api-key"}
    before = stage.git("for-each-ref")

    with pytest.raises(RunnerError, match="invalid x-api-key"):
        act(stage, script(FINISH, models_fault=fault))

    assert stage.git("for-each-ref") == before
    assert stage.git("status", "--porcelain") == ""
    assert stage.events == []
