"""What the user has staged: bytes that may be in no file and in no commit, and that only the index keeps."""

import os

import pytest

from relay.base.errors import ExitCode
from rigs.crash.invariants import find_lost, find_versions

HALF = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel"}}]
      - tools: [{name: block, input: {reason: "half way"}}]
"""
NAMES = ("edited.txt", "gone.txt", "new.txt", "new-gone.txt")


@pytest.fixture
def staged(stage):
    """Staged bytes under a later edit, under no file, in a new file, in a new file that is gone; a staged removal."""
    for name in ("edited.txt", "gone.txt", "removed.txt"):
        stage.write(name, "committed\n")
    stage.commit("files")
    for name in NAMES:
        stage.write(name, f"staged {name}\n")
        stage.git("add", name)
    stage.write("edited.txt", "later\n")
    stage.write("new.txt", "later, new\n")
    (stage.root / "gone.txt").unlink()
    (stage.root / "new-gone.txt").unlink()
    stage.git("rm", "-q", "--cached", "removed.txt")
    return stage


def read_staged(stage):
    """Read the user's part of the index and what git says of it."""
    return stage.git("ls-files", "--stage", "--", ":!PLAN.md", ":!hello.txt"), stage.git("status", "--porcelain")


def test_a_run_commits_none_of_it_and_leaves_it_staged(staged, finish):
    """Beside the phase's own files the index is, entry for entry, what it was.

    Stashes, other work trees and untracked files stay as well: ralph-orchestrator cleared all stashes, gsd-2 forced
    work trees away, ralphex would not start beside a scratch file, and continuous-claude committed it.
    """
    stash = staged.git("stash", "create").strip()
    staged.git("stash", "store", stash)
    other = staged.root.parent / "other"
    staged.git("worktree", "add", "-q", str(other), "-b", "other")
    (other / "AGENTS.md").write_text("uncommitted\n")
    staged.write("tmp/handoff.md", "mine\n")
    before = read_staged(staged)

    assert finish() == ["PLAN.md", "hello.txt"]

    assert read_staged(staged) == before
    assert "?? tmp/\n" in before[1]
    assert staged.git("stash", "list", "--format=%H").split() == [stash]
    assert (other / "AGENTS.md").read_text() == "uncommitted\n"
    assert [staged.git("show", f":{name}") for name in NAMES] == [f"staged {name}\n" for name in NAMES]
    check_going_back_is_refused(staged)


def check_going_back_is_refused(staged):
    """The words name the files; nothing moves."""
    before = *read_staged(staged), staged.git("for-each-ref")

    ran = staged.relay("rewind", "1", "--yes")

    assert ran.returncode == ExitCode.USER
    assert ran.stderr.startswith("Error: tracked files have uncommitted changes: edited.txt, gone.txt, new-gone.txt")
    assert (*read_staged(staged), staged.git("for-each-ref")) == before


@pytest.mark.nightly
def test_staging_the_work_of_an_open_phase_leaves_nothing_behind(stage, finish):
    """A snapshot has the staged bytes, so the index goes on to what was committed, as with `git commit --only`."""
    assert stage.run(HALF, all_=False).exit_code == ExitCode.STOPPED
    stage.git("add", "-A")
    seen = find_versions(stage.root, dict(os.environ))
    stage.calm()

    assert finish() == ["PLAN.md", "hello.txt"]

    assert stage.git("status", "--porcelain") == ""
    assert find_lost(stage.root, dict(os.environ), seen) == []


@pytest.mark.nightly
def test_bytes_staged_over_the_work_of_an_open_phase_stay_staged(stage, finish):
    """No snapshot ever saw them: they are the index's only, and stay there."""
    assert stage.run(HALF, all_=False).exit_code == ExitCode.STOPPED
    stage.write("hello.txt", "by hand\n")
    stage.git("add", "hello.txt")
    stage.write("hello.txt", "by hand, later\n")
    stage.calm()

    assert finish() == ["PLAN.md", "hello.txt"]

    assert stage.git("show", ":hello.txt") == "by hand\n"
    assert (stage.root / "hello.txt").read_text() == "hello\n"
