"""What agents say: lines, updates and permissions, from recordings and from nowhere."""

import io
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.base.jsonrpc import Answered, Notification, Question, parse_incoming, split_lines
from relay.runners.agents.acp import (
    AgentActivity,
    Text,
    ToolUpdate,
    choose_option,
    find_version,
    has_mode,
    make_system,
    read_update,
)
from relay.session.events import TextShown, ToolFinished, ToolStarted

OWN = ("tick", "record", "amend", "hand_off", "defer", "block", "ask", "submit_plan")
STREAMS = sorted(Path(__file__).with_name("streams").glob("*.jsonl"))
"""A turn of eight tools or nearly, as the ten agents told it in November 2026."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
KINDS = st.sampled_from(["tool_call", "tool_call_update", "agent_message_chunk", "plan", 7]) | JSON
FIELDS = ("content", "locations", "rawInput", "rawOutput", "status", "title", "name", "kind", "toolCallId", "x")


def test_a_recorded_turn_shows_its_words_and_its_tools_each_once():
    assert len(STREAMS) == 10
    for path in STREAMS:
        check_turn(path)


def check_turn(path):
    events: list[Any] = []
    view = AgentActivity(events.append, Path("/repo"), OWN)
    for line in path.read_bytes().splitlines():
        found = parse_incoming(line)
        assert found is not None
        if isinstance(found, Notification) and (update := read_update(found.params)) is not None:
            view.take(update)
    view.close()

    begun = [event.call_id for event in events if isinstance(event, ToolStarted)]
    ended = [event.call_id for event in events if isinstance(event, ToolFinished)]
    assert begun == list(dict.fromkeys(begun))
    assert sorted(begun) == sorted(ended)
    assert len(begun) >= 5
    assert all("tick" not in event.name for event in events if isinstance(event, ToolStarted))
    assert view.last_text.endswith("-END")
    assert any("echo one > one.txt" in event.summary for event in events if isinstance(event, ToolStarted))


@given(st.binary())
def test_no_bytes_break_the_reader(data):
    for line in split_lines(io.BytesIO(data)):
        parse_incoming(line)


@given(JSON)
def test_no_message_breaks_the_reader(value):
    found = parse_incoming(json.dumps({"method": "session/update", "params": value}).encode())
    assert isinstance(found, Notification)
    read_update(found.params)
    choose_option(found.params)
    make_system(found.params, "x")
    find_version(found.params)
    has_mode({"modes": {"availableModes": value}}, "x")


@given(st.fixed_dictionaries({"sessionUpdate": KINDS}, optional=dict.fromkeys(FIELDS, JSON)))
def test_no_update_breaks_the_view(update):
    view = AgentActivity(lambda _: None, Path("/repo"), OWN)
    found = read_update({"update": update})
    if found is not None:
        view.take(found)
    view.close()


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.integers(1, 30))
def test_lines_are_what_was_written_up_to_the_limit(lines, most):
    class Slow(io.BytesIO):
        def read1(self, _size=-1, /):
            return self.read(3)

    found = list(split_lines(Slow(b"".join(line + b"\n" for line in lines)), most))

    assert len(found) == len(lines)
    for line, got in zip(lines, found, strict=True):
        assert got == line if len(line) <= most else len(got) <= most


LINES: list[tuple[bytes, Any]] = [
    (b'{"id": 1, "result": {"a": 1}}', Answered(id=1, result={"a": 1})),
    (b'{"id": 1, "result": null}', Answered(id=1, result={}, has_object=False)),
    (
        b'{"id": 1, "error": {"code": -32603, "message": "no", "data": {"details": "why"}}}',
        Answered(id=1, result={}, error="-32603 no why", has_object=False),
    ),
    (b'{"id": 1, "error": 3}', Answered(id=1, result={}, error="an error without words", has_object=False)),
    (b'{"id": "q", "method": "m", "params": [1]}', Question(id="q", method="m", params={})),
    (b'{"method": "m"}', Notification(method="m", params={})),
    *((line, None) for line in (b"[1]", b'{"id": "q", "result": {}}', b"[" * 100_000, b"")),
]


def test_what_a_line_is():
    assert [line for line, expected in LINES if parse_incoming(line) != expected] == []


def test_a_permission_is_given_once_and_by_its_kind():
    options = [
        {"kind": "allow_always", "optionId": "1"},
        {"kind": "reject_once", "optionId": "allow_once"},
        {"kind": "allow_once", "optionId": "3"},
    ]
    assert choose_option({"options": options}) == {"outcome": {"outcome": "selected", "optionId": "3"}}
    assert choose_option({"options": options[:2]}) == {"outcome": {"outcome": "cancelled"}}


def test_an_end_that_comes_behind_the_boundary_belongs_to_its_call():
    """It is no barrier: some agents tell it after the next request has left."""
    events: list[Any] = []
    view = AgentActivity(events.append, Path("/repo"), OWN)
    view.take(ToolUpdate(id="1", title="bash", kind="execute", input='{"command": "make"}'))
    assert view.begin_turn() == ()
    view.take(ToolUpdate(id="1", title="make it", result="[1]", ended=True))
    view.take(Text(text="so", thinking=False))
    calls: Any = view.begin_turn()
    view.take(ToolUpdate(id="1", title="make it again", ended=True))

    assert [call.name for call, _ in calls] == ["bash"]
    assert [type(event) for event in events] == [ToolStarted, TextShown, ToolFinished]
    assert view.begin_turn() is None


def test_what_an_edit_changed_is_known_and_what_a_command_changed_is_not():
    view = AgentActivity(lambda _: None, Path("/repo"), OWN)
    paths = ("/repo/a.py", "/etc/passwd", "/repo/../b.py")
    view.take(ToolUpdate(id="1", kind="edit", paths=paths, input="{}", ended=True))
    view.take(ToolUpdate(id="4", kind="edit", paths=paths, input="{}", ended=True, failed=True))
    view.take(ToolUpdate(id="2", kind="execute", input="{}", ended=True))
    view.take(ToolUpdate(id="3", kind="read", input="{}", ended=True))
    calls: Any = view.begin_turn()
    assert [result.changed_paths for _, result in calls] == [("a.py",), None, None, ()]


def test_what_a_person_is_shown_of_a_call_is_its_text():
    """Not JSON, and not the tool's name twice."""
    events: list[Any] = []
    view = AgentActivity(events.append, Path("/repo"), OWN)
    begun = {"toolCallId": "1", "kind": "edit", "rawInput": {"file_path": "/repo/a.py"}}
    first = {"sessionUpdate": "tool_call", "title": "Write", "status": "pending"}
    last = {
        "sessionUpdate": "tool_call_update",
        "title": "Write a.py",
        "status": "failed",
        "rawOutput": "no room\nleft",
    }
    shown = [{"type": "content", "content": {"type": "text", "text": "```\nno room\n```"}}]
    for update in (first, {**last, "content": shown}):
        said: Any = read_update({"update": begun | update})
        view.take(said)
    view.begin_turn()
    assert (events[0].name, events[0].summary) == ("Write", "a.py")
    assert events[1].problem == "no room"
    for raw, content, text in (
        (None, shown, "```\nno room\n```"),
        ({"exit": 3}, shown, "```\nno room\n```"),
        ({"exit": 3}, None, '[{"exit": 3}, null]'),
    ):
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "failed"}
        found: Any = read_update({"update": {**update, "rawOutput": raw, "content": content}})
        assert found.result == text
