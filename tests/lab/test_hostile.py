"""Whatever stands in a transcript, it is read to its end, and the figures stay figures."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.figures import read_figures
from relay.insight.transcripts.claude import read_claude
from relay.insight.transcripts.codex import read_codex
from relay.insight.transcripts.emitter import Reading
from tests.lab.samples import CWD, answer, ask, boundary, call, counts, file_read, line, meta, say

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CLAUDE = (
    ask(0),
    ask(1, isCompactSummary=True),
    ask(1, isSidechain=True, parentUuid=None),
    say(2, "m1", 900, call("c1", "Read", file_path=f"{CWD}/a.py")),
    say(2, "s1", 900, isSidechain=True),
    answer(3, "c1", "x", file_read(f"{CWD}/a.py", 1, 2)),
    boundary(4, 900, 100),
)
CODEX = (
    meta(),
    line("turn_context", 0, model="gpt-5.5"),
    line("response_item", 1, type="function_call", name="exec_command", call_id="c1", arguments='{"cmd": "cat a.py"}'),
    line("event_msg", 1, type="item_completed", item={"id": "c1", "exit_code": 0, "duration": {"secs": 1, "nanos": 0}}),
    line("event_msg", 1, type="item_completed", item={"id": "c1", "changes": {"a.py": {}}}),
    line("response_item", 1, type="function_call_output", call_id="c1", output="x"),
    line("token_usage_record", 1, usage=counts(900, 100, 9)),
    line("event_msg", 1, type="token_count", info={"last_token_usage": counts(900, 100, 9), "total_token_usage": {}}),
    line("compacted", 2),
)


def bend(value, path, put):
    """Return a value with something else in one place of it."""
    if not path or not isinstance(value, dict | list) or not value:
        return put
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    bent = value.copy()
    bent[key] = bend(value[key], path[1:], put)
    return bent


PATHS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


@pytest.mark.parametrize(("reader", "lines"), [(read_claude, CLAUDE), (read_codex, CODEX)])
@given(st.data())
def test_a_line_that_is_bent_anywhere_breaks_nothing(tmp_path_factory, reader, lines, data):
    order = data.draw(st.lists(st.sampled_from(lines), min_size=1, max_size=12))
    bent = [bend(one, data.draw(PATHS), data.draw(ANY)) if data.draw(st.booleans()) else one for one in order]
    path = tmp_path_factory.getbasetemp() / "bent.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in bent))
    reading = Reading()
    figures = read_figures(reader(path, reading))
    assert reading.lines == len(bent)
    assert figures.totals.calls <= len(bent)
