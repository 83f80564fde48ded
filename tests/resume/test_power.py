"""The machine was restarted under an open attempt: what was lost comes back, what was written since stays."""

import re
import subprocess

import pytest

from relay.base.errors import ExitCode
from relay.session.events import Noticed
from relay.store.resume import ResumeCase
from tests.resume.conftest import Killed

BLOCK = """
sessions:
  - turns:
      - tools: [{name: block, input: {reason: "lunch"}}]
"""


def restart(stage):
    """Make the open attempt one of another start of the machine."""
    old = stage.git("cat-file", "commit", "refs/relay/leg/main")
    new = re.sub(r'^ "boot": ".*"', ' "boot": "another"', old, flags=re.MULTILINE)
    assert new != old
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=stage.root, input=new, capture_output=True, text=True, check=True,
    )  # fmt: skip
    stage.git("update-ref", "refs/relay/leg/main", made.stdout.strip())


def told(stage):
    return [event.text for event in stage.seen(Noticed)]


def test_a_second_kill_while_files_are_put_back_loses_nothing(stage, cut_off, ask, finish):
    """The torn files are in a snapshot by then, and it is not the one that the next run goes on from."""
    cut_off()
    restart(stage)
    stage.write("hello.txt", "")

    class Deadly(list[object]):
        def append(self, event):
            if isinstance(event, Noticed) and "restored" in event.text:
                raise Killed
            super().append(event)

    stage.events = Deadly()
    with pytest.raises(Killed):
        stage.run(BLOCK, all_=False)
    stage.events = []
    stage.calm()
    stage.write("hello.txt", "")  # as if it had died a moment earlier
    assert ask()["row"] == ResumeCase.POWER_LOSS

    finish()

    assert any(words.startswith("restored from") and "hello.txt" in words for words in told(stage))


def test_what_the_user_wrote_after_the_restart_stays(stage, cut_off):
    """A new file, and a change of his own that the session never touched; what was lost comes back, with its name."""
    stage.write("mine.txt", "one\n")
    stage.commit("mine")
    cut_off()
    restart(stage)
    stage.write("hello.txt", "")
    stage.write("mine.txt", "one\ntwo\n")
    stage.write("since.txt", "since then\n")

    ended = stage.run(BLOCK, all_=False)

    assert ended.exit_code == ExitCode.STOPPED
    assert (stage.root / "hello.txt").read_text() == "hel"
    assert (stage.root / "mine.txt").read_text() == "one\ntwo\n"
    assert (stage.root / "since.txt").read_text() == "since then\n"
    words = next(words for words in told(stage) if "restored from" in words)
    assert words.startswith("restored from the last checkpoint of session ")
    found = words.partition("git show ")[2].replace("<file>", "hello.txt")
    assert stage.git("show", found) == ""
    assert any(
        words.startswith("not restored, since somebody") and "mine.txt, since.txt" in words for words in told(stage)
    )


def test_what_git_ignores_is_not_written_over(stage, cut_off):
    """Its bytes are in no snapshot: the user is told where the session's are, and the run goes on."""
    cut_off()
    restart(stage)
    (stage.root / "hello.txt").unlink()
    (stage.root / "notes/a.txt").unlink()
    (stage.root / "notes").rmdir()
    stage.write(".git/info/exclude", "/hello.txt\n/notes\n")
    stage.write("hello.txt", "the user's, ignored\n")
    stage.write("notes", "a file in the directory's place\n")

    ended = stage.run(BLOCK, all_=False)

    assert ended.exit_code == ExitCode.STOPPED
    assert (stage.root / "hello.txt").read_text() == "the user's, ignored\n"
    assert (stage.root / "notes").read_text() == "a file in the directory's place\n"
    words = next(words for words in told(stage) if words.startswith("not restored"))
    assert "hello.txt, notes/a.txt" in words
    place = words.partition("git show ")[2]
    assert stage.git("show", place.replace("<file>", "hello.txt")) == "hel"
    assert stage.git("show", place.replace("<file>", "notes/a.txt")) == "a\n"


@pytest.mark.nightly
def test_a_session_that_ended_with_an_error_counts_once(stage):
    """What is found after the restart is stored with that session's words; it is not another session in a row."""
    stuck = """
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "echo hel > hello.txt; echo no such table >&2; exit 3"}}]
      - text: I give up.
      - text: I give up.
"""
    assert "stuck" not in stage.run(stuck).reason
    restart(stage)
    stage.write("hello.txt", "")
    assert "stuck" not in stage.run(stuck).reason
    assert "3 sessions in a row" in stage.run(stuck).reason
