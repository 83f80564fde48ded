"""A phase that names a tool server of the user's."""

import json
from pathlib import Path

import pytest

from relay.base.errors import PlanError
from relay.cli.views.narrate import Narrator
from relay.session.events import Noticed, ToolFinished
from tests.waiting import wait_until

FAKE = Path(__file__).parents[1] / "tools/fake_server.py"
PLAN = """\
# Words

## Phase 1 — One
Verify: `grep -q one one.txt`
Tools: db, evil
- [ ] Say one — one.txt

## Phase 2 — Two
Verify: `grep -q two two.txt`
- [ ] Say two — two.txt
"""


SERVERS = {"db": {"command": ["python3", "-I", "{repository}/server.py", "good"]}}


def work(number, word, *before):
    turns = [
        *({"tools": [tool]} for tool in before),
        {"tools": [{"name": "write", "input": {"path": f"{word}.txt", "content": word}}]},
        {"tools": [{"name": "tick", "input": {"item": f"{number}.1", "evidence": "x"}}]},
        {"text": f"Commit: Say {word}"},
    ]
    return {"turns": turns}


def test_the_phase_that_names_a_server_gets_its_tools_and_no_other_phase_does(stage):
    stage.write("server.py", FAKE.read_text())
    stage.write("PLAN.md", PLAN)
    stage.commit()
    query = {"name": "db__query", "input": {"sql": "select 1"}}
    red = {"name": "bash", "input": {"command": "echo no; exit 3"}}
    block = {"turns": [{"tools": [red]}, {"tools": [{"name": "block", "input": {"reason": "seen"}}]}]}
    script = json.dumps({"sessions": [work(1, "one", query), block]})

    ended = stage.run(script, unchecked=True, mcp_servers=SERVERS)

    assert ended.reason == "phase 2: blocked: seen", ended
    requests = [request.body for request in stage.server.requests if request.path == "/v1/messages"]
    offered = {body["tools"][-1]["name"] for body in requests[:4]}, {body["tools"][-1]["name"] for body in requests[4:]}
    assert offered == ({"db__query"}, {"block"})
    assert "select 1\\npassword None\\n[image: not shown]" in json.dumps(requests[1]["messages"])
    assert [event.is_error for event in stage.seen(ToolFinished) if event.name == "db__query"] == [False]
    (failed,) = (event for event in stage.seen(ToolFinished) if event.is_error)
    (line,) = Narrator().tell(failed)
    assert line.text.startswith("bash failed after ")
    assert ": exit 3" in line.text  # and, on a busy machine, after how many seconds
    notes = [event.text for event in stage.seen(Noticed) if event.text.startswith("Tools: ")]
    assert notes[0].startswith("Tools: db adds 1 tool, ")
    assert notes[1:] == ["Tools: evil: none of your mcp_servers; this phase works without it"]


@pytest.mark.nightly
def test_what_a_server_writes_between_calls_is_in_the_next_snapshot(stage):
    """Whatever the next call is: a tick alone looks at no file."""
    stage.write("server.py", FAKE.read_text())
    stage.write("PLAN.md", PLAN.replace(", evil", ""))
    stage.commit()
    written, late = stage.root / "one.txt", stage.root / "late.txt"
    stage.on_tool = lambda: wait_until(lambda: not written.exists() or late.exists())
    query = {"name": "db__query", "input": {"path": str(late), "after": str(written)}}
    servers = {"db": {"command": ["python3", "-I", "{repository}/server.py", "late"]}}
    stage.run(json.dumps({"sessions": [work(1, "one", query)]}), all_=False, mcp_servers=servers)

    ref = stage.git("for-each-ref", "--format=%(refname)", "refs/relay/wip").strip()
    ticked = stage.git("log", "--reverse", "--format=%H", "--grep=items", ref).split()[0]
    assert stage.git("show", f"{ticked}:late.txt") == "late\n"


def test_a_tool_that_is_missing_stops_the_phase_before_its_first_request(stage):
    stage.write("PLAN.md", PLAN.replace(", evil", ""))
    stage.commit()
    dead = {"command": ["python3", "-c", "raise SystemExit('Error: no database')"]}
    with pytest.raises(PlanError, match="Tools: db: its program has ended: Error: no database") as stopped:
        stage.run(json.dumps({"sessions": [work(1, "one")]}), mcp_servers={"db": dead})
    assert "--unchecked" in str(stopped.value.hint)
    assert not [request for request in stage.server.requests if request.path == "/v1/messages"]
