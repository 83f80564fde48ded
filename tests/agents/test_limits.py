"""What an agent may not do: fill relay's memory, hold up a stop, be silent for ever."""

import contextlib
import io
import itertools
import json
import queue
import socket
import subprocess
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relay.base.interrupts import Interrupts, Urgency
from relay.base.jsonrpc import MAX_LINE_BYTES, MAX_PARTS, MOST_WAITING, Intake, Wire, parse_incoming
from relay.runners.agents.account import AgentAccount
from relay.runners.agents.acp import MOST_CHARS, MOST_TOOLS, AgentActivity, Text, ToolUpdate
from relay.runners.agents.dialects import MESSAGES, ModelRequest
from relay.runners.agents.gateway import HeldRequest, Passed
from relay.runners.agents.session import AgentContext, AgentProcess, AgentSession, Inbox
from relay.runners.base import Callbacks, ModelInfo, SessionSpec
from relay.sandbox.child import Child
from relay.sandbox.process import Launch, Started
from relay.session.events import GaugeCrossed, Noticed, TextShown
from relay.session.gauge import parse_reset_at
from relay.session.values import ToolResult
from tests.agents.conftest import make_profile
from tests.agents.test_account import make_tally
from tests.waiting import wait_until

begin = ThreadPoolExecutor().submit
CHUNK = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * 12_000}}
PLAN = {"sessionUpdate": "plan", "entries": []}
CALL = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "make", "kind": "execute", "rawInput": {"a": "b"}}


def say(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def tell(update):
    return say(method="session/update", params={"update": update})


MADE = ModelRequest(
    dialect=MESSAGES, model="m", is_main=False, prompt_bytes=30, max_output_tokens=6_000, is_streamed=True
)


class Endless(io.RawIOBase):
    """Says the same again and again, and counts it."""

    given = 0

    def __init__(self, line):
        self._lines = itertools.cycle([line[at : at + 65_536] for at in range(0, len(line), 65_536)])

    def read1(self, _size=-1, /):
        data = next(self._lines)
        self.given += len(data)
        return data


class FakeChild:
    """An agent without a process: it answers what opens a session, then says `lines` again and again.

    A turn ends where it is cancelled.
    """

    def __init__(self, *lines):
        self.prompts: list[tuple[Any, str]] = []
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.output: Any = self
        self.is_deaf, self.ended, self._lines, self._flows = False, False, lines, False

    def send(self, data):
        asked = json.loads(data)
        if asked.get("method") == "session/cancel":
            self.said.put(say(id=self.prompts[-1][0], result={"stopReason": "cancelled"}))
        elif asked.get("method") == "session/prompt":
            self.prompts.append((asked["id"], asked["params"]["prompt"][0]["text"]))
            self.said.put(b"\n")
            self._flows = bool(self._lines)
        elif "id" in asked and "method" in asked:
            self.said.put(say(id=asked["id"], result={"sessionId": "s1"}))
        return True

    def read1(self, _size=-1, /):
        if self._flows:
            return b"" if self.ended else b"".join(self._lines)
        return self.said.get()

    def look(self):
        pass

    def freeze(self):
        pass

    def read_errors(self):
        return ""

    def end(self):
        self.ended = True
        self.said.put(b"")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Leaping:
    """A clock that is so many seconds further at each look."""

    def __init__(self, by_s):
        self.now, self._by_s = 0.0, by_s

    def __call__(self):
        self.now += self._by_s
        return self.now


@pytest.fixture
def enter(tmp_path):
    """Return a session with an agent that says `lines` without end, and what it has around it."""

    def make(*lines, by_s=10.0, check=lambda *_: None):
        child: Any = FakeChild(*lines)
        told: list[Any] = []
        inbox, interrupts = Inbox(), Interrupts()
        spec = SessionSpec(
            session_id="s", model="m", system="", tools=(), price=None, reset_at=parse_reset_at("100k"),
            callbacks=Callbacks(
                run_tool=lambda _: ToolResult(text=""), render_soft_notice=lambda *_: "hand over",
                render_band_notice=lambda *_: "be brief",
            ),
            check_budget=check,
        )  # fmt: skip
        model = ModelInfo(id="m", window_tokens=200_000, max_output_tokens=8_000, rehearsed=False, source="")
        wire = partial(Wire, child.output, child.send, inbox.put)
        context = AgentContext(
            start=lambda _most: AgentProcess(child=child, wire=wire(), cwd=tmp_path, servers=()),
            note_version=lambda _: None, observe=told.append, interrupts=interrupts, stop_s=120.0, idle_s=600.0,
            clock=Leaping(by_s), root=tmp_path, inbox=inbox, mark="mark",
        )  # fmt: skip
        account = AgentAccount(spec, model, told.append, max_wait_s=0)
        return AgentSession(make_profile(), spec, account, context), context, told, child

    return make


@pytest.fixture
def held(enter):
    """Holds such a session; returns how it ended and what was told."""

    def hold(*lines, by_s=10.0, stops=False):
        session, context, told, child = enter(*lines, by_s=by_s)
        if stops:
            context.interrupts.request(Urgency.FINISH_TURN)
        outcome = session.advance("work")
        context.interrupts.close()
        assert child.ended
        assert not len(context.inbox)
        return outcome, told

    return hold


def test_a_field_that_relay_does_not_know_is_said_once(enter):
    """However often it comes; a command of the session may invent any number of names."""
    session, context, told, _ = enter(by_s=0.0)
    ended = begin(session.advance, "work")
    for n in (1, 1, *range(2, 30)):
        asked = HeldRequest(request=replace(MADE, unknown=("of_tomorrow", f"new_{n}")))
        context.inbox.put(asked)
        assert asked.release.result(20) is None
    context.interrupts.request(Urgency.NOW)
    assert ended.result(20).end == "interrupted"
    said = [event.text for event in told if isinstance(event, Noticed) and event.warning]
    assert said[:2] == [
        f"Fake sends a field that relay does not know, which passes: {n}" for n in ("of_tomorrow", "new_1")
    ]
    assert len(said) == len(set(said)) == 10


def test_a_request_for_which_the_caps_have_no_room_waits_for_those_before_it(enter):
    """What is reserved for a title is free again in a moment."""
    asked: list[tuple[int, int]] = []

    def check(prompt, output):
        asked.append((prompt, output))
        return "no room" if output > 8_000 else None

    session, context, _, _ = enter(by_s=0.0, check=check)
    ended = begin(session.advance, "work")
    title, work, more = (HeldRequest(request=replace(MADE, is_main=n == 1)) for n in range(3))
    context.inbox.put(title)
    assert title.release.result(20) is None
    context.inbox.put(work)
    wait_until(lambda: asked[-1][1] == 12_000)
    assert not work.release.done()
    context.inbox.put(Passed(request=title.request, tally=None, fault=None))
    assert work.release.result(20) is None
    context.inbox.put(more)
    wait_until(lambda: asked[-1][1] == 12_000)
    context.interrupts.request(Urgency.NOW)

    assert ended.result(20).end == "interrupted"
    assert more.release.cancelled()
    assert asked[1] == (0, 0)  # behind the look before there was a request: nothing of it is noted as if it were sent


def has_prompts(child, number):
    return len(child.prompts) == number


def test_each_line_is_told_once_and_behind_the_hard_one_nothing_is_sent(enter):
    """A text is a further turn: the one under way is cancelled where its next request is held."""
    session, context, told, child = enter(by_s=0.0)
    ended = begin(session.advance, "work")
    released: list[Any] = []
    for used, prompts in ((85_000, 1), (0, 2), (101_000, 2), (0, 3), (130_000, 3), (0, 3)):
        held = HeldRequest(request=replace(MADE, is_main=True))
        context.inbox.put(held)
        with contextlib.suppress(CancelledError):
            released.append(held.release.result(20))
        if used:
            context.inbox.put(
                Passed(request=held.request, tally=make_tally(input_tokens=used, output_tokens=9), fault=None)
            )
        wait_until(partial(has_prompts, child, prompts))

    assert ended.result(20).end == "hard_line"
    over = "the turn was cancelled"
    assert released == [None, over, None, over, None, "the session has ended"]
    assert [text for _, text in child.prompts] == ["work\n\nmark", "be brief", "hand over"]
    assert [event.line for event in told if isinstance(event, GaugeCrossed)] == ["consolidate", "soft", "hard"]


def test_a_stop_takes_place_at_the_next_boundary(enter):
    session, context, _, _ = enter(by_s=0.0)
    ended = begin(session.advance, "work")
    context.interrupts.request(Urgency.FINISH_TURN)
    held = HeldRequest(request=replace(MADE, is_main=True))
    context.inbox.put(held)
    assert held.release.result(20) == "the session has ended"
    assert ended.result(20).end == "interrupted"


def test_what_is_not_taken_is_not_read():
    """So many messages wait, one more was read, and what the pipe gave besides is a part of a line."""
    line = tell({**CHUNK, "content": {"type": "text", "text": "x" * 1_000_000}})
    inbox: Intake[Any] = Intake()
    peer: Any = type("Peer", (), {"output": Endless(line), "send": lambda *_: True})()
    Wire(peer.output, peer.send, inbox.put)

    for taken in range(20):
        wait_until(lambda: len(inbox) == MOST_WAITING)
        assert peer.output.given <= (taken + MOST_WAITING + 1) * len(line) + 2 * 65_536
        assert inbox.take(0) is not None
    assert len(inbox.close()) <= MOST_WAITING


def test_a_message_of_many_parts_is_no_message_and_a_text_is_one_part():
    """Read, four megabytes of them would be hundreds."""
    for part in (b"[],", b"{},", b'{"a":1},', b"1,", b'"\\"",'):
        few, many = (b'{"method": "m", "params": {"a": [' + part * n + b"0]}}" for n in (10, MAX_PARTS))
        assert parse_incoming(few) is not None, part
        assert len(many) < MAX_LINE_BYTES
        assert parse_incoming(many) is None, part
    file = json.dumps({"method": "m", "params": {"text": '[{"a", "b"}, \\' * 100_000}}).encode()
    assert parse_incoming(file) is not None


def test_a_turn_that_failed_is_not_finished_whatever_the_agent_says(enter):
    """By the last answer that passed, by the agent's own stop reason, and else by nothing."""
    for stop, agents, end in (
        ("end_turn", "end_turn", "finished"),
        ("refusal", "end_turn", "refused"),
        ("max_tokens", "end_turn", "truncated"),
        ("model_context_window_exceeded", "end_turn", "overflow"),
        ("end_turn", "refusal", "refused"),
        ("end_turn", "max_turn_requests", "hard_line"),
    ):
        session, context, _, child = enter(by_s=0.0)
        ended = begin(session.advance, "work")
        wait_until(partial(has_prompts, child, 1))
        held = HeldRequest(request=replace(MADE, is_main=True))
        context.inbox.put(held)
        assert held.release.result(20) is None
        tally = make_tally(stop=stop, input_tokens=9, output_tokens=9)
        context.inbox.put(Passed(request=held.request, tally=tally, fault=None))
        child.said.put(say(id=child.prompts[-1][0], result={"stopReason": agents}))
        assert ended.result(20).end == end, (stop, agents)


def test_of_words_and_tools_so_much_is_kept_between_two_boundaries():
    told: list[Any] = []
    view = AgentActivity(told.append, Path("/repo"), ())
    for turn in "12":
        told.clear()
        assert [view.take(Text(text="x" * 60_000, thinking=False)) for _ in range(3)] == [True, True, False]
        new = [view.take(ToolUpdate(id=f"{turn} {n}", input="{}", ended=True)) for n in range(2 * MOST_TOOLS)]
        assert new.count(True) == MOST_TOOLS
        assert not view.take(ToolUpdate(id=f"{turn} 0", input="{}", ended=True))
        calls: Any = view.begin_turn()
        assert len(calls) == MOST_TOOLS
        texts = [event.text for event in told if isinstance(event, TextShown)]
        assert [len(text) for text in texts] == [MOST_CHARS]
        assert view.last_text == texts[0]


def test_a_stop_waits_for_a_boundary_as_long_as_for_a_command(held):
    """In silence, in a flood, and while the agent repeats itself."""
    for lines in ((), (tell(CHUNK), tell(CALL)), (tell(PLAN),)):
        outcome, told = held(*lines, stops=True)
        words = "asked to stop; Fake was ended in mid-step after 2 min"
        assert (outcome.end, outcome.detail) == ("interrupted", words), lines
        [said] = [event.text for event in told if isinstance(event, Noticed) and "step" in event.text]
        assert said == "Fake has 2 min to finish its step (command_timeout_s); then relay ends it"


def test_one_that_does_nothing_new_is_silent_and_given_up(held):
    for lines in ((), (tell(CHUNK),), (tell(PLAN),)):
        outcome, told = held(*lines, by_s=30.0)
        assert outcome.end == "agent_failed", lines
        assert outcome.detail.startswith("Fake failed: silent for more than 10 min")
        notices = [event.text for event in told if isinstance(event, Noticed) and "silent" in event.text]
        spans = [text.split(" (")[0].removeprefix("Fake is silent for ") for text in notices]
        assert spans == ["1 min", "2 min", "4 min", "8 min"], lines
        assert all(text.endswith("(no request, no tool, no word); given up at 10 min") for text in notices)


def test_while_a_tool_runs_it_may_be_silent_for_longer(held):
    outcome, told = held(tell(CALL), by_s=100.0)
    assert "silent for more than 2 h 0 min" in outcome.detail
    assert any("(a tool of it runs); given up at 2 h 0 min" in e.text for e in told if isinstance(e, Noticed))


def test_one_that_does_not_read_what_it_is_told_is_ended(tmp_path):
    """It has a part of it: the next would stand behind that, as one message."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(["sleep", "600"], stdin=theirs.fileno(), stdout=subprocess.PIPE)
    ours.settimeout(0.01)
    started = Started(process=process, speak=ours, launch=Launch(argv=(), env={}))
    child = Child(started, tmp_path / "errors")

    assert child.send(b"short\n")
    assert not child.send(b"x" * 50_000_000)

    assert child.is_deaf
    assert process.wait() != 0
    child.output.close()
    theirs.close()
