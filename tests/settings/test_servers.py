"""The setting `mcp_servers`: tool servers of the user's own, which no repository can bring."""

import pytest

from relay.base.errors import ConfigError
from relay.config.servers import ServerSettings
from relay.config.sources import load_settings
from relay.setup.doctor import render_value

OWN = """\
[mcp_servers.postgres]
command = ["mcp-postgres", "--password=hunter2"]
env = ["PGPASSWORD"]
tools = ["query"]

[mcp_servers.tickets]
url = "https://example.org/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
"""


def load(user, root=None):
    return load_settings(flags={}, environ={}, plan_settings={}, repo_root=root, user_dir=user)


def test_a_users_servers_are_read_and_their_secrets_are_not_shown(tmp_path):
    (tmp_path / "config.toml").write_text(OWN)
    settings = load(tmp_path)
    assert settings.mcp_servers == {
        "postgres": ServerSettings(
            command=("mcp-postgres", "--password=hunter2"), env=("PGPASSWORD",), tools=("query",)
        ),
        "tickets": ServerSettings(
            url="https://example.org/mcp", headers={"Authorization": "Bearer ${TOKEN}"}
        ),
    }  # fmt: skip
    assert render_value(settings.mcp_servers) == "postgres: mcp-postgres, tickets: https://example.org/mcp"


NO_SERVER = [
    ("mcp_servers = 1", "a table of tables, one for each server"),
    ("mcp_servers = { x = 1 }", "a table with some of command, env"),
    ("[mcp_servers.My_own]\nurl = 'https://x'", "names of servers in lower case"),
    ("[mcp_servers.x]", "command, a list of words, or url"),
    ("[mcp_servers.x]\nurl = 'https://x'\ncommand = ['x']", "command, a list of words, or url"),
    ("[mcp_servers.x]\nurl = 'http://example.org/'", "url: https://"),
    ("[mcp_servers.x]\nurl = 'file:///etc/passwd'", "url: https://"),
    ("[mcp_servers.x]\ncommand = ['x']\nenv = ['A B']", "env: names of variables"),
    ("[mcp_servers.x]\nurl = 'https://x'\nheaders = { A = \"x\\r\\ny\" }", "headers: a table of texts"),
]


def test_what_is_no_server_is_refused_with_what_is_allowed(tmp_path):
    for text, words in NO_SERVER:
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError) as raised:
            load(tmp_path)
        assert words in raised.value.message, text
