"""At the hard line relay stops at the tool boundary and writes the note from its own log; too big is said early."""

import json
import re

from relay.base.errors import ExitCode
from relay.session.events import GaugeCrossed, SessionEnded, SessionStarted
from relay.session.values import SessionEnd

BIG = "".join(f"{n:04d} something that a session reads and the next one must not be charged with\n" for n in range(380))
READ = {"tools": [{"name": "read", "input": {"path": "big.txt"}}]}


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def make_script(*sessions):
    return json.dumps({"sessions": [{"turns": turns} for turns in sessions]})


FIRST = [
    call("write", path="world.txt", content="world\n"),
    call("record", claim="One line each", because="the plan says twice", sources=["PLAN.md"]),
    call("bash", command="echo no such thing >&2; exit 3"),
    call("tick", item="2.1", evidence="cat world.txt"),
    *[call("read", path="big.txt", offset=n) for n in (1, 2, 3)],
]
SECOND = [
    call("write", path="world.txt", content="world\nworld\n"),
    call("tick", item="2.2", evidence="two lines"),
    {"text": "Commit: Say it twice"},
]
HELLO = [call("write", path="hello.txt", content="hello\n"), call("tick", item="1.1", evidence="there"), {"text": "ok"}]


def list_openings(stage):
    bodies = [r.body["messages"] for r in stage.server.requests if r.path == "/v1/messages"]
    return [messages for messages in bodies if len(messages) == 1]


def test_the_next_session_starts_from_plan_and_handoff_note_and_nothing_else(stage):
    """Nothing that was read before is in the fresh context, and its fill begins small.

    Done, open, decisions with reasons, dead ends, files: relay knows them without having asked.
    """
    stage.edit("— World\n", "— World\nAfter: none\n")
    stage.write("big.txt", BIG)
    stage.commit()

    ended = stage.run(make_script(FIRST, SECOND), phase="2", reset_at="12k")

    assert ended.exit_code == ExitCode.DONE, ended
    assert [session.end for session in stage.seen(SessionEnded)] == [SessionEnd.HARD_LINE, SessionEnd.FINISHED]
    assert stage.seen(GaugeCrossed)[-1].line == "hard"
    _, (opening,) = list_openings(stage)
    text = opening["content"][0]["text"]
    assert "must not be charged with" not in json.dumps(opening)
    known, _, handoff_note = text.partition("# From the session before you")
    claim = re.search(r"- (c\w+) decision: One line each — the plan says twice", known)
    assert claim, known
    assert "One line each" not in handoff_note  # said once: the handoff note names the claim
    assert "written by relay from its own log" in handoff_note
    for words in ("2.1: ", "cat world.txt", "- 2.2", f"- {claim[1]}", "- world.txt", "exit 3"):
        assert words in handoff_note, words
    usage = [r.usage for r in stage.server.requests if r.path == "/v1/messages"]
    sizes = [sum(u[k] for k in u if isinstance(u[k], int) and k != "output_tokens") for u in usage]
    assert sizes[len(FIRST) - 1] > 3 * sizes[len(FIRST)]


def test_three_sessions_without_a_tick_are_too_big(stage):
    """The run stops with the evidence and the command that splits the phase; what was done stays."""
    stage.write("big.txt", BIG)
    stage.commit()
    looking = [call("read", path="big.txt", offset=n) for n in range(1, 9)]

    ended = stage.run(make_script(looking, looking, looking), reset_at="10k")

    assert (ended.exit_code, ended.next_command) == (ExitCode.STOPPED, "relay plan --split 1")
    assert "3 sessions in a row handed over without ticking anything" in ended.reason
    assert [session.number for session in stage.seen(SessionStarted)] == [1, 2, 3]
    assert stage.commits() == ()
