"""Workers of one plan that are killed at random moments, each with its whole process group, until the plan is done.

    python -m rigs.crash.fleet --trials 5
    python -m rigs.crash.fleet steps faults queue workers [--part 'the commit']

A bare repository, a clone for each worker, a rehearsed model; now and then the remote is away or takes nothing. What is
asserted is seen from outside: git, the model's bills, the account of what is reserved.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from relay.fleet.overview import open_registry
from relay.git.remote import Remote
from relay.git.repository import open_repo
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import Rehearsal, serve
from rigs.crash.faults import ROWS
from rigs.crash.queue import (
    STEPS_OF_DATABASE,
    STEPS_OF_SUBMITTER,
    open_database,
    start_database,
    try_database,
    try_submitter,
    try_worker,
)
from rigs.crash.steps import STEPS, StepRig, find_left, open_step_rig, read_told
from rigs.crash.tracer import leave_mounts

PHASES = 4
CAP_USD = 20.0
_HOOK = "#!/bin/sh\necho no space left on device >&2\nexit 1\n"
_LIMIT_S = 240.0


def make_plan() -> str:
    """Return two waves of phases."""
    parts = [f"---\nrelay: {{max_cost_usd: {CAP_USD:g}}}\n---\n# Fleet\n"]
    for n in range(1, PHASES + 1):
        after = "1, 2" if n > PHASES // 2 else "none"
        parts.append(f"\n## Phase {n} — P{n}\nAfter: {after}\nVerify: `test -s {n}.txt`\n- [ ] Write {n}.txt\n")
    return "".join(parts)


def make_script() -> str:
    """Return a model that does each phase in a session that a kill can meet anywhere; more sessions do the same."""
    lines = ["sessions:"]
    for n in [n for n in range(1, PHASES + 1) for _ in range(12)]:
        turns = (
            f"{{tools: [{{name: write, input: {{path: {n}.txt, content: '{n}'}}}}]}}, "
            "{tools: [{name: bash, input: {command: sleep 1}}]}, "
            f"{{tools: [{{name: tick, input: {{item: '{n}.1', evidence: seen}}}}]}}, {{text: done}}"
        )
        lines.append(f"- {{when: {{first_message_contains: 'Write {n}.txt'}}, turns: [{turns}]}}")
    return "\n".join(lines)


class Fleet:
    """Workers on one remote. Mutable: they are killed and started again.

    Args:
        top: A directory of its own.
        server: The model.
        seed: Of the dice.
    """

    def __init__(self, top: Path, server: Rehearsal, seed: int) -> None:
        self.top, self.away, self.dice = top, top / "away.git", random.Random(seed)
        self.environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        first = top / "first"
        first.mkdir()
        self.git(first, "init", "-q", "-b", "main")
        (first / "PLAN.md").write_text(make_plan())
        self.git(first, "add", ".")
        self.git(first, "commit", "-qm", "plan")
        self.git(top, "clone", "-q", "--bare", "first", "away.git")
        for name in ("ann", "bob"):
            self.git(top, "clone", "-q", "away.git", name)

    def git(self, root: Path, *args: str) -> str:
        """Run git as a person would."""
        flags = ("-c", "user.name=Fleet", "-c", "user.email=fleet@example.invalid")
        return subprocess.run(["git", *flags, *args], cwd=root, check=True, capture_output=True, text=True).stdout

    def keep_up(self) -> None:
        """Start the workers that are not running, until the plan is done."""
        for name in ("ann", "bob"):
            if name not in self.workers or self.workers[name].poll() is not None:
                with (self.top / f"{name}.out").open("ab") as out:
                    self.workers[name] = subprocess.Popen(
                        [sys.executable, "-P", "-m", "relay", "work", "--phase", "all", "--lease", "15"],
                        cwd=self.top / name,
                        env=self.environ,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )

    def kill(self) -> None:
        """Kill a worker, and as often as not the run that it began."""
        child = self.dice.choice(list(self.workers.values()))
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        runs = [int(word) for word in below.read_text().split()] if child.poll() is None else []
        for pid in (child.pid, *(runs if self.dice.random() < 0.5 else ())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        child.wait()

    @contextlib.contextmanager
    def hurting(self) -> Iterator[None]:
        """Have the remote be away, or take nothing, for a moment."""
        if self.dice.random() < 0.5:
            self.away.rename(self.top / "elsewhere")
            try:
                yield
            finally:
                (self.top / "elsewhere").rename(self.away)
            return
        hook = self.away / "hooks/pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_HOOK)
        hook.chmod(0o755)
        try:
            yield
        finally:
            hook.unlink()

    @property
    def is_done(self) -> bool:
        """Whether the remote has every phase."""
        return self.git(self.away, "show", "main:PLAN.md").count("[x]") == PHASES

    def check_cap(self) -> list[str]:
        """Say whether trailers and reservations pass the cap together."""
        repo = open_repo(self.top / "first", self.environ)
        remote = Remote(repo=repo, name=str(self.away), environ=self.environ)
        reserved = open_registry(remote, "main", "PLAN.md").read().reserved_usd
        spent = self.read_spent()
        words = f"{spent:.4f} USD are spent and {reserved:.4f} reserved of {CAP_USD:g}"
        return [words] if spent + reserved > CAP_USD + 1e-4 else []

    def read_spent(self) -> float:
        """Return what the commits of the plan's branch say, and what was booked besides."""
        return read_told(partial(self.git, self.away))

    def check(self) -> list[str]:
        """Return in words what does not hold in the end."""
        wrong = [] if self.is_done else ["the plan is not done"]
        messages = self.git(
            self.away, "log", "--first-parent", "--format=%(trailers:key=Relay-Status,valueonly)", "main"
        )
        if (count := messages.split().count("done")) != PHASES:
            wrong.append(f"{count} commits of {PHASES} phases")
        fsck = self.git(self.away, "fsck", "--strict", "--no-dangling", "--no-progress").strip()
        wrong += [f"fsck: {fsck}"] if fsck else []
        listed = self.git(self.away, "for-each-ref", "--format=%(refname)").split()
        return wrong + find_left(listed)


def try_seed(seed: int, kills: int) -> list[str]:
    """Run a plan with so many kills; return what does not hold."""
    begun, wrong = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="relay-fleet-") as folder, serve(parse_script(make_script())) as server:
        fleet = Fleet(Path(folder).resolve(), server, seed)
        try:
            while not fleet.is_done and time.monotonic() - begun < _LIMIT_S:
                fleet.keep_up()
                time.sleep(fleet.dice.uniform(0.5, 5))
                if kills:
                    kills -= 1
                    fleet.kill()
                    if fleet.dice.random() < 0.3:
                        with fleet.hurting():
                            time.sleep(fleet.dice.uniform(0.5, 4))
                wrong += fleet.check_cap()
        finally:
            for child in fleet.workers.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(30)
                child.kill()
        wrong += fleet.check()
        took, cost = time.monotonic() - begun, fleet.read_spent()
        print(f"seed {seed}: {took:.0f} s, {len(server.requests)} requests, {cost:.4f} USD")  # noqa: T201  # a command
        if wrong:
            wrong += [(fleet.top / f"{name}.out").read_text() for name in fleet.workers]
    return wrong


def _try_steps(part: str) -> bool:
    """Print step × outcome; return whether anything did not hold."""
    failed = False
    head = ("step", "killed", "goes on", "a person reads of the phase", "answers paid again", "wrong")
    print(f"| {' | '.join(head)} |\n{'| --- ' * len(head)}|")  # noqa: T201
    with open_step_rig() as rig:
        for name, mode, other in _list_kills(part):
            trial = rig.try_step(name, mode, other=other)
            failed |= bool(trial.wrong)
            read = re.sub(r" by vm-\w+|[0-9]+ s more", "", trial.read)
            words = (name, _KILLED[mode], _GOES_ON[other], read, trial.answers, len(trial.wrong))
            print(f"| {' | '.join(map(str, words))} |", flush=True)  # noqa: T201
            print(*trial.wrong, sep="\n", end="\n" if trial.wrong else "", flush=True)  # noqa: T201
    return failed


def _list_kills(part: str) -> Iterator[tuple[str, str, bool]]:
    for name, mode, other in itertools.product(STEPS, _KILLED, (False, True)):
        if re.search(part, name):
            yield name, mode, other


def _try_rows(rig: StepRig, rows: Iterable[tuple[str, Callable[[StepRig, Path], list[str]]]], part: str) -> bool:
    """Print fault × outcome; return whether anything did not hold."""
    failed = False
    for name, row in rows:
        if not re.search(part, name):
            continue
        with rig.copy() as top:
            wrong = row(rig, top)
        failed |= bool(wrong)
        print(f"| {name} | {'; '.join(wrong) or 'as it should be'} |", flush=True)  # noqa: T201
    return failed


def _try_faults(part: str) -> bool:
    leave_mounts()
    with open_step_rig() as rig:
        return _try_rows(rig, ROWS.items(), part)


def _try_queue(part: str) -> bool:
    """Kill the database, or a submitter, at each of their steps."""
    rows = [(f"database killed: {step}", partial(try_database, step=step)) for step in STEPS_OF_DATABASE]
    rows += [(f"submitter killed: {step}", partial(try_submitter, step=step)) for step in STEPS_OF_SUBMITTER]
    with open_step_rig() as rig:
        return _try_rows(rig, rows, part)


def _try_workers(part: str) -> bool:
    """Kill a worker of the queue at each step."""
    with open_step_rig() as rig, open_database() as place:
        up = start_database(rig, place)
        try:
            rows = (
                (
                    f"worker killed ({_KILLED[mode]}, {_GOES_ON[other]} goes on): {step}",
                    partial(try_worker, place=place, step=step, mode=mode, other=other),
                )
                for step, mode, other in _list_kills("")
            )
            return _try_rows(rig, rows, part)
        finally:
            up.terminate()
            up.wait()


_KILLED = {"b": "all, before it", "a": "all, after it", "x": "the worker alone"}
_GOES_ON = {False: "the same", True: "another worker"}
_TABLES = {"steps": _try_steps, "faults": _try_faults, "queue": _try_queue, "workers": _try_workers}


def main() -> int:
    """Print what did not hold; exit status 1 then."""
    parser = argparse.ArgumentParser(prog="python -m rigs.crash.fleet", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", choices=(*_TABLES, []), help="named steps and faults instead of random moments"
    )
    parser.add_argument("--part", default="", metavar="REGEX", help="only rows whose name has this in it")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    failed = 0
    if asked.rows:
        return int(sum(_TABLES[row](asked.part) for row in asked.rows) > 0)
    for seed in range(asked.seed, asked.seed + asked.trials):
        if wrong := try_seed(seed, asked.kills):
            failed += 1
            print(f"FAILED seed {seed}:", *wrong, sep="\n", flush=True)  # noqa: T201  # a command
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
