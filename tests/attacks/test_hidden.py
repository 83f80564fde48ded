"""What the user and the repository name as unreadable: no command and no tool shows it, whatever the mechanism."""

import json
import subprocess

import pytest

from relay.sandbox.bwrap import find_bwrap
from tests.effort import take_each

SECRETS = ("production-password", "tool-token")
CALLS = [
    ("bash", {"command": "cat config/production.yaml config/keys/* @OUT@/file link; tar cf - config @OUT@"}),
    ("read", {"path": "config/production.yaml"}),
    ("read", {"path": "link"}),
    ("bash", {"command": "git grep --untracked -E 'password|token'; grep -r token config/keys"}),
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
        mine.write_text(f"paths.hide = {json.dumps([str(arena.outside / 'file'), '~/.config/tool'])}\n")
        arena.write("relay.toml", 'paths.hide = ["config/production.yaml", "config/keys/"]\n')
    arena.give()
    arena.commit()


def get_words(played) -> str:
    return "\n".join(got.text for got in played.got)


def read_objects(arena):
    """Return everything that a session could read with git."""
    argv = arena.as_user(("git", "cat-file", "--batch-all-objects", "--batch"))
    done = subprocess.run(argv, cwd=arena.root, env=arena.environ, check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


UNTRACKED = {
    ".env.production": "untracked-env",
    "config/keys/new": "untracked-key",
    "config/production.yaml": "changed-tracked",
    ".NETRC": "untracked-netrc",
}
WORK = (
    ("write", {"path": "world.txt", "content": "world\n"}),
    ("bash", {"command": "touch seen; git diff HEAD; git cat-file --batch-all-objects --batch"}),
    ("hand_off", {"next_step": "go on"}),
)
NAMED = "config/keys/a, config/production.yaml: the file is hidden from sessions"


@pytest.mark.parametrize("level", take_each(2, LEVELS))
def test_what_is_named_is_not_shown_and_is_in_no_snapshot(arena, level):
    """By bubblewrap, to commands and to relay's own tools; what stands beside it still is.

    A file that git tracks is named before the first session: history gives it away, to whoever may read that.
    """
    hide(arena, named=True)
    for path, text in UNTRACKED.items():
        arena.write(path, f"{text}\n")

    played = arena.call(
        [*CALLS, *WORK], *LEVELS[level], *(["--max-sessions", "1"] if level == "run" else []), warm=True
    )
    shown = arena.play([], "status", "--why", warm=True)

    assert shown.code == 0, shown.tail
    assert len(played.got) >= len(CALLS) + 2, played.tail
    said = "\n".join(got.text for got in played.got[: len(CALLS)])
    assert [secret for secret in SECRETS if secret in said] == []
    assert "nothing special" in played.got[len(CALLS) - 1].text
    assert NAMED in " ".join(played.out.decode().split())
    objects = read_objects(arena)
    assert ("world\n" in objects) == (level == "run")
    assert [text for text in UNTRACKED.values() if text in objects + get_words(played)] == []
    assert [path for path, text in UNTRACKED.items() if (arena.root / path).read_text() != f"{text}\n"] == []


@pytest.mark.nightly
@pytest.mark.parametrize("level", LEVELS)
def test_control_what_nobody_named_is_shown(arena, level):
    """Without the setting the same calls show both."""
    hide(arena, named=False)

    played = arena.call(CALLS, *LEVELS[level], warm=True)

    assert [secret for secret in SECRETS if secret not in get_words(played)] == []


@pytest.mark.nightly
def test_a_repository_takes_nothing_out_of_the_list(arena):
    """An empty list in a repository's file leaves the user's own and relay's own lists as they are."""
    hide(arena, named=True)
    arena.write("relay.toml", "paths.hide = []\n")
    arena.commit()

    played = arena.call([("bash", {"command": "cat @OUT@/file @HOME@/.ssh/* .env"})], "run", warm=True)

    assert find_bwrap() is None or played.got[0].is_error
    assert [secret for secret in ("tool-token", "ssh-secret", "env-secret") if secret in get_words(played)] == []


@pytest.mark.nightly
def test_what_git_tracks_cannot_be_hidden_and_the_doctor_names_it(arena):
    hide(arena, named=True)
    assert NAMED in " ".join(arena.play([], "doctor", warm=True).out.decode().split())
