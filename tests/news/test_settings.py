"""The setting `notify`."""

import pytest

from relay.base.errors import ConfigError
from relay.config.news import USUAL, Channel
from relay.config.sources import load_settings
from relay.setup.doctor import render_value

WHOLE = """\
[[notify]]
url = "ntfys://${TOKEN}@ntfy.example/${TOPIC}?auth=token"
on = ["done", "red"]
details = true

[[notify]]
command = ["say", "{text}"]

[[notify]]
url = "${SLACK_WEBHOOK}"

[[notify]]
url = "https://hooks.slack.com/services/T/B/s3cret"

[[notify]]
form = "desktop"
"""


def load(tmp_path, text, where="user"):
    user, root = tmp_path / "user", tmp_path / "repo"
    user.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    ((user / "config.toml") if where == "user" else (root / "relay.toml")).write_text(text)
    return load_settings(flags={}, environ={}, plan_settings={}, repo_root=root, user_dir=user)


def test_a_users_own_are_read_and_their_secrets_are_not_shown(tmp_path):
    settings = load(tmp_path, WHOLE)
    ntfy = "ntfys://${TOKEN}@ntfy.example/${TOPIC}?auth=token"
    assert settings.notify == (
        Channel(url=ntfy, on=("done", "red"), details=True),
        Channel(command=("say", "{text}"), on=USUAL),
        Channel(url="${SLACK_WEBHOOK}"),
        Channel(url="https://hooks.slack.com/services/T/B/s3cret"),
        Channel(form="desktop"),
    )
    assert [channel.name for channel in settings.notify] == [
        "ntfys", "say", "${SLACK_WEBHOOK}", "hooks.slack.com", "desktop",
    ]  # fmt: skip
    assert render_value(settings.notify).startswith("ntfys on done, red, say on done, ")


def test_a_repository_calls_nobody(tmp_path):
    with pytest.raises(ConfigError, match="notify"):
        load(tmp_path, WHOLE, where="repo")


REFUSED = {
    "1": "a table with some of form, url",
    '[{form = "fax"}]': "form: desktop, command",
    '[{url = "json://x", to = "x"}]': "a table with some of form, url, command, on, details",
    "[{}]": 'one of url = "ntfys://',
    '[{url = "example.org/x"}]': "url: an address as Apprise has them",
    '[{url = "json://a b"}]': "url: an address as Apprise has them",
    '[{form = "desktop", url = "json://x"}]': 'one of url = "ntfys://',
    '[{form = "desktop", on = []}]': "on: some of done",
    '[{form = "desktop", on = ["tea"]}]': "on: some of done",
    '[{form = "desktop", details = 1}]': "details: true or false",
}


def test_what_is_not_allowed_is_named(tmp_path):
    for row, words in REFUSED.items():
        with pytest.raises(ConfigError, match="notify") as told:
            load(tmp_path, f"notify = {row}\n")
        assert words in str(told.value), row


def test_a_run_may_be_told_to_call_nobody(tmp_path):
    (tmp_path / "config.toml").write_text(WHOLE)
    found = load_settings(
        flags={}, environ={"RELAY_NOTIFY": "off"}, plan_settings={}, repo_root=None, user_dir=tmp_path
    )
    assert found.notify == ()
