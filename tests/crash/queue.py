"""A database, a worker of the queue and a submitter that end at a step: what was queued is done, once."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from relay.fleet.engine import Engine
from tests.crash.steps import StepRig
from tests.crash.tracer import Fault

STEPS_OF_WORKER = {"the first request": ("send POST /v1/messages", 1)}
STEPS_OF_SUBMITTER = {
    "claims are read": ("/bob/.git/refs/relay/", 1),
    "a ticket is queued": ("procrastinate_defer_job", 1),
}


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


def try_database(rig: StepRig, top: Path, step: str) -> list[str]:
    """Kill the database while a worker of the queue is at a step."""
    on, at = STEPS_OF_WORKER[step]
    since = len(rig.server.requests)
    with open_database() as place:
        url, kill = find_url(place), f"kill -9 $(head -1 {place}/postmaster.pid)"
        up = start_database(rig, place)
        rig.run(top / "bob", "fleet", "submit", "--database", url)
        words = ("fleet", "worker", "--once", "--database", url, "--place", str(top / "clones"))
        ended, said = rig.run(
            top / "ann", *words, fault=Fault(at=at, mode="x", on=on.format(top=str(top)[1:]), then=kill)
        )
        wrong = [] if ended.reached == 1 else [f"not met: {ended} {said}"]
        up.kill()
        up.wait()
        shown = rig.run(top / "bob", "fleet", "status", "--why", "--database", url)[1]
        wrong += [] if "the database does not answer" in shown else [f"a person reads: {shown}"]
        up = start_database(rig, place)
        said += _finish(rig, top, words, url)
        up.kill()
        up.wait()
    wrong += rig.check(top, {}, since=since)
    answers = sum(bool(one.usage) for one in rig.server.requests[since:])
    wrong += [f"{answers} answers"] if answers != 6 else []  # three of each phase
    return [*wrong, said] if wrong else []


def _finish(rig: StepRig, top: Path, words: tuple[str, ...], url: str) -> str:
    said, ends_s = "", time.monotonic() + 180
    while rig.git(top / "away.git", "show", "main:PLAN.md").count("[x]") != 2 and time.monotonic() < ends_s:
        said += rig.run(top / "bob", "fleet", "reap", "--database", url)[1]
        said += rig.run(top / "bob", "fleet", "submit", "--database", url)[1]
        said += rig.run(top / "ann", *words)[1]
        time.sleep(3)
    return said


def try_submitter(rig: StepRig, top: Path, step: str, mode: str) -> list[str]:
    """Kill a submitter at a step; what it queued is queued once when it is asked again."""
    on, at = STEPS_OF_SUBMITTER[step]
    with open_database() as place:
        up, url = start_database(rig, place), find_url(place)
        words = ("fleet", "submit", "--database", url)
        ended, said = rig.run(top / "bob", *words, fault=Fault(at=at, mode=mode, on=on))
        wrong = [] if ended.reached else [f"not met: {ended} {said}"]
        again = rig.run(top / "bob", *words)[1]
        placed = [one.ticket.phase_id for one in Engine(url).list_placed()]
        wrong += [] if placed == ["1"] else [f"{placed} are queued"]
        wrong += [] if re.search("phase 1  (queued|is queued already)", again) else [f"a person reads: {again}"]
        up.kill()
        up.wait()
    return wrong
