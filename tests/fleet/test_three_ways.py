"""Three phases in two waves, done three ways: one by one, two at once, and by a fleet of which one worker dies.

What is left is the same to the byte, and what it cost is what the server has billed. The sessions record no claims:
these name their session and the time, and are told to who comes later. What a session is told differs by the name of
its branch and by which other phases are done so far, so prompts differ by a few tokens; answers do not.
"""

import json
import os
import re
import signal
import subprocess

import pytest

from relay.fleet.takes import TakeState
from tests.copied import FSCK
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import Field
from tests.waiting import wait_until

AFTER = {1: "none", 2: "none", 3: "1, 2"}
PLAN = "# Three parts\n\n" + "\n".join(
    f"## Phase {n} — Part {n}\nAfter: {after}\nVerify: `test -s {n}.txt`\n- [ ] Write part {n} — {n}.txt\n"
    for n, after in AFTER.items()
)
BILLED = {
    "input_tokens": "input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_5m_tokens": "cache_creation_input_tokens",
    "output_tokens": "output_tokens",
}


def act(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def make_session(n, *turns, name=""):
    when = {"first_message_contains": f"Write part {n} — "}
    return {"name": name or f"phase {n}", "when": when, "turns": turns}


def write(n):
    return act("write", path=f"{n}.txt", content=f"part {n}\n")


def finish(n):
    return act("tick", item=f"{n}.1", evidence="it has a line"), {"text": f"Commit: Write part {n}"}


SESSIONS = [make_session(n, write(n), *finish(n)) for n in AFTER]
DIES = [
    make_session(1, write(1), act("bash", command="sleep 100"), name="dies"),
    make_session(1, act("read", path="1.txt"), *finish(1), name="goes on"),
    *SESSIONS[1:],
]


def sum_bills(requests):
    """What a server has billed, as relay names the kinds."""
    return {name: sum(dict(request.usage or {}).get(kind, 0) for request in requests) for name, kind in BILLED.items()}


def pick(usage):
    return {name: usage[name] for name in BILLED}


def list_prompts(server):
    """What each session was told at its start, without what depends on the others: session → text."""
    first = {request.session: request.body for request in server.requests if request.step == 1}
    texts = {name: json.dumps([body[key] for key in ("system", "tools", "messages")]) for name, body in first.items()}
    return {name: re.sub(r"Branch [^;]+;| \(done\)", "", text) for name, text in texts.items()}


def list_answers(server):
    """What came of each session: session → output tokens, answer by answer."""
    return {
        name: [request.usage["output_tokens"] for request in server.requests if request.session == name]
        for name in list_prompts(server)
    }


class Hall:
    """A repository with the plan, and what is cloned from it."""

    def __init__(self, top, stage):
        self.top, self.stage = top, stage
        stage.write("PLAN.md", PLAN)
        stage.commit("plan")

    def clone(self, name, origin="", *words):
        self.git(self.top, "clone", "-q", *words, str(origin or self.stage.root), name)
        return self.top / name

    def git(self, root, *args):
        return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout

    def start(self, root, server, *words):
        environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        return subprocess.Popen(
            [*self.stage.find_program(), *words],
            cwd=root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def tell(self, root, *words):
        asked = [*self.stage.find_program(), *words]
        return subprocess.run(asked, cwd=root, check=True, capture_output=True, text=True).stdout

    def ask(self, root, *words):
        return json.loads(self.tell(root, *words, "--json"))

    def report(self, root):
        return pick(self.ask(root, "report", "PLAN.md")["totals"])

    def measure(self, root, server):
        """Return the files of the last commit, ticks included; what it cost is what was billed."""
        standing = self.ask(root, "status")
        assert standing["done"]
        assert not standing["spent"]["estimated"]
        assert pick(standing["spent"]) == sum_bills(server.requests)
        assert self.git(root, "status", "--porcelain") == ""
        assert (root / "PLAN.md").read_text() == PLAN.replace("- [ ]", "- [x]")
        return self.git(root, "ls-tree", "-r", "HEAD"), standing["spent"]["usd"]


@pytest.fixture
def hall(stage, tmp_path):
    return Hall(tmp_path, stage)


def run(hall, root, *words):
    with serve(parse_script(json.dumps({"sessions": SESSIONS}))) as server:
        child = hall.start(root, server, "run", *words)
        out = child.communicate()[0]
        assert (child.returncode, server.errors, server.unplayed) == (0, [], ()), out
    tree, usd = hall.measure(root, server)
    assert hall.report(root) == sum_bills(server.requests)
    return tree, usd, server, out


def check_beside(hall, root, out):
    """Two were side by side, then the third; one landed as it was, one was merged with it; nothing is left beside."""
    merged = hall.git(root, "log", "--merges", "--format=%(trailers:key=Relay-Merge,valueonly,unfold)", "HEAD").strip()
    assert len(merged.splitlines()) == 1
    assert "[1] " in out
    assert "[2] " in out
    assert "phase 3 landed: " in out
    assert hall.ask(root, "status")["jobs"] == []
    watched = [json.loads(line) for line in hall.tell(root, "watch", "--json").splitlines()]
    assert {line["phase_id"] for line in watched if line["event"] == "SessionEnded"} == {"1", "2", "3"}
    assert watched[-1]["event"] == "RunEnded"
    reported = hall.tell(root, "report", "--text")
    assert "Branch     main" in reported
    assert "3 phases done" in reported, reported
    assert hall.git(root, "worktree", "list").count("\n") == 1
    assert hall.git(root, "branch", "--list", "relay-jobs/*") == hall.git(root, "for-each-ref", "refs/relay/leg") == ""
    hall.git(root, *FSCK)


def work_and_die(field):
    """Two workers; the machine of the first one dies in the middle of a phase."""
    with serve(parse_script(json.dumps({"sessions": DIES}))) as server:
        field.queue.submit([field.ticket("1")])
        ann = field.start("ann", server, push_s=0.2)
        wait_until(lambda: len([one for one in server.requests if one.session == "dies"]) == 2, by=ann)
        paid = [one for one in server.requests if one.session == "dies"]
        wait_until(lambda: f"output={sum_bills(paid)['output_tokens']}" in field.read_fences(), by=ann)
        for pid in (ann.pid, *field.list_children(ann)):
            os.kill(pid, signal.SIGKILL)
        ann.wait()
        with field.working("bob", server):
            wait_until(lambda: field.is_done("1", "2", "3"))
        assert (server.errors, server.unplayed) == ([], ())
    assert [one.state for one in field.standing.takes if one.phase_id == "1"] == [TakeState.DIED, TakeState.DONE]
    return server


def test_one_after_another_and_side_by_side_leave_the_same(hall):
    tree, usd, server, _ = run(hall, hall.clone("serial"))
    beside_tree, beside_usd, beside, out = run(hall, hall.clone("beside"), "--jobs", "2")
    check_beside(hall, hall.top / "beside", out)
    assert beside_tree == tree
    assert list_prompts(beside) == list_prompts(server)
    assert list_answers(beside) == list_answers(server)
    assert beside_usd == pytest.approx(usd, rel=0.02)


@pytest.mark.nightly
def test_one_after_another_and_several_machines_leave_the_same(hall, stage, tmp_path, url):
    tree, _, server, _ = run(hall, hall.clone("serial"))
    field = Field(tmp_path, stage, url, plan=PLAN)
    fleet = work_and_die(field)
    hall.git(tmp_path, "clone", "-q", str(field.away), "after")
    hall.git(tmp_path / "after", "fetch", "-q", "origin", "refs/relay/*:refs/relay/*")
    fleet_tree, _ = hall.measure(hall.top / "after", fleet)
    assert fleet_tree == tree
    prompts, answers = list_prompts(fleet), list_answers(fleet)
    assert prompts.pop("dies") == list_prompts(server)["phase 1"]
    assert prompts.pop("goes on")
    assert prompts.items() <= list_prompts(server).items()
    assert [len(answers.pop(name)) for name in ("dies", "goes on")] == [2, 3]
    assert answers.items() <= list_answers(server).items()
