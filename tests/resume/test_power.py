"""The machine was restarted under an open attempt: its tree goes back to the newest checkpoint, and nothing is lost."""

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


def test_a_second_kill_while_files_are_put_back_loses_nothing(stage, cut_off, ask):
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

    stage.run(BLOCK, all_=False)

    assert (stage.root / "hello.txt").read_text() == "hel"
    assert any(words.startswith("restored from") and "hello.txt" in words for words in told(stage))


def test_the_newest_checkpoint_comes_back_and_what_was_found_is_kept_or_ignored_and_stays(stage, cut_off):
    """A new file, a torn one, a change since, an ignored file in a file's place: all is named, with where it is."""
    stage.write("mine.txt", "one\n")
    stage.commit("mine")
    cut_off()
    restart(stage)
    (stage.root / "notes/a.txt").unlink()
    (stage.root / "notes").rmdir()
    stage.write(".git/info/exclude", "/notes\n")
    stage.write("notes", "a file in the directory's place\n")
    stage.write("hello.txt", "")
    stage.write("mine.txt", "one\ntwo\n")
    stage.write("since.txt", "since then\n")

    ended = stage.run(BLOCK, all_=False)

    assert ended.exit_code == ExitCode.STOPPED
    texts = {name: (stage.root / name).read_text() for name in ("hello.txt", "mine.txt", "notes")}
    assert texts == {"hello.txt": "hel", "mine.txt": "one\n", "notes": "a file in the directory's place\n"}
    assert not (stage.root / "since.txt").exists()
    words = next(words for words in told(stage) if words.startswith("restored from the last checkpoint of session "))
    assert "hello.txt, mine.txt, since.txt" in words
    kept = words.partition("git show ")[2]
    found = [stage.git("show", kept.replace("<file>", name)) for name in ("hello.txt", "mine.txt", "since.txt")]
    assert found == ["", "one\ntwo\n", "since then\n"]
    blocked = next(words for words in told(stage) if words.startswith("not restored, since "))
    assert "an ignored file is in the way: notes/a.txt" in blocked
    assert stage.git("show", blocked.partition("git show ")[2].replace("<file>", "notes/a.txt")) == "a\n"
