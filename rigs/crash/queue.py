"""A database, a worker of the queue and a submitter that end at a step: what was queued is done, once."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from relay.fleet.engine import Engine
from rigs.crash.steps import STEPS, StepRig
from rigs.crash.tracer import Fault

STEPS_OF_DATABASE: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "submit": ("procrastinate_defer_job", 1, ("submit",)),
    "take": ("SELECT id, status, task_name", 1, ("worker",)),
    "the claim is pushed": ("", 1, ("worker",)),
    "the first request": ("", 1, ("worker",)),
    "beat": ("procrastinate_update_heartbeat", 1, ("worker",)),
    "the commit": ("", 1, ("worker",)),
    "the plan's branch is pushed": ("", 1, ("worker",)),
    "what waited is queued": ("procrastinate_defer_job", 1, ("worker",)),
    "the ticket is ended": ("procrastinate_finish_job", 1, ("worker",)),
    "reap": ("stalled_workers AS", 1, ("reap",)),
    "cancel": ("procrastinate_cancel_job", 1, ("cancel", "1")),
}
"""When the database is killed: what the call is shown with, which of them, whose it is; one without words of its own is
a step of a worker (`rigs.crash.steps`)."""
STEPS_OF_SUBMITTER = {
    "claims are read": ("/bob/.git/refs/relay/", 1, "a"),
    "before its call": ("procrastinate_defer_job", 1, "b"),
    "in its call": ("procrastinate_defer_job", 1, "a"),
    "after its call": ("procrastinate_defer_job", 2, "b"),
}
_NO_ANSWER = "the database does not answer"


@contextlib.contextmanager
def open_database() -> Iterator[Path]:
    """Give a place for a database; whatever runs there is ended."""
    with tempfile.TemporaryDirectory(prefix="relay-queue-") as folder:
        top = Path(folder).resolve()
        top.chmod(0o755)  # as root the database is another user's
        try:
            yield top / "db"
        finally:
            end_database(top / "db")
            time.sleep(1)


def start_database(rig: StepRig, place: Path) -> subprocess.Popen[bytes]:
    """Run the database of ``relay fleet up``; it is up when this returns."""
    argv = [sys.executable, "-P", "-m", "relay", "fleet", "up", "--data", str(place)]
    said = place.parent / "up"
    with said.open("w") as out:
        child = subprocess.Popen(argv, env={**os.environ, "HOME": str(rig.home)}, stdout=out, stderr=out)
    while "the database is up" not in said.read_text() and child.poll() is None:
        time.sleep(0.2)
    return child


def end_database(place: Path) -> None:
    """Kill the database, as a power cut does."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((place / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


def find_url(place: Path) -> str:
    """Return the database's address."""
    return f"postgresql://postgres:@/postgres?host={place}"


def find_clone(top: Path) -> Path:
    """Return where a worker of the queue keeps its clone."""
    digest = hashlib.sha256(f"{top / 'away.git'}\0main".encode()).hexdigest()[:16]
    return top / "clones" / digest / "work"


def find_step(top: Path, name: str) -> tuple[str, int, str]:
    """Return a step of a worker, as it is met in the clone of one of the queue."""
    on, at, words = STEPS[name]
    there = str(find_clone(top).with_name("store"))[1:]
    again = name == "the clone follows"  # it follows as it is made, too
    return on.replace("{top}/ann", there).format(top=str(top)[1:]), at + again, words


def try_database(rig: StepRig, top: Path, step: str) -> list[str]:
    """Kill the database while somebody is at a step."""
    on, at, words = STEPS_OF_DATABASE[step]
    if not on:
        on, at, _ = find_step(top, step)
    since = len(rig.server.requests)
    with open_database() as place:
        url = find_url(place)
        up = start_database(rig, place)
        if words != ("submit",):
            rig.run(top / "bob", "fleet", "submit", "--database", url)
        worker = ("fleet", "worker", "--once", "--database", url, "--place", str(top / "clones"))
        command = worker if words == ("worker",) else ("fleet", *words, "--database", url)
        kill = f"kill -9 $(head -1 {place}/postmaster.pid)"
        hook = top / "away.git" / "hooks" / "pre-receive"
        if step == "beat":  # the first comes after five seconds, and a phase of the rig takes less
            hook.parent.mkdir(exist_ok=True)
            hook.write_text("#!/bin/sh\nsleep 6\n")
            hook.chmod(0o755)
        ended, said = rig.run(top / "ann", *command, fault=Fault(at=at, mode="x", on=on, then=kill))
        hook.unlink(missing_ok=True)
        wrong = [] if ended.reached == 1 else [f"not met: {ended} {said}"]
        wrong += [f"a person reads: {said}"] if "Traceback" in said or "relay's fault" in said else []
        up.kill()
        up.wait()
        shown = rig.run(top / "bob", "fleet", "status", "--why", "--database", url)[1]
        wrong += [] if _NO_ANSWER in shown and "1  One: " in shown else [f"a person reads: {shown}"]
        up = start_database(rig, place)
        said += _finish(rig, top, worker, url)
        up.kill()
        up.wait()
    wrong += rig.check(top, {}, since=since, clone=clone if (clone := find_clone(top)).is_dir() else None)
    answers = sum(bool(one.usage) for one in rig.server.requests[since:])
    wrong += [f"{answers} answers"] if answers != 6 else []  # three of each phase
    return [*wrong, said] if wrong else []


def try_worker(rig: StepRig, top: Path, place: Path, *, step: str, mode: str, other: bool) -> list[str]:
    """End a worker of the queue at a step; it, or another one with clones of its own, goes on.

    Args:
        rig: The rig.
        top: A copy.
        place: Of a database that is up.
        step: Of `rigs.crash.steps`.
        mode: As of `StepRig.try_step`.
        other: Whether another worker goes on.
    """
    url, since, clone = find_url(place), len(rig.server.requests), find_clone(top)
    on, at, words = find_step(top, step)
    worker = ("fleet", "worker", "--once", "--database", url, "--place")
    with psycopg.connect(url, autocommit=True) as queue:
        rig.run(top / "bob", "fleet", "submit", "--database", url)
        fault = Fault(at=at, mode=mode, on=on, then="kill -9 $KILLAT_PID")
        ended, said = rig.run(top / "ann", *worker, str(top / "clones"), fault=fault)
        if not ended.reached:
            return [f"not met: {ended}", said]
        seen, is_landed = rig.find_versions(clone), "[x]" in rig.git(top / "away.git", "show", "main:PLAN.md")
        before = rig.count_asked(1)
        _, wrong = rig.read_status(top, words, clone, "--database", url)
        for lock in [*(top / "away.git").rglob("*.lock")]:  # a host that died in the middle does so when it is back
            lock.unlink()
        if other:
            rig.age(top)
        queue.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
        said += _finish(rig, top, (*worker, str(top / ("others" if other else "clones"))), url)
        queue.execute("TRUNCATE procrastinate_jobs, procrastinate_workers CASCADE")
    wrong += rig.check(top, {} if other else seen, since=since, clone=None if other else clone)
    wrong += ["phase 1 was paid again after it had landed"] if is_landed and rig.count_asked(1) != before else []
    return [*wrong, said] if wrong else []


def _finish(rig: StepRig, top: Path, words: tuple[str, ...], url: str) -> str:
    said, ends_s = "", time.monotonic() + 180
    while rig.git(top / "away.git", "show", "main:PLAN.md").count("[x]") != 2 and time.monotonic() < ends_s:
        said += rig.run(top / "bob", "fleet", "reap", "--database", url)[1]
        said += rig.run(top / "bob", "fleet", "submit", "--database", url)[1]
        said += rig.run(top / "ann", *words)[1]
        time.sleep(1)
    return said


def try_submitter(rig: StepRig, top: Path, step: str) -> list[str]:
    """Kill a submitter of two plans at a step; what it queued is queued once when it is asked again."""
    on, at, mode = STEPS_OF_SUBMITTER[step]
    with open_database() as place:
        up, url = start_database(rig, place), find_url(place)
        words = ("fleet", "submit", "--database", url, "PLAN.md")
        ended, said = rig.run(top / "bob", *words, "PLAN.md", fault=Fault(at=at, mode=mode, on=on))
        wrong = [] if ended.reached else [f"not met: {ended} {said}"]
        again = rig.run(top / "bob", *words)[1]
        placed = [one.ticket.phase_id for one in Engine(url).list_placed()]
        wrong += [] if placed == ["1"] else [f"{placed} are queued"]
        wrong += [] if re.search("phase 1  (queued|is queued already)", again) else [f"a person reads: {again}"]
        shown = rig.run(top / "bob", "fleet", "status", "--why", "--database", url)[1]
        wrong += [] if "1  One: can begin; queued as " in shown else [f"a person reads: {shown}"]
        up.kill()
        up.wait()
    return wrong
