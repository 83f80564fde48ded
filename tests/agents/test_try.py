"""`relay doctor --agent NAME`: what is missing on this machine, said to somebody who has never used it."""

from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.config import ModelSettings, Settings
from relay.runners.registry import make_kind
from relay.setup.preconditions import State
from relay.setup.trials import examine_agent, try_agent
from tests.agents.conftest import make_profile
from tests.cli.documents import read_document
from tests.effort import take_each

KEY = {"ANTHROPIC_API_KEY": "sk-the-real-key-of-the-user"}
SETTINGS = Settings()


@pytest.fixture
def attempt(programs, tmp_path):
    """Try the fake agent with its lies; return the findings by name."""

    def run(*lies, key=KEY, bwrap=Path("bwrap"), system=":/usr/bin:/bin", settings=SETTINGS, **fields):
        environ = {"PATH": f"{programs}{system}", "HOME": str(tmp_path), **key}
        profile = replace(make_profile(*lies), **fields)
        findings = try_agent(
            examine_agent(profile, settings, environ), make_kind(profile, settings), settings, environ, bwrap=bwrap
        )
        return {finding.name: finding for finding in findings}

    return run


def test_one_that_works_is_seen_to_work_on_the_model_that_is_set(attempt):
    """Also one that only the user knows; an agent may refuse another one than that. A key that is missing is named."""
    own = ModelSettings(window_tokens=100_000, max_output_tokens=8_000)
    settings = Settings(model='my "own"', models={'my "own"': own})
    found = attempt("title", "noise", key={}, settings=settings)
    assert [finding.name for finding in found.values() if finding.state is not State.OK] == ["key"], found
    assert list(found) == ["installed", "sandbox", "session", "tools", "usage", "key"]
    assert found["session"].words.startswith('fake 9.9 on my "own": its first request came after ')
    assert found["usage"].words.startswith("3 requests, the longest of ")
    assert "export ANTHROPIC_API_KEY" in str(found["key"].hint)


def test_what_installs_it_and_what_would_hold_it_are_named_at_once(attempt, programs):
    """Who has nothing yet is told of all of it, not of one thing after the other."""
    (programs / "fake-agent").unlink()
    found = attempt()
    assert list(found) == ["installed", "key"]
    assert found["installed"].words == "Fake is not installed: there is no fake-agent on PATH"
    assert found["installed"].hint == "nothing"
    found = attempt(key={}, bwrap=None, system="", package="npm install -g fake")
    missing = [finding.name for finding in found.values() if finding.state is State.MISSING]
    assert missing == ["installed", "npm", "sandbox", "key"]
    assert "https://nodejs.org" in str(found["npm"].hint)
    assert "bubblewrap" in str(found["sandbox"].hint)
    (programs / "npm").write_text("#!/bin/sh\n")
    (programs / "npm").chmod(0o755)
    assert "npm" not in attempt(system="", package="npm install -g fake")


def test_one_that_breaks_down_is_not_called_ready(attempt):
    lies = {"dies": "its process has ended: the reason is here", "idle": "without asking a model"}
    for lie, words in take_each(2, lies.items()):
        found = attempt(lie)
        assert found["session"].state is State.MISSING
        assert words in found["session"].words
        assert "usage" not in found


def test_on_a_bare_machine_every_agent_is_named_with_what_installs_it(stage):
    ran = stage.relay("doctor", "--agent", "all", path="/usr/bin:/bin")
    assert ran.returncode == ExitCode.USER
    assert "PROBLEM  installed   Claude Code is not installed: there is no claude-agent-acp on PATH" in ran.stdout
    assert "do: npm install -g @agentclientprotocol/claude-agent-acp@0.100.0\n" in ran.stdout
    assert "relay run --runner opencode cannot work here yet" in ran.stdout

    ran = stage.relay("doctor", "--agent", path="/usr/bin:/bin")
    assert ran.returncode == ExitCode.USER
    columns = ["name", "agent", "found", "tested", "usage", "steering", "tools", "login"]
    assert ran.stdout.splitlines()[0].split() == columns
    [row] = read_document(
        "relay doctor", stage.relay("doctor", "--agent", "claude", "--json", path="/usr/bin:/bin").stdout
    )["trials"]
    assert (row["name"], row["ready"]) == ("claude", False)


def test_a_name_that_no_agent_has_is_refused(stage):
    ran = stage.relay("doctor", "--agent", "magic")
    assert ran.returncode == ExitCode.USAGE
    assert "--agent: found 'magic'; allowed: claude" in ran.stderr


def test_one_with_a_login_is_not_asked_for_a_session(stage, tmp_path):
    """That would be the user's subscription."""
    (tmp_path / "config/relay").mkdir(parents=True)
    (tmp_path / "config/relay/config.toml").write_text('[agents.claude]\nlogin = "tunnel"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    [row] = read_document(
        "relay doctor",
        stage.relay("doctor", "--agent", "claude", "--json", path="/usr/bin:/bin", environ=environ).stdout,
    )["trials"]
    states = {finding["name"]: finding["state"] for finding in row["findings"]}
    assert states == {"installed": "missing", "session": "info", "key": "missing"}
    assert "no login of Claude Code" in row["findings"][-1]["words"]


def test_init_tries_an_agent_and_names_the_setting_that_uses_it(stage, programs, tmp_path):
    """Settings of the user's that are there already are not changed; an agent that does not work is not set."""
    config = tmp_path / "config/relay/config.toml"
    config.parent.mkdir(parents=True)
    variables = 'env = { FAKE_BASE = "{base}", FAKE_MODEL = "{model}" }'
    config.write_text(f'[agents.fake]\nprogram = "{programs}/fake-agent"\n{variables}\n')
    before, environ = config.read_text(), {"XDG_CONFIG_HOME": str(config.parents[1]), **KEY}
    ran = stage.relay("init", "--agent", "fake", path="/usr/bin:/bin", environ=environ)
    assert (ran.returncode, ran.stderr) == (ExitCode.DONE, "")
    assert "relay run --runner fake can work here" in ran.stdout
    assert ran.stdout.endswith('; relay does not change that file, please add:\nrunner = "fake"\n')
    assert config.read_text() == before

    (programs / "fake-agent").unlink()
    ran = stage.relay("init", "--agent", "fake", path="/usr/bin:/bin", environ=environ)
    assert ran.returncode == ExitCode.USER
    assert ran.stdout.endswith("relay wrote nothing; fix this, then run relay init --agent fake again\n")
    assert stage.relay("init", "--agent", "magic").returncode == ExitCode.USAGE
