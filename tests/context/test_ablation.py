"""Each of relay's own features can be switched off for a run, which says so and does everything else as ever."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.session.events import Noticed, RunStarted, ToolFinished
from tests.effort import NIGHTLY, take_each

LONG = "x" * 79 + "\n"
SCRIPT = json.dumps({
    "sessions": [
        {
            "then": "next",
            "turns": [
                {"tools": [{"name": "bash", "input": {"command": "cat long.txt"}}]},
                {
                    "tools": [
                        {"name": "write", "input": {"path": "hello.txt", "content": "hello\n"}},
                        {
                            "name": "record",
                            "input": {"claim": "Greetings are lower case", "because": "grep", "sources": ["AGENTS.md"]},
                        },
                    ]
                },
                {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "there"}}]},
                {"text": "Commit: Say hello"},
            ],
        },
        {
            "turns": [
                {"tools": [{"name": "write", "input": {"path": "world.txt", "content": "world\nworld\n"}}]},
                {
                    "tools": [
                        {"name": "tick", "input": {"item": "2.1", "evidence": "there"}},
                        {"name": "tick", "input": {"item": "2.2", "evidence": "twice"}},
                    ]
                },
                {"text": "Commit: Say world"},
            ]
        },
    ]
})  # fmt: skip


def find_features(stage):
    """What of them was at work, told from what was sent."""
    bodies = [r.body for r in stage.server.requests if r.path == "/v1/messages"]
    opening = [body for body in bodies if len(body["messages"]) == 1]
    last = json.dumps(bodies[-1]["messages"])
    results = [b for body in bodies for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
    long = next(result["content"] for result in results if "tokens cut" in result["content"])
    found = {
        "reset": len(opening) == 2,
        "rules": "Be brief." in bodies[0]["system"][0]["text"],
        "ledger": last.count("Greetings are lower case") > (1 if len(opening) == 1 else 0),
        "cache": "cache_control" in json.dumps(bodies),
        "spill": "full output: .relay/outputs/" in long,
        "consolidate": any("planned for this session" in json.dumps(body["messages"]) for body in bodies),
        "skills": "- greet: How greetings are written." in json.dumps(bodies[0]["messages"]),
        "preload": "# hello.txt, read for you just now\\n```\\nbonjour\\n```" in json.dumps(bodies[0]["messages"]),
    }
    return [name for name, works in found.items() if works]


ALL = ["reset", "rules", "ledger", "cache", "spill", "consolidate", "skills", "preload"]
SOME = [[name] for name in ALL] if NIGHTLY else [ALL[::2], ALL[1::2]]
"""Each without the others; by default those that come next to each other in turn."""


@pytest.mark.parametrize("off", take_each(4, [ALL, *SOME, []]), ids=lambda off: "+".join(off) or "nothing")
def test_what_is_switched_off_is_off_and_nothing_else(stage, off):
    """Commits are the same; the log and the view say what was missing."""
    stage.write("long.txt", LONG * 1_000)
    stage.write(".agents/skills/greet/SKILL.md", "---\nname: greet\ndescription: How greetings are written.\n---\n")
    stage.write("hello.txt", "bonjour\n")
    stage.commit()

    ended = stage.run(SCRIPT, arm="+".join(f"ablate={name}" for name in off), reset_at="20k")

    assert ended.exit_code == ExitCode.DONE, ended
    gone = {*off, *(["consolidate"] if "reset" in off else [])}  # without a reset there is no line to speak of
    assert find_features(stage) == [name for name in ALL if name not in gone]
    assert [c.items for c in reversed(stage.commits())] == [("1.1",), ("2.1", "2.2")]
    assert not any(event.is_error for event in stage.seen(ToolFinished))
    assert stage.seen(RunStarted)[0].ablated == tuple(off)
    told = [event.text for event in stage.seen(Noticed) if event.text.startswith("switched off")]
    assert told == ([f"switched off (RELAY_ARM): {', '.join(off)}"] if off else [])
