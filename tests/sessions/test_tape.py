"""Notes of a session, whatever they hold."""

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from relay.insight.telemetry.tape import open_tape, redact_stream
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


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=4), min_size=1, max_size=6))
def test_a_secret_in_pieces_is_left_out_and_the_rest_of_a_stream_is_untouched(pieces: list[str]) -> None:
    """However it was cut; what holds none is the same to the byte."""
    cut = ["se", "cr", "et!"]

    def stream(texts: list[str]) -> str:
        events = [{"type": "content_block_delta", "index": 0, "delta": {"type": "t", "text": text}} for text in texts]
        lines = [f"event: x\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
        return "".join(
            [*lines, 'data: {"type":"_delta"}\n\ndata: [1,"_delta"]\n\ndata: {"delta":{"text":"_delta"}}\n\n']
        )

    clean = stream(pieces)
    assert redact_stream(clean, lambda text: text.replace("secret!", "*")) == (
        clean if "secret!" not in "".join(pieces) else redact_stream(clean, lambda text: text.replace("secret!", "*"))
    )
    left = redact_stream(stream([*pieces, *cut]) + "data: {_delta", lambda text: text.replace("secret!", "*"))
    said = [json.loads(line[6:]) for line in left.split("\n") if line.startswith("data: {") and line.endswith("}")]
    assert "".join(e["delta"]["text"] for e in said if e.get("index") == 0) == "".join(pieces) + "*"


def test_a_secret_in_pieces_is_left_out_in_every_dialect() -> None:
    for shape in (
        '{"type":"response.output_text.delta","item_id":"m1","delta":PIECE}',
        '{"choices":[{"index":0,"delta":{"content":PIECE}}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":PIECE}}]}}]}',
        '{"candidates":[{"content":{"role":"model","parts":[{"text":PIECE}]}}]}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":PIECE}}',
    ):
        lines = [f"data: {shape.replace('PIECE', json.dumps(piece))}\n\n" for piece in ("a se", "cr", "et! b")]
        left = redact_stream("".join(lines) + "data: [DONE]\n\n", lambda text: text.replace("secret!", "*"))
        found = [json.dumps(piece) in left for piece in ("a * b", "a se", "cr", "et! b")]
        assert found == [True, False, False, False], shape
        assert left.endswith("data: [DONE]\n\n"), shape


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
