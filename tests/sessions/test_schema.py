"""The JSON Schema says what a log holds."""

import json
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.telemetry.schema import render_event_schema
from relay.session.events import Event
from relay.session.records import MOST_AT, LoggedEvent, find_scope, parse_record, render_record
from relay.session.records import Scope as Where
from tests import fitting
from tests.any_event import any_event
from tests.effort import try_each
from tests.odd_lines import iter_odd_lines


@cache  # not as the module is imported: every worker does that
def read_schema() -> Any:
    return render_event_schema()


def fits(schema: Any, value: Any) -> bool:
    return fitting.fits(schema, value, read_schema()["$defs"])


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
@try_each()
@given(data=st.data())
def test_every_line_fits_the_schema(kind: type, data: st.DataObject) -> None:
    event = data.draw(any_event(kind))
    line = json.loads(render_record(LoggedEvent(at=1.5, scope=find_scope(Where(run_id="r"), event), event=event)))
    assert fits(read_schema(), line)
    assert not fits(read_schema(), {**line, "v": 99})
    assert not fits(read_schema(), {name: value for name, value in line.items() if name != "run_id"})


def test_what_is_read_of_a_line_fits_the_schema_whatever_stood_in_it() -> None:
    """A log may come from anywhere: nobody behind the reader meets a value of another type, or a number without end."""
    lines = [*iter_odd_lines()]
    read = [record for line in lines if (record := parse_record(line))]
    assert 300 < len(read) < len(lines) - 1_000
    for record in read:
        assert fits(read_schema(), json.loads(render_record(record), parse_constant=pytest.fail)), record
        assert 0 <= record.at <= MOST_AT
