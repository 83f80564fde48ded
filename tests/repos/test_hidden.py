"""Files that the user told git not to look at, settings of this machine mostly: they are the user's all the same."""

import pytest

from relay.base.errors import ExitCode
from relay.session.events import Noticed
from tests.effort import take_each

FLAGS = ["--assume-unchanged", "--skip-worktree"]
PLAN = """\
## Phase 1 — Settings
Verify: `grep -q new config.py`
- [ ] Change the settings
"""
WRITE = """
sessions:
  - name: s
    turns:
      - tools: [{name: bash, input: {command: "echo new > config.py"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "seen"}}]
      - {text: "Commit: Change the settings", repeat: 6}
"""
HELLO = """
sessions:
  - name: s
    turns:
      - tools: [{name: bash, input: {command: "echo new > config.py"}}]
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "seen"}}]
      - text: "Commit: Say hello"
"""
LOCAL = "the user's own\n"


@pytest.fixture(params=take_each(2, FLAGS))
def hidden(stage, request):
    """A stage whose config.py git does not look at."""
    stage.write("config.py", "committed\n")
    stage.commit("config")
    stage.git("update-index", request.param, "config.py")
    stage.tag = stage.git("ls-files", "-v", "config.py")
    assert not stage.tag.startswith("H")
    return stage


def reachable(stage):
    """Return all files that refs lead to, as text."""
    names = stage.git("rev-list", "--objects", "--all", "--no-object-names", "--filter=object:type=blob")
    return stage.git("cat-file", "--batch", answer=names)


@pytest.mark.nightly
def test_a_session_that_changes_it_is_refused_and_its_bytes_are_kept(hidden):
    """The box stays open, and the user's text is in the snapshot from the attempt's start."""
    hidden.write("PLAN.md", PLAN)
    hidden.git("commit", "-qam", "plan")
    hidden.write("config.py", LOCAL)

    ended = hidden.run(WRITE)

    assert (ended.exit_code, "config.py" in ended.reason) == (ExitCode.STOPPED, True)
    assert hidden.git("show", "HEAD:config.py") == "committed\n"
    assert "- [ ]" in hidden.git("show", "HEAD:PLAN.md")
    assert LOCAL in reachable(hidden)


@pytest.mark.nightly
def test_it_stays_out_of_a_phase_that_does_not_need_it(hidden, finish):
    """The commit is made without it, the user hears of it, and both file and flag stay."""
    hidden.write("config.py", LOCAL)

    assert finish(HELLO) == ["PLAN.md", "hello.txt"]
    assert any("config.py" in notice.text for notice in hidden.seen(Noticed))
    assert LOCAL in reachable(hidden)
    assert hidden.git("ls-files", "-v", "config.py") == hidden.tag


@pytest.mark.nightly
def test_what_a_session_does_to_an_unchanged_one_is_committed_and_the_flag_stays(hidden, finish):
    """Nothing of the user's is in it; the index follows the commit, and the file stays hidden."""
    assert finish(HELLO) == ["PLAN.md", "config.py", "hello.txt"]
    assert hidden.git("show", "HEAD:config.py") == "new\n"
    assert hidden.git("ls-files", "-v", "config.py") == hidden.tag
    assert hidden.git("diff", "--cached", "--name-only") == ""


@pytest.mark.nightly
def test_one_that_is_not_there_is_no_deletion(hidden, finish):
    """Whoever hides a file and removes it wants it in the commits."""
    (hidden.root / "config.py").unlink()

    assert finish() == ["PLAN.md", "hello.txt"]
    assert hidden.git("show", "HEAD:config.py") == "committed\n"
    assert hidden.git("ls-files", "-v", "config.py") == hidden.tag
