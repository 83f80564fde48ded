"""Compaction of any history: what comes out can be sent, and nothing that must stay is gone."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.context_window import History
from relay.runners.messages.conversation import compact
from relay.session.values import ToolResult
from tests.message_rules import check_messages

TURNS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 9_000), st.booleans(), st.booleans()), min_size=1, max_size=12
)
"""(calls, size of each result, thinking, a notice or a word of relay's behind it) of each turn."""


def make_history(turns):
    history = History()
    history.say("The task.")
    for number, (calls, size, thinks, told) in enumerate(turns):
        blocks = [{"type": "thinking", "thinking": "t", "signature": "s"}] * thinks
        ids = [f"c{number}_{n}" for n in range(calls)]
        uses = [{"type": "tool_use", "id": call_id, "name": "read", "input": {}} for call_id in ids]
        history.add_answer([*blocks, {"type": "text", "text": "a"}, *uses])
        if uses:
            history.add_results([(call_id, ToolResult(text="r" * size)) for call_id in ids])
        if told and uses:
            history.notify("near the line", as_system=number % 2 == 0)
        elif not uses or told:
            history.say("go on")
    return history


def list_blocks(messages, kind):
    return [block for message in messages for block in message["content"] if block["type"] == kind]


@given(TURNS, st.integers(0, 20_000))
def test_a_compacted_history_can_be_sent_and_ends_as_the_old_one(turns, keep_tokens):
    """Task, summary, whole turns without thinking; the last turn always; the old history is not touched."""
    history = make_history(turns)
    before = copy.deepcopy(list(history.messages))

    now = compact(history.messages, 0, "what happened", keep_tokens=keep_tokens).messages

    assert check_messages(now) == ()
    assert before == list(history.messages)
    assert now[0]["content"][0]["text"] == "The task."
    assert "what happened" in now[0]["content"][1]["text"]
    assert list_blocks(now, "thinking") == []
    last = max(at for at, message in enumerate(before) if message["role"] == "assistant")
    assert now[-(len(before) - last - 1) :] == before[last + 1 :]
