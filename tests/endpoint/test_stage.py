"""Which turn a request gets, after faults and beside all conversations."""

from typing import Any

import pytest

from relay.base.errors import ConfigError
from tests.endpoint.table import answer
from tests.sdks import anthropic


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def last_text(message: Any) -> str:
    return str(next(block.text for block in message.content if block.type == "text"))


def test_after_a_pause_the_answer_is_sent_back(play: Any) -> None:
    """`pause_turn` is resumed with the next turn."""
    table = play("sessions: [{turns: [{text: Wait., fault: pause_turn}, {text: Here.}, {text: End.}]}]")
    paused = table.ask([user("one")])
    assert paused.stop_reason == "pause_turn"
    more = [user("one"), answer(paused)[0]]
    here = table.ask(more)
    assert last_text(here) == "Here."
    assert last_text(table.ask([*more, answer(here)[0], user("go")])) == "End."


def test_a_changed_request_after_a_fault_is_another_try(play: Any) -> None:
    """A client that appends a hint after a cut answer, instead of sending the cut answer back."""
    table = play(
        """
sessions:
  - turns:
      - {tools: [{name: read, input: {path: a}}]}
      - {fault: max_tokens, text: "A long long long long answer."}
"""
    )
    first = table.ask([user("one")])
    messages = [user("one"), *answer(first)]
    assert table.ask(messages).stop_reason == "max_tokens"
    messages[-1]["content"].append({"type": "text", "text": "Write in parts."})
    assert last_text(table.ask(messages)) == "A long long long long answer."


def test_an_aside_answers_without_moving_the_conversation_on(play: Any) -> None:
    """A summary asked for in mid-conversation takes no turn of it, as often as it is asked for; its faults play."""
    table = play(
        """
sessions:
  - {name: work, turns: [{tools: [{name: read, input: {path: a}}]}, {text: Done.}]}
  - name: summary
    aside: true
    when: {last_message_contains: summarise}
    turns: [{text: A summary., fault: {kind: overloaded}}]
"""
    )
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    first = table.ask([user("go")], tools=tools)
    history = [user("go"), *answer(first)]
    with pytest.raises(anthropic.APIStatusError):
        table.ask([*history, user("summarise this")], tools=tools)
    for _ in range(2):
        assert last_text(table.ask([*history, user("summarise this")], tools=tools)) == "A summary."
    assert last_text(table.ask(history, tools=tools)) == "Done."
    assert table.player.unplayed == ()


def test_an_aside_needs_a_condition_and_one_turn(play: Any) -> None:
    """Without a condition it would answer everything."""
    with pytest.raises(ConfigError, match="an aside has a when and one turn"):
        play("sessions: [{name: a, aside: true, turns: [{text: x}]}]")
