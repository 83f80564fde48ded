"""What the API refuses, refused with words a person can act on."""

from typing import Any

import pytest

from tests.endpoint.checks import check_request
from tests.endpoint.faults import CATALOG, find_card

TOOL = {"name": "read", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "Begin."}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def call(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str, after: Any = ()) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in ids]
    return {"role": "user", "content": [*blocks, *after]}


def text(words: str, **extra: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **extra}


def check(messages: Any, *, model: str = "claude-opus-5-5", paused: bool = False, **extra: Any) -> str:
    """Check a request; returns the refusal's words, empty when it is accepted."""
    card = find_card(model)
    assert card is not None
    body = {"max_tokens": 1000, "messages": messages, **extra}
    version = body.pop("version", "2026-10-21")
    problem = check_request(body, card, version=version, paused=paused)
    assert problem is None or problem.status == 400
    return problem.message if problem else ""


SYSTEM = {"role": "system", "content": "The budget is low."}

ACCEPTED = [
    [USER],
    [USER, call("a", "b"), results("b", "a")],
    [USER, call("a"), results("a", after=[text("and go on")])],
    [USER, call("a"), results("a"), {"role": "user", "content": "Please continue"}],
    [USER, SYSTEM],
    [USER, {"role": "system", "content": [], "output_config": {"effort": "high"}}],
    [USER, call("a"), results("a"), SYSTEM, SYSTEM],
    [USER, call("a"), results("a"), SYSTEM, {"role": "assistant", "content": "Yes."}, USER],
    [USER, {"role": "assistant", "content": [text("x"), *call("a")["content"]]}, results("a")],
]


@pytest.mark.parametrize("messages", ACCEPTED, ids=range(len(ACCEPTED)))
def test_valid_histories_are_accepted(messages: Any) -> None:
    """Everything a tool loop may send."""
    assert check(messages, tools=[TOOL]) == ""


REFUSED = {
    "no message": ([], "at least one message is required"),
    "no list": ("hello", "valid list"),
    "assistant first": ([{"role": "assistant", "content": "x"}, USER], "first message must use"),
    "system first": ([SYSTEM, USER], "first message must use"),
    "unknown role": ([USER, {"role": "tool", "content": "x"}], "messages.1.role"),
    "prefill": ([USER, {"role": "assistant", "content": "{"}], "must end with a user message"),
    "two assistants": (
        [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, USER],
        "messages.2: roles must alternate",
    ),
    "system without anything": ([USER, {"role": "system", "content": []}], "must have non-empty content"),
    "system after assistant": (
        [USER, {"role": "assistant", "content": "a"}, SYSTEM],
        "must immediately follow a user turn",
    ),
    "system before user": ([USER, SYSTEM, USER], "must precede an assistant turn"),
    "system before results": ([USER, call("a"), SYSTEM, results("a")], "must immediately follow"),
    "unanswered call": ([USER, call("a", "b"), results("a")], "immediately after: b"),
    "call at the end": ([USER, call("a")], "must end with a user message"),
    "results in two messages": ([USER, call("a", "b"), results("a"), results("b")], "immediately after: b"),
    "text before results": (
        [USER, call("a"), {"role": "user", "content": [text("x"), *results("a")["content"]]}],
        "immediately after: a",
    ),
    "orphan result": ([USER, {"role": "assistant", "content": "x"}, results("a")], "unexpected `tool_use_id`"),
    "result twice": ([USER, call("a"), results("a", "a")], "must have a single result"),
    "call id twice": ([USER, call("a"), results("a"), call("a"), results("a")], "ids must be unique"),
    "bad call id": ([USER, call("a b"), results("a b")], "messages.1.content.0.tool_use.id"),
    "empty text": ([{"role": "user", "content": [text("")]}], "text content blocks must be non-empty"),
    "empty content": ([USER, {"role": "assistant", "content": []}, USER], "messages.1: all messages must"),
    "empty string": ([{"role": "user", "content": ""}], "messages.0: all messages must"),
    "no content": ([{"role": "user"}], "messages.0.content: Field required"),
    "call by user": ([{"role": "user", "content": call("a")["content"]}], "only permitted in assistant"),
    "input as text": (
        [USER, {"role": "assistant", "content": [{**call("a")["content"][0], "input": "{}"}]}, results("a")],
        "tool_use.input",
    ),
    "citations by user": ([{"role": "user", "content": [text("x", citations=[1])]}], "citations"),
    "document by assistant": (
        [USER, {"role": "assistant", "content": [{"type": "document"}]}, USER],
        "document blocks are not permitted",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_broken_histories_are_refused(name: str) -> None:
    """The words name the message and the rule."""
    messages, words = REFUSED[name]
    assert words in check(messages, tools=[TOOL])


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens: Field required"),
    "too many max_tokens": ({"max_tokens": 128_001}, "128001 > 128000"),
    "negative max_tokens": ({"max_tokens": -1}, "max_tokens"),
    "temperature": ({"temperature": 1.0}, "temperature: Extra inputs"),
    "top_k": ({"top_k": 5}, "top_k: Extra inputs"),
    "forced tool": ({"tool_choice": {"type": "any"}}, "tool_choice: 'any' is not supported"),
    "thinking off": ({"thinking": {"type": "disabled"}}, "thinking.type: 'disabled' is not supported"),
    "thinking budget": ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "'enabled' is not supported"),
    "thinking as text": ({"thinking": "adaptive"}, "thinking: Input should be an object"),
    "unknown effort": ({"output_config": {"effort": "extreme"}}, "effort: 'extreme'"),
    "tools as object": ({"tools": {}}, "tools: Input should be a valid list"),
    "system as number": ({"system": 5}, "system: Input should be"),
    "empty system": ({"system": [text("")]}, "system: text content blocks"),
    "tool twice": ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
    "tool name": ({"tools": [{**TOOL, "name": "a.b"}]}, "tools.0.name"),
    "choosy schema": (
        {"tools": [{"name": "a", "input_schema": {"type": "object", "anyOf": []}}]},
        "oneOf, allOf, or anyOf at the top level",
    ),
    "no schema": ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema"),
    "five marks": ({"system": [text("a", **MARK)] * 5}, "maximum of 4 blocks with cache_control may be"),
    "automatic is the fifth": ({"system": [text("a", **MARK)] * 4, **MARK}, "Found 5"),
    "5m before 1h": ({"system": [text("a", **MARK), text("b", **HOUR)]}, "ttl='1h' cache_control block must not"),
    "5m system before 1h automatic": ({"system": [text("a", **MARK)], **HOUR}, "messages.0.content.0"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_do_not_go_are_refused(name: str) -> None:
    """Limits, removed parameters, thinking configurations, tools, cache marks."""
    fields, words = FIELDS[name]
    assert words in check([USER], **fields)


def test_cache_marks_in_the_right_order_are_accepted() -> None:
    """Four marks, 1h before 5m; an explicit mark on the last block makes the automatic one a no-op."""
    system = [text("a", **HOUR), text("b", **HOUR), text("c", **MARK)]
    assert check([USER], system=system, **MARK) == ""
    marked = [{"role": "user", "content": [text("x", **MARK)]}]
    assert check(marked, system=[text("a", **MARK)] * 3, **MARK) == ""
    assert "different ttl" in check(marked, **HOUR)
    nested = {"type": "tool_result", "tool_use_id": "a", "content": [text("x", **MARK)]}
    messages = [USER, call("a"), {"role": "user", "content": [nested]}]
    assert "Found 5" in check(messages, system=[text("a", **MARK)] * 4)


def test_thinking_and_empty_text_cannot_be_marked() -> None:
    """What cannot end a cached prefix says so."""
    thinking = {"type": "thinking", "thinking": "", "signature": "x", **MARK}
    history = [USER, {"role": "assistant", "content": [thinking, text("a")]}, USER]
    assert "cannot be set for thinking blocks" in check(history)


def test_old_models_and_the_old_version_keep_their_ways() -> None:
    """Prefill and budgets on 4.5 models, forced tools before 5.1, sampling under the old version."""
    prefill = [USER, {"role": "assistant", "content": "{"}]
    assert check(prefill, model="claude-haiku-4-5") == ""
    assert check([USER], model="claude-haiku-4-5", thinking={"type": "enabled", "budget_tokens": 9}) == ""
    assert "not supported" in check([USER], model="claude-haiku-4-5", thinking={"type": "adaptive"})
    assert check([USER], model="claude-opus-5", tool_choice={"type": "any"}) == ""
    assert check([USER], version="2023-06-01", temperature=0.5) == ""
    assert "role 'system' is not supported" in check([USER, SYSTEM], model="claude-sonnet-5")
    assert check([USER], model="claude-sonnet-5-5", thinking={"type": "between_tools"}) == ""
    effort: dict[str, Any] = {"output_config": {"effort": "max"}, "thinking": {"type": "between_tools"}}
    assert "effort 'max'" in check([USER], model="claude-sonnet-5-5", **effort)


def test_a_paused_answer_may_be_sent_back() -> None:
    """After `pause_turn` the history ends with the assistant, and two of its turns may follow each other."""
    paused = [USER, {"role": "assistant", "content": "Wait."}]
    assert check(paused, paused=True) == ""
    assert check([*paused, {"role": "assistant", "content": "Done."}, USER], paused=True) == ""


def test_every_model_of_the_catalog_is_complete() -> None:
    """Ids are unique, limits fit, minimum lengths are the documented ones."""
    names = [name for card in CATALOG for name in (card.id, *card.aliases)]
    assert len(set(names)) == len(names)
    for card in CATALOG:
        assert card.output_tokens < card.window_tokens
        assert card.min_cache_tokens in {512, 1024, 2048, 4096}
        assert card.thinking
