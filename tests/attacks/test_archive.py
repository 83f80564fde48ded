"""What a repository out of an archive holds that no clone has: devices, pipes, notes for relay, another's history."""

import json
import os

import pytest

from tests.effort import take_each

NONE = [{"turns": [{"text": "Done."}], "repeat": True}]
COMMANDS = take_each(2, (("status",), ("check",), ("run", "--phase", "2")))


def place(arena, path):
    target = arena.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def link(path, target):
    return lambda arena: place(arena, path).symlink_to(str(target).replace("@OUT@", str(arena.outside)))


def pipe(path):
    return lambda arena: os.mkfifo(place(arena, path))


def declare(arena):
    """A note says that relay was about to take a file of the user's as a lock, at the very time of that file."""
    found = arena.outside / "file"
    text = json.dumps({"locks": {str(found): found.stat().st_mtime}})
    place(arena, ".git/relay/intent").write_text(text)


def name_another(arena):
    arena.git("init", "-q", str(arena.base / "other"))
    (arena.root / ".git").rename(arena.base / "unused")
    (arena.root / ".git").write_text(f"gitdir: {arena.base}/other/.git\n")


ATTACKS = {
    "settings that are a device": link("relay.toml", "/dev/zero"),
    "shared settings that are a device": link("pyproject.toml", "/dev/zero"),
    "settings that are a pipe": pipe("relay.toml"),
    "shared settings that are a pipe": pipe("pyproject.toml"),
    "a declared lock": declare,
    "a declaration that is a pipe": pipe(".git/relay/intent"),
    "a declaration that is a device": link(".git/relay/intent", "/dev/zero"),
    "unfinished commits that are a pipe": pipe(".git/relay/pending"),
    "a lock that is a pipe": pipe(".git/relay/lock"),
    "relay's directory leads out": link(".git/relay", "@OUT@"),
    "snapshots lead out": link(".git/refs/relay/wip/main", "@OUT@"),
    "another repository's history": name_another,
}


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_an_archive_brings_ends_no_command_and_removes_nothing(arena, name):
    """Every command ends by itself, with words or as if nothing were there; what is the user's stays."""
    (arena.outside / "yarn.lock").write_text("precious\n")
    (arena.outside / "index.new").write_text("precious\n")
    ATTACKS[name](arena)
    arena.give()
    before = sorted((path.name, path.read_bytes()) for path in arena.outside.iterdir() if path.is_file())

    played = [arena.play(NONE, *words, warm=True) for words in COMMANDS]

    assert {one.code for one in played} <= {0, 1, 4}, [one.tail for one in played]
    after = sorted((path.name, path.read_bytes()) for path in arena.outside.iterdir() if path.is_file())
    assert set(before) <= set(after)  # git itself follows a link among its refs, and makes one there
    if name == "another repository's history":
        assert played[-1].code == 1
