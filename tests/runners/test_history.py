"""The conversation stays append-only; only cache markers move, on copies."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.context_window import LOOK_BACK_BLOCKS, History
from relay.session.values import ToolResult


def answer(calls):
    return [{"type": "tool_use", "id": f"t{n}", "name": "read", "input": {}} for n in range(calls)]


def markers(messages):
    """Block positions, from 1, that carry a marker."""
    blocks = [block for message in messages for block in message["content"]]
    return [n for n, block in enumerate(blocks, 1) if "cache_control" in block]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_a_marker_is_always_within_reach_of_what_was_cached(turns):
    """However many calls a turn makes, a marker looks back far enough, and at most one extra is needed."""
    history = History()
    history.say("go")
    history.note_cached()
    cached = 1
    for calls in turns:
        history.add_answer(answer(calls))
        history.add_results([(f"t{n}", ToolResult(text="x")) for n in range(calls)])
        rendered = history.render({})
        total = sum(len(message["content"]) for message in rendered)
        reachable = [n for n in [*markers(rendered), total] if n - LOOK_BACK_BLOCKS + 1 <= cached <= n]
        assert reachable
        assert len(markers(rendered)) <= 1
        history.note_cached()
        cached = total


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_rendering_changes_nothing_and_the_past_never_changes(turns):
    """Every request begins with the request before it, byte for byte but for markers."""
    history = History()
    history.say("go")
    before: list[Any] = []
    for calls in turns:
        history.add_answer(answer(calls))
        history.add_results([(f"t{n}", ToolResult(text="x")) for n in range(calls)])
        kept = copy.deepcopy(list(history.messages))
        history.render({"ttl": "1h"})
        assert kept == list(history.messages)
        assert before == kept[: len(before)]
        before = kept
        history.note_cached()


def test_a_notice_goes_after_the_results():
    """As a system message where the model takes one, else as text behind the results of the same turn."""
    for as_system, roles in ((True, ["user", "assistant", "user", "system"]), (False, ["user", "assistant", "user"])):
        history = History()
        history.say("go")
        history.add_answer(answer(1))
        history.add_results([("t0", ToolResult(text=""))])
        history.notify("near the line", as_system=as_system)

        assert roles == [message["role"] for message in history.messages]
        assert history.messages[-1]["content"][-1] == {"type": "text", "text": "near the line"}
        assert history.messages[2]["content"][0]["type"] == "tool_result"
