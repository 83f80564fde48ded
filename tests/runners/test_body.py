"""Requests are written as the HTTP client would write them, and a message that was answered is written once."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.api import BodyWriter

TEXTS = st.text(max_size=5)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "mark", "extend", "cut"]), TEXTS, st.booleans()), max_size=12)


def make_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text, "n": [None, 0.5, True, "\u2028é"]}]}


def render(request: dict[str, Any]) -> bytes:
    return json.dumps(request, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class Counted(dict[str, Any]):
    """A message that knows how often it was written."""

    written = 0

    def items(self) -> Any:
        self.written += 1
        return super().items()


@given(STEPS)
def test_a_request_is_written_as_it_is_now(steps: list[tuple[str, str, bool]]) -> None:
    """Also where a message was changed that was refused, one is marked for this request only, or history is shorter."""
    writer, messages, frozen = BodyWriter(), [make_message("begin")], 0
    for step, text, is_answered in steps:
        sent = messages
        match step:
            case "add":
                messages.append(make_message(text))
            case "mark":
                sent = [*messages[:-1], {**messages[-1], "cache_control": text}]
            case "extend" if len(messages) > frozen:
                messages[-1]["content"].append({"type": "text", "text": text})
            case "cut":
                sent = messages = messages[: max(1, len(messages) // 2)]
            case _:
                pass
        request = {"model": text, "messages": list(sent), "stream": True, "system": [{"text": text}]}
        assert writer.write(request) == render(request)
        if is_answered:
            writer.note_answered()
            frozen = len(messages)


def test_a_message_is_written_once_when_it_was_answered() -> None:
    """Until then it is written with each request: it may change."""
    writer, messages = BodyWriter(), [Counted(make_message("begin"))]
    for _ in range(2):
        writer.write({"messages": messages})
    for n in range(4):
        writer.write({"messages": messages})
        writer.note_answered()
        messages.append(Counted(make_message(str(n))))
    assert [message.written for message in messages] == [3, 1, 1, 1, 0]
