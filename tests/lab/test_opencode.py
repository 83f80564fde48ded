"""Sessions of OpenCode as events: steps with their tokens, summaries and sub-agents apart, the database untouched."""

import json
import sqlite3

import pytest

from relay.base.errors import ConfigError
from relay.insight.transcripts.library import get_transcript
from relay.session.events import ResponseReceived, SessionEnded, ToolFinished
from relay.session.values import Shown
from tests.lab.samples import CWD, MODEL, Base, finish, tokens, tool

USER = {"role": "user"}
SAYS = {"role": "assistant", "modelID": MODEL}


@pytest.fixture
def base(tmp_path):
    """A database with one conversation."""
    made = Base(tmp_path / "opencode.db")
    made.add_session("ses_1")
    return made


def test_a_summary_and_a_sub_agent_are_contexts_of_their_own(read, base):
    base.add("ses_1", 0, USER)
    shown = {"display": {"type": "file", "path": f"{CWD}/a.py", "lineStart": 3, "lineEnd": 9}}
    looked = tool("read", 1, filePath=f"{CWD}/a.py", metadata=shown)
    base.add("ses_1", 1, SAYS, looked, finish(90_000, 0, 10, thinking=5))
    base.add("ses_1", 2, USER, {"type": "compaction", "auto": True})
    base.add("ses_1", 3, {**SAYS, "summary": True}, finish(1_400, 0, 10))
    base.add("ses_1", 4, SAYS, finish(9_000, 0, 10))
    base.add_session("ses_2", parent="ses_1", second=5)
    base.add("ses_2", 5, USER)
    base.add("ses_2", 6, SAYS, finish(700, 0, 10))
    seen = read(base.path, "ses_1")
    words = "compacted (by OpenCode) from 90,015 tokens"
    assert seen.of(ResponseReceived)[0].usage.thinking_tokens == 5
    assert [event.shown for event in seen.of(ToolFinished)] == [Shown(path="a.py", first_line=3, last_line=9)]
    assert seen.contexts == [
        ("conversation", "from its beginning", ""),
        ("sub-agents", "request for a summary", ""),
        ("conversation", "after a compaction", words),
        ("sub-agents", "sub-agent keys", ""),
    ]
    assert next((end.result, end.detail) for end in seen.of(SessionEnded)) == ("compacted", words)
    assert seen.prompts == [90_000, 1_400, 9_000, 700]


def test_another_models_price_is_the_agents_own(read, base):
    """Nothing counted is unknown, and an error is no answer."""
    other = {"role": "assistant", "modelID": "other"}
    base.add("ses_1", 0, USER)
    base.add("ses_1", 1, other, finish(500, 0, 5, cost=0.25))
    base.add("ses_1", 4, other, finish(0, 0, 0))
    base.add("ses_1", 5, {**other, "error": {"name": "APIError"}, "tokens": tokens(0, 0, 0)})
    base.add("ses_1", 6, {**other, "error": {"name": "APIError"}}, tool("bash", 6))  # it asked for something before
    base.add("ses_1", 7, other, finish(700, 0, 5, cost=0.5))
    answers = read(base.path).of(ResponseReceived)
    assert [(e.usage is None, e.cost_usd) for e in answers] == [(False, 0.25), (True, None), (True, None), (False, 0.5)]


def test_what_is_odd_is_counted_and_never_fatal(read, base):
    base.add("ses_1", 0, USER, "{torn", "[]", json.dumps({"type": "brand-new"}))
    base.add("ses_1", 1, SAYS, {"type": "tool", "state": "x"}, tool("bash", 2, status="running"), finish(10, 0, 1))
    with sqlite3.connect(base.path) as raw:
        raw.execute("INSERT INTO part VALUES ('prt_99998', 'msg_00001', 7), ('prt_99999', 'msg_00001', NULL)")
        raw.execute("INSERT INTO message VALUES ('msg_99999', 'ses_1', 1e300, x'ff')")
        raw.execute("UPDATE session SET time_updated = 1e300, title = CAST(x'ff' AS text)")
    raw.close()
    assert get_transcript(base.path, "").updated == 0
    seen = read(base.path)
    assert seen.prompts == [10]
    assert seen.reading.unknown == {"part ": 4, "part brand-new": 1}


def test_sessions_are_told_apart_and_the_file_is_not_touched(read, base):
    base.add_session("ses_9", second=900)
    before = base.path.read_bytes(), sorted(base.path.parent.iterdir())
    assert get_transcript(base.path, "").session == "ses_9"
    assert get_transcript(base.path, "ses_1").title == "keys"
    read(base.path, "ses_1")
    assert (base.path.read_bytes(), sorted(base.path.parent.iterdir())) == before
    with pytest.raises(ConfigError, match="has no session 'ses_3'"):
        get_transcript(base.path, "ses_3")


def test_another_database_and_one_without_what_is_read_of_it_are_told(read, tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("CREATE TABLE message (id text)")
        with pytest.raises(ConfigError, match="is of no format that relay knows"):
            get_transcript(tmp_path / "x.db", "")
        other.executescript(
            "CREATE TABLE part (id text);"
            "CREATE TABLE session (id, parent_id, directory, title, time_updated);"
            "INSERT INTO session VALUES ('s', NULL, '/', 't', 1);"
        )
    other.close()
    with pytest.raises(ConfigError, match="cannot be read: no such column"):
        read(tmp_path / "x.db")
