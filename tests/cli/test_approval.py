"""`relay run --approve`: a person between two phases."""

import json
import os
import sys

import pytest

from relay.base.errors import ExitCode, PlanError
from relay.cli.run import run_approved
from relay.session.usage import Spent
from relay.setup.context import RunEnd
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

PLAN = """\
# Words

## Phase 1 — One
Verify: `test -f one`
- [ ] Say one — one

## Phase 2 — Two
After: 1
Verify: `test -f two`
- [ ] Say two — two

## Phase 3 — Three
After: 1
Verify: `test -f three`
- [ ] Say three — three

## Phase 4 — Four
After: 2
Verify: `test -f four`
- [ ] Say four — four
"""
SESSION = """
  - when: {{first_message_contains: "Carry out phase {n} now"}}
    turns:
      - tools: [{{name: write, input: {{path: {word}, content: "x"}}}}]
      - tools: [{{name: tick, input: {{item: "{n}.1", evidence: x}}}}]
      - text: "Commit: Say {word}"
"""
SCRIPT = "sessions:" + "".join(
    SESSION.format(n=n, word=word) for n, word in enumerate(("one", "two", "three", "four"), 1)
)

END = RunEnd(exit_code=ExitCode.DONE, reason="phase 1 is done", next_command=None, spent=Spent())


@pytest.fixture
def words(stage, monkeypatch):
    stage.write("PLAN.md", PLAN)
    stage.commit()
    with serve(parse_script(SCRIPT)) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        yield stage


def answer(monkeypatch, answers, act):
    """Make standard input and output a terminal where somebody types an answer a line; return what is shown, and act's.

    In the test itself: pytest puts its own in place again behind each fixture.
    """
    ours, theirs = os.openpty()
    with (
        os.fdopen(os.dup(theirs), encoding="utf-8") as typed,
        os.fdopen(theirs, "w", encoding="utf-8") as shown,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stdout", shown)
        os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
        code, seen = act(), b""
        shown.flush()
        print("the end", file=shown, flush=True)
        while b"the end" not in seen:
            seen += os.read(ours, 65_536)
    os.close(ours)
    return seen.decode(), code


def test_the_plan_is_read_anew_for_each_phase_and_the_run_stopped(stage, monkeypatch):
    stage.write("PLAN.md", PLAN)
    monkeypatch.chdir(stage.root)
    began = []

    def start(phase_id, tell_next):
        began.append(phase_id)
        stage.write("PLAN.md", PLAN.replace("[ ] Say one", "[x] Say one").replace("two", "2"))
        return tell_next(END).exit_code

    shown, code = answer(monkeypatch, "yn", lambda: run_approved(start, None, as_json=False))
    assert (code, began, shown.count("Go on?")) == (ExitCode.DONE, ["next", "2"], 2)
    assert "next: phase 2 — Two" in shown
    assert "2.1 Say 2 — 2" in shown


@pytest.mark.nightly
def test_without_a_terminal_one_phase_is_done(words):
    done = words.relay("run", "--approve")

    assert done.returncode == ExitCode.STOPPED
    assert "phase 2 — Two waits for a yes\nnext: relay run --approve\n" in done.stdout
    assert [commit.phase for commit in words.commits()] == ["1"]
    shown = words.relay("status").stdout
    assert "waits  phase 2 — Two, for a yes\nnext   relay run --approve\n       without that, relay run " in shown

    lines = words.relay("run", "--approve", "--json").stdout.splitlines()

    assert [json.loads(line)["event"] for line in lines][-1] == "RunEnded"
    ended = json.loads(lines[-1])
    assert (ended["exit_code"], ended["waits_for"]) == (ExitCode.STOPPED, "phase 3 — Three")


def test_a_plan_that_was_broken_meanwhile_is_said_behind_the_end_of_the_run(stage, monkeypatch):
    """What follows the run hears that its phase is done."""
    monkeypatch.chdir(stage.root)
    told = []

    def start(_, tell_next):
        stage.write("PLAN.md", "")
        told.append(tell_next(END))
        return ExitCode.DONE

    with pytest.raises(PlanError, match="no phase found"):
        run_approved(start, None, as_json=True)
    assert told == [END]
