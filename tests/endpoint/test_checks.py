"""What the API refuses, and what a script cannot say: with words that a person can act on."""

from typing import Any

import pytest

from relay.base.errors import ConfigError
from tests.endpoint.checks import check_request
from tests.endpoint.faults import find_card
from tests.endpoint.script import parse_script

TOOL = {"name": "read", "input_schema": {"type": "object"}}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(words: str, **extra: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **extra}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) or "Begin."}


def model(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content) or "x"}


def call(*ids: str, **given: Any) -> dict[str, Any]:
    return model(*({"type": "tool_use", "id": name, "name": "read", "input": {}, **given} for name in ids))


def results(*ids: str, after: Any = ()) -> dict[str, Any]:
    return user(*({"type": "tool_result", "tool_use_id": name, "content": "ok"} for name in ids), *after)


def check(messages: Any, *, model: str = "claude-opus-5-5", paused: bool = False, **extra: Any) -> str:
    """Check a request; returns the refusal's words, empty when it is accepted."""
    card = find_card(model)
    assert card is not None
    body = {"max_tokens": 1000, "messages": messages, **extra}
    version = body.pop("version", "2026-10-21")
    problem = check_request(body, card, version=version, paused=paused)
    return problem.message if problem else ""


SYSTEM = {"role": "system", "content": "The budget is low."}
ACCEPTED = [
    [user(), call("a", "b"), results("b", "a")],
    [user(), call("a"), results("a", after=[text("and go on")]), user()],
    [user(), SYSTEM],
    [user(), {"role": "system", "content": [], "output_config": {"effort": "high"}}],
    [user(), call("a"), results("a"), SYSTEM, SYSTEM, model(), user()],
]
REFUSED: dict[str, Any] = {
    "at least one message is required": [[]],
    "first message must use": [[model(), user()], [SYSTEM, user()]],
    "messages.1.role": [[user(), {"role": "tool", "content": "x"}]],
    "must end with a user message": [[user(), model()], [user(), call("a")]],
    "messages.2: roles must alternate": [[user(), model(), model(), user()]],
    "must immediately follow": [[user(), model(), SYSTEM], [user(), call("a"), SYSTEM, results("a")]],
    "must precede an assistant turn": [[user(), SYSTEM, user()]],
    "immediately after: b": [[user(), call("a", "b"), results("a"), results("b")]],
    "immediately after: a": [[user(), call("a"), user(text("x"), *results("a")["content"])]],
    "unexpected `tool_use_id`": [[user(), model(), results("a")]],
    "must have a single result": [[user(), call("a"), results("a", "a")]],
    "ids must be unique": [[user(), call("a"), results("a"), call("a"), results("a")]],
    "messages.1.content.0.tool_use.id": [[user(), call("a b"), results("a b")]],
    "tool_use.input": [[user(), call("a", input="{}"), results("a")]],
    "text content blocks must be non-empty": [[user(text(""))]],
    "messages.1: all messages must": [[user(), {"role": "assistant", "content": []}, user()]],
    "messages.0.content: Field required": [[{"role": "user"}]],
    "only permitted in assistant": [[user(*call("a")["content"])]],
    "citations": [[user(text("x", citations=[1]))]],
    "cannot be set for thinking": [[user(), model({"type": "thinking", "signature": "x", **MARK}, text("a")), user()]],
}
FIELDS: dict[str, dict[str, Any]] = {
    "max_tokens: Field required": {"max_tokens": None},
    "128001 > 128000": {"max_tokens": 128_001},
    "temperature: Extra inputs": {"temperature": 1.0},
    "tool_choice: 'any' is not supported": {"tool_choice": {"type": "any"}},
    "thinking.type: 'disabled' is not supported": {"thinking": {"type": "disabled"}},
    "thinking: Input should be an object": {"thinking": "adaptive"},
    "effort: 'extreme'": {"output_config": {"effort": "extreme"}},
    "tools: Input should be a valid list": {"tools": {}},
    "Tool names must be unique": {"tools": [TOOL, TOOL]},
    "tools.0.name": {"tools": [{**TOOL, "name": "a.b"}]},
    "tools.0.custom.input_schema": {"tools": [{"name": "a"}]},
    "maximum of 4 blocks with cache_control": {"system": [text("a", **MARK)] * 5},
    "Found 5": {"system": [text("a", **MARK)] * 4, **MARK},
    "ttl='1h' cache_control block must not": {"system": [text("a", **MARK), text("b", **HOUR)]},
    "messages.0.content.0": {"system": [text("a", **MARK)], **HOUR},
}


def test_what_a_tool_loop_may_send_is_accepted_and_each_broken_request_is_refused_by_name() -> None:
    assert [said for messages in ACCEPTED if (said := check(messages, tools=[TOOL]))] == []
    rows = [(words, check(messages, tools=[TOOL])) for words, cases in REFUSED.items() for messages in cases]
    rows += [(words, check([user()], **fields)) for words, fields in FIELDS.items()]
    assert [(words, said) for words, said in rows if words not in said] == []
    paused = [user(), model()]
    assert check(paused, paused=True) == check([*paused, model(), user()], paused=True) == ""


TURN = "sessions:\n  - turns:\n      - "
WRONG = {
    "fault: overloaded\n": "3: the turn answers nothing",
    "fault: overload\n": "3: fault: Invalid enum value 'overload'",
    "fault: {times: 2}\n": "3: fault: Object missing required field `kind`",
    "fault: {kind: empty, status: 500}\n": "fault empty has no key 'status'",
    "fault: {kind: status, status: 200, times: always}\n": "status: Expected `int` >= 300",
    "text: a\n        fault: {kind: cut, how: hard}\n": "how: Invalid enum value 'hard'",
    "text: a\n        fault: {kind: drop, how: end}\n": "a drop is rst or fin",
    'text: a\n        fault: {kind: status, headers: {x: "a\\r\\nb"}}\n': "4: headers: Expected `str` matching",
}


def test_what_is_wrong_with_a_script_is_said_with_its_line() -> None:
    texts = {TURN + turn: words for turn, words in WRONG.items()}
    texts["sessions: [{aside: true, turns: [{text: x}]}]"] = "an aside has a when and one turn"
    for script, words in texts.items():
        with pytest.raises(ConfigError) as caught:
            parse_script(script, source="my.yaml")
        assert words in caught.value.message, script
