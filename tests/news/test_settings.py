"""The setting `notify`."""

import pytest

from relay.config.load import load_settings
from relay.config.news import USUAL, Channel
from relay.errors import ConfigError
from relay.setup.doctor import render_value

WHOLE = """\
[[notify]]
form = "ntfy"
url = "https://ntfy.example/${TOPIC}"
headers = { Authorization = "Bearer ${TOKEN}" }
on = ["done", "red"]
details = true

[[notify]]
form = "command"
command = ["say", "{text}"]

[[notify]]
form = "slack"
url = "${SLACK_WEBHOOK}"
"""


def load(tmp_path, text, where="user"):
    user, root = tmp_path / "user", tmp_path / "repo"
    user.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    ((user / "config.toml") if where == "user" else (root / "relay.toml")).write_text(text)
    return load_settings(flags={}, environ={}, plan_settings={}, repo_root=root, user_dir=user)


def test_a_users_own_are_read_and_their_secrets_are_not_shown(tmp_path):
    settings = load(tmp_path, WHOLE)
    headers = (("Authorization", "Bearer ${TOKEN}"),)
    assert settings.notify == (
        Channel(form="ntfy", url="https://ntfy.example/${TOPIC}", headers=headers, on=("done", "red"), details=True),
        Channel(form="command", command=("say", "{text}"), on=USUAL),
        Channel(form="slack", url="${SLACK_WEBHOOK}"),
    )
    assert render_value(settings.notify).startswith("ntfy on done, red, command on done, ")


def test_a_repository_calls_nobody(tmp_path):
    with pytest.raises(ConfigError, match="notify"):
        load(tmp_path, WHOLE, where="repo")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1", "a list of tables"),
        ("[1]", "a list of tables"),
        ('[{form = "fax"}]', "form: ntfy, slack"),
        ('[{form = "json", to = "x"}]', "in each some of command, details, form"),
        ('[{form = "json"}]', "url: https"),
        ('[{form = "json", url = "file:///etc/passwd"}]', "url: https"),
        ('[{form = "json", url = "https://[x"}]', "url: https"),
        ('[{form = "desktop", url = "https://x"}]', "url: desktop has none"),
        ('[{form = "desktop", on = []}]', "on: some of done"),
        ('[{form = "desktop", on = ["tea"]}]', "on: some of done"),
        ('[{form = "desktop", details = 1}]', "details: true or false"),
        ('[{form = "desktop", headers = {"a b" = "c"}}]', "headers: a table of texts"),
        ('[{form = "desktop", command = ["x"]}]', "command: a list of words"),
        ('[{form = "command"}]', "command: a list of words"),
    ],
)
def test_what_is_not_allowed_is_named(tmp_path, row, words):
    with pytest.raises(ConfigError, match="notify") as told:
        load(tmp_path, f"notify = {row}\n")
    assert words in str(told.value)


def test_a_run_may_be_told_to_call_nobody(tmp_path):
    (tmp_path / "config.toml").write_text(WHOLE)
    found = load_settings(
        flags={}, environ={"RELAY_NOTIFY": "off"}, plan_settings={}, repo_root=None, user_dir=tmp_path
    )
    assert found.notify == ()
