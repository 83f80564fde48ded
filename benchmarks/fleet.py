"""How much a queue and a remote cost many workers of one plan, beside the work itself.

    python benchmarks/fleet.py --measure        # a minute: each part with its figure, then the whole by them
    python benchmarks/fleet.py --workers 100 --phases 1000 --phase-s 180 --latency-ms 200

A hundred workers need a hundred machines, so their time is **computed**: each goes through the steps of
`relay.fleet.phase` in virtual time, and meets the others where it does there, at the tip of the plan's branch. The
steps are those that `tests/fleet/test_worker.py::test_a_phase_asks_the_remote_no_more_than_it_must` counts: a fetch to
take a phase, a push of its fence, the work, a fetch, a check on top of what others landed, a push. Who waits for the
turn to land pushes what it has; who has the turn fetches and merges those, checks once, and lands them with one push
(`relay.fleet.train`). What a step takes is **measured** by `--measure`: round trips of an exchange,
between `relay.git.remote` and a repository behind a line that delays each byte and stands in for ssh, what it takes to
merge a phase that lands along, and the queue's time for a phase on a real PostgreSQL. On a busy machine the times are
weather; the round trips are not.
"""

import argparse
import heapq
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from processes import git

from relay.config import load_settings
from relay.fleet.database import run_database
from relay.fleet.heart import Heart
from relay.fleet.overview import LIVE
from relay.fleet.queue import Queue
from relay.fleet.takes import Bid, Take, TakeState, Ticket
from relay.fleet.train import take_along
from relay.git.remote import RefUpdate, Remote
from relay.git.repository import open_repo
from relay.run.phases.landing import Job

TURN_S = 1.0
"""How often who waits for the turn to land asks for it."""
CHECKS_S = (0.0, 0.5, 1.0, 1.5, 2.0, 5.0)
"""How long the check of a phase on top of others takes: the start of `relay run`, git's merge, the gates."""


@dataclass(kw_only=True)
class Fleet:
    """What workers share, and what a step takes; times in seconds."""

    phases: int
    phase_s: float
    fetch_s: float
    push_s: float
    queue_s: float
    check_s: float
    merge_s: float
    most_riders: int
    tip: int = 0
    is_landing: bool = False
    waiting: dict[int, None] = field(default_factory=dict)
    along: set[int] = field(default_factory=set)
    """Workers whose phase somebody has landed along with another one."""
    landed: int = 0
    waited_s: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def work(self, worker: int) -> Generator[float]:
        """Go through phases as a worker does; yield how long each step takes."""
        while self.phases > 0:
            self.phases -= 1
            yield self.queue_s / 2
            base = yield from self.fetch()
            yield self.push_s  # the fence; what it pushes once a minute it pushes beside the work
            yield self.phase_s
            if self.is_landing:
                yield self.push_s
                self.waiting[worker] = None
            while self.is_landing and worker not in self.along:
                self.waited_s += (wait_s := self.dice.uniform(0.5, 1.5) * TURN_S)
                yield wait_s
            self.waiting.pop(worker, None)
            if worker in self.along:
                self.along.remove(worker)
            else:
                yield from self.land(base)
            yield self.queue_s / 2

    def land(self, base: int) -> Generator[float]:
        """Land a phase that began at a tip, and those that wait."""
        self.is_landing, riders = True, list(self.waiting)[: self.most_riders]
        before, base = base, (yield from self.fetch())
        if base == before:  # nobody has landed: it goes forward as it is
            riders = []
        else:
            yield self.merge_s * len(riders) + self.check_s
        for rider in riders:
            self.waiting.pop(rider)
        yield self.push_s
        self.tip, self.landed, self.is_landing = self.tip + 1, self.landed + 1 + len(riders), False
        self.along.update(riders)

    def fetch(self) -> Generator[float, None, int]:
        """Return the tip as the remote had it when it answered."""
        yield self.fetch_s / 2
        seen = self.tip
        yield self.fetch_s / 2
        return seen

    def run(self, workers: int) -> float:
        """Have workers go through all phases; return the seconds of virtual time that they took."""
        now_s, at = 0.0, [(0.0, n) for n in range(workers)]
        working = [self.work(n) for n in range(workers)]
        while at:
            now_s, n = heapq.heappop(at)
            if (step_s := next(working[n], None)) is not None:
                heapq.heappush(at, (now_s + step_s, n))
        return now_s


def compute(asked: argparse.Namespace) -> int:
    """Print a table: what the whole takes beside the work itself, by how long a check on top of others takes."""
    latency_s = asked.latency_ms / 1e3
    ideal_s = asked.phases * asked.phase_s / asked.workers
    print(f"{asked.phases} phases of {asked.phase_s:g} s, {asked.workers} workers, {asked.latency_ms:g} ms")
    print("| exchange, round trips | check, s | wall, s | beside the work | waited for the turn, s a phase |")
    print("| --- | ---: | ---: | ---: | ---: |")
    wrong = 0
    for words, fetch_trips, push_trips in (("one each", 1, 1), ("as measured", asked.fetch_trips, asked.push_trips)):
        fetch_s, push_s = fetch_trips * latency_s, push_trips * latency_s
        for check_s in CHECKS_S:
            fleet = Fleet(
                phases=asked.phases, phase_s=asked.phase_s, fetch_s=fetch_s, push_s=push_s,
                queue_s=asked.queue_ms / 1e3, check_s=check_s,
                merge_s=asked.merge_ms / 1e3, most_riders=asked.riders,
            )  # fmt: skip
            wall_s = fleet.run(asked.workers)
            waited = fleet.waited_s / asked.phases
            wrong += fleet.landed != asked.phases
            print(f"| {words} | {check_s:g} | {wall_s:.0f} | {wall_s / ideal_s:.3f} × | {waited:.1f} |")
    return int(wrong > 0)


def measure_trips(top: Path, latency_s: float) -> tuple[float, float]:
    """Print and return how many round trips a fetch and a push take."""
    git(top, "init", "-q", "-b", "main", "first")
    for key, value in (("user.name", "Benchmark"), ("user.email", "benchmark@example.invalid")):
        git(top / "first", "config", key, value)
    git(top / "first", "commit", "-q", "--allow-empty", "-m", "start")
    git(top, "clone", "-q", "--bare", "first", "away.git")
    git(top, "clone", "-q", "away.git", "other")
    took: dict[tuple[str, float], float] = {}
    for line_s, number in itertools.product((0.0, latency_s), range(3)):
        line = f"{sys.executable} {Path(__file__).with_name('slow_line.py').resolve()} {line_s}"
        environ = {**os.environ, "GIT_SSH_COMMAND": line}
        remote = Remote(repo=open_repo(top / "first"), name=f"far:{top}/away.git", environ=environ)
        made = [
            git(top / place, "commit-tree", "-p", "HEAD", "-m", f"{line_s} {number}", "HEAD^{tree}")
            for place in ("first", "other")
        ]
        git(top / "other", "push", "-q", "--force", str(top / "away.git"), f"{made[1]}:refs/heads/main")
        pushed = RefUpdate(ref=f"refs/heads/own-{line_s}-{number}", old=None, new=made[0])
        acts: dict[str, Callable[[], object]] = {
            "fetch": lambda: remote.fetch("+refs/heads/main:refs/relay/tip/main"),  # noqa: B023  # called at once
            "push": lambda: remote.push(pushed),  # noqa: B023
        }
        for name, act in acts.items():
            begun_s = time.monotonic()
            act()
            span_s = time.monotonic() - begun_s
            took[name, line_s] = min(span_s, took.get((name, line_s), span_s))
    trips = {name: (took[name, latency_s] - took[name, 0.0]) / latency_s for name in ("fetch", "push")}
    for name, most in trips.items():
        print(f"{name}: {most:.2f} round trips, and {took[name, 0.0] * 1e3:.0f} ms", flush=True)
    return trips["fetch"], trips["push"]


def measure_merge(top: Path, riders: int) -> float:
    """Print and return how long, in milliseconds, it takes to merge a phase that lands along with another one."""
    place = top / "merges"
    git(top, "init", "-q", "-b", "main", "merges")
    for key, value in (("user.name", "Benchmark"), ("user.email", "benchmark@example.invalid")):
        git(place, "config", key, value)
    plan = "# Plan\n" + "".join(
        f"\n## Phase {n} — {n}\nAfter: none\nVerify: `true`\n- [ ] Do {n}\n" for n in range(1, riders + 1)
    )
    (place / "PLAN.md").write_text(plan)
    for n in range(500):
        (place / f"{n}.py").write_text(f"{n}\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "start")
    start = git(place, "rev-parse", "HEAD")
    own = {}
    for n in range(1, riders + 1):
        git(place, "checkout", "-q", "-b", f"relay-jobs/main/{n}", start)
        (place / "PLAN.md").write_text(plan.replace(f"[ ] Do {n}\n", f"[x] Do {n}\n"))
        (place / f"{n}.py").write_text("done\n")
        git(place, "commit", "-qam", f"phase {n}\n\nRelay-Gate: pass {'0' * 64}")
        own[str(n)] = git(place, "rev-parse", "HEAD")
    git(place, "checkout", "-q", "main")
    settings = load_settings(flags={}, environ={}, plan_settings={}, repo_root=place, user_dir=None)
    begun_s = time.monotonic()
    _, taken = take_along(Job(phase_id="", plan_path="PLAN.md", repo=open_repo(place)), start, own, settings, ())
    assert len(taken) == riders
    took_ms = (time.monotonic() - begun_s) / riders * 1e3
    print(f"a phase that lands along: {took_ms:.0f} ms", flush=True)
    return took_ms


def measure_queue(top: Path, phases: int) -> float:
    """Print and return how long, in milliseconds, the queue takes for a phase, with as many takes before it."""
    with run_database(top / "database") as url:
        queue, own = Queue(url), Ticket(remote="away", branch="main", plan_path="PLAN.md", phase_id="")
        queue.submit([replace(own, phase_id=str(n)) for n in range(phases)])
        took = []
        with Heart(queue, print) as heart:
            for _ in range(phases):
                begun_s = time.monotonic()
                placed = queue.fetch(heart.worker_id or 0)
                assert placed is not None
                bid = Bid(
                    cap_usd=1e6, phase_cap_usd=None, spent_usd=0.0, seen_usd=0.0, shares=phases,
                    before=queue.read(own.plan),
                )  # fmt: skip
                take = queue.take(placed, "w", bid)
                assert isinstance(take, Take)
                assert queue.holds(take)
                assert queue.end(take, TakeState.DONE)
                queue.finish(placed)
                queue.read(own.plan)
                assert not queue.submit([one.ticket for one in queue.list_placed() if one.status in LIVE], follows=True)
                took.append(time.monotonic() - begun_s)
    took_ms = sorted(took)[phases // 2] * 1e3
    print(f"the queue: {took_ms:.0f} ms a phase, the last one {took[-1] * 1e3:.0f} ms", flush=True)
    return took_ms


def main() -> int:
    """Print what was asked for; exit status 1 when a phase was not landed once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--phases", type=int, default=1_000)
    parser.add_argument("--latency-ms", type=float, default=200.0, help="there and back")
    parser.add_argument("--phase-s", type=float, default=180.0, help="how long the work on one takes")
    parser.add_argument("--queue-ms", type=float, default=118.0, help="what the queue takes for a phase")
    parser.add_argument("--merge-ms", type=float, default=92.0, help="what it takes to merge a phase that lands along")
    parser.add_argument("--riders", type=int, default=15, help="how many phases land along with one at most")
    parser.add_argument("--fetch-trips", type=float, default=3.54, help="round trips of a fetch")
    parser.add_argument("--push-trips", type=float, default=1.58, help="round trips of a push")
    parser.add_argument("--measure", action="store_true", help="measure what a step takes first, and reckon with that")
    parser.add_argument("--takes", type=int, default=100, help="how many phases the queue is measured with")
    asked = parser.parse_args()
    if not asked.measure:
        return compute(asked)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        top.chmod(0o755)  # as root the database is another user's
        asked.fetch_trips, asked.push_trips = measure_trips(top, asked.latency_ms / 1e3)
        asked.merge_ms = measure_merge(top, asked.riders)
        asked.queue_ms = measure_queue(top, asked.takes)
    return compute(asked)


if __name__ == "__main__":
    sys.exit(main())
