"""A session's history: what was sent, and what each answer was, without secrets."""

import json
import os

import pytest

from relay.base.errors import ExitCode
from relay.base.redaction import redact
from relay.config import Settings
from relay.insight.telemetry import tape
from relay.insight.telemetry.log import sweep
from relay.insight.telemetry.tape import open_tape
from tests.scripts import call
from tests.tapes import find_tapes, read_notes, read_tape

SECRET = "ghp_" + "aB3dE6gH9j" * 4


EVENTFUL = [
    {"thinking": "First I look.", "text": "I look — at all of it.", **call("read", path="AGENTS.md")},
    {**call("bash", command=f"echo {SECRET}; exit 3"), "fault": {"kind": "overloaded", "times": 1}},
    {**call("write", path="hello.txt", content="hallo\n"), "fault": {"kind": "cut", "times": 1}},
    {"text": "Commit: Say hello"},
    call("tick", item="1.1", evidence="it is there"),
    {"text": "Commit: Say hello"},
    call("write", path="hello.txt", content="hello\n"),
    {"text": "Commit: Say hello"},
]


def play(stage, turns, **flags):
    return stage.run(json.dumps({"sessions": [{"turns": turns}]}), phase="1", **{"history": True, **flags})


def test_a_session_with_faults_and_a_red_gate_is_kept_without_secrets(stage):
    """An overloaded endpoint, a stream that breaks, a reminder, a report of a red gate: all of it as it was."""
    assert play(stage, EVENTFUL).exit_code == ExitCode.DONE
    posted = [request for request in stage.server.requests if request.path == "/v1/messages"]
    (path,) = find_tapes(stage.root)
    taped = read_tape(path)
    assert len(taped) == len(posted) == 10
    sent = [json.loads(redact(json.dumps(request.body))) for request in posted]
    assert [{**exchange.body, "stream": True} for exchange in taped] == sent
    assert [exchange.answer.get("fault") for exchange in taped].count(None) == 8
    [call] = [block for block in taped[-2].answer["content"] if block["type"] == "tool_use"]
    assert call["input"] == {"path": "hello.txt", "content": "hello\n"}
    assert read_notes(path)[0]["model"] == Settings().model
    text = path.read_text()
    assert "aB3dE6gH9j" not in text
    assert "[redacted]" in text
    assert "x-api-key" not in text


def test_history_can_be_switched_off_and_a_repository_cannot_switch_it_on(stage):
    play(stage, [{"text": "I give up."}], history=False)
    assert not (stage.root / ".relay" / "history").exists()
    stage.write("relay.toml", "history = true\n")
    assert "history" in stage.relay("status").stderr + stage.relay("run").stderr


@pytest.mark.parametrize("planted", [".relay", ".relay/history", ".relay/history/s1.jsonl"])
def test_a_planted_link_is_not_followed(tmp_path, planted):
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.joinpath("file").write_text('{"kind":"session"}\n')
    place = tmp_path / "repo" / planted
    place.parent.mkdir(parents=True)
    place.symlink_to(outside if place.suffix == "" else outside / "file")
    open_tape(tmp_path / "repo", "s1").keep({"kind": "session"})
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert outside.joinpath("file").read_text() == '{"kind":"session"}\n'


def test_no_request_keeps_a_secret_also_where_it_says_what_the_one_before_said(tmp_path):
    """Fields that stay the same are not looked through again; one that changes is, and each has its own value."""
    asked = {"system": f"key {SECRET}", "tools": [{"name": SECRET}], "messages": ["a"], "stream": True}
    bodies = [
        asked,
        {**asked, "messages": ["a", f"say {SECRET}"]},
        {**asked, "system": "no more", "messages": ["a", "b"]},
        {**asked, "system": f"{SECRET} again", "messages": ["a", "b"], "effort": 1},
    ]
    kept = open_tape(tmp_path, "s1")
    kept.keep({"kind": "session"})
    for body in bodies:
        kept.keep({"kind": "request", "body": body})
    kept.close()
    taped = read_tape(tmp_path / ".relay/history/s1.jsonl")
    assert [exchange.body for exchange in taped] == json.loads(redact(json.dumps(bodies)))


def test_a_tape_has_a_largest_size_and_is_written_once(tmp_path):
    kept = open_tape(tmp_path, "s1", most_bytes=30_000)
    for _ in range(4):
        kept.keep({"kind": "answer", "content": "x" * 10_000})
    kept.close()
    (path,) = find_tapes(tmp_path)
    assert [note["kind"] for note in read_notes(path)] == ["answer", "answer", "full"]
    before = path.read_bytes()
    open_tape(tmp_path, "s1").keep({"kind": "session"})
    assert path.read_bytes() == before


def test_old_tapes_are_swept(tmp_path):
    for name in ("old", "new"):
        open_tape(tmp_path, name).close()
    folder = tmp_path / ".relay" / "history"
    os.utime(folder / "old.jsonl", (1_000.0, 1_000.0))
    os.utime(folder / "new.jsonl", (9_000.0, 9_000.0))
    assert sweep(tmp_path, "history", now_s=1_001.0 + tape.TAPE_AGE_S, max_age_s=tape.TAPE_AGE_S) == 1
    assert [path.stem for path in find_tapes(tmp_path)] == ["new"]
    assert sweep(tmp_path / "none", "history", now_s=0.0, max_age_s=0.0) == 0
