"""How much a queue and a remote cost many workers of one plan, beside the work itself.

    python benchmarks/fleet.py --workers 100 --phases 1000 --latency-ms 200 --phase-s 180

A real PostgreSQL (the embedded one), a real bare repository with a slow line to it, a clone for each worker. Each of
them does for a phase what `relay fleet worker` asks of both, by the same functions: it reads the takes, fetches, takes
the phase with its money, pushes its fence, pushes its work once a minute, lands by compare-and-swap on the plan's
branch, however often others are faster, and ends the take. The work is a sleep. On a busy machine the wall time is
weather; the exchanges for each phase are not, and each costs one latency.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psycopg
from processes import git

from relay.fleet import exchange
from relay.fleet.database import run_database
from relay.fleet.heart import Heart
from relay.fleet.queue import Queue
from relay.fleet.takes import Bid, Placed, Take, TakeState, Ticket
from relay.git import objects, refs
from relay.git.message import Message
from relay.git.remote import Pushed, PushEnd, RefUpdate, Remote
from relay.git.repository import open_repo
from relay.git.trees import find_tree

COUNTS = Counter[str]()
LOCK = threading.Lock()
_PUSH_S = 60.0


def count(what: str) -> None:
    """Count an exchange."""
    with LOCK:
        COUNTS[what] += 1


class SlowRemote(Remote):
    """A remote whose every answer takes a while; counts what it is asked."""

    latency_s = 0.0

    def _wait(self, what: str) -> None:
        count(what)
        time.sleep(self.latency_s)

    def list_refs(self, *patterns: str) -> dict[str, str]:
        """As a remote, later."""
        self._wait("listed")
        return dict(super().list_refs(*patterns))

    def fetch(self, *refspecs: str) -> None:
        """As a remote, later."""
        self._wait("fetched")
        super().fetch(*refspecs)

    def push(self, *updates: RefUpdate) -> Pushed:
        """As a remote, later."""
        self._wait("pushed")
        pushed = super().push(*updates)
        count(f"pushes {pushed.end}")
        return pushed


def work(queue: Queue, remote: Remote, placed: Placed, name: str, phase_s: float) -> None:
    """Do one phase."""
    plan, branch = placed.ticket.plan, f"relay-jobs/main/{placed.ticket.phase_id}"
    while True:
        standing = queue.read(plan)
        remote.fetch("+refs/heads/main:refs/relay/tip/main")
        exchange.read_there(remote, "relay-jobs/main/")
        bid = Bid(cap_usd=1e6, phase_cap_usd=None, spent_usd=0.0, seen_usd=0.0, shares=1_001, ended=standing.ended)
        take = queue.take(placed, name, bid)
        count("bids")
        if isinstance(take, Take):
            break
    repo, there = remote.repo, dict[str, str]()
    refs.move_ref(repo, f"refs/heads/{branch}", find_tip(remote), None)
    ends_s, left_s = time.monotonic() + phase_s, phase_s
    while left_s > 0:
        there = push(remote, branch, take, there)
        time.sleep(min(left_s, _PUSH_S))
        left_s = ends_s - time.monotonic()
    land(queue, remote, take, there)
    queue.end(take, TakeState.DONE)
    queue.finish(placed)
    remote.fetch("+refs/heads/main:refs/relay/tip/main")  # to queue what waited
    queue.read(plan)
    queue.list_placed()


def find_tip(remote: Remote) -> str:
    """Return the plan's branch as last fetched."""
    return refs.find_ref(remote.repo, "refs/relay/tip/main") or ""


def push(remote: Remote, branch: str, take: Take, there: dict[str, str]) -> dict[str, str]:
    """Push the phase's refs with the fence."""
    exchange.move_fence(remote.repo, branch, take)
    here = dict(exchange.read_here(remote.repo, branch))
    assert remote.push(*exchange.find_updates(here, there)).end is PushEnd.DONE  # nobody else has it
    return here


def land(queue: Queue, remote: Remote, take: Take, there: dict[str, str]) -> None:
    """Land a commit, however often others are faster."""
    repo = remote.repo
    while True:
        remote.fetch("+refs/heads/main:refs/relay/tip/main")
        tip = find_tip(remote)
        commit = objects.write_commit(repo, find_tree(repo, tip), (tip,), Message(subject=f"phase {take.phase_id}"))
        assert queue.holds(take)  # nobody else has it
        gone = (RefUpdate(ref=ref, old=old, new=None) for ref, old in there.items())
        if remote.push(RefUpdate(ref="refs/heads/main", old=tip, new=commit), *gone).end is PushEnd.DONE:
            return


def serve(queue: Queue, remote: Remote, name: str, phase_s: float) -> None:
    """Work on phases until none is left."""
    with Heart(queue, print) as heart:
        while placed := queue.fetch(heart.worker_id or 0):
            work(queue, remote, placed, name, phase_s)


def make_remote(top: Path, name: str) -> Remote:
    """Return the remote of a worker with a repository of its own."""
    git(top, "init", "-q", name)
    for key, value in (("user.name", "Benchmark"), ("user.email", "benchmark@example.invalid")):
        git(top / name, "config", key, value)
    return SlowRemote(repo=open_repo(top / name), name=str(top / "away.git"), environ=os.environ)


def main() -> int:
    """Print what was measured; exit status 1 when a phase was not done once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--phases", type=int, default=1_000)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--phase-s", type=float, default=180.0, help="how long the work on one takes")
    asked = parser.parse_args()
    SlowRemote.latency_s = asked.latency_ms / 1e3
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        top.chmod(0o755)  # as root the database is another user's
        git(top, "init", "-q", "-b", "main", "first")
        who = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
        git(top / "first", *who, "commit", "-q", "--allow-empty", "-m", "x")
        git(top, "clone", "-q", "--bare", "first", "away.git")
        with run_database(top / "database") as url, psycopg.connect(url, autocommit=True) as there:
            there.execute("alter system set max_connections = 400")
        with run_database(top / "database") as url:
            queue = Queue(url)
            own = Ticket(remote=str(top / "away.git"), branch="main", plan_path="PLAN.md", phase_id="")
            queue.submit([replace(own, phase_id=str(n)) for n in range(asked.phases)])
            remotes = [make_remote(top, f"w{n}") for n in range(asked.workers)]
            begun = time.monotonic()
            with ThreadPoolExecutor(asked.workers) as pool:
                for one in [pool.submit(serve, queue, r, f"w{n}", asked.phase_s) for n, r in enumerate(remotes)]:
                    one.result()
            wall, takes = time.monotonic() - begun, queue.read(own.plan).takes
        landed = int(git(top / "away.git", "rev-list", "--count", "main")) - 1
    ideal = asked.phases * asked.phase_s / asked.workers
    print(f"{asked.phases} phases of {asked.phase_s:g} s, {asked.workers} workers, {asked.latency_ms:g} ms")
    print(f"wall {wall:.1f} s, of {ideal:.1f} s that the work itself takes: {wall / ideal:.3f} ×")
    print(*(f"{what} {number / asked.phases:.2f} a phase" for what, number in sorted(COUNTS.items())), sep="; ")
    print(f"landed {landed}, taken {len(takes)}")
    return int(landed != asked.phases or len(takes) != asked.phases)


if __name__ == "__main__":
    sys.exit(main())
