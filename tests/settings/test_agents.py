"""The setting `agents`: profiles of the user's own, which no repository can bring."""

import pytest

from relay.base.errors import ConfigError
from relay.config import Settings
from relay.runners.agents.profiles import PROFILES
from relay.runners.registry import list_profiles, list_runners
from relay.setup.doctor import render_value
from tests.settings.test_config import load

OWN = """
[agents.careful]
like = "claude"
env = { EFFORT = "high" }
files = { ".x/settings.json" = "{}" }

[agents.vibe]
program = "vibe-acp"
arguments = ["--stdio"]
needs = ["node"]
install = "npm install -g vibe"
mode = "yolo"
endpoints = ["openai"]

[agents.opencode]
program = "/opt/opencode"
"""


def test_a_users_agents_are_those_that_relay_knows_with_what_is_different(tmp_path):
    (tmp_path / "config.toml").write_text(OWN)
    settings = load(user=tmp_path)
    found = list_profiles(settings)

    claude, careful = found["claude"], found["careful"]
    assert claude == PROFILES["claude"]
    assert (careful.name, careful.title, careful.program) == ("careful", claude.title, claude.program)
    assert careful.env == {**claude.env, "EFFORT": "high"}
    assert careful.files == {".x/settings.json": "{}"}
    vibe = found["vibe"]
    assert (vibe.title, vibe.program, vibe.arguments, vibe.needs) == ("vibe", "vibe-acp", ("--stdio",), ("node",))
    assert (vibe.package, vibe.mode, [setup.family for setup in vibe.setups]) == (
        "npm install -g vibe",
        "yolo",
        ["openai"],
    )
    assert found["opencode"].program == "/opt/opencode"
    assert found["opencode"].files == PROFILES["opencode"].files
    assert list(list_runners(settings)) == [*list_runners(Settings()), "careful", "vibe"]
    assert "high" not in render_value(settings.agents)


NO_AGENT = [
    ("agents = 1", "a table of tables, one for each agent"),
    ("agents = { x = 1 }", "a table with some of like, program, arguments"),
    ("[agents.api]", "names of agents in lower case, not api"),
    ("[agents.x]\nprogram = 1", "program: one line of text"),
    ("[agents.x]\narguments = 'a'", "arguments: a list of texts"),
    ("[agents.x]\nendpoints = ['mine']", "endpoints: anthropic, openai, gemini"),
    ("[agents.x]\nenv = { 'A B' = 'x' }", "env: a table of variables"),
    ("[agents.x]\nfiles = { '../x' = 'x' }", "files: a table of texts, by their paths"),
    ("[agents.x]\nlogin = 'mine'", "login: key, tunnel, gateway"),
    ("[agents.x]\nhosts = ['127.0.0.1']", "hosts: names of hosts, in lower case"),
    ("[agents.x]\ncredentials = ['../x']", "credentials: paths below your home directory"),
]


def test_what_is_no_agent_is_refused_with_what_is_allowed(tmp_path):
    for text, words in NO_AGENT:
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError) as raised:
            load(user=tmp_path)
        assert words in raised.value.message, text


NOT_TO_BE_STARTED = [
    ("[agents.x]\nlike = 'magic'", "agents.x: like: found 'magic'; allowed: claude"),
    ("[agents.opencode]\nlogin = 'tunnel'", "agents.opencode: credentials is missing, which login = tunnel needs"),
    ("[agents.x]\nmode = 'y'", "agents.x: program is missing, or like"),
]


def test_one_that_nobody_can_start_is_named(tmp_path):
    for text, words in NOT_TO_BE_STARTED:
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError) as raised:
            list_runners(load(user=tmp_path))
        assert words in raised.value.message, text
