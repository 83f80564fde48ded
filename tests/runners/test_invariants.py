"""The rules of a history: what breaks them, and that no conversation ever does."""

import copy
import itertools
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.base.interrupts import Interrupts
from relay.config.model import NOTHING_SET, ModelSettings
from relay.runners.base import Callbacks, ModelInfo, SessionSpec
from relay.runners.messages.answers import Answer, AnswerBuilder, make_sendable
from relay.runners.messages.connection import ApiConnection, Fault, FaultKind
from relay.runners.messages.conversation import Conversation
from relay.session.gauge import parse_reset_at
from relay.session.usage import Usage
from relay.session.values import SessionEnd, ToolCall, ToolResult
from tests.message_rules import check_messages


def user(*blocks):
    return {"role": "user", "content": list(blocks) or [text("go")]}


def model(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def notice(words="near the line"):
    return {"role": "system", "content": [text(words)]}


def text(words):
    return {"type": "text", "text": words}


def call(call_id="a", **more):
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}, **more}


def result(call_id="a"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


THINKING = {"type": "thinking", "thinking": "", "signature": "s"}
VALID = [
    user(),
    model(THINKING, call("a"), call("b")),
    user(result("a"), result("b")),
    notice(),
    model(text("x")),
    user(),
]

BROKEN = [
    [],
    [model(text("x")), user()],
    [user(), model(text("x")), model(text("y")), user()],
    [user(), notice(), user()],
    [user(), model(call())],
    [user(), model(call()), user(), user(result())],
    [user(), model(call()), user(result(), result("b"))],
    [user(), model(call()), user(text("x"), result())],
    [user(), model(call("a"), call("b")), user(result("b"), result("a"))],
    [user(), model(call()), user(result()), model(call()), user(result())],
    [user(text(" \n"))],
    [user(), model(text("x"))],
    [user(), model(text("x"), THINKING), user()],
    [user(THINKING)],
    [user(), model({**THINKING, "signature": ""}, text("x")), user()],
    [user(), model(call("a b")), user(result("a b"))],
    [user(text("\ud800"))],
]


def test_a_history_is_valid_or_its_fault_is_found():
    """Valid: parallel calls, thinking, a notice after results, two user messages in a row."""
    for messages in (VALID, [user(), user()], [{"role": "user", "content": "as plain text"}]):
        assert check_messages(messages) == ()
    assert [messages for messages in BROKEN if not check_messages(messages)] == []


def answer(*blocks, broken=None):
    return Answer(
        model="m",
        content=blocks,
        broken_calls=broken or {},
        stop_reason="end_turn",
        stop_details={},
        usage=None,
    )


def test_an_answer_is_made_fit_to_be_sent_back():
    """Blank texts and trailing thinking go, ids that were used or cannot be sent are replaced."""
    made = make_sendable(
        answer(THINKING, text(""), call("a"), call("a"), call("x y"), text(" "), THINKING, broken={"x y": "cut"}), {"a"}
    )

    assert [block.get("id", block["type"]) for block in made.content] == ["thinking", "a_2", "a_3", "x_y"]
    assert made.broken_calls == {"x_y": "cut"}


BLANKS = st.sampled_from(["", " ", "\n"])
WORDS = st.one_of(BLANKS, st.sampled_from(["ok", "é\u2028", "x" * 400, "\ud83d", "\ude00"]), st.text(max_size=8))
IDS = st.one_of(st.sampled_from(["a", "b", "toolu_1", "call 0", "é", "a_2"]), st.text(min_size=1, max_size=4))
RAW = st.one_of(
    st.sampled_from(["", "{}", '{"path": "a"}', '{"path": "a', "[1]", "null", '{"n": NaN}', '{"s": "\\ud800"}']),
    st.text(max_size=6),
)


def pieces(words):
    return st.lists(words, max_size=3)


BLOCKS = st.one_of(
    st.tuples(st.just({"type": "text", "text": ""}), st.just("text_delta"), pieces(WORDS)),
    st.tuples(
        st.just({"type": "thinking", "thinking": "", "signature": "s"}), st.just("thinking_delta"), pieces(WORDS)
    ),
    st.tuples(
        st.builds(lambda i: {"type": "tool_use", "id": i, "name": "read", "input": {}}, IDS),
        st.just("input_json_delta"),
        st.one_of(st.just(['{"path": "a"}']), RAW.map(lambda whole: [whole]), pieces(RAW)),
    ),
    st.tuples(st.just({"type": "hologram", "rays": [1]}), st.just(""), st.just([])),
    st.tuples(st.just({"type": "redacted_thinking", "data": "d"}), st.just(""), st.just([])),
)
FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
STOPS = st.sampled_from(
    ["tool_use"] * 6 + ["end_turn"] * 3 + ["max_tokens"] * 2 + ["pause_turn", "stop_sequence", "refusal", "moonrise"]
)


def build(blocks, stop, tokens) -> Answer:
    """Build an answer as the wire would: through the events of a stream."""
    builder = AnswerBuilder()
    usage = {"input_tokens": tokens, "output_tokens": 1}
    builder.feed({"type": "message_start", "message": {"model": "m", "usage": usage}})
    for index, (body, kind, parts) in enumerate(blocks):
        builder.feed({"type": "content_block_start", "index": index, "content_block": body})
        for part in parts:
            delta = {"type": kind, FIELDS[kind]: part}
            builder.feed({"type": "content_block_delta", "index": index, "delta": delta})
        builder.feed({"type": "content_block_stop", "index": index})
    builder.feed({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}})
    builder.feed({"type": "message_stop"})
    return builder.build()


ANSWERS = st.builds(build, st.lists(BLOCKS, max_size=4), STOPS, st.sampled_from([0, 500, 90_000, 105_000, 300_000]))
FAULTS = st.builds(
    Fault,
    kind=st.sampled_from([FaultKind.INFRA, FaultKind.LIMIT]),
    message=st.just("broken"),
    usage=st.sampled_from([None, Usage(input_tokens=5)]),
)
REPLIES = st.lists(st.one_of(ANSWERS, ANSWERS, ANSWERS, FAULTS), max_size=14)
RESULTS = st.lists(
    st.builds(
        ToolResult,
        text=WORDS,
        is_error=st.booleans(),
        ends_session=st.sampled_from([False] * 9 + [True]),
        changed_paths=st.sampled_from([(), None, ("a.py",)]),
    ),
    min_size=1,
    max_size=4,
)


class Playing:
    """An endpoint that plays a list and keeps a copy of every request; at the end it asks for a key."""

    def __init__(self, replies: list[Answer | Fault]) -> None:
        self.replies = list(replies)
        self.requests: list[list[dict[str, Any]]] = []

    def find_model(self, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo:  # noqa: ARG002  # as the API
        raise AssertionError(model)

    def send(self, request: Mapping[str, Any], **_: Any) -> Answer | Fault:
        self.requests.append(copy.deepcopy(request["messages"]))
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
        return self.replies.pop(0) if self.replies else Fault(kind=FaultKind.USER, message="no key")


def converse(replies, results, *, name="claude-opus-5-5"):
    """Run a conversation to its end; relay speaks up to four times."""
    endless = itertools.cycle(results)
    api, ran = Playing(replies), list[ToolCall]()

    def run_tool(found: ToolCall) -> ToolResult:
        ran.append(found)
        given: ToolResult = next(endless)
        return given

    interrupts = Interrupts(sleep=lambda _: None)
    connection = ApiConnection(
        api=api,
        observe=lambda _: None,
        interrupts=interrupts,
        max_wait_s=600,
        clock=lambda: 0.0,
        jitter=lambda: 0.5,
        now=lambda: 0.0,
    )
    spec = SessionSpec(
        session_id="s",
        model=name,
        system="Be brief.",
        tools=(),
        callbacks=Callbacks(run_tool=run_tool, render_soft_notice=lambda fill, at: f"near the line: {fill} of {at}"),
        reset_at=parse_reset_at("100k"),
        check_budget=lambda _prompt, _output: None,
        price=None,
    )
    info = ModelInfo(id=name, window_tokens=400_000, max_output_tokens=64_000, rehearsed=True, source="test")
    session = Conversation(connection, spec, info)
    outcomes = []
    try:
        for message in ("Carry out the phase.", "relay: not ticked", "relay: the checks do not pass", "relay: again"):
            outcomes.append(session.advance(message))
            if outcomes[-1].end is not SessionEnd.FINISHED:
                break
    finally:
        interrupts.close()
    return api, outcomes, ran


def strip(messages):
    """Leave cache markers out: they move."""
    return [
        {
            **message,
            "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]],
        }
        for message in messages
    ]


@settings(max_examples=3 * settings().max_examples)
@given(REPLIES, RESULTS, st.sampled_from(["claude-opus-5-5", "claude-sonnet-4-5"]))
def test_every_request_of_a_conversation_keeps_the_rules(replies, results, name):
    """Whatever a model answers and a tool returns: valid, sendable, and never different from what was sent before."""
    api, outcomes, ran = converse(replies, results, name=name)

    before: list[dict[str, Any]] = []
    for messages in map(strip, api.requests):
        assert check_messages(messages) == ()
        assert messages[: len(before)] == before
        before = messages
    assert outcomes
    assert len(api.requests) <= 4 * len(replies) + 4
    sent = [block["id"] for m in before for block in m["content"] if block["type"] == "tool_use"]
    assert len({found.id for found in ran}) == len(ran)
    if outcomes[-1].end is SessionEnd.DENIED:
        assert {found.id for found in ran} <= set(sent)  # what ran was reported, under the same id


@given(ANSWERS, st.sets(IDS))
def test_making_sendable_is_idempotent(found, taken):
    """What was put right stays as it is, and what was right is not touched."""
    once = make_sendable(found, taken)

    assert make_sendable(once, taken) == once
    calls = [block["id"] for block in once.content if block["type"] == "tool_use"]
    history = [user(), model(*once.content), *([user(*map(result, calls))] if calls else [user()])]
    if once.content:
        assert check_messages(history) == ()
    fit = check_messages([user(), model(*found.content), user(*map(result, calls))]) == ()
    if calls and fit and not taken.intersection(calls):
        assert json.dumps(once.content) == json.dumps(found.content)
        assert all(mine is theirs for mine, theirs in zip(once.content, found.content, strict=True))


EMPTY = build([], "end_turn", 500)
SAID = build([({"type": "text", "text": ""}, "text_delta", ["Done."])], "end_turn", 500)
PAUSED = build([({"type": "text", "text": ""}, "text_delta", ["Hm."])], "pause_turn", 500)
TOOLLESS = build([({"type": "text", "text": ""}, "text_delta", ["Hm."])], "tool_use", 500)
READ = build(
    [({"type": "tool_use", "id": "r", "name": "read", "input": {}}, "input_json_delta", ["{}"])], "tool_use", 500
)


def said(api, n=-1):
    """The last text of a request."""
    return api.requests[n][-1]["content"][-1]["text"]


def test_answers_that_do_nothing_do_not_go_on_for_ever():
    """Three in a row end it; a session that is spoken to again has no new patience."""
    for reply, end, requests in ((EMPTY, "finished", 6), (PAUSED, "stuck", 3), (TOOLLESS, "stuck", 3)):
        api, outcomes, _ = converse([reply] * 50, [ToolResult(text="ok")])
        assert (outcomes[0].end, outcomes[0].detail) == (end, "3 answers in a row did nothing")
        assert len(api.requests) == requests


def test_work_in_between_renews_patience():
    """Only answers in a row count."""
    _, outcomes, _ = converse([EMPTY, EMPTY, READ, EMPTY, EMPTY, SAID], [ToolResult(text="ok")])

    assert outcomes[0].text == "Done."


def test_a_notice_that_was_answered_with_nothing_is_followed_by_no_users_message():
    """The API refuses a user message behind a system message: relay's own words take its role, and then it ends."""
    full = build(
        [({"type": "tool_use", "id": "r", "name": "read", "input": {}}, "input_json_delta", ["{}"])],
        "tool_use",
        105_000,
    )
    api, outcomes, _ = converse([full, EMPTY, EMPTY, EMPTY], [ToolResult(text="ok")])

    assert [message["role"] for message in api.requests[-1]][-3:] == ["system", "system", "system"]
    assert [outcome.end for outcome in outcomes] == [SessionEnd.FINISHED, SessionEnd.STUCK]


def test_no_tool_runs_unless_the_answer_stopped_for_tools():
    """Not when it was cut, paused, refused or ended, and not with an input that is not whole."""
    block = ({"type": "tool_use", "id": "r", "name": "read", "input": {}}, "input_json_delta", ["{}"])
    for stop in ("max_tokens", "pause_turn", "refusal", "end_turn", "moonrise", "model_context_window_exceeded"):
        _, _, ran = converse([build([block], stop, 500)] * 3, [ToolResult(text="ok")])
        assert ran == []
    broken = ({"type": "tool_use", "id": "r", "name": "read", "input": {}}, "input_json_delta", ['{"path": "a'])
    api, _, ran = converse([build([broken], "tool_use", 500)], [ToolResult(text="ok")])
    assert ran == []
    assert "Not executed: the input is not complete JSON" in api.requests[-1][-1]["content"][0]["content"]
