"""A layer of a first message that is too large, in a whole run: who is told, and what is left of it."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.base.interrupts import Urgency
from relay.session.events import Noticed, ToolFinished
from tests.scripts import call

FIRST = [
    call("write", path="hello.txt", content="hello\n"),
    call("tick", item="1.1", evidence="x"),
    {"text": "Commit: Hello"},
]
LAST = [
    call("write", path="world.txt", content="world\nworld\n"),
    call("tick", item="2.2", evidence="x"),
    {"text": "Commit: World"},
]


@pytest.mark.nightly
def test_a_note_too_large_for_its_layer_says_so_and_loses_its_middle(stage):
    """Before the next session is paid for, with the command that shows the whole note."""
    learned = [f"finding {n}: {'x' * 1_000}" for n in range(20)]
    parted = [
        call("write", path="world.txt", content="world\n"),
        call("tick", item="2.1", evidence="x"),
        call("hand_off", next_step="2.2", learned=learned, dead_ends=[]),
    ]
    calls = [turn for turn in (*FIRST, *parted) if "tools" in turn]

    def stop_behind_the_last():
        if len(stage.seen(ToolFinished)) == len(calls):
            stage.interrupts.request(Urgency.FINISH_TURN)

    stage.on_tool = stop_behind_the_last
    script = json.dumps({"sessions": [{"turns": FIRST}, {"turns": parted}]})
    assert stage.run(script).exit_code == ExitCode.INTERRUPTED
    stage.calm()
    words = "the handoff note for phase 2 takes about 5,"

    assert stage.run(json.dumps({"sessions": [{"turns": LAST}]})).exit_code == ExitCode.DONE
    [said] = [event.text for event in stage.seen(Noticed) if words in event.text]
    assert "and should take 5,000" in said
    whole = stage.git(*said.rpartition("`git ")[2].partition("`")[0].split())
    assert all(entry in " ".join(whole.split()) for entry in learned)
    sent = [request for request in stage.server.requests if request.path == "/v1/messages"]
    first = sent[0].body["messages"][0]["content"][0]["text"]
    assert "finding 0:" in first
    assert "finding 10:" not in first
    assert "finding 19:" in first
