"""relay's tools as an agent sees them: the protocol's openings, and what is no message of it."""

import json
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.runners.agents.acp import BRIDGE, LATE, MOST_LATE, Called, Offer, answer_line, serve_tools
from relay.sandbox.openings import listen
from relay.session.values import ToolCall, ToolResult
from relay.tools.toolbox import HAND_OFF, TICK


def offer(result=None, told=None):
    def tell(called):
        (told if told is not None else []).append(called.call)
        called.answer.set_result(result or ToolResult(text="Claimed."))
        return True

    return Offer(tools=(TICK, HAND_OFF), tell=tell)


def ask(method, params=None, given_offer=None):
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}).encode()
    return answer_line(line, given_offer or offer())


def test_an_opening_as_agents_make_it():
    """They first ask for what is newer than this server, and hang on an empty result."""
    assert ask("server/discover")["error"]["code"] == -32601
    opened = ask("initialize", {"protocolVersion": "2025-11-25"})["result"]
    assert opened["protocolVersion"] == "2025-11-25"
    assert "tick, hand_off" in opened["instructions"]
    assert answer_line(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', offer()) is None
    assert ask("ping")["result"] == {}
    assert [tool["name"] for tool in ask("tools/list")["result"]["tools"]] == ["tick", "hand_off"]
    assert ask("resources/list")["error"]["code"] == -32601


def test_a_call_is_answered_with_what_the_tool_says():
    told: list[ToolCall] = []
    given_offer = offer(ToolResult(text="no \ud800 such item", is_error=True), told)
    said = ask("tools/call", {"name": "tick", "arguments": {"item": "9"}}, given_offer)["result"]
    assert (said["isError"], said["content"][0]["text"]) == (True, "no ? such item")
    assert [(call.name, call.input) for call in told] == [("tick", {"item": "9"})]


def test_a_tool_that_is_not_offered_is_not_called():
    told: list[ToolCall] = []
    said = ask("tools/call", {"name": "bash", "arguments": {"command": "x"}}, offer(told=told))["result"]
    assert said["isError"]
    assert told == []
    assert ask("tools/call", {"name": ["tick"]}, offer(told=told))["result"]["isError"]


@given(st.binary())
def test_no_line_breaks_the_server(line):
    answer_line(line, offer())


@given(st.sampled_from(["initialize", "tools/call", "x"]), st.dictionaries(st.text(max_size=9), st.none() | st.text()))
def test_no_parameters_break_the_server(method, params):
    json.dumps(ask(method, params))


def test_the_bridge_carries_lines_of_any_length_both_ways(tmp_path):
    place = tmp_path / "tools"
    long = "x" * 500_000
    with listen(place, partial(serve_tools, offer(ToolResult(text=long)))):
        call = {"id": 1, "method": "tools/call", "params": {"name": "tick", "arguments": {"item": long}}}
        done: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BRIDGE, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        done.stdin.write(json.dumps(call).encode() + b"\n")
        done.stdin.flush()
        answer = json.loads(done.stdout.readline())
        done.communicate()
    assert answer["result"]["content"][0]["text"] == long


def test_a_call_that_takes_long_is_answered_in_time_and_its_result_is_had_by_the_same_call():
    """An agent gives a call up after a minute; a person may think for longer, and is asked once."""
    told: list[Called] = []

    def tell(called):
        told.append(called)
        return True

    slow = Offer(tools=(TICK, HAND_OFF), tell=tell, patience_s=0)

    def call(name, **given):
        return ask("tools/call", {"name": name, "arguments": given}, slow)["result"]

    assert call("tick", item="1", evidence="x") == {"content": [{"type": "text", "text": LATE}], "isError": False}
    assert call("tick", evidence="x", item="1")["content"][0]["text"] == LATE
    assert call("tick", item="2")["content"][0]["text"] == LATE
    assert [one.call.input["item"] for one in told] == ["1", "2"]
    for one in told:
        one.answer.set_result(ToolResult(text=f"answer {one.call.input['item']}", is_error=True))
    assert call("tick", item="1", evidence="x") == {"content": [{"type": "text", "text": "answer 1"}], "isError": True}
    assert call("tick", item="1", evidence="x")["content"][0]["text"] == LATE  # a result is had once; this is a new one
    assert len(told) == 3
    for number in range(2 * MOST_LATE):
        call("tick", item=f"{number}")
    assert len(slow.late) == MOST_LATE


def test_a_call_that_nobody_has_the_time_to_take_is_not_done_and_may_come_again():
    busy = Offer(tools=(TICK,), tell=lambda _: False)
    said = ask("tools/call", {"name": "tick", "arguments": {"item": "1"}}, busy)["result"]
    assert (said["content"][0]["text"], busy.late) == (LATE, {})


def test_a_session_that_ends_answers_who_waits(tmp_path):
    waiting = threading.Event()
    called = []

    def tell(call):
        called.append(call)
        waiting.set()
        return True

    place = tmp_path / "tools"
    with listen(place, partial(serve_tools, Offer(tools=(TICK,), tell=tell))), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(place))
        peer.sendall(json.dumps({"id": 1, "method": "tools/call", "params": {"name": "tick"}}).encode() + b"\n")
        assert waiting.wait(20)
        called[0].answer.cancel()
        assert b"The session has ended." in peer.recv(65536)
