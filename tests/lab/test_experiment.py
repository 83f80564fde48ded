"""An experiment as a user types it: real commands, clones and sandbox, a scripted model behind real HTTP."""

import csv
import json
import os
import shutil
import signal
import subprocess
from functools import partial

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until

PLAN = (
    "# Greetings\n\n## Phase 1 — Greet\nVerify: `grep -q hello greet.py`\n- [ ] Return a greeting — greet.py\n\n"
    "## Phase 2 — Greet the world\nVerify: `grep -q world greet.py`\n- [ ] Greet the world — greet.py\n"
)
SPENT_BEFORE = """\
plan

Relay-Plan: PLAN.md
Relay-Phase: 1
Relay-Status: handoff
Relay-Usage: input=100000 output=0 cache_read=0 cache_write=0
Relay-Cost: 50.000000 USD
"""
"""The message of the commit that trials begin at: what the plan has cost until then is no trial's."""
CHECK = (
    "import unittest, greet\nclass T(unittest.TestCase):\n"
    "    def test_world(self): self.assertIn('world', greet.greet())\n"
    "    def test_name(self): self.assertEqual(greet.greet('x'), 'hello, x')\nunittest.main()\n"
)
FAULT = {
    "file": "greet.py", "line": 1, "summary": "no name", "failure_scenario": "greet(None)",
    "category": "correctness", "severity": "important",
}  # fmt: skip
BILLED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def act(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def write_script(**of_session):
    """Return sessions for every conversation: phase 1 (and in one conversation 2), phase 2, the reviewers."""
    text = "def greet():\n    return '{}'\n"
    world = [
        act("write", path="greet.py", content=text.format("hello, world")),
        act("tick", item="2.1", evidence="grep finds world"),
        {"text": "Commit: Greet the world"},
    ]
    # What a session can see of the experiment: nothing.
    spy = {"command": "git for-each-ref; git log --all --format=%s; ls -a .. ../..; env; cat ../../../hidden/*"}
    hello = [
        act("bash", **spy),
        {
            "expect": {"last_result_lacks": ["compare", "Commit: Greet", "RELAY_HIDDEN", "test_world"]},
            **act("write", path="greet.py", content=text.format("hello")),
        },
        act("tick", item="1.1", evidence="grep finds hello"),
        {"text": "Commit: Return a greeting"},
    ]
    sessions = [
        {"when": {"first_message_contains": "Carry out phase 1"}, "turns": [*hello, *world], **of_session},
        {"when": {"first_message_contains": "Carry out phase 2"}, "turns": world, **of_session},
        {"when": {"tools_include": ["report_findings"]}, "turns": [act("report_findings", findings=[FAULT])]},
        {
            "when": {"tools_include": ["judge_findings"]},
            "turns": [act("judge_findings", verdicts=[{"number": 1, "confirmed": True, "reason": "seen"}])],
        },
    ]
    return json.dumps({"sessions": [{"repeat": True, **session} for session in sessions]})


class Lab:
    def __init__(self, stage, server, tmp_path):
        self.stage, self.server = stage, server
        stage.write("PLAN.md", PLAN)
        self.base = stage.commit(SPENT_BEFORE)
        self.hidden = tmp_path / "hidden"
        self.hidden.mkdir()
        (self.hidden / "check.py").write_text(CHECK)
        self.environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}

    def compare(self, *words, **environ):
        return self.stage.relay("lab", "compare", *words, environ={**self.environ, **environ})

    def read(self, *words):
        done = self.compare(*words, "--yes", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    @property
    def billed(self):
        return [sum(dict(request.usage or {}).get(kind, 0) for request in self.server.requests) for kind in BILLED]


@pytest.fixture
def lab(stage, tmp_path):
    with serve(parse_script(write_script())) as server:
        yield Lab(stage, server, tmp_path)
    assert not server.errors


def add_up(trials):
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    return [sum(trial[name] for trial in trials) for name in names]


@pytest.mark.nightly
def test_a_whole_experiment_is_measured_and_touches_nothing_of_the_users(lab):
    """Each run begins at the commit and knows of no other; all tokens are those that the server has billed."""
    lab.stage.write("draft.txt", "mine\n")
    lab.stage.git("add", "draft.txt")
    before = [lab.stage.git(*words) for words in (("status", "--porcelain=v2", "--branch"), ("ls-files", "-s"))]
    hidden = ("--hidden", "PYTHONPATH=. python3 $RELAY_HIDDEN/check.py", "--hidden-dir", str(lab.hidden))
    found = lab.read("--arms", "reset,none", "--repeats", "1", "--max-cost", "4", *hidden)
    trials = found["trials"]
    assert {trial["arm"] for trial in trials} == {"reset", "none"}
    for trial in trials:
        assert (trial["exit_code"], trial["phases_done"], trial["phases"]) == (0, 2, 2)
        assert (trial["hidden_passed"], trial["hidden_total"]) == (1, 2)
        assert (trial["findings"], trial["disputed"], trial["red_gates"], trial["cuts"]) == (1, 0, 0, 0)
        assert trial["rehearsed"]
        assert lab.stage.git("show", f"{trial['ref']}:greet.py").endswith("'hello, world'\n")
    assert sum(add_up(trials)) + sum(trial["review_tokens"] for trial in trials) == sum(lab.billed)
    assert sum(trial["cost_usd"] + trial["review_usd"] for trial in trials) < 4
    assert [lab.stage.git(*words) for words in (("status", "--porcelain=v2", "--branch"), ("ls-files", "-s"))] == before
    assert lab.stage.git("for-each-ref", "--format=%(refname)", "refs/heads").split() == ["refs/heads/main"]

    told = [request.body for request in lab.server.requests if "report_findings" in str(request.body)]
    patches = [json.dumps(body["messages"][0]) for body in told]
    assert len(patches) == 4
    assert all("PLAN.md b/PLAN.md" not in text and "Relay-" not in text for text in patches)
    sent, place = len(lab.server.requests), lab.stage.root / ".relay/compare" / found["id"]
    again = lab.compare("--show", found["id"])
    assert (again.returncode, len(lab.server.requests)) == (0, sent)
    assert "A script played the model" in again.stdout
    assert "an interval needs 3" in again.stdout
    assert json.loads((place / "result.json").read_text())["trials"] == trials
    with (place / "result.csv").open() as table:
        assert [row["arm"] for row in csv.DictReader(table)] == [trial["arm"] for trial in trials]
    page = (place / "index.html").read_text()
    assert "Nothing about quality, cost or time follows" in page
    for trial in trials:
        assert trial["ref"] in page
        assert all(f'<a href="{log}">' in page and (place / log).stat().st_size for log in trial["logs"])


def _has_come(requests, number):
    return len(requests) >= number


@pytest.mark.nightly
def test_an_experiment_that_is_killed_three_times_goes_on_where_it_was(lab):
    """No trial is done twice, and what was cut off is billed once."""
    words = ("--arms", "reset,none", "--repeats", "2", "--max-cost", "8", "--no-review")
    for mark in (2, 7, 15):
        one = subprocess.Popen(
            [*lab.stage.find_program(), "lab", "compare", *words, "--yes", "--json"],
            cwd=lab.stage.root, env=lab.environ, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(partial(_has_come, lab.server.requests, mark), by=one)
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
    found = lab.read(*words)
    assert [trial["phases_done"] for trial in found["trials"]] == [2] * 4
    assert add_up(found["trials"]) == lab.billed
    assert sum(trial["cuts"] for trial in found["trials"]) >= 1
    assert len({trial["ref"] for trial in found["trials"]}) == 4


@pytest.mark.nightly
def test_no_trial_spends_more_than_its_share_and_another_cap_is_refused(lab):
    words = ("--arms", "reset,none", "--repeats", "1", "--no-review")
    found = lab.read(*words, "--max-cost", "0.22")
    assert 0 < sum(trial["cost_usd"] for trial in found["trials"]) <= 0.22
    assert {trial["exit_code"] for trial in found["trials"]} == {ExitCode.STOPPED}
    done = lab.compare(*words, "--yes", "--max-cost", "9")
    assert (done.returncode, "began with --max-cost 0.22" in done.stderr) == (ExitCode.USER, True)


REFUSED = (
    (("--arms", "reset,turbo"), "'turbo' is no part of an arm"),
    (("--arms", "reset,model=no such"), "model"),
    (("--hidden-dir", "."), "--hidden-dir is for --hidden"),
    (("--hidden", "true", "--hidden-dir", "."), "is in the repository"),
    (("--hidden", "test -e PLAN.md", "--max-cost", "3"), "pass before any work is done"),
    (("--hidden", "no-such-program", "--max-cost", "3"), "missing"),
    (("--max-cost", "nan"), "an amount must be a number"),
    (("--show", "../../heads/main"), "there is no experiment"),
)


def test_nothing_is_sent_before_somebody_agrees_nor_for_what_cannot_be_compared(lab):
    done = lab.compare("--arms", "reset,none", "--max-cost", "4")
    assert (done.returncode, "--yes" in done.stderr) == (ExitCode.USER, True)
    assert "roughly $" in done.stdout
    assert "never more than $4.00" in done.stdout
    assert "compare" not in lab.stage.git("for-each-ref")
    for words, said in take_each(2, REFUSED):
        done = lab.compare(*words, "--yes")
        assert (done.returncode in {ExitCode.USER, ExitCode.USAGE}, said in done.stderr) == (True, True), words
    lab.stage.edit("Greet the world", "Greet everybody")
    done = lab.compare("--yes")
    assert (done.returncode, "is not as HEAD has it" in done.stderr) == (ExitCode.USER, True)
    assert not lab.server.requests


@pytest.mark.nightly
def test_ctrl_c_hands_over_and_a_trial_whose_clone_is_gone_counts_with_its_whole_share(lab):
    """Nobody knows any more what it has spent, and it must not be paid for again."""
    words = ("--arms", "reset,none", "--repeats", "1", "--max-cost", "4", "--no-review", "--yes")
    one = subprocess.Popen(
        [*lab.stage.find_program(), "lab", "compare", *words],
        cwd=lab.stage.root, env=lab.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: len(lab.server.requests) >= 2, by=one)
    one.send_signal(signal.SIGINT)
    shown, said = one.communicate()
    assert (one.returncode, shown.count("turn 1:")) == (ExitCode.INTERRUPTED, 1)
    assert "interrupted in trial 1" in said
    shutil.rmtree(lab.stage.root.with_name(f"{lab.stage.root.name}.relay"))
    done = lab.compare(*said.partition("next: relay lab compare ")[2].split(), "--yes")
    assert done.returncode == 0
    assert "its clone was removed" in done.stdout
    assert "$2.00 of it for runs that were lost" in done.stdout
