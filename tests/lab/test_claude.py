"""Transcripts of Claude Code as events: answers counted once, contexts apart, nothing fatal."""

import json
import os

import pytest

from relay.base.errors import ConfigError
from relay.session.events import (
    GaugeCrossed,
    ResponseReceived,
    SessionEnded,
    ToolFinished,
)
from relay.session.usage import Usage
from relay.session.values import Shown
from tests.lab.samples import (
    CWD,
    SESSION,
    answer,
    ask,
    boundary,
    call,
    entry,
    file_edit,
    file_read,
    say,
    show_time,
    write_lines,
)

MAIN = ("conversation", "from its beginning", "")


def test_an_answer_of_many_lines_counts_once_with_what_its_last_line_knows(read, tmp_path):
    """Older versions repeated the first count of a stream; a tool may be answered before the last line."""
    path = write_lines(
        tmp_path / "a.jsonl",
        ask(0),
        say(1, "m1", 1000, {"type": "text", "text": "a"}, output=1),
        say(2, "m1", 1000, call("c1", "Bash", command="ls"), output=1),
        answer(3, "c1", "x"),
        say(4, "m1", 1000, call("c2", "Bash", command="ls"), output=70),
        answer(5, "c2", "x"),
        say(6, "m2", 1200),
        say(7, "m1", 1000, output=70),
    )
    seen = read(path)
    assert [(e.turn, e.usage.output_tokens, e.duration_s) for e in seen.of(ResponseReceived)] == [
        (1, 70, 1),
        (2, 10, 1),
    ]
    kinds = [type(record.event).__name__ for record in seen.records]
    assert kinds.index("ResponseReceived") < kinds.index("ToolStarted")


def test_a_compaction_begins_a_context(read, tmp_path):
    """One, however much later its summary was there."""
    for later in (0, 0.005, 20):
        _require_compactions(read, tmp_path / "a.jsonl", later)


def _require_compactions(read, path, later):
    write_lines(
        path,
        ask(0),
        say(1, "m0", 89_980),
        say(1, "m1", 90_000, call("c1", "Bash", command="ls")),
        boundary(2, 90_010, 5_000),
        ask(2 + later, "a summary", isCompactSummary=True),
        answer(2 + later, "c1", "kept over it"),
        say(2 + later, "m1", 0, output=0),
        say(23, "m2", 20_000),
        ask(24, "another summary", isCompactSummary=True),
        say(25, "m3", 21_000),
    )
    seen = read(path)
    told = "compacted (auto) from 90,010 tokens to 5,000 tokens"
    after = ("conversation", "after a compaction")
    assert seen.contexts == [MAIN, (*after, told), (*after, "compacted (summary)")]
    assert next((end.result, end.detail) for end in seen.of(SessionEnded)) == ("compacted", told)
    assert seen.prompts == [89_980, 90_000, 20_000, 21_000]
    assert [(e.line, e.fill_tokens, e.line_tokens) for e in seen.of(GaugeCrossed)] == [("soft", 90_010, 90_000)]
    assert seen.of(ToolFinished) == []


def test_sub_agents_have_contexts_of_their_own(read, tmp_path):
    """In their own files; what older versions wrote between the lines of the conversation is passed over."""
    side = {"isSidechain": True}
    path = write_lines(
        tmp_path / "a.jsonl",
        ask(0),
        say(1, "m1", 1000),
        ask(2, "look", **side, parentUuid=None),
        say(3, "s1", 300, **side),
        say(3, "m2", 1100),
    )
    write_lines(
        tmp_path / "a/subagents/agent-a7.jsonl",
        ask(6, "look", **side, agentId="a7", parentUuid=None),
        say(7, "t1", 400, **side, agentId="a7"),
    )
    seen = read(path)
    assert seen.contexts == [MAIN, ("sub-agents", "sub-agent a7", "")]
    assert seen.prompts == [1000, 1100, 400]
    assert seen.reading.lines == 7
    alone = read(tmp_path / "a/subagents/agent-a7.jsonl")
    assert (alone.contexts, alone.prompts) == ([("sub-agents", "sub-agent a7", "")], [400])


def test_what_is_odd_is_counted_and_never_fatal(read, tmp_path):
    huge = json.dumps(answer(3, "c1", [{"type": "image", "source": {"data": "A" * 2_000_000}}]))
    path = write_lines(
        tmp_path / "a.jsonl",
        {"type": "queue-operation", "content": "hello", "timestamp": "never", "sessionId": SESSION},
        ask(0),
        {"type": "brand-new", "sessionId": SESSION},
        {"no": "type"},
        {"type": 7},
        '{"torn": ',
        "[" * 100_000,
        "[1]",
        "",
        entry("system", 1, subtype="api_error"),
        say(1, "e1", 0, output=0, isApiErrorMessage=True),
        say(2, "m1", 1000, call("c1", "Read", file_path=f"{CWD}/x.png"), {"type": "tool_use", "name": 5, "input": []}),
        huge,
        answer(3, "unheard of", "x"),
        entry(
            "assistant", 4, message={"id": "m2", "content": "x", "usage": {"input_tokens": -1, "output_tokens": True}}
        ),
        entry("user", 4, message=None),
        entry("progress", 4, data={"x": "y" * 1000}),
        {**ask(4), "timestamp": "0001-01-01T00:00:00"},
        {**ask(4), "timestamp": "9999-12-31T23:59:59Z"},
        '{"type": "cost-state", "totalCostUSD": NaN}',
        {"type": "cost-state", "totalCostUSD": 1.25, "sessionId": SESSION},
        say(5, "m3", 1200),
    )
    seen = read(path)
    assert seen.prompts == [1000, 1200]
    assert seen.tools["Read"].result_bytes == 8_000
    assert seen.reading.unknown == {"brand-new": 1, "without a type": 2}
    assert (seen.reading.torn, seen.reading.own_cost_usd) == (3, 1.25)


def test_a_fork_says_that_it_begins_with_the_turns_of_another(read, tmp_path):
    begun = {"type": "queue-operation", "timestamp": show_time(100), "sessionId": SESSION}
    path = write_lines(tmp_path / "a.jsonl", begun, ask(0), say(1, "m1", 1000), ask(101), say(102, "m2", 1100))
    seen = read(path)
    assert seen.prompts == [1000, 1100]
    assert seen.reading.notes == [
        "it begins with turns of the session that it was forked from; they are counted here too"
    ]


def test_a_cache_write_for_an_hour_has_its_price_and_a_read_its_lines(read, tmp_path):
    line = say(1, "m1", 1000, call("c1", "Read", file_path=f"{CWD}/a.py"), call("c2", "Edit", file_path=f"{CWD}/a.py"))
    line["message"]["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 400}
    line["message"]["usage"]["output_tokens_details"] = {"thinking_tokens": 7}
    done = (
        answer(3, "c1", "1\tx\n2\ty", file_read(f"{CWD}/a.py", 1, 2)),
        answer(4, "c2", "ok", file_edit(f"{CWD}/a.py")),
    )
    seen = read(write_lines(tmp_path / "a.jsonl", ask(0), line, *done))
    usage = Usage(cache_write_5m_tokens=600, cache_write_1h_tokens=400, output_tokens=10, thinking_tokens=7)
    assert [answer.usage for answer in seen.of(ResponseReceived)] == [usage]
    assert (seen.tools["Read"].shown, seen.tools["Read"].duration_s) == (
        Shown(path="a.py", first_line=1, last_line=2),
        2,
    )
    assert seen.tools["Edit"].changed_paths == ("a.py",)


def test_what_plain_commands_showed_is_known(read, tmp_path):
    commands = ["cat a.py", "sed -n '10,20p' a.py", "head -5 ./b.py", "cat a.py | wc", "nl -ba a.py"]
    lines = [ask(0)]
    for number, command in enumerate(commands):
        lines += [say(number, f"m{number}", 1000, call(f"c{number}", "Bash", command=command))]
        lines += [answer(number, f"c{number}", "x\ny\nz\n")]
    shown = [event.shown for event in read(write_lines(tmp_path / "a.jsonl", *lines)).of(ToolFinished)]
    assert [s and (s.path, s.first_line, s.last_line) for s in shown] == [
        ("a.py", 1, 3), ("a.py", 10, 20), ("b.py", 1, 5), None, ("a.py", 1, 3),
    ]  # fmt: skip


def test_what_is_no_transcript_is_an_error_that_names_the_known_formats(read, tmp_path):
    unknown = "is of no format that relay knows"
    for content, words in (
        (b"", unknown),
        (b'{"messages": []}', unknown),
        (b'{"v": 2, "event": "RunStarted"}\n', "is a log of relay's own"),
        (b"SQLite format 3\0 and nothing else", unknown),
    ):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ConfigError, match=words) as told:
            read(tmp_path / "x")
        known = [name in str(told.value.hint) for name in ("Claude Code", "Codex", "OpenCode")]
        assert words != unknown or all(known), content
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("none", "cannot be read"), ("pipe", "is no file"), (".", "is no file")):
        with pytest.raises(ConfigError, match=words):
            read(tmp_path / name)
    path = write_lines(tmp_path / "a.jsonl", ask(0))
    with pytest.raises(ConfigError, match="holds one session only"):
        read(path, "x")
