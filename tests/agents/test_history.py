"""What passes the gateway is kept in the session's history, without secrets, and can be read again."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.insight.telemetry.tape import read_tape
from relay.session.tape import find_conversation
from tests.agents.test_phases import play

SECRET = "ghp_" + "aB3dE6gH9j" * 4
PLAN = "# P\n\n## Phase 1 — One\n\n- [ ] Say one — one.txt\n\nVerify: `test -f one.txt`\n"
SCRIPT = (
    "sessions: [{turns: ["
    f"{{text: 'I know {SECRET}.', tools: [{{name: bash, input: {{command: 'echo {SECRET}; echo one > one.txt'}}}}]}}, "
    "{tools: [{name: tick, input: {item: '1.1', evidence: seen}}]}, {text: 'Commit: one'}]}]"
)


@pytest.fixture
def tape(stage, agent):
    """Run a phase by an agent; return where its history is."""
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    with agent("run", SCRIPT) as ctx:
        assert play(ctx).exit_code == ExitCode.DONE
    (path,) = (stage.root / ".relay/history").iterdir()
    return path


def test_a_session_of_an_agent_is_read_again_as_the_gateway_did(stage, tape):
    """Every request and answer that a model was asked for, as it was but for secrets, and what was read of it."""
    posted = [request for request in stage.server.requests if request.path == "/v1/messages"]
    taped = read_tape(stage.root, tape.stem)
    assert taped
    assert len(taped.exchanges) == len(posted) > 2
    assert [len(exchange.body["messages"]) for exchange in taped.exchanges] == [
        len(request.body["messages"]) for request in posted
    ]
    assert taped.exchanges[0].body["messages"] == posted[0].body["messages"]
    used = [request.usage["output_tokens"] for request in posted]
    assert [exchange.made["usage"]["output_tokens"] for exchange in taped.exchanges] == used
    assert "aB3dE6gH9j" not in tape.read_text()
    assert "[redacted]" in tape.read_text()
    assert "api-key" not in tape.read_text().lower()
    done = stage.relay("replay")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"session {tape.stem}: {len(posted)} requests of fake, read again"
    assert lines[1:] == [
        *(f"  {n:>3}  the same bytes, the same answer" for n in range(1, len(posted) + 1)),
        "byte for byte what it was",
    ]
    notes = tape.read_text().splitlines()
    tape.write_text("\n".join(note.replace('\\"output_tokens\\":', '\\"output_tokens\\":9') for note in notes))
    assert "the answer is read differently: usage.output_tokens" in stage.relay("replay").stdout


@pytest.mark.parametrize("name", ["messages", "input", "contents"])
def test_what_grows_from_request_to_request_is_kept_once_in_each_dialect(tmp_path, name):
    from relay.insight.telemetry.tape import open_tape

    kept = open_tape(tmp_path, "s1")
    kept.keep({"kind": "session"})
    bodies = [{"model": "m", name: [{"text": f"part {n}" * 200} for n in range(most)]} for most in (1, 2, 3, 2)]
    for body in bodies:
        kept.keep({"kind": "request", "body": body})
    kept.close()
    taped = read_tape(tmp_path, "s1")
    assert taped
    assert [exchange.body for exchange in taped.exchanges] == bodies
    assert find_conversation(bodies[0])[0] == name
    assert len((tmp_path / ".relay/history/s1.jsonl").read_text()) < len(json.dumps(bodies[2])) * 1.2
