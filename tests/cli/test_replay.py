"""`relay replay`: a session is kept as it went over the wire, and played again to the byte."""

import base64
import json
import os

import pytest

from relay.base.errors import ExitCode
from relay.base.redaction import redact
from relay.config import Settings
from relay.insight.telemetry import tape
from relay.insight.telemetry.log import sweep
from relay.insight.telemetry.tape import list_tapes, open_tape, read_tape
from relay.session.events import Noticed, ToolFinished
from tests.pictures import make_png

SECRET = "ghp_" + "aB3dE6gH9j" * 4


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


EVENTFUL = [
    {"thinking": "First I look.", "text": "I look — at all of it.", **call("read", path="AGENTS.md")},
    {**call("bash", command="echo out; exit 3"), "fault": {"kind": "overloaded", "times": 1}},
    {**call("write", path="hello.txt", content="hallo\n"), "fault": {"kind": "cut", "times": 1}},
    {"text": "Commit: Say hello"},
    call("tick", item="1.1", evidence="it is there"),
    {"text": "Commit: Say hello"},
    call("write", path="hello.txt", content="hello\n"),
    {"text": "Commit: Say hello"},
]


def play(stage, turns, **flags):
    return stage.run(json.dumps({"sessions": [{"turns": turns}]}), phase="1", **{"history": True, **flags})


def find_tape(stage):
    (path,) = (stage.root / ".relay" / "history").iterdir()
    return path


def test_a_session_with_faults_and_a_red_gate_is_played_again_to_the_byte(stage):
    """An overloaded endpoint, a stream that breaks, a reminder, a report of a red gate: all of it as it was."""
    assert play(stage, EVENTFUL).exit_code == ExitCode.DONE
    posted = [request for request in stage.server.requests if request.path == "/v1/messages"]
    done = stage.relay("replay")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f": {len(posted)} requests")
    assert len(posted) == 10
    assert lines[1:-1] == [f"  {n:>3}  the same bytes, the same answer" for n in range(1, 11)]
    assert lines[-1] == "byte for byte what it was; ended: finished"
    taped = read_tape(stage.root, find_tape(stage).stem)
    assert taped
    assert [exchange.body for exchange in taped.exchanges] == [request.body for request in posted]
    assert [exchange.answer.status for exchange in taped.exchanges].count(529) == 1
    assert [exchange.answer.cut for exchange in taped.exchanges].count(True) == 1
    name = find_tape(stage).stem
    assert json.loads(stage.relay("replay", name[:4], "--json").stdout)["same"] is True
    assert stage.relay("replay", "--list").stdout.startswith(name)


def test_a_session_that_was_told_where_its_context_stands_is_played_again(stage):
    """Told in the consolidate band and again at the soft line; a history from before the band's notice says nothing."""
    stage.write("long.txt", ("x" * 79 + "\n") * 1_000)
    stage.commit()
    look = call("bash", command="cat long.txt")
    turns = [look, look, call("hand_off", next_step="go on", learned=[], dead_ends=[])]
    stage.run(json.dumps({"sessions": [{"turns": turns}]}), phase="1", history=True, reset_at="20k")
    tapes = (stage.root / ".relay" / "history").iterdir()
    path = next(tape for tape in tapes if '"kind":"notice"' in tape.read_text())
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert [kind for kind in kinds if kind in {"band", "notice"}] == ["band", "notice"]
    done = stage.relay("replay", path.stem)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "byte for byte what it was; ended: ended_by_tool")
    old = [line for line in path.read_text().splitlines() if '"kind":"band"' not in line]
    path.write_text("\n".join(old) + "\n")
    assert "    2  differs at messages[" in stage.relay("replay", path.stem).stdout


def test_what_is_not_as_it_was_is_named(stage):
    """A result of a tool, an answer, and a record that ends early."""
    play(stage, EVENTFUL)
    path = find_tape(stage)
    lines = path.read_text().splitlines()
    changed = [line.replace("hallo", "holla") if '"kind":"tool"' not in line else line for line in lines]
    first = next(n for n, line in enumerate(lines) if '"kind":"tool"' in line)
    note = json.loads(lines[first])
    path.write_text("\n".join([*lines[:first], json.dumps({**note, "text": "other"}), *lines[first + 1 :]]) + "\n")
    done = stage.relay("replay")
    assert done.returncode == 1
    assert "    2  differs at messages[2].content[0].content" in done.stdout.splitlines()

    path.write_text("\n".join(changed) + "\n")
    assert "the answer is read differently: content_sha256" in stage.relay("replay").stdout

    requests = [n for n, line in enumerate(lines) if '"kind":"request"' in line]
    path.write_text("\n".join(lines[: requests[4]]) + '\n{"torn": ')
    done = stage.relay("replay")
    assert (done.returncode, "the session was stopped here" in done.stdout) == (0, True)
    assert done.stdout.splitlines()[-1] == "byte for byte what it was"


def test_a_history_that_relay_did_not_write_breaks_nothing(stage):
    """Whatever stands in it: it is played, or it is said that it is not relay's."""
    play(stage, EVENTFUL)
    path = find_tape(stage)
    head, *rest = path.read_text().splitlines()
    odds: list[dict[str, object]] = [
        {"model": 7}, {"reset_at": 1.5}, {"system": {}}, {"tools": [1]}, {"model_info": None}, {"runner": []},
    ]  # fmt: skip
    for odd in odds:
        path.write_text("\n".join([json.dumps({**json.loads(head), **odd}), *rest]))
        assert stage.relay("replay").returncode in {ExitCode.DONE, ExitCode.USER}, odd
    path.write_text("\n".join([head, '{"kind":"request","same":Infinity,"body":{}}', *rest]))
    assert stage.relay("replay").returncode == ExitCode.USER


def test_no_secret_is_kept_and_the_session_is_played_all_the_same(stage):
    turns = [call("bash", command=f"echo {SECRET}"), {"text": "I give up."}, {"text": "Really."}]
    play(stage, turns)
    text = find_tape(stage).read_text()
    assert "aB3dE6gH9j" not in text
    assert "[redacted]" in text
    assert "x-api-key" not in text
    assert stage.relay("replay").returncode == 0


def test_history_can_be_switched_off_and_a_repository_cannot_switch_it_on(stage):
    play(stage, EVENTFUL, history=False)
    assert not (stage.root / ".relay" / "history").exists()
    done = stage.relay("replay")
    assert (done.returncode, "no session has a history here" in done.stderr) == (1, True)
    assert "no session has a history here" in stage.relay("replay", "--list").stderr
    stage.write("relay.toml", "history = true\n")
    assert "history" in stage.relay("status").stderr + stage.relay("run").stderr


@pytest.mark.parametrize("planted", [".relay", ".relay/history", ".relay/history/s1.jsonl"])
def test_a_planted_link_is_not_followed(tmp_path, planted):
    """Neither to write nor to read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.joinpath("file").write_text('{"kind":"session"}\n')
    place = tmp_path / "repo" / planted
    place.parent.mkdir(parents=True)
    place.symlink_to(outside if place.suffix == "" else outside / "file")
    open_tape(tmp_path / "repo", "s1").keep({"kind": "say", "text": "x"})
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert outside.joinpath("file").read_text() == '{"kind":"session"}\n'
    assert read_tape(tmp_path / "repo", "s1") is None
    assert list_tapes(tmp_path / "repo") == ()


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
    taped = read_tape(tmp_path, "s1")
    assert taped
    assert [exchange.body for exchange in taped.exchanges] == json.loads(redact(json.dumps(bodies)))


def test_a_tape_has_a_largest_size_and_is_written_once(tmp_path):
    kept = open_tape(tmp_path, "s1", most_bytes=30_000)
    kept.keep({"kind": "session"})
    for _ in range(3):
        kept.keep({"kind": "say", "text": "x" * 10_000})
    kept.close()
    taped = read_tape(tmp_path, "s1")
    assert taped
    assert (len(taped.said), taped.is_whole) == (2, False)
    again = open_tape(tmp_path, "s1")
    again.keep({"kind": "say", "text": "y"})
    assert read_tape(tmp_path, "s1") == taped
    assert read_tape(tmp_path, "../sessions/s1") is None
    assert read_tape(tmp_path, "none") is None


def test_hostile_tapes_are_read_as_far_as_they_go(tmp_path):
    """Garbage, deep nesting, notes of other shapes; a pipe is none."""
    folder = tmp_path / ".relay" / "history"
    folder.mkdir(parents=True)
    folder.joinpath("a.jsonl").write_text(
        '{"kind":"session"}\n[1]\n' + "[" * 99_999 + '\n{"kind":"say","text":"hi"}\n{"ki'
    )
    folder.joinpath("b.jsonl").write_text('{"kind":"say"}\n')
    folder.joinpath("d.jsonl").write_text('{"kind":"session"}\n{"kind":"request","same":"x","body":{}}\n')
    os.mkfifo(folder / "c.jsonl")
    whole = read_tape(tmp_path, "a")
    assert whole
    assert whole.said == ("hi",)
    assert read_tape(tmp_path, "b") is None
    assert read_tape(tmp_path, "c") is None
    assert read_tape(tmp_path, "d") is None
    assert {entry.session_id for entry in list_tapes(tmp_path)} == {"a", "b", "d"}


def test_old_tapes_are_swept(tmp_path):
    for name in ("old", "new"):
        open_tape(tmp_path, name).close()
    folder = tmp_path / ".relay" / "history"
    os.utime(folder / "old.jsonl", (1_000.0, 1_000.0))
    os.utime(folder / "new.jsonl", (9_000.0, 9_000.0))
    assert sweep(tmp_path, "history", now_s=1_001.0 + tape.TAPE_AGE_S, max_age_s=tape.TAPE_AGE_S) == 1
    assert [entry.session_id for entry in list_tapes(tmp_path)] == ["new"]
    assert sweep(tmp_path / "none", "history", now_s=0.0, max_age_s=0.0) == 0


def test_a_tape_that_is_of_no_session_is_the_users_to_remove(stage):
    folder = stage.root / ".relay" / "history"
    folder.mkdir(parents=True)
    folder.joinpath("x1.jsonl").write_text('{"kind":"session"}\n{"kind":"say","text":"go"}\n')
    folder.joinpath("x2.jsonl").write_text("")
    done = stage.relay("replay", "x1")
    assert (done.returncode, "is not one that relay wrote" in done.stderr) == (1, True)
    done = stage.relay("replay", "x2")
    assert (done.returncode, "nothing can be read" in done.stderr) == (1, True)
    done = stage.relay("replay", "x")
    assert (done.returncode, "no one session with a history is called 'x'" in done.stderr) == (1, True)


def test_pictures_are_shown_counted_and_played_again_to_the_byte(stage):
    """One that the endpoint refuses is left out, and the session goes on; so it is in the replay."""
    for name, data in (("a.png", make_png(640, 480)), ("bad.png", make_png(640, 480, broken=True))):
        (stage.root / name).write_bytes(data)
    stage.commit()
    turns = [call("read", path="a.png"), call("read", path="bad.png"), *EVENTFUL[2:]]

    assert play(stage, turns).exit_code == ExitCode.DONE

    posted = [request.body["messages"] for request in stage.server.requests if request.path == "/v1/messages"]
    text, picture = posted[1][-1]["content"][0]["content"]
    assert text["text"] == "a.png: image/png, 640 x 480 pixels."
    assert base64.b64decode(picture["source"]["data"]) == make_png(640, 480)
    assert posted[3][-1]["content"][0]["content"] == (
        "bad.png: image/png, 640 x 480 pixels. Not shown: the endpoint refuses it."
    )
    assert posted[3][2] == posted[1][-1]
    assert "the endpoint refuses a picture" in " ".join(event.text for event in stage.seen(Noticed))
    assert stage.seen(ToolFinished)[0].result_bytes == len(text["text"]) + 4 * 414
    done = stage.relay("replay")
    assert done.stdout.splitlines()[-1] == "byte for byte what it was; ended: finished"


def test_a_model_that_is_not_known_to_take_pictures_is_told_so(stage):
    (stage.root / "a.png").write_bytes(make_png(640, 480))
    stage.commit()

    turns = [call("read", path="a.png"), *EVENTFUL[2:]]
    own = {Settings().model: {"compat": {"pictures": False}}}
    assert play(stage, turns, models=own).exit_code == ExitCode.DONE

    (event,) = [event for event in stage.seen(ToolFinished) if event.name == "read"]
    assert event.is_error
    assert event.problem.endswith(f"Not shown: relay does not know that {Settings().model} takes pictures.")
