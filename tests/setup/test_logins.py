"""Somebody who is logged in with an agent and has no key is told of the adapter, of the login, and how to use it."""

import tomllib

import pytest

from relay.base.errors import ExitCode
from relay.config import Settings, load_settings
from relay.runners.registry import list_runners
from relay.setup.preconditions import State, check_key, find_unused_login

WAY = """\
Error: no API key: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set; you are logged in with Claude Code \
(~/.claude/.credentials.json)
Hint: export ANTHROPIC_API_KEY=…; to see relay work without one, run `relay demo`
  or with your login: npm install -g @agentclientprotocol/claude-agent-acp@0.100.0 and, at the top of \
~/.config/relay/config.toml
  runner = "claude"
  agents.claude.login = "tunnel"
"""


@pytest.fixture
def home(tmp_path):
    """Return a home directory where somebody has logged in with Claude Code, which is on PATH."""
    place = tmp_path / "home"
    (place / ".claude").mkdir(parents=True)
    (place / ".claude/.credentials.json").write_text("{}")
    (place / "bin").mkdir()
    (place / "bin/claude").write_text("#!/bin/sh\n")
    (place / "bin/claude").chmod(0o755)
    return place


def look(home, runners=("api",), **known):
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    settings = load_settings(flags=known, environ={}, plan_settings={}, repo_root=None, user_dir=home / ".config/relay")
    return find_unused_login(settings, environ, runners)


def test_a_subscriber_is_told_by_every_command_that_looks_and_its_lines_are_all_that_it_takes(stage, home):
    """By the doctor too, and by the trial of the agent: nobody has to know that there is an adapter, or a tunnel."""
    told = {"environ": {"HOME": str(home), "RELAY_SANDBOX": "off"}, "path": f"{home}/bin:/usr/bin:/bin"}
    ran = stage.relay("run", **told)
    assert (ran.returncode, ran.stderr) == (ExitCode.USER, WAY)

    shown = ""
    for command in (("doctor",), ("doctor", "--agent", "claude")):
        shown = stage.relay(*command, **told).stdout
        assert "you are logged in with Claude Code (~/.claude/.credentials.json)" in shown, command
        assert 'agents.claude.login = "tunnel"\n' in shown
        assert ('runner = "claude"\n' in shown) is (command == ("doctor",))
    assert "claude is here, but the adapter by which relay speaks with it is not" in shown

    config = home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("\n".join(WAY.splitlines()[-2:]))
    adapter = home / "bin/claude-agent-acp"
    adapter.write_text("#!/bin/sh\n")
    adapter.chmod(0o755)
    assert "ok       key         .claude/.credentials.json is set" in stage.relay("doctor", **told).stdout


def test_where_some_of_it_is_said_the_rest_is_named(home):
    config = home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[agents.claude]\nlogin = "tunnel"\n')
    found = look(home)
    assert found[1].splitlines()[1:] == ['runner = "claude"']
    config.write_text('[agents.claude]\nmode = "plan"\n')
    found = look(home)
    assert found[1].splitlines()[1:] == ['runner = "claude"', 'login = "tunnel"  # below [agents.claude]']


def test_the_login_of_the_agent_that_is_to_run_comes_first_and_with_a_model_of_its_vendor(home):
    (home / ".codex").mkdir()
    (home / ".codex/auth.json").write_text("{}")
    found = look(home, ("codex",))
    assert found[0] == "you are logged in with Codex (~/.codex/auth.json)"
    login, model = found[1].splitlines()[1:]
    assert tomllib.loads(login) == {"agents": {"codex": {"login": "tunnel"}}}
    assert model.startswith('model = "…"')
    found = look(home, ("codex",), model="gpt-9")
    assert found[1].splitlines()[1:] == [login]


def test_without_a_login_nothing_is_said_of_one(tmp_path):
    assert look(tmp_path) == ("", "")
    finding = check_key((list_runners(Settings())["api"],), {"HOME": str(tmp_path)}, Settings())
    assert finding.state is State.MISSING
    assert "logged in" not in finding.words
