"""Events as lines: what was written comes back, with where it happened."""

import json
import typing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.words import BoxState
from relay.insight.telemetry.log import open_log
from relay.insight.telemetry.schema import render_event_schema
from relay.session import events
from relay.session.events import ShownItem, ShownPhase
from relay.session.records import (
    MOST_AT,
    SCHEMA_VERSION,
    LoggedEvent,
    Recorder,
    Scope,
    find_scope,
    parse_record,
    render_record,
)
from relay.session.usage import Usage
from relay.session.values import SessionEnd
from tests import fitting
from tests.any_event import any_event
from tests.effort import try_each
from tests.figures.streams import turn
from tests.logs import read_events
from tests.odd_lines import iter_odd_lines

SCOPES = st.builds(Scope, run_id=st.text(), session_id=st.text(), phase_id=st.text(), turn=st.integers(0, 999))
STARTED = events.SessionStarted(session_id="s", phase_id="1", title="", number=1, reason="")
END = events.SessionEnded(
    session_id="s", phase_id="1", end=SessionEnd.FINISHED, result="done", detail="", usage=Usage(), cost_usd=None
)
GATE = events.GateStarted(phase_id="1", baseline=True, commands=())
SAID = events.TextShown(text="")


@cache  # not as the module is imported: every worker does that
def read_schema() -> typing.Any:
    return render_event_schema()


def fits(value: object) -> bool:
    return fitting.fits(read_schema(), value, read_schema()["$defs"])


@pytest.mark.parametrize("kind", typing.get_args(events.Event), ids=lambda kind: kind.__name__)
@try_each()
@given(data=st.data())
def test_a_line_is_read_as_what_was_written_and_fits_the_schema(kind: type, data: st.DataObject) -> None:
    """Every type of event, wherever it happened."""
    event = data.draw(any_event(kind))
    record = LoggedEvent(at=1.5, scope=find_scope(data.draw(SCOPES), event), event=event)
    line = render_record(record)
    assert "\n" not in line
    assert parse_record(line) == record
    written = json.loads(line)
    assert fits(written)
    assert not fits({**written, "v": 99})
    assert not fits({name: value for name, value in written.items() if name != "run_id"})


def test_what_is_read_of_a_line_fits_the_schema_whatever_stood_in_it() -> None:
    """A log may come from anywhere: nobody behind the reader meets a value of another type, or a number without end."""
    lines = [*iter_odd_lines()]
    read = [record for line in lines if (record := parse_record(line))]
    assert 300 < len(read) < len(lines) - 1_000
    for record in read:
        assert fits(json.loads(render_record(record), parse_constant=pytest.fail)), record
        assert 0 <= record.at <= MOST_AT


def test_a_file_name_that_is_no_text_comes_back(tmp_path: Path) -> None:
    """Its bytes are lone surrogates, which the log has as escapes."""
    with open_log(tmp_path, "r", clock=lambda: 1.0) as log:
        log.append(events.TextShown(text="caf\udce9.py"))
    read = read_events(log.path)
    assert read is not None
    assert [record.event for record in read.records] == [events.TextShown(text="caf\udce9.py")]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 1, None, "2"])
def test_a_line_of_another_version_is_not_read(version: object) -> None:
    line = render_record(LoggedEvent(at=1.5, scope=Scope(), event=SAID))
    assert parse_record(line) is not None
    assert parse_record(json.dumps({**json.loads(line), "v": version})) is None


def as_logged(said: list[events.Event]) -> typing.Iterator[events.Event]:
    """Yield events as a log has them: of a plan what changed since it was shown last."""
    shown: tuple[ShownPhase, ...] = ()
    for event in said:
        if isinstance(event, events.PlanShown) and not event.changed_only:
            yield event.since(shown)
            shown = event.phases
        else:
            yield event


def make_plan(*states: BoxState, ids: str = "123") -> events.PlanShown:
    phases = (
        ShownPhase(id=phase, title="", items=[ShownItem(id=f"{phase}.1", text="", state=state)])
        for phase, state in zip(ids, states, strict=True)
    )
    return events.PlanShown(phases=tuple(phases))


def test_a_log_has_the_plan_once_and_then_what_changed(tmp_path: Path) -> None:
    """Also where phases move, come or go: then all of it, once more."""
    plans = (
        make_plan("open", "open", "open"),
        make_plan("claimed", "open", "open"),
        make_plan("done", "open", "open"),
        make_plan("done", "open", "open", ids="132"),
        make_plan("done", "open", ids="13"),
        make_plan("done", "open", ids="13"),
    )
    with open_log(tmp_path, "r", clock=lambda: 1.0) as log:
        for plan in plans:
            log.append(plan)
    read = read_events(log.path)
    assert read is not None
    shown: tuple[ShownPhase, ...] = ()
    written = []
    for record, plan in zip(read.records, plans, strict=True):
        assert isinstance(record.event, events.PlanShown)
        written.append(len(record.event.phases))
        shown = record.event.complete(shown)
        assert shown == plan.phases
    assert written == [3, 1, 1, 3, 2, 0]


@given(st.lists(st.sampled_from(typing.get_args(events.Event)).flatmap(any_event), max_size=5), st.data())
def test_a_torn_end_and_foreign_lines_cost_only_themselves(
    tmp_path_factory: pytest.TempPathFactory, said: list[events.Event], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("repo")
    with open_log(folder, "r", clock=lambda: 1.0) as log:
        for event in said:
            log.append(event)
    whole = log.path.read_bytes()
    written = read_events(log.path)
    assert written is not None
    assert [record.event for record in written.records] == list(as_logged(said))
    foreign = data.draw(st.binary(max_size=50)).replace(b"\n", b" ")
    cut = data.draw(st.integers(0, 20))
    log.path.write_bytes(foreign + b"\n" + whole[: len(whole) - cut])
    torn = read_events(log.path)
    assert torn is not None
    kept = len(said) - (cut > 1 and bool(said))
    assert torn.records[:kept] == written.records[:kept]


def test_every_event_has_the_ids_of_where_it_happened() -> None:
    recorder = Recorder(lambda: 1.0)
    start = events.RunStarted(
        run_id="r", command="run", model="m", plan_path="P", branch="b", sandbox="off", cap_usd=None, spent_usd=None,
        rehearsed=True,
    )  # fmt: skip
    ended = events.RunEnded(exit_code=0, reason="", next_command="", spent_usd=None)
    told = (start, GATE, STARTED, events.RequestStarted(turn=2), SAID, END, SAID, ended)
    scopes = [recorder.record(event).scope for event in told]
    assert [(at.run_id, at.session_id, at.phase_id, at.turn) for at in scopes] == [
        ("r", "", "", 0),
        ("r", "", "1", 0),
        ("r", "s", "1", 0),
        ("r", "s", "1", 2),
        ("r", "s", "1", 2),
        ("r", "s", "1", 2),
        ("r", "", "1", 0),
        ("r", "", "", 0),
    ]


def test_a_request_beside_the_conversation_moves_nothing_on() -> None:
    """What follows it still belongs to the turn that it was sent in."""
    asked = events.RequestStarted(turn=3)
    _, answered = turn(1, 10)
    assert isinstance(answered, events.ResponseReceived)
    beside = replace(answered, turn=0, query="explore")
    recorder = Recorder(lambda: 1.0)
    assert [recorder.record(event).scope.turn for event in (STARTED, asked, beside, SAID)] == [0, 3, 0, 3]
