"""What the user has staged: bytes that may be in no file and in no commit, and that only the index keeps."""

import pytest

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
    check_going_back_leaves_them(staged)


def check_going_back_leaves_them(staged):
    """Rewinding makes a branch; index, files and branches of the user stay as they are."""
    before = *read_staged(staged), staged.git("for-each-ref", "refs/heads")

    ran = staged.relay("rewind", "1", "--yes")

    assert (ran.returncode, ran.stderr) == (0, "")
    staged.git("branch", "-D", "main-before-1")
    assert (*read_staged(staged), staged.git("for-each-ref", "refs/heads")) == before
