"""A night with ``--jobs`` while the user has files in the way, or is in the midst of a rebase."""

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each
from tests.phases.bench import HOLD, Bench, make_plan, write_session
from tests.waiting import wait_until

PLAN = make_plan("test -s 1.txt", "test -s 2.txt", "test -s 3.txt").replace("— three\nAfter: none", "— three\nAfter: 1")


def write_script(first, *more):
    return [write_session(1, *first), write_session(2, *more, "echo 2 > 2.txt"), write_session(3, "echo 3 > 3.txt")]


@pytest.mark.parametrize(
    ("path", "mine", "command"),
    take_each(3, [
        ("build", "build/out", "rm -rf build; echo theirs > build"),
        ("local.yaml", "local.yaml", "echo theirs > local.yaml"),
        ("dev.sqlite3", "dev.sqlite3", "echo theirs > dev.sqlite3"),
    ]),
)  # fmt: skip
def test_an_ignored_file_in_the_way_stays_and_all_else_goes_on(stage, path, mine, command):
    """It is made while the phase works: what was there before the phase has as a copy, which no commit takes.

    The phase waits on its branch, the next one is done on top of it, others land; moved away, the rest lands.
    """
    stage.write(".gitignore", "local.yaml\nbuild/\n*.sqlite3\n")
    bench = Bench(stage, PLAN, **{"other.txt": "committed"})
    stage.write("other.txt", "edited")
    stage.git("add", "other.txt")
    first = (HOLD, f"echo '*.log' > .gitignore; {command}; echo 1 > 1.txt")
    jobs, wait = ("run", "--jobs", "2"), f"in the way here: {path} (ignored by git: move it away)"
    out = bench.play(
        write_script(first), *jobs, ends=ExitCode.STOPPED, meanwhile=lambda: stage.write(mine, "the user's")
    )
    assert f"phase 1 is done and waits: {wait}" in out
    assert "this run does not see what you have not committed: other.txt" in out
    assert (stage.root / mine).read_text() == "the user's"
    assert [phase.id for phase in bench.read_plan().phases if phase.done] == ["2"], out
    assert bench.git("show", f"relay-jobs/main/1:{path}") == "theirs\n"
    assert bench.git("show", "relay-jobs/main/3:3.txt") == "3\n"
    assert f"done; {wait}" in stage.relay("status").stdout
    (stage.root / path).rename(stage.root.parent / "away")
    bench.play([], *jobs)  # no session is paid for it
    assert bench.read_plan().done
    assert bench.git("status", "--porcelain") == "M  other.txt\n"


def test_nothing_lands_in_the_midst_of_a_rebase_and_all_lands_after_it(stage):
    bench = Bench(stage, PLAN)

    def rebase():
        tip = bench.git("rev-parse", "main")
        bench.git("-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1")
        for place in bench.find_held():
            place.with_name("go").touch()
        logs, words = stage.root / ".relay/sessions", "nothing lands until then"
        wait_until(lambda: any(words in file.read_text() for file in logs.glob("*.jsonl")))
        assert bench.git("rev-parse", "main") == tip
        bench.git("rebase", "--continue")

    bench.play(write_script(("echo 1 > 1.txt", HOLD), HOLD), "run", "--jobs", "2", meanwhile=rebase, holds=2)
    assert bench.read_plan().done
    assert bench.git("status", "--porcelain") == ""
