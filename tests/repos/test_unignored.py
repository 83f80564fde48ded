"""A session that takes a line out of .gitignore: what it hid was there before, and is the user's."""

import pytest

from relay.base.errors import PlanError
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
