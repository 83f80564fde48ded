"""A plan of three phases on a bare repository, and workers of a queue, each with clones of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from relay.base.interrupts import Interrupts, Urgency
from relay.fleet.heart import Heart
from relay.fleet.queue import Queue
from relay.fleet.takes import Ticket
from relay.fleet.worker import Worker
from relay.plan.parse import parse_plan
from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd
from rigs.crash.rig import PRICE
from tests.fleet.plan_of_three import PLAN, write_session
from tests.waiting import wait_until

ROUND_USD = 0.00001
"""What a few amounts of six decimals may differ in."""
WAITS = "for _ in $(seq 400); do test -e go && break; sleep 0.1; done; rm -f go"
HANGS = (
    "sessions:\n- {when: {first_message_contains: 'Write one.txt'}, turns: ["
    "{tools: [{name: write, input: {path: one.txt, content: one}}]}, "
    f"{{tools: [{{name: bash, input: {{command: '{WAITS}'}}}}]}}, "
    "{tools: [{name: tick, input: {item: '1.1', evidence: seen}}]}, {text: 'x'}]}\n"
    + write_session("one", 1, first="{text: 'I look.', tools: [{name: read, input: {path: one.txt}}]}")
)
"""The first session writes its file and waits for a file `go` then; another one would finish what it left."""
RED = "sessions:\n" + write_session("one", 1, first="{tools: [{name: bash, input: {command: 'true'}}]}")


PUSHES = """
import os, sys
from pathlib import Path
from relay.base.interrupts import Interrupts
from relay.fleet.queue import Queue
from relay.fleet.worker import Worker
interrupts = Interrupts()
with interrupts.installed():
    Worker(
        queue=Queue(sys.argv[1]), place=Path(sys.argv[2]), environ={**os.environ, "PYTHONPATH": sys.argv[4]},
        observe=print, interrupts=interrupts, push_s=float(sys.argv[3]),
    ).serve()
"""


class Told(list[str]):
    """What a worker has told, in words."""

    def __init__(self):
        super().__init__()
        self.events = []

    def __call__(self, event):
        self.events.append(event)
        if text := getattr(event, "text", ""):
            self.append(text)

    def has(self, words):
        return any(words in text for text in self)


class Field:
    def __init__(self, top, stage, url, plan=PLAN):
        self.top, self.away, self.stage, self.url = top, top / "away.git", stage, url
        self.queue = Queue(url, stalled_s=2.6, beat_s=0.4)
        if (stage.root / "PLAN.md").read_text() != plan:
            stage.write("PLAN.md", plan)
            stage.commit("plan")
        stage.git("clone", "-q", "--bare", str(stage.root), str(self.away))

    def clone(self, name):
        self.stage.git("clone", "-q", str(self.away), str(self.top / name))
        return self.top / name

    @property
    def jobs(self):
        """Where Python finds a relay for the runs of a worker that starts warm."""
        return str(Path(self.stage.find_program()[-1]).parent)

    def environ(self, server):
        key = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        return {**os.environ, **key, "PYTHONPATH": self.jobs}

    def git(self, *args):
        return subprocess.run(["git", *args], cwd=self.away, check=True, capture_output=True, text=True).stdout

    def refs(self):
        return self.git("for-each-ref", "--format=%(refname)").split()

    def push_main(self, files, message="by hand"):
        """Commit and push to the plan's branch, as a person does."""
        self.stage.git("pull", "-q", "--rebase", str(self.away), "main")
        for path, text in files.items():
            self.stage.write(path, text)
        self.stage.commit(message)
        self.stage.git("push", "-q", str(self.away), "main")

    def ticket(self, phase_id=""):
        return Ticket(remote=str(self.away), branch="main", plan_path="PLAN.md", phase_id=phase_id)

    @property
    def standing(self):
        return self.queue.read(self.ticket().plan)

    def worker(self, name, server, *, queue=None, push_s=60.0):
        return Worker(
            queue=queue or self.queue,
            place=self.top / name,
            environ=self.environ(server),
            observe=Told(),
            interrupts=Interrupts(),
            push_s=push_s,
            look_s=0.3,
            compare_s=0.5,
        )

    def go(self, name, server, phase_id="1", **given):
        """Have a worker do one phase, and nothing else; return what it told."""
        worker = given.pop("worker", None) or self.worker(name, server, **given)
        self.forget_queued()
        self.queue.settle_phase(self.ticket().plan, phase_id)
        self.queue.submit((self.ticket(phase_id),))
        try:
            with Heart(worker.queue, worker.say) as heart:
                placed = self.queue.fetch(heart.worker_id or 0)
                assert placed is not None
                assert placed.ticket.phase_id == phase_id
                worker._do(heart, placed)
        finally:
            worker.interrupts.close()
        return worker.observe

    def forget_queued(self):
        self.queue.list_plans()  # makes the tables
        with psycopg.connect(self.url, autocommit=True) as there:
            there.execute("delete from procrastinate_jobs where status <> 'doing'")

    @contextlib.contextmanager
    def working(self, name, server, *, wait=True, **given):
        """Have a worker serve beside the test; it hands over at the end."""
        worker = self.worker(name, server, **given)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(worker.serve, wait=wait)
            try:
                yield worker.observe, done
            finally:
                worker.interrupts.request(Urgency.NOW)
                done.exception()
                worker.interrupts.close()
                print(name, *worker.observe, sep="\n  ")  # noqa: T201  # for who reads a failure
        done.result()

    @contextlib.contextmanager
    def hanging(self, server, **given):
        """Have the worker ann be at the first phase, whose session waits for `let_go`."""
        self.queue.submit([self.ticket("1")])
        with self.working("ann", server, **given) as (told, _):
            wait_until(lambda: count_answers(server) > 1)
            yield told

    def let_go(self):
        (self.find_tree("ann") / "go").touch()

    def start_hanging(self, server, **given):
        """Start ann as a process, which waits at the first phase."""
        self.queue.submit([self.ticket("1")])
        ann = self.start("ann", server, **given)
        wait_until(lambda: count_answers(server) > 1, by=ann)
        return ann

    def signal_all(self, worker, number):
        """Send a signal to a worker and to the run that it began, in that order; wait for one that is killed."""
        for pid in (worker.pid, *self.list_children(worker)):
            os.kill(pid, number)
        if number == signal.SIGKILL:
            worker.wait()

    def list_states(self, phase_id="1"):
        return [take.state for take in self.standing.takes if take.phase_id == phase_id]

    def start_typed(self, name, server):
        """Start a worker as it is typed."""
        words = [*self.stage.find_program(), "fleet", "worker", "--database", self.url, "--place", str(self.top / name)]
        with (self.top / f"{name}.out").open("w") as out:
            return subprocess.Popen(words, cwd=self.top, env=self.environ(server), stdout=out, stderr=out)

    def start(self, name, server, *, push_s=60.0, warm=True):
        """Start a worker as a process of its own, which pushes what it has that often; its runs are processes, too.

        Where they are `warm`, a signal that only stops one for a while does not reach it.
        """
        argv = [sys.executable, "-c", PUSHES, self.url, str(self.top / name), str(push_s), self.jobs if warm else ""]
        environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        with (self.top / f"{name}.out").open("w") as out:
            return subprocess.Popen(argv, cwd=self.top, env=environ, stdout=out, stderr=out)

    def read_fences(self):
        """Return what the fences on the remote say."""
        return "".join(self.git("log", "-1", "--format=%B", ref) for ref in self.refs() if "/fence/" in ref)

    def list_children(self, worker):
        """Return the processes that a worker has started."""
        return [int(one) for one in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()]

    def is_seen(self, server):
        """Whether the remote knows to the cent what the phase at work has spent: no request is on its way."""
        return read_costs(self.read_fences()) == [pytest.approx(read_billed(server), abs=ROUND_USD)]

    def find_tree(self, name):
        """Return the only work tree of a worker's jobs."""
        (tree,) = (self.top / name).glob("*/work.relay/1")
        return tree

    def wait_until_saved(self):
        """Wait until a phase has a checkpoint on the remote."""
        wait_until(lambda: any(self.away.glob("refs/relay/wip/*/*")) or "refs/relay/wip" in self.packed)

    @property
    def packed(self):
        place = self.away / "packed-refs"
        return place.read_text() if place.exists() else ""

    def is_done(self, *phases):
        plan = parse_plan(self.git("show", "main:PLAN.md"))
        return {*phases} <= {phase.id for phase in plan.phases if phase.done}

    def hook(self, script):
        """Have the remote run a script before it takes a push; empty: none."""
        place = self.away / "hooks/pre-receive"
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        if script:
            place.write_text(f"#!/bin/sh\n{script}")
            place.chmod(0o755)

    def read_told(self):
        """What the plan's branch and the refs of the remote say that was spent, in USD."""
        refs = self.git("for-each-ref", "--format=%(refname)", "refs/relay/spent/").split()
        texts = [self.git("log", "--format=%B", "main"), *(self.git("log", "-1", "--format=%B", ref) for ref in refs)]
        return sum(read_costs("\n".join(texts)))


def read_costs(text):
    """What commits say that was spent, in trailers or in the JSON of a ref."""
    return [float(usd) for usd in re.findall(r'^(?:Relay-Cost: | "cost": ")~?([0-9.]+) USD', text, re.MULTILINE)]


def read_billed(server):
    """What the server has billed, in USD."""
    usages = [parse_api_usage(request.usage) for request in server.requests if request.usage]
    return sum(cost_usd(usage, PRICE) for usage in usages if usage)


def count_answers(server):
    return sum(bool(request.body) for request in server.requests)
