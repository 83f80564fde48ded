"""`relay run` with an agent and a key that renews itself, a login or a cloud: whole commands, over HTTP."""

import json
import sys
from pathlib import Path

import pytest

from tests.agents import fake_agent
from tests.bills import assert_paid
from tests.cli.test_credentials import KEYS, PLAN, run_on_cloud
from tests.clouds import RESOURCE_KEY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

AGENT = """
[agents.fake]
program = "{program}"
env = {{ FAKE_BASE = "{{base}}", FAKE_MODEL = "{{model}}", FAKE_LIES = "{lies}" }}
"""
HEALTHY = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "echo hello > hello.txt"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "hello.txt says hello"}}]
      - text: Done.
"""
REFUSING = HEALTHY.replace("- tools: [{name: tick", "- fault: {kind: status, status: 401}\n        tools: [{name: tick")


@pytest.fixture
def planned(project, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    return project


@pytest.fixture
def home(environ, tmp_path):
    """The user's home: a folder, and the function that writes their settings there, with the fake agent as runner."""
    place, program = Path(environ["HOME"]), tmp_path / "programs/fake-agent"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n{Path(fake_agent.__file__).read_text()}")
    program.chmod(0o755)

    def configure(text, lies=""):
        (place / ".config/relay").mkdir(parents=True, exist_ok=True)
        settings = f'runner = "fake"\n{text}{AGENT.format(program=program, lies=lies)}'
        (place / ".config/relay/config.toml").write_text(settings)
        return place

    return configure


def list_kept(place, out):
    return [out.encode(), *(path.read_bytes() for path in place.rglob("*") if path.is_file())]


@pytest.mark.nightly
def test_a_key_that_ends_in_mid_run_is_renewed_outside_of_the_sandbox(relay, planned, home, git):
    """Once, and the session goes on; nothing that the agent sees or relay keeps has a key."""
    place = home(f"key_command = {json.dumps(['sh', '-c', KEYS])}\n", "peek")
    with serve(parse_script(REFUSING)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url})
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert (place / "asked").read_text() == "asked\n" * 2
    assert "FAKE_MODEL=claude-opus-5-5" in (planned / "peek.txt").read_text()
    assert not [text for text in list_kept(planned, ran.out) if b"the-key-number" in text]
    message = git("log", "-1", "--format=%B")
    assert "Relay-Agent: fake 9.9" in message
    assert "Relay-Metering: gateway" in message
    assert_paid(planned, server)


@pytest.mark.nightly
def test_an_agent_builds_a_phase_on_a_cloud_at_list_price(relay, planned, home, git):
    """With a login that is taken back in mid-run; the agent is told nothing of it, and sees no secret."""
    server, _, ran = run_on_cloud(relay, home, "bedrock", HEALTHY, "peek")
    assert git("show", "HEAD:hello.txt") == "hello"
    assert_paid(planned, server)
    for secret in (b"that-nobody-sees", b"handed-out-token", RESOURCE_KEY.encode()):
        assert not [text for text in list_kept(planned, ran.out) if secret in text]


@pytest.mark.nightly
@pytest.mark.usefixtures("planned")
def test_an_agent_of_another_api_is_not_given_the_key(relay, home):
    """One vendor's key is not another's business; nothing starts, and the variable for it is named."""
    place, words = home('provider = "bedrock"\n'), "provider is for the Messages API, which fake does not speak"
    config = place / ".config/relay/config.toml"
    config.write_text(f'{config.read_text()}endpoints = ["openai"]\n')
    ran = relay("run")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"Error: no API key: OPENAI_API_KEY is not set; {words}\nHint: export OPENAI_API_KEY=…")
