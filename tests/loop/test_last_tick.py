"""The last tick with the commit's subject ends the turn: no request asks the model whether it is done."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.session.events import Committed, ResponseReceived, SessionEnded
from relay.session.values import SessionEnd

PLAN = """\
# Keys

## Phase 1 — Rename
Verify: `grep -q hello hello.txt`
- [ ] Give the function its real name — src/keys.py

## Phase 2 — Use
Verify: `test -d .`
- [ ] Use `load_key` — src/keys.py
"""


def call(name, **given):
    return {"name": name, "input": given}


def write(text):
    return call("write", path="hello.txt", content=text)


def tick(item="1.1", **more):
    return call("tick", item=item, evidence="grep", **more)


def play(stage, *sessions):
    """Run all phases; each session is a list of turns, a turn a list of calls."""
    turns = [[{"tools": calls} if isinstance(calls, list) else calls for calls in session] for session in sessions]
    script = json.dumps({"sessions": [{"turns": session} for session in turns]})
    return stage.run(script, all_=len(sessions) > 1)


def test_the_last_tick_ends_the_turn_and_names_the_commit(stage):
    """Whichever of several ticks of one turn brings the subject; neither it nor evidence gives orders to a forge."""
    items = "- [ ] Say hello — hello.txt\n- [ ] Say it — hello.txt\n"
    stage.write("PLAN.md", f"## Phase 1\nVerify: `grep -q hello hello.txt`\n{items}")
    stage.commit("plan")
    first = tick(commit="Commit: **Say hello, closes #7 [skip ci]**\nand more")
    first["input"]["evidence"] = "[no ci] finds it"

    ended = play(stage, [[write("hello\n")], [first, tick("1.2")]])

    assert ended.exit_code == ExitCode.DONE, ended
    assert [event.subject for event in stage.seen(Committed)] == ["Say hello, see #7 (skip ci)"]
    assert "evidence: (no ci) finds it" in stage.git("log", "-1", "--format=%B")
    assert len(stage.seen(ResponseReceived)) == 2
    assert {event.end for event in stage.seen(SessionEnded)} == {SessionEnd.FINISHED}
    assert stage.server.errors == []


@pytest.mark.nightly
def test_a_red_gate_comes_back_to_the_session_that_ended_by_its_tick(stage):
    """Its tick is answered before the report, as the API requires; saying it again ends the turn again."""
    report = {"expect": {"last_message_contains": "its checks do not pass"}, "tools": [write("hello\n")]}
    ended = play(stage, [[write("hallo\n")], [tick(commit="Say hello")], report, [tick()]])

    assert (stage.server.errors, len(stage.seen(ResponseReceived))) == ([], 4)
    assert [event.subject for event in stage.seen(Committed)] == ["Say hello"], ended


@pytest.mark.nightly
def test_a_tick_that_is_not_the_last_call_or_leaves_items_open_ends_nothing(stage):
    """The session sees what its other calls say; its own last words name the commit."""
    hello = [[write("hello\n"), tick(commit="Say hello"), call("bash", command="cat hello.txt")]]
    first = [*hello, {"expect": {"last_result_contains": "hello"}, "text": "Commit: Greet"}]
    second = [[call("write", path="world.txt", content="world\n"), tick("2.1", commit="Say world")], [tick("2.2")]]

    ended = play(stage, first, second)

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert [event.subject for event in stage.seen(Committed)] == ["Greet", "Say world"]


@pytest.mark.nightly
def test_a_tick_whose_answer_asks_for_something_goes_on(stage):
    """The session is told which later item its change makes wrong, and can amend it."""
    stage.write("PLAN.md", PLAN)
    stage.write("src/keys.py", "def load_key(name):\n    return name\n")
    stage.commit("plan")
    turns = [
        [write("hello\n"), call("edit", path="src/keys.py", old="load_key", new="read_key")],
        [tick(commit="Rename")],
        {
            "expect": {"last_result_contains": "item 2.1 names `load_key`"},
            "tools": [call("amend", phase="2", change="load_key is read_key", why="renamed")],
        },
        {"text": "Commit: Rename it"},
    ]

    play(stage, turns)

    assert (stage.server.errors, stage.server.unplayed) == ([], ())
    assert [event.subject for event in stage.seen(Committed)] == ["Rename it"]
