"""A night while the user has files in the way, or is in the midst of a rebase."""

import json
import os
import subprocess

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.bench import GATES, HOLD, Bench, make_plan, write_session
from tests.waiting import wait_until

ROWS = [
    ("build", "build/out", "rm -rf build; echo theirs > build", False),
    ("local.yaml", "local.yaml", "echo theirs > local.yaml", True),
    ("dev.sqlite3", "dev.sqlite3", "echo theirs > dev.sqlite3", True),
]


@pytest.mark.parametrize(("path", "mine", "command", "has_other"), take_each(3, ROWS))
def test_an_ignored_file_in_the_way_stays_and_all_else_goes_on(stage, path, mine, command, has_other):
    """It is made while the phase works: what was there before the phase has as a copy, which no commit takes.

    The phase waits on its branch, the one after it is done on top of it, another one lands; moved away, the rest lands.
    """
    stage.write(".gitignore", "local.yaml\nbuild/\n*.sqlite3\n")
    plan = make_plan(*GATES, *(["test -s 3.txt"] if has_other else [])).replace("two\nAfter: none", "two\nAfter: 1")
    bench = Bench(stage, plan, **{"other.txt": "committed"})
    stage.write("other.txt", "edited")
    stage.git("add", "other.txt")
    first = write_session(1, HOLD, f"echo '*.log' > .gitignore; {command}; echo 1 > 1.txt")
    wait = f"in the way here: {path} (ignored by git: move it away)"
    out = bench.play(
        [first, write_session(2, "echo 2 > 2.txt"), write_session(3, "echo 3 > 3.txt")],
        ends=ExitCode.STOPPED,
        meanwhile=lambda: stage.write(mine, "the user's"),
    )
    assert f"phase 1 is done and waits: {wait}" in out
    assert "this run does not see what you have not committed: other.txt" in out
    assert (stage.root / mine).read_text() == "the user's"
    assert [phase.id for phase in bench.read_plan().phases if phase.done] == ["3"] * has_other, out
    assert bench.git("show", f"relay-jobs/main/1:{path}") == "theirs\n"
    assert bench.git("show", "relay-jobs/main/2:2.txt") == "2\n"
    shown, said = stage.relay("status").stdout, json.loads(stage.relay("status", "--json").stdout)
    assert f"done; {wait}" in shown
    assert "at work" not in shown
    assert said["spent"]["usd"] == pytest.approx(sum(phase["spent"]["usd"] for phase in said["phases"]))
    (stage.root / path).rename(stage.root.parent / "away")
    bench.play([])  # no session is paid for it
    assert bench.read_plan().done
    assert bench.git("status", "--porcelain") == "M  other.txt\n"


def test_nothing_lands_in_the_midst_of_a_rebase_and_all_lands_after_it(stage):
    bench = Bench(stage, make_plan(*GATES[:1]))

    def rebase():
        tip = bench.git("rev-parse", "main")
        bench.git("-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1")
        bench.let_go()
        logs, words = stage.root / ".relay/sessions", "nothing lands until then"
        wait_until(lambda: any(words in file.read_text() for file in logs.glob("*.jsonl")))
        assert bench.git("rev-parse", "main") == tip
        bench.git("rebase", "--continue")

    bench.play([write_session(1, "echo 1 > 1.txt", HOLD)], meanwhile=rebase)
    assert bench.read_plan().done
    assert bench.git("status", "--porcelain") == ""


@pytest.mark.parametrize("edits_plan", take_each(2, [False, True]))
def test_a_commit_of_the_user_s_whose_message_is_being_written_takes_nothing_back(stage, edits_plan):
    """Git holds the index for it, as it was when the editor opened: nothing lands until then."""
    bench = Bench(stage, make_plan(*GATES[:1]), **{"kept.txt": "committed"})
    editor, opened, written = (stage.root.with_name(name) for name in ("editor", "opened", "written"))
    editor.write_text(f"#!/bin/sh\ntouch {opened}\nwhile [ ! -e {written} ]; do sleep 0.02; done\necho mine > $1\n")
    editor.chmod(0o755)
    stage.write("kept.txt", "mine")
    with serve(parse_script(json.dumps({"sessions": [write_session(1, HOLD, "echo 1 > 1.txt")]}))) as server:
        run = bench.start(server, "run")
        wait_until(bench.find_held, by=run)
        if edits_plan:
            stage.edit("Write one — 1.txt", "Write one — 1.txt\n- [ ] By hand (manual)")
        command = ("git", "commit", "-q", "kept.txt")
        with subprocess.Popen(command, cwd=stage.root, env={**os.environ, "GIT_EDITOR": str(editor)}) as commit:
            wait_until(opened.exists)
            bench.let_go()
            with run.stdout:
                for line in run.stdout:
                    if "a git of yours holds" in line:
                        written.touch()
            written.touch()
            assert (run.wait(), commit.wait()) == (ExitCode.DONE, 0)
    assert stage.git("show", "main:1.txt", "main:kept.txt") == "1\nmine"
    assert stage.git("log", "--first-parent", "--format=%s", "main").splitlines()[:2] == [
        "Write one", "relay: plan amended" if edits_plan else "mine"
    ]  # fmt: skip
    assert stage.git("status", "--porcelain") == ""
