"""Preserved thinking: a conversation is append-only."""

import copy
from typing import Any

import pytest

from tests.endpoint.table import answer
from tests.sdks import anthropic

SCRIPT = """
sessions:
  - turns:
      - {thinking: Look first., text: A., tools: [{name: read, input: {path: a}}]}
      - {text: B., tools: [{name: read, input: {path: b}}]}
      - text: C.
"""
OPENING = [{"role": "user", "content": "Begin."}]
FIELDS: dict[str, Any] = {"tools": [{"name": "read", "input_schema": {"type": "object"}}], "system": "Be brief."}
BOUND = "Invalid signature in thinking block. The block is bound to a different conversation"


@pytest.fixture
def history(play: Any) -> Any:
    """A table, and a conversation of two answered turns."""
    table = play(SCRIPT)
    first = table.ask(OPENING, **FIELDS)
    more = OPENING + answer(first)
    second = table.ask(more, **FIELDS)
    return table, more + answer(second)


def test_an_unchanged_history_is_accepted(history: Any) -> None:
    """Cache marks and spelled-out defaults are not changes."""
    table, messages = history
    messages[0] = {"role": "user", "content": [{"type": "text", "text": "Begin.", "cache_control": None}]}
    messages[2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert table.ask(messages, **FIELDS).content[-1].text == "C."


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (["system"], "Be brief. Today is Monday.", "messages.1.content.0"),
        (["tools", 0, "description"], "reads", "messages.1.content.0"),
        (["messages", 0, "content"], "Begin!", "messages.1.content.0"),
        (["messages", 2, "content", 0, "content"], "[cleared]", "messages.3.content.0"),
        (["messages", 1, "content", 1, "text"], "Rewritten.", "messages.3.content.0"),
        (["messages", 1, "content", 2, "input", "path"], "b", "messages.3.content.0"),
    ],
)
def test_every_change_of_the_prefix_is_refused(history: Any, path: Any, value: str, where: str) -> None:
    """System, tools, the first message, a result, an answer, a call: where the next thinking stands."""
    table, messages = history
    request = copy.deepcopy({**FIELDS, "messages": messages})
    place: Any = request
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(anthropic.BadRequestError) as caught:
        table.ask(**request)
    assert f"{where}: {BOUND}" in caught.value.message
    with pytest.raises(anthropic.BadRequestError):
        table.client.messages.count_tokens(model="claude-opus-5-5", **request)


def test_a_removed_thinking_block_breaks_the_later_ones(history: Any) -> None:
    """All or none: a block is part of the prefix of the next."""
    table, messages = history
    messages[1]["content"].pop(0)
    with pytest.raises(anthropic.BadRequestError, match=r"messages.3.content.0"):
        table.ask(messages, **FIELDS)


def test_a_changed_block_is_refused_on_every_model(play: Any) -> None:
    """A thinking block's own text and signature must come back as they were."""
    for model in ("claude-opus-5-5", "claude-opus-5"):
        table = play(SCRIPT)
        first = table.ask(OPENING, model=model)
        more = OPENING + answer(first)
        more[1]["content"][0]["thinking"] = "Something else."
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
            table.ask(more, model=model)


def test_older_models_do_not_look_at_the_prefix(play: Any) -> None:
    """Clearing old results is allowed where thinking is not bound."""
    table = play(SCRIPT)
    first = table.ask(OPENING, model="claude-opus-5", system="one")
    assert table.ask(OPENING + answer(first), model="claude-opus-5", system="two").content[0].text == "B."


def test_all_thinking_may_be_stripped(history: Any) -> None:
    """The manual way out: no block, no check."""
    table, messages = history
    for message in messages[1::2]:
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
    assert table.ask(messages, system="Another one.").content[-1].text == "C."


def test_another_models_thinking_is_dropped_and_not_counted(history: Any) -> None:
    """Switching the model is no error; the blocks leave the prompt."""
    table, messages = history
    fields: dict[str, Any] = {**FIELDS, "messages": messages}
    with_thinking = table.client.messages.count_tokens(model="claude-opus-5-5", **fields).input_tokens
    without = table.client.messages.count_tokens(model="claude-sonnet-5-5", **fields).input_tokens
    assert with_thinking - without == 7 + 32
    assert table.ask(messages, model="claude-sonnet-5-5", **FIELDS).content[-1].text == "C."


def test_dropping_can_be_asked_for(history: Any) -> None:
    """The beta control drops the mismatched blocks and reports them."""
    table, messages = history
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    status, body = table.post(messages, system="Another one.", thinking=binding)
    assert status == 200
    assert [(item["path"], item["reason"]) for item in body["input_transformations"]] == [
        ("messages.1.content.0", "prefix_binding_mismatch"),
        ("messages.3.content.0", "prefix_binding_mismatch"),
    ]


def test_a_script_can_leave_thinking_out(play: Any) -> None:
    """`thinking: scripted` gives thinking blocks only where they are written."""
    script = "thinking: scripted\nsessions: [{turns: [{text: A.}]}]"
    assert [block.type for block in play(script).ask(OPENING).content] == ["text"]
