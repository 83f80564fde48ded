"""What the user and the repository name as unreadable: no command and no tool shows it, whatever the mechanism."""

import json

import pytest

from relay.sandbox.bwrap import find_bwrap

SECRETS = ("production-password", "tool-token")
CALLS = [
    ("bash", {"command": "cat config/production.yaml config/keys/* @OUT@/file link; tar cf - config @OUT@"}),
    ("read", {"path": "config/production.yaml"}),
    ("read", {"path": "link"}),
    ("search", {"pattern": "password|token"}),
    ("search", {"pattern": "password|token", "path": "config/keys"}),
    ("bash", {"command": "cat config/open.yaml"}),
]
LEVELS = {"run": ("run",), "plan": ("plan", "feature", "--force")}


def hide(arena, *, named: bool) -> None:
    """Put secrets into the repository and outside of it; the user names one place, the repository another."""
    (arena.outside / "file").write_text("tool-token\n")
    arena.write("config/production.yaml", "password: production-password\n")
    arena.write("config/keys/a", "production-password\n")
    arena.write("config/open.yaml", "nothing special\n")
    (arena.root / "link").symlink_to("config/production.yaml")
    if named:
        mine = arena.home / ".config/relay/config.toml"
        mine.parent.mkdir(parents=True)
        mine.write_text(f"unreadable = {json.dumps([str(arena.outside / 'file'), '~/.config/tool'])}\n")
        arena.write("relay.toml", 'unreadable = ["config/production.yaml", "config/keys/"]\n')
    arena.give()
    arena.commit()


def get_words(played) -> str:
    return "\n".join(got.text for got in played.got)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_named_is_not_shown(arena, level):
    """By bubblewrap, to commands and to relay's own tools; what stands beside it still is."""
    hide(arena, named=True)

    played = arena.call(CALLS, *LEVELS[level])

    assert len(played.got) == len(CALLS), played.tail
    assert [secret for secret in SECRETS if secret in get_words(played)] == []
    assert "nothing special" in played.got[-1].text


@pytest.mark.parametrize("level", LEVELS)
def test_control_what_nobody_named_is_shown(arena, level):
    """Without the setting the same calls show both."""
    hide(arena, named=False)

    played = arena.call(CALLS, *LEVELS[level])

    assert [secret for secret in SECRETS if secret not in get_words(played)] == []


def test_a_planner_under_landlock_is_not_shown_it_either(arena, without_bwrap):
    """Where bubblewrap is missing, Landlock grants nothing that was named."""
    hide(arena, named=True)

    played = arena.call(CALLS, *LEVELS["plan"], before=without_bwrap)

    assert len(played.got) == len(CALLS), played.tail
    assert [secret for secret in SECRETS if secret in get_words(played)] == []
    assert "nothing special" in played.got[-1].text


def test_a_repository_takes_nothing_out_of_the_list(arena):
    """An empty list in a repository's file leaves the user's own and relay's own lists as they are."""
    hide(arena, named=True)
    arena.write("relay.toml", "unreadable = []\n")
    arena.commit()

    played = arena.call([("bash", {"command": "cat @OUT@/file @HOME@/.ssh/* .env"})], "run")

    assert find_bwrap() is None or played.got[0].is_error
    assert [secret for secret in ("tool-token", "ssh-secret", "env-secret") if secret in get_words(played)] == []
