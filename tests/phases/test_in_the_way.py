"""A night with ``--jobs`` while the user has files in the way, or is in the midst of a rebase."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import count_answers
from tests.phases.test_user_acts import Bench
from tests.waiting import wait_until

PLAN = """\
# Three

## Phase 1 — One
After: none
Verify: `test -s {0}`
- [ ] Write one — {0}

## Phase 2 — Two
After: none
Verify: `test -s 2.txt`
- [ ] Write two — 2.txt

## Phase 3 — Three
After: 1
Verify: `test -s 3.txt`
- [ ] Write three — 3.txt
"""


def write_session(words, number, *commands):
    tick = {"tools": [{"name": "tick", "input": {"item": f"{number}.1", "evidence": "done"}}]}
    return {
        "name": words,
        "when": {"first_message_contains": f"Write {words} — "},
        "repeat": True,
        "turns": [
            *({"tools": [{"name": "bash", "input": {"command": command}}]} for command in commands),
            tick,
            {"text": f"Commit: Write {words}"},
        ],
    }


def write_script(first, *more):
    others = (write_session("two", 2, *more, "echo 2 > 2.txt"), write_session("three", 3, "echo 3 > 3.txt"))
    return parse_script(json.dumps({"sessions": [write_session("one", 1, *first), *others]}))


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
    bench = Bench(stage, "jobs")
    stage.write("PLAN.md", PLAN.format("1.txt"))
    stage.write("other.txt", "committed")
    stage.commit("plan")
    stage.write("other.txt", "edited")
    stage.git("add", "other.txt")
    hold = "touch held; while [ ! -e go ]; do sleep 0.02; done; rm -f go held"
    first = (hold, f"echo '*.log' > .gitignore; {command}; echo 1 > 1.txt")
    with serve(write_script(first)) as server:
        night = bench.start(server, "run", "--jobs", "2")
        wait_until(lambda: list(bench.places.glob("*/held")), by=night)
        stage.write(mine, "the user's")
        for place in bench.places.glob("*/held"):
            place.with_name("go").touch()
        out = night.communicate()[0]
        assert night.returncode == ExitCode.STOPPED, out
        assert f"phase 1 is done and waits: in the way here: {path} (ignored by git: move it away)" in out
        assert "this run does not see what you have not committed: other.txt" in out
        assert (stage.root / mine).read_text() == "the user's"
        assert [phase.id for phase in bench.read_plan().phases if phase.done] == ["2"], out
        assert bench.git("show", f"relay-jobs/main/1:{path}") == "theirs\n"
        assert bench.git("show", "relay-jobs/main/3:3.txt") == "3\n"
        status = bench.start(server, "status").communicate()[0]
        assert f"done; in the way here: {path} (ignored by git: move it away)" in status
        (stage.root / path).rename(stage.root.parent / "away")
        asked = count_answers(server)
        day = bench.start(server, "run", "--jobs", "2")
        out = day.communicate()[0]
        assert day.returncode == ExitCode.DONE, out
        assert bench.read_plan().done
        assert count_answers(server) == asked
    assert bench.git("status", "--porcelain") == "M  other.txt\n"


def test_nothing_lands_in_the_midst_of_a_rebase_and_all_lands_after_it(stage):
    bench = Bench(stage, "jobs")
    stage.write("PLAN.md", PLAN.format("1.txt"))
    stage.commit("plan")
    hold = "touch held; while [ ! -e go ]; do sleep 0.02; done; rm -f go held"
    with serve(write_script(("echo 1 > 1.txt", hold), hold)) as server:
        night = bench.start(server, "run", "--jobs", "2")
        wait_until(lambda: len(list(bench.places.glob("*/held"))) == 2, by=night)
        tip = bench.git("rev-parse", "main")
        bench.git("-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1")
        for place in bench.places.glob("*/held"):
            place.with_name("go").touch()
        logs, words = stage.root / ".relay/sessions", "nothing lands until then"
        wait_until(lambda: any(words in file.read_text() for file in logs.glob("*.jsonl")), by=night)
        assert bench.git("rev-parse", "main") == tip
        bench.git("rebase", "--continue")
        out = night.communicate()[0]
    assert night.returncode == ExitCode.DONE, out
    assert bench.read_plan().done
    assert bench.git("status", "--porcelain") == ""
