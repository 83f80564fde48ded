"""When a run may begin, and when it hands over."""

from datetime import datetime

import pytest

from relay.base.errors import ExitCode, FlagError
from relay.base.hints import AT_ROOT
from relay.base.interrupts import Urgency
from relay.cli.sessions import make_end_event
from relay.cli.views.narrate import Narrator
from relay.run.loop import run
from relay.run.selection import Hours, Selection, parse_hours, work_within
from relay.session.events import RetryScheduled, SessionStarted
from relay.session.values import SessionKind
from tests.effort import take_each
from tests.scripted import ScriptedRunner
from tests.waiting import wait_until

NOON = datetime(2026, 11, 22, 12, 0).timestamp()  # noqa: DTZ001  # on the clock of the wall


def at(text):
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("not_before", "until", "hours"),
    [
        (None, None, (None, None)),
        ("22:00", "07:00", ("2026-11-22T22:00", "2026-11-23T07:00")),
        (None, "12:01", (None, "2026-11-22T12:01")),
        ("12:00", None, ("2026-11-23T12:00", None)),  # next time, not now
        ("2026-12-01T08:30", "9:15", ("2026-12-01T08:30", "2026-12-01T09:15")),
    ],
)
def test_an_hour_is_its_next_time(not_before, until, hours):
    read = parse_hours(not_before, until, now=NOON)

    assert (read.not_before, read.until) == tuple(None if text is None else at(text) for text in hours)


@pytest.mark.parametrize("text", ["", "7", "25:00", "noon", "2026-11-22", "2026-11-22T11:59", "9999999-01-01T00:00"])
def test_what_is_no_hour_to_come_is_refused(text):
    with pytest.raises(FlagError, match="--until"):
        parse_hours(None, text, now=NOON)


def test_a_beginning_that_has_passed_is_now():
    """An unattended script follows `next: relay run --not-before …` late."""
    read = parse_hours("2026-11-22T11:59", "12:30", now=NOON)
    assert (read.not_before, read.until) == (at("2026-11-22T11:59"), at("2026-11-22T12:30"))


def test_a_run_cannot_end_before_it_begins():
    with pytest.raises(FlagError, match="has passed by 2026-11-23 22:00"):
        parse_hours("2026-11-23T22:00", "2026-11-23T07:00", now=NOON)


BLOCK = [("block", {"reason": "enough seen"})]


def work(stage, hours, *advances, before=lambda: None):
    """Run the plan within its hours."""
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=ScriptedRunner([list(advances)])) as ctx:

        def act():
            before()
            return run(ctx, Selection())

        return make_end_event(work_within(hours, ctx.interrupts, ctx.observe, act), AT_ROOT)


@pytest.mark.nightly
def test_a_run_waits_for_its_first_hour(stage):
    work(stage, Hours(not_before=4_000_000_000.0), BLOCK)

    (wait,) = stage.seen(RetryScheduled)
    assert stage.waits == [wait.wait_s]
    (line,) = Narrator().tell(wait)
    assert line.text.startswith("waits for ")
    assert line.text.endswith(", as asked (--not-before)")
    assert stage.events.index(wait) < stage.events.index(stage.seen(SessionStarted)[0])


def test_at_its_last_hour_a_run_hands_over(stage):
    def wait_for_the_hour():
        wait_until(lambda: stage.interrupts.finish_turn)

    ended = work(stage, Hours(until=0.0), BLOCK, before=wait_for_the_hour)

    assert (ended.exit_code, ended.next_command) == (ExitCode.STOPPED, "relay run")
    assert "(--until); everything is kept" in ended.reason
    assert stage.seen(SessionStarted) == []


@pytest.mark.nightly
@pytest.mark.parametrize("until", take_each(2, [None, 4_000_000_000.0]))
def test_what_ends_earlier_ends_as_it_did(stage, until):
    ended = work(stage, Hours(until=until), BLOCK)

    assert (ended.exit_code, "enough seen" in ended.reason) == (ExitCode.STOPPED, True)


@pytest.mark.nightly
def test_a_stop_before_the_last_hour_is_the_users(stage):
    ended = work(stage, Hours(until=4_000_000_000.0), before=lambda: stage.interrupts.request(Urgency.FINISH_TURN))

    assert ended.exit_code == ExitCode.INTERRUPTED
