"""Whole runs on an agent that lies, in the real sandbox, against the rehearsal server."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import ConfigError, ExitCode, RunnerError
from relay.base.hints import AT_ROOT
from relay.cli.sessions import make_end_event
from relay.config import Settings
from relay.run.loop import run
from relay.run.planning.planner import PlanTask, plan_feature
from relay.run.selection import Selection
from relay.runners.registry import make_kind
from relay.session.events import (
    Noticed,
    ResponseReceived,
    RetryScheduled,
    SessionEnded,
    TextShown,
    ToolFinished,
)
from tests.agents.conftest import make_profile
from tests.effort import take_each
from tests.tapes import read_tape

TITLE = """
  - name: title
    aside: true
    when: {last_message_contains: "make a title"}
    turns: [{text: Greetings}]
"""
HELLO = f"""
sessions:
{TITLE}
  - name: work
    turns:
      - text: I write.
        tools: [{{name: bash, input: {{command: "echo hello > hello.txt"}}}}]
      - tools: [{{name: tick, input: {{item: "1.1", evidence: "cat shows it"}}}}]
      - text: "Done.\\n\\nCommit: say hello"
"""
SECRET = "ghp_" + "aB3dE6gH9j" * 4
BASH = '[{name: bash, input: {command: "echo hello > hello.txt"}}]'


def play(ctx):
    return make_end_event(run(ctx, Selection(phase_id="1")), AT_ROOT)


def count_usage(stage):
    """What the server's log says, class by class."""
    found = [request.usage for request in stage.server.requests if request.usage]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    return tuple(sum(usage[name] for usage in found) for name in names)


def sum_usage(usage):
    return usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens


def test_a_phase_ends_in_a_commit_with_every_token_of_the_servers_log(stage, agent):
    """Whatever else the agent says and tries: noise, a title of its own, keys, the plan, git, other hosts."""
    head = stage.git("rev-parse", "HEAD")
    script = HELLO.replace("I write.", f"I know {SECRET}.").replace("echo hello", f"echo {SECRET}; echo hello")
    profile = replace(make_profile("noise", "title", "peek", "fetch"), effort={"FAKE_EFFORT": "is {effort}"})
    with agent("run", script, kind=make_kind(profile, Settings()), effort="high") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    [session] = stage.seen(SessionEnded)
    assert sum_usage(session.usage) == count_usage(stage)
    assert sum_usage(stage.commits()[0].usage) == count_usage(stage)
    assert len(stage.server.requests) == 5
    message = stage.git("log", "-1", "--format=%B")
    assert message.startswith("say hello\n")
    assert "Relay-Agent: fake 9.9\nRelay-Metering: gateway\n" in message
    assert stage.git("show", "HEAD:hello.txt") == "hello\n"
    assert sorted(tool.name for tool in stage.seen(ToolFinished)) == ["bash", "tick"]
    assert any(shown.text.startswith("I know") for shown in stage.seen(TextShown))
    assert stage.server.errors == []
    bodies = [request.body for request in stage.server.requests if request.body and request.body.get("tools")]
    first = str(bodies[0]["messages"])
    assert "You do one phase of a plan" in first
    assert "Be brief." in first
    assert "Say hello" in first
    assert [tool["name"] for tool in bodies[0]["tools"]] == [
        *("bash", "tick", "record", "amend", "hand_off", "defer", "block")
    ]
    assert stage.git("rev-parse", "HEAD~1") == head
    check_confinement(stage)
    check_history(stage)


def check_confinement(stage):
    """The agent stays in its sandbox and its endpoint fetches nothing; of the refusal agent and user are told."""
    seen = (stage.root / "peek.txt").read_text()
    assert "FAKE_EFFORT=is high" in seen
    assert "sk-the-real-key" not in seen
    assert "stolen: 0" not in seen
    assert "PLAN.md: 0" not in seen
    assert "config: 0" not in seen
    assert "credentials.json: 0" not in seen
    assert "10.0.0.1/: 0" not in seen
    assert "does not forward POST /v1/files" in seen
    assert [request.path for request in stage.server.requests if "files" in request.path] == []
    assert "elsewhere" not in json.dumps([request.body for request in stage.server.requests])
    words = "messages: image.source.url: an endpoint fetches nothing; base64 and text pass"
    assert (stage.root / "fetch.txt").read_text().count(f"relay: {words}") == 2
    shown = [noticed for noticed in stage.seen(Noticed) if words in noticed.text]
    assert [(noticed.text, noticed.warning) for noticed in shown] == [
        (f"a request of Fake was not sent: {words}", True)
    ]


def check_history(stage):
    """The history has every request as it passed the gateway, and what each answer used, but no secrets."""
    posted = [request for request in stage.server.requests if request.path == "/v1/messages"]
    [tape] = (stage.root / ".relay/history").iterdir()
    taped = read_tape(tape)
    assert [exchange.body["messages"][0] for exchange in taped] == [request.body["messages"][0] for request in posted]
    assert [len(exchange.body["messages"]) for exchange in taped] == [
        len(request.body["messages"]) for request in posted
    ]
    used = [request.usage["output_tokens"] for request in posted]
    assert [exchange.answer["usage"]["output_tokens"] for exchange in taped] == used
    assert "aB3dE6gH9j" not in tape.read_text()
    assert "[redacted]" in tape.read_text()
    assert "api-key" not in tape.read_text().lower()


@pytest.mark.nightly
def test_what_relay_hands_out_does_not_go_to_the_model_of_an_agent_that_finds_it(stage, agent):
    """It reads files itself; its requests are looked through."""
    stage.write(".gitignore", ".env\nleft.txt\n")
    stage.commit()
    stage.write(".env", "DB_PASSWORD=handed-to-the-gate\n")
    stage.write("left.txt", f"<handed-to-the-gate> {base64.b64encode(b'word: handed-to-the-gate').decode()}\n")
    script = HELLO.replace("echo hello > hello.txt", "echo hello > hello.txt; cat left.txt")
    with agent("run", script, env_file=".env") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    sent = json.dumps([request.body for request in stage.server.requests])
    assert "<[redacted]>" in sent
    assert "d29yZDog[redacted]" in sent
    assert "handed-to-the-gate" not in sent


FAILED = [
    ("{kind: status, status: 401, type: authentication_error, message: no key}", "denied", "HTTP 401"),
    ("{kind: status, status: 400, message: odd, times: always}", "api_failed", "HTTP 400"),
    ("{kind: rate_limit, retry_after: 36000}", "limit", "It resets at"),
]
"""The gateway's own tests have every fault, `test_limits.py` has every bad end of a turn."""


@pytest.mark.parametrize(("fault", "end", "words"), take_each(3, FAILED))
def test_a_turn_that_failed_is_not_finished_whatever_the_agent_says(stage, agent, fault, end, words):
    script = f"sessions: [{{turns: [{{tools: {BASH}}}, {{text: never, fault: {fault}}}]}}, {{turns: [{{text: x}}]}}]"
    with agent("run", script, "stubborn") as ctx:
        play(ctx)

    ended = stage.seen(SessionEnded)[0]
    assert (ended.end, ended.result) != ("finished", "done")
    assert ended.end == end, ended.detail
    assert words in ended.detail
    assert (stage.root / "hello.txt").read_text() == "hello\n"
    assert "hello.txt" in stage.git("ls-tree", "-r", "--name-only", "refs/relay/leg/main") or stage.git(
        "log", "--all", "--format=%H", "--", "hello.txt"
    )


@pytest.mark.nightly
def test_an_endpoint_that_fails_for_a_while_is_asked_again(stage, agent):
    """The agent gave up at once; relay waits as it does for its own loop, and has it go on."""
    script = (
        f"sessions: [{{turns: [{{tools: {BASH}}}, "
        "{fault: {kind: overloaded, times: 2}, tools: [{name: tick, input: {item: '1.1', evidence: seen}}]}, "
        "{text: 'Commit: hello'}]}]"
    )
    with agent("run", script, "stubborn") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    assert len(stage.waits) == 2
    assert len(stage.seen(RetryScheduled)) == 2
    assert sum_usage(stage.seen(SessionEnded)[0].usage) == count_usage(stage)


def test_a_request_that_could_cross_the_cap_is_not_sent(stage, agent):
    """The agent, which would die, is not even started. It cannot be told an effort, and says so."""
    with agent("run", HELLO, "dies", max_cost_usd=0.01, effort="high") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.STOPPED
    assert [session.end for session in stage.seen(SessionEnded)] == ["budget"]
    assert not stage.seen(ResponseReceived)
    assert [request for request in stage.server.requests if request.usage] == []
    words = "Fake has an effort of its own; relay cannot tell it high"
    assert words in [noticed.text for noticed in stage.seen(Noticed)]


@pytest.mark.nightly
def test_nothing_writes_while_the_gate_looks_and_nothing_is_left_behind(stage, agent):
    """Each beat of the daemon would be another content."""
    stage.edit("`grep -q hello hello.txt`", "`sh gate.sh`")
    stage.write("gate.sh", 'a=$(cat beat.txt); sleep 0.3; test "$a" = "$(cat beat.txt)" && grep -q hello hello.txt\n')
    stage.commit("gate")
    with agent("run", HELLO, "daemon") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    last = (stage.root / "beat.txt").read_text()
    assert (stage.root / "beat.txt").read_text() == last


@pytest.mark.nightly
def test_a_red_gate_goes_back_to_the_same_session(stage, agent):
    script = (
        "sessions: [{turns: [{tools: [{name: tick, input: {item: '1.1', evidence: seen}}]}, {text: done}, "
        f"{{tools: {BASH}, expect: {{last_message_contains: 'grep -q hello'}}}}, {{text: 'Commit: hello'}}]}}]"
    )
    with agent("run", script) as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.server.errors == []


def test_a_plan_is_written_by_an_agent_that_can_write_nothing_and_asks(stage, agent):
    plan = "# New\\n\\n## Phase 1 — One\\nVerify: `test -e a.py`\\n- [ ] Do it — a.py\\n"
    script = (
        "sessions: [{turns: [{tools: [{name: bash, input: {command: 'echo x > stolen.txt; echo y > README.md'}}]}, "
        "{tools: [{name: ask, input: {questions: [{question: How?, options: [so, else], default: so}]}}]}, "
        f'{{tools: [{{name: submit_plan, input: {{markdown: "{plan}"}}}}]}}, {{text: ok}}]}}]'
    )
    with agent("plan", script) as ctx:
        ended = make_end_event(plan_feature(ctx, PlanTask(feature="one", force=True)), AT_ROOT)

    assert ended.exit_code == ExitCode.DONE, ended
    assert (stage.root / "PLAN.md").read_text().startswith("# New\n\n## Assumptions\n\n- How? so\n")
    assert not (stage.root / "stolen.txt").exists()


@pytest.mark.nightly
def test_an_agent_calls_a_tool_server_by_relay_which_starts_it_confined(stage, agent):
    fake = Path(__file__).parents[1] / "tools/fake_server.py"
    stage.write("server.py", fake.read_text())
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text().replace("- [ ]", "Tools: db\n\n- [ ]", 1))
    stage.commit()
    calls = HELLO.replace("{name: tick", "{name: db__query, input: {sql: select 1}}, {name: tick", 1)
    servers = {"db": {"command": ["python3", "-I", "{repository}/server.py", "good"]}}
    with agent("run", calls, mcp_servers=servers) as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    assert [event.is_error for event in stage.seen(ToolFinished) if event.name.endswith("db__query")] == [False]


def test_no_agent_is_started_without_a_sandbox(agent):
    with pytest.raises(ConfigError, match="starts no agent without its sandbox"), agent("run", HELLO, sandbox="off"):
        pass


def test_an_agent_that_is_not_there_is_named_with_what_installs_it(stage, agent, tmp_path):
    (tmp_path / "programs/fake-agent").unlink()
    with pytest.raises(RunnerError, match="Fake is not installed") as raised, agent("run", HELLO):
        pass
    assert "nothing installs it" in str(raised.value.hint)
    assert stage.git("for-each-ref", "refs/relay") == ""
