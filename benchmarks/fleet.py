"""How fast many workers claim phases of one plan, against a real bare repository with a slow line to it.

    python benchmarks/fleet.py --workers 10 --phases 40 --latency-ms 200 --phase-s 10

Each worker has a clone, and does for each phase what `relay work` asks of a remote to claim it and to end its claim;
the work itself is a sleep. Claims of a cap all move one ref, the account: that is where it stops growing.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from processes import git

from relay.fleet.claims import Bid, ClaimRegistry, NotTaken, PhaseClaim, list_in_turn, name_plan
from relay.git.remote import Pushed, PushEnd, RefUpdate, Remote, RemoteError
from relay.git.repository import open_repo

_PAUSE_S = 5.0


@dataclass(slots=True)
class Tally:
    """What happened; shared by the workers."""

    pushes: int = 0
    moved: int = 0
    busy: int = 0
    beats: int = 0
    lost: int = 0
    claim_s: list[float] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    twice: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class SlowRemote(Remote):
    """A remote whose every answer takes a while; counts what is pushed."""

    latency_s = 0.0
    tally = Tally()

    def list_refs(self, *patterns: str) -> dict[str, str]:
        """As a remote, later."""
        time.sleep(self.latency_s)
        return dict(super().list_refs(*patterns))

    def fetch(self, *refspecs: str) -> None:
        """As a remote, later."""
        time.sleep(self.latency_s)
        super().fetch(*refspecs)

    def push(self, *updates: RefUpdate) -> Pushed:
        """As a remote, later."""
        time.sleep(self.latency_s)
        pushed = super().push(*updates)
        with self.tally.lock:
            self.tally.pushes += 1
            self.tally.moved += pushed.end is PushEnd.MOVED
        return pushed


def work(registry: ClaimRegistry, phases: tuple[str, ...], phase_s: float) -> None:
    """Claim phases, as `relay work --phase all` does, until all are done."""
    tally = SlowRemote.tally
    while len(tally.done) < len(phases):
        begun = time.monotonic()
        try:
            taken = claim_one(registry, [phase for phase in phases if phase not in tally.done])
        except RemoteError:
            tally.busy += 1
            continue
        if not isinstance(taken, PhaseClaim):
            time.sleep(0 if taken else random.uniform(0, _PAUSE_S))
            continue
        if taken.phase_id in tally.done:
            end(registry, taken)
            continue
        tally.claim_s.append(time.monotonic() - begun)
        held = hold(registry, taken, phase_s)
        with tally.lock:
            tally.twice += taken.phase_id in tally.done
            tally.done.add(taken.phase_id)
        end(registry, held)


def hold(registry: ClaimRegistry, claim: PhaseClaim, phase_s: float) -> PhaseClaim:
    """Work on a phase: sleep, with a sign of life each third of the lease, as `relay.fleet.holding` gives them."""
    ends_s = time.monotonic() + phase_s
    while (left_s := ends_s - time.monotonic()) > registry.lease_s / 3:
        time.sleep(registry.lease_s / 3)
        claim = renew(registry, claim)
    time.sleep(left_s)
    return claim


def renew(registry: ClaimRegistry, claim: PhaseClaim) -> PhaseClaim:
    """Show a sign of life; a claim that was lost, or a remote that does not take it, is counted."""
    tally = SlowRemote.tally
    try:
        fresh = registry.renew(claim)
    except RemoteError:
        fresh = None
    with tally.lock:
        tally.beats += 1
        tally.lost += fresh is None
    return fresh or claim


def claim_one(registry: ClaimRegistry, phases: Sequence[str]) -> PhaseClaim | NotTaken | None:
    """Claim one of the phases that are free, as a worker does; None: there is none."""
    claims = registry.read()
    for phase_id in list_in_turn(phases, claims, registry.worker):
        if claims.find(phase_id):
            return None
        bid = Bid(phase_id=phase_id, reserve_usd=0.5, cap_usd=1e6, spent_usd=0.0, seen_usd=0.0, ended=claims.ended)
        taken = registry.take(bid)
        if isinstance(taken, PhaseClaim) or taken.is_stale:
            return taken
    return None


def end(registry: ClaimRegistry, taken: PhaseClaim) -> None:
    """Give a claim back; a busy remote is asked again."""
    while True:
        try:
            registry.give_back(taken)
            break
        except RemoteError:
            SlowRemote.tally.busy += 1


def main() -> int:
    """Print what was measured; exit status 1 when a phase was done twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--phases", type=int, default=1_000)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--phase-s", type=float, default=60.0, help="how long the work on one takes")
    asked = parser.parse_args()
    SlowRemote.latency_s = asked.latency_ms / 1e3
    tally = SlowRemote.tally
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        git(top, "init", "-q", "--bare", "away.git")
        registries = [make_registry(top, number) for number in range(asked.workers)]
        phases = tuple(str(number) for number in range(1, asked.phases + 1))
        begun = time.monotonic()
        with ThreadPoolExecutor(asked.workers) as pool:
            for one in [pool.submit(work, registry, phases, asked.phase_s) for registry in registries]:
                one.result()
        wall = time.monotonic() - begun
        left = registries[0].read()
    waits = sorted(tally.claim_s)
    ideal = asked.phases * asked.phase_s / asked.workers
    print(f"{asked.phases} phases of {asked.phase_s:g} s, {asked.workers} workers, {asked.latency_ms:g} ms")
    print(f"wall {wall:.1f} s, of {ideal:.1f} s if claims took no time; {len(waits) / wall:.2f} claims/s")
    print(f"pushes {tally.pushes}, refused because others were faster {tally.moved} ({tally.moved / tally.pushes:.0%})")
    print(
        f"a claim takes {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (most); gave up {tally.busy} times"
    )
    print(f"signs of life {tally.beats}, not taken {tally.lost}")
    print(f"done twice {tally.twice}, held in the end {len(left.held)}, reserved {left.reserved_usd:g} USD")
    return int(tally.twice > 0 or bool(left.held))


def make_registry(top: Path, number: int) -> ClaimRegistry:
    """Return the registry of a worker with a repository of its own."""
    name = f"w{number}"
    git(top, "init", "-q", name)
    git(top / name, "config", "user.name", "Benchmark")
    git(top / name, "config", "user.email", "benchmark@example.invalid")
    remote = SlowRemote(repo=open_repo(top / name), name=str(top / "away.git"), environ=os.environ)
    key = name_plan("main", "PLAN.md")
    return ClaimRegistry(remote=remote, plan_key=key, worker=name, lease_s=300, now=time.time)


if __name__ == "__main__":
    sys.exit(main())
