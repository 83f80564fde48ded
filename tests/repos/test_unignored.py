"""A session that takes a line out of .gitignore: what it hid was there before, and is the user's."""

import json
import os

import pytest

from relay.base.errors import PlanError
from relay.git.repository import open_repo
from relay.session.events import Noticed
from relay.store.attempts import read_attempt
from relay.store.environment import load_environment
from tests.effort import take_each
from tests.scripts import run_commands

OPEN_UP = "printf '*.tmp\\n' > .gitignore"
HELLO = "echo hello > hello.txt"


@pytest.fixture
def diary(stage):
    """A stage with a private file below an ignored directory."""
    stage.write(".gitignore", "local/\n*.tmp\n")
    stage.commit("ignore")
    stage.write("local/diary.txt", "private notes\n")
    return stage


def test_a_file_that_was_ignored_when_the_phase_began_is_not_committed(diary, finish):
    """It is named; what the session itself wrote beside it is committed."""
    assert finish(run_commands(OPEN_UP, "echo own > local/own.txt", HELLO)) == [
        ".gitignore",
        "PLAN.md",
        "hello.txt",
        "local/own.txt",
    ]
    assert any("local/diary.txt" in notice.text for notice in diary.seen(Noticed))
    assert (diary.root / "local/diary.txt").read_text() == "private notes\n"
    assert diary.git("status", "--porcelain").split() == ["??", "local/diary.txt"]


@pytest.mark.nightly
def test_it_does_not_help_to_move_its_directory(diary, finish):
    """The file keeps its time under another name."""
    assert finish(run_commands("mv local notes", HELLO)) == ["PLAN.md", "hello.txt"]
    assert any("notes/diary.txt" in notice.text for notice in diary.seen(Noticed))


@pytest.mark.nightly
def test_a_phase_that_needs_it_is_refused(diary):
    """No box is ticked without its code."""
    diary.write("PLAN.md", "## Phase 1 — Notes\nVerify: `test -d .`\n- [ ] Commit the notes — local/diary.txt\n")
    diary.git("commit", "-qam", "plan")

    with pytest.raises(PlanError, match=r"no session was started for phase 1: .*: local/diary.txt \(ignored by git\)"):
        diary.run(run_commands(OPEN_UP))

    assert "- [ ]" in diary.git("show", "HEAD:PLAN.md")


@pytest.mark.nightly
@pytest.mark.parametrize("autocrlf", take_each(2, ["true", "false"]))
def test_a_renamed_directory_is_the_sessions_work(stage, finish, autocrlf):
    """Its files are as old as they were, and were there under another name: committed."""
    stage.write("src/a.txt", "one\n")
    stage.write("src/deep/b.bin", "\0two\n")
    stage.git("config", "core.autocrlf", autocrlf)
    stage.commit("src")
    for path in ("src/a.txt", "src/deep/b.bin"):
        (stage.root / path).unlink()
    stage.git("checkout", "-q", "--", ".")
    assert (b"\r" in (stage.root / "src/a.txt").read_bytes()) == (autocrlf == "true")

    assert finish(run_commands("mv src lib", HELLO)) == ["PLAN.md", "hello.txt", "lib/a.txt", "lib/deep/b.bin"]
    assert stage.git("ls-tree", "HEAD", "src") == ""


@pytest.mark.nightly
def test_what_was_ignored_stays_known_to_the_sessions_of_a_phase(diary, finish):
    """Also behind a session that ended early, and whatever times the files say they have."""
    os.utime(diary.root / "local/diary.txt", (2**32, 2**32))
    quit_early = {"name": "bash", "input": {"command": OPEN_UP}}, {"name": "block", "input": {"reason": "no"}}
    turns = [{"tools": [call]} for call in quit_early]
    diary.run(json.dumps({"sessions": [{"name": "s", "turns": turns}]}), all_=False)
    repo = open_repo(diary.root)

    attempt = read_attempt(repo)
    assert attempt is not None
    environment = load_environment(repo, attempt.environment)
    assert environment is not None

    assert environment.holds("local/anything.txt")
    assert not environment.holds("hello.txt")
    assert finish(run_commands("echo own > local/own.txt", HELLO)) == [
        ".gitignore",
        "PLAN.md",
        "hello.txt",
        "local/own.txt",
    ]
