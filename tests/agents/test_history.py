"""What passes the gateway is kept in the session's history, without secrets."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.insight.telemetry.tape import open_tape
from relay.session.tape import find_conversation
from tests.agents.test_phases import play
from tests.tapes import read_tape

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


def test_a_session_of_an_agent_is_kept_as_it_passed_the_gateway(stage, tape):
    """Every request and answer that a model was asked for, as it was but for secrets, and what was read of it."""
    posted = [request for request in stage.server.requests if request.path == "/v1/messages"]
    taped = read_tape(tape)
    assert len(taped) == len(posted) > 2
    assert [len(exchange.body["messages"]) for exchange in taped] == [
        len(request.body["messages"]) for request in posted
    ]
    assert taped[0].body["messages"] == posted[0].body["messages"]
    used = [request.usage["output_tokens"] for request in posted]
    assert [exchange.made["usage"]["output_tokens"] for exchange in taped] == used
    assert "aB3dE6gH9j" not in tape.read_text()
    assert "[redacted]" in tape.read_text()
    assert "api-key" not in tape.read_text().lower()


@pytest.mark.parametrize("name", ["messages", "input", "contents"])
def test_what_grows_from_request_to_request_is_kept_once_in_each_dialect(tmp_path, name):
    kept = open_tape(tmp_path, "s1")
    kept.keep({"kind": "session"})
    bodies = [{"model": "m", name: [{"text": f"part {n}" * 200} for n in range(most)]} for most in (1, 2, 3, 2)]
    for body in bodies:
        kept.keep({"kind": "request", "body": body})
    kept.close()
    taped = read_tape(tmp_path / ".relay/history/s1.jsonl")
    assert [exchange.body for exchange in taped] == bodies
    assert find_conversation(bodies[0])[0] == name
    assert len((tmp_path / ".relay/history/s1.jsonl").read_text()) < len(json.dumps(bodies[2])) * 1.2
