"""The four context strategies through the real SDK: same plan, gates and commits; only the conversation differs."""

import importlib
import json
from itertools import pairwise
from typing import get_args

import pytest
from pydantic import TypeAdapter

from relay.base.errors import ExitCode
from relay.runners.messages.context_window import render_edit
from relay.runners.messages.endpoint import EDITING_BETA
from relay.session.events import (
    CacheBroken,
    Committed,
    GaugeCrossed,
    Noticed,
    ResponseReceived,
    RunStarted,
    SessionEnded,
    SessionStarted,
)
from tests.effort import take_each, take_turns
from tests.message_rules import check_messages

PLAN = """\
# Letters

## Phase 1 — A
Verify: `test -s a.txt`
- [ ] Write a — a.txt

## Phase 2 — B
Verify: `test -s b.txt`
- [ ] Write b — b.txt
"""
LINE = 8_000
"""The reset line, in tokens; one phase reads about 9,000."""
SUMMARY = "The letters before were written, because the plan asked for it."


def play(phase, reads=6):
    """One phase: read files of about 1,500 tokens each, write one, tick, end."""
    name = "ab"[phase - 1]
    looks = [{"tools": [{"name": "read", "input": {"path": f"big{n % 8}.txt"}}]} for n in range(reads)]
    work = [
        {"tools": [{"name": "write", "input": {"path": f"{name}.txt", "content": f"{name}\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": f"{phase}.1", "evidence": "it is there"}}]},
        {"text": f"Commit: Write {name}"},
    ]
    return {"name": f"phase {phase}", "then": "next", "turns": [*looks, *work]}


def make_script(*sessions, summary=SUMMARY, **extra):
    aside = {
        "name": "summary",
        "aside": True,
        "when": {"last_message_contains": "replaced by a summary"},
        "turns": [{"text": summary}],
    }
    return json.dumps({"sessions": [*sessions, aside], **extra})


SCRIPT = make_script(play(1), play(2))


@pytest.fixture
def letters(stage):
    """A repository with two small phases and files to read."""
    stage.write("PLAN.md", PLAN)
    for n in range(8):
        stage.write(f"big{n}.txt", "".join(f"{n}: line {line} of a file to read\n" for line in range(200)))
    stage.commit()
    return stage


def list_requests(stage):
    return [r for r in stage.server.requests if r.path == "/v1/messages" and r.status == 200]


def count_conversations(stage):
    """How many requests do not begin with the messages of the one before."""
    bodies = [r.body["messages"] for r in list_requests(stage)]
    plain = [json.dumps([strip(m) for m in body]) for body in bodies]
    return 1 + sum(not now.startswith(before[:-1]) for before, now in pairwise(plain))


def strip(message):
    return {
        "role": message["role"],
        "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]],
    }


def texts(stage, kind=Noticed):
    return [event.text for event in stage.seen(kind)]


def check_reset(letters):
    """The control of those below: as many conversations as phases."""
    assert count_conversations(letters) == 2


def check_none(letters):
    """The next phase's message stands behind the last phase's answer."""
    assert count_conversations(letters) == 1
    last = list_requests(letters)[-1].body["messages"]
    asked = [b["text"] for m in last for b in m["content"] if "Carry out phase" in b.get("text", "")]
    assert [text.splitlines()[-1] for text in asked] == [f"Carry out phase {n} now." for n in (1, 2)]


def check_compact(letters):
    """The new conversation begins with the task in full; calls stay with their results; it is small again."""
    crossed = letters.seen(GaugeCrossed)
    assert {c.line for c in crossed} == {"soft"}
    assert len([t for t in texts(letters) if t.startswith("compacted: ")]) == len(crossed) >= 2
    bodies = [r.body["messages"] for r in list_requests(letters)]
    begun = [now for before, now in pairwise(bodies) if len(now) < len(before)]
    assert len(begun) == len(crossed)
    for messages in begun:
        task, summary = messages[0]["content"]
        assert "Carry out phase" in task["text"]
        assert SUMMARY in summary["text"]
        assert messages[1]["role"] == "assistant"
        assert not any(b["type"] == "thinking" for m in messages for b in m["content"])
    assert not any("replaced by a summary" in json.dumps(messages[:-1]) for messages in bodies)


def check_edit(letters):
    """Requests hold the whole history, and the API shows the model less of it, from the line on."""
    bodies = [r.body for r in list_requests(letters)]
    assert all(body["context_management"]["edits"][0]["trigger"]["value"] == 12_000 for body in bodies)
    assert all(r.headers["anthropic-beta"] == "context-management-2025-06-27" for r in list_requests(letters))
    assert "cleared" not in json.dumps([body["messages"] for body in bodies])
    assert count_conversations(letters) == 1
    fills = [e.fill_tokens for e in letters.seen(ResponseReceived)]
    assert max(fills) < 12_000 + 2_000
    assert any(now < before for before, now in pairwise(fills))
    assert not [e for e in letters.seen(CacheBroken) if e.changed == "unknown" and not e.read_tokens]
    assert any("left to the API" in t for t in texts(letters))


STRATEGIES = {
    "compact": (str(LINE), check_compact),
    "none": ("12k", check_none),
    "reset": ("12k", check_reset),
    "edit": ("12k", check_edit),
}
"""The line of each, and what it does with the conversation. `reset` is what all other tests run with."""


@pytest.mark.parametrize(
    ("context", "model"), take_each(4, take_turns(STRATEGIES, ("claude-opus-5-5", "claude-sonnet-4-6")))
)
def test_plan_gates_ticks_and_commits_are_the_same_and_the_conversation_is_its_own(letters, context, model):
    """On a model that preserves thinking and on one that does not; every request keeps the rules of a history."""
    reset_at, check_conversation = STRATEGIES[context]

    ended = letters.run(SCRIPT, arm=context, reset_at=reset_at, model=model)

    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, "2 of 2 phases")
    assert [c.subject for c in reversed(letters.commits())] == ["Write a", "Write b"]
    assert [c.items for c in letters.seen(Committed)] == [("1.1",), ("2.1",)]
    assert [session.number for session in letters.seen(SessionStarted)] == [1, 1]
    assert letters.server.errors == []
    assert [r.status for r in letters.server.requests if r.status != 200] == []
    assert [check_messages(r.body["messages"]) for r in list_requests(letters)] == [()] * len(list_requests(letters))
    assert letters.seen(RunStarted)[0].context == context
    check_conversation(letters)


@pytest.mark.nightly
def test_a_summary_that_does_not_fit_ends_in_a_hand_over(letters):
    """The conversation goes on unharmed: the model is told to hand over, and the run is not lost."""
    letters.run(make_script(play(1, reads=8), play(2), summary="long " * 12_000), arm="compact",
                reset_at=str(LINE))  # fmt: skip

    assert any("could not be summarised" in t for t in texts(letters))
    assert any("planned line" in json.dumps(r.body["messages"][-1]) for r in list_requests(letters))


@pytest.mark.nightly
def test_a_full_window_ends_a_continuous_session_in_a_fresh_one(letters):
    """`none` has no line but the window; there it hands over, with a handoff note, to a new conversation."""
    sessions = [play(1, reads=24), {**play(1, reads=0), "name": "again"}, play(2)]
    model = {"id": "claude-opus-5-5", "window": 40_000, "max_tokens": 8_000}

    ended = letters.run(make_script(*sessions, model=model), arm="none")

    assert ended.exit_code == ExitCode.DONE, ended
    assert [e.result for e in letters.seen(SessionEnded)][:2] == ["handoff", "done"]
    assert count_conversations(letters) == 2


@pytest.mark.nightly
def test_too_many_summaries_in_a_row_are_given_up(letters):
    """A context that is full again right behind each summary is not compacted for ever."""
    reads = [{"tools": [{"name": "read", "input": {"path": f"big{n}.txt"}} for n in range(2)]} for _ in range(9)]
    session = {"name": "greedy", "then": "next", "turns": [*reads, *play(1, reads=0)["turns"]]}

    letters.run(make_script(session, play(2)), arm="compact", reset_at=str(LINE))

    words = " ".join(texts(letters))
    assert "the context fills again right behind every summary" in words


@pytest.mark.nightly
def test_an_endpoint_that_ignores_the_wish_to_edit_is_found_out(letters):
    """The arm would be another one without anybody knowing: the session hands over instead."""
    session = {**play(1, reads=12), "when": {"first_message_contains": "Carry out phase 1"}, "repeat": True}
    letters.run(make_script(session, play(2), dialect="vllm"), arm="edit", reset_at="12k")

    assert any("the endpoint does not edit the context" in t for t in texts(letters))


def test_the_edit_is_one_that_the_sdk_knows():
    beta = importlib.import_module("anthropic.types.beta")
    edit = TypeAdapter(beta.BetaClearToolUses20250919EditParam).validate_python(render_edit(80_000), strict=True)
    assert edit == render_edit(80_000)
    assert EDITING_BETA in get_args(get_args(importlib.import_module("anthropic.types").AnthropicBetaParam)[1])
