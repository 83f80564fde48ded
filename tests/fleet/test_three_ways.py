"""Two phases, done three ways: one by one, both at once, and by a fleet of which one worker dies.

What is left is the same to the byte, and what it cost is what the server has billed. The sessions record no claims:
these name their session and the time, and are told to who comes later. What a session is told differs by the name of
its branch and by which other phases are done so far, so prompts differ by a few tokens; answers do not.
"""

import json
import re
import signal
import subprocess

import pytest

from relay.fleet.takes import TakeState
from tests.copied import FSCK
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import Field
from tests.phases.bench import Bench, make_plan, write_session
from tests.waiting import wait_until

PLAN = make_plan(*(f"test -s {n}.txt" for n in (1, 2)))
SESSIONS = [write_session(n, f"echo {n} > {n}.txt") for n in (1, 2)]
DIES = write_session(1, "echo 1 > 1.txt", "sleep 100", name="dies")
DIES["turns"] = DIES["turns"][:2]
BILLED = {
    "input_tokens": "input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_5m_tokens": "cache_creation_input_tokens",
    "output_tokens": "output_tokens",
}


def sum_bills(requests):
    """What a server has billed, as relay names the kinds."""
    return {name: sum(dict(request.usage or {}).get(kind, 0) for request in requests) for name, kind in BILLED.items()}


def list_prompts(server):
    """What each session was told at its start, without what depends on the others: session → text."""
    first = {request.session: request.body for request in server.requests if request.step == 1}
    texts = {name: json.dumps([body[key] for key in ("system", "tools", "messages")]) for name, body in first.items()}
    return {name: re.sub(r"Branch [^;]+;| \(done\)", "", text) for name, text in texts.items()}


def list_answers(server):
    """What came of each session: session → output tokens, answer by answer."""
    asked = [request for request in server.requests if request.usage]
    names = dict.fromkeys(one.session for one in asked)
    return {name: [one.usage["output_tokens"] for one in asked if one.session == name] for name in names}


def tell(stage, root, *words):
    asked = [*stage.find_program(), *words]
    return subprocess.run(asked, cwd=root, check=True, capture_output=True, text=True).stdout


def measure(bench, server):
    """Return the files of the last commit, ticks included; what it cost is what was billed."""
    standing = json.loads(tell(bench.stage, bench.root, "status", "--json"))
    assert standing["done"]
    assert not standing["spent"]["estimated"]
    assert {name: standing["spent"][name] for name in BILLED} == sum_bills(server.requests)
    assert bench.git("status", "--porcelain") == ""
    assert (bench.root / "PLAN.md").read_text() == PLAN.replace("- [ ]", "- [x]")
    return bench.git("ls-tree", "-r", "HEAD"), standing["spent"]["usd"]


def run(bench, name, *words):
    """Work through the plan in a clone."""
    bench.git("clone", "-q", str(bench.stage.root), str(bench.stage.root.with_name(name)), root=bench.stage.root)
    bench.root = bench.stage.root.with_name(name)
    with serve(parse_script(json.dumps({"sessions": SESSIONS}))) as server:
        child = bench.start(server, "run", *words)
        out = child.communicate()[0]
        assert (child.returncode, server.errors, server.unplayed) == (0, [], ()), out
    return *measure(bench, server), server, out


def test_one_after_another_and_side_by_side_leave_the_same(stage):
    """One landed as it was, one was merged with it; nothing is left beside."""
    bench = Bench(stage, PLAN)
    tree, usd, server, _ = run(bench, "serial")
    beside_tree, beside_usd, beside, out = run(bench, "beside", "--jobs", "2")
    merged = bench.git("log", "--merges", "--format=%(trailers:key=Relay-Merge,valueonly,unfold)", "HEAD").strip()
    assert len(merged.splitlines()) == 1
    assert all(words in out for words in ("[1] ", "[2] ", "phase 1 landed: ")), out
    assert json.loads(tell(stage, bench.root, "status", "--json"))["jobs"] == []
    watched = [json.loads(line) for line in tell(stage, bench.root, "watch", "--json").splitlines()]
    assert {line["phase_id"] for line in watched if line["event"] == "SessionEnded"} == {"1", "2"}
    assert watched[-1]["event"] == "RunEnded"
    totals = json.loads(tell(stage, bench.root, "report", "PLAN.md", "--json"))["totals"]
    assert {name: totals[name] for name in BILLED} == sum_bills(beside.requests)
    reported = tell(stage, bench.root, "report", "--text")
    assert all(words in reported for words in ("Branch     main", "2 phases done")), reported
    assert bench.git("worktree", "list").count("\n") == 1
    assert bench.git("branch", "--list", "relay-jobs/*") == bench.git("for-each-ref", "refs/relay/leg") == ""
    bench.git(*FSCK)
    assert beside_tree == tree
    assert list_prompts(beside) == list_prompts(server)
    assert list_answers(beside) == list_answers(server)
    assert beside_usd == pytest.approx(usd, rel=0.02)


@pytest.mark.nightly
def test_one_after_another_and_several_machines_leave_the_same(stage, tmp_path, url):
    """Two workers; the machine of the first one dies in the middle of a phase."""
    bench = Bench(stage, PLAN)
    tree, _, serial, _ = run(bench, "serial")
    field, goes_on = Field(tmp_path, stage, url, plan=PLAN), write_session(1, "cat 1.txt", name="goes on")
    with serve(parse_script(json.dumps({"sessions": [DIES, goes_on, *SESSIONS[1:]]}))) as server:
        field.queue.submit([field.ticket("1")])
        ann = field.start("ann", server, push_s=0.2)
        wait_until(lambda: len([one for one in server.requests if one.session == "dies"]) == 2, by=ann)
        paid = sum_bills([one for one in server.requests if one.session == "dies"])
        wait_until(lambda: f"output={paid['output_tokens']}" in field.read_fences(), by=ann)
        field.signal_all(ann, signal.SIGKILL)
        with field.working("bob", server):
            wait_until(lambda: field.is_done("1", "2"))
        assert (server.errors, server.unplayed) == ([], ())
    assert field.list_states() == [TakeState.DIED, TakeState.DONE]
    bench.root = field.clone("after")
    bench.git("fetch", "-q", "origin", "refs/relay/*:refs/relay/*")
    assert measure(bench, server)[0] == tree
    prompts, answers = list_prompts(server), list_answers(server)
    assert prompts.pop("dies") == list_prompts(serial)["one"]
    assert prompts.pop("goes on")
    assert prompts.items() <= list_prompts(serial).items()
    assert [len(answers.pop(name)) for name in ("dies", "goes on")] == [2, 3]
    assert answers.items() <= list_answers(serial).items()
