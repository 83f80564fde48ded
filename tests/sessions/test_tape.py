"""Notes of a session, whatever they hold."""

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from relay.insight.telemetry.tape import open_tape
from relay.session.tape import find_conversation, shorten_request
from tests.tapes import read_tape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=9,
)


@given(st.lists(st.lists(JSON, max_size=4), max_size=5))
@example([[1, 2], [1, 3, 4], [1]])
def test_requests_come_back_as_they_were_sent(requests: list[list[Any]]) -> None:
    """Only what is new is written, also where the past of a conversation has changed."""
    before: list[Any] = []
    for messages in requests:
        note = shorten_request({"model": "m", "messages": messages, "stream": True}, before)
        assert list(note["body"]) == ["model", "messages", "stream"]
        before = [*before[: note["same"]], *note["body"]["messages"]]
        assert before == messages


def test_what_grows_from_request_to_request_is_kept_once_in_each_dialect(tmp_path: Path) -> None:
    for name in ("messages", "input", "contents"):
        kept = open_tape(tmp_path, name)
        kept.keep({"kind": "session"})
        bodies = [{"model": "m", name: [{"text": f"part {n}" * 200} for n in range(most)]} for most in (1, 2, 3, 2)]
        for body in bodies:
            kept.keep({"kind": "request", "body": body})
        kept.close()
        path = tmp_path / f".relay/history/{name}.jsonl"
        assert [exchange.body for exchange in read_tape(path)] == bodies
        assert find_conversation(bodies[0])[0] == name
        assert len(path.read_text()) < len(json.dumps(bodies[2])) * 1.2, name
