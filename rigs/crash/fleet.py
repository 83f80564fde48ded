"""Workers of a fleet that are killed at random moments until the plan is done, with their runs, or their database.

    python -m rigs.crash.fleet --trials 5

A bare repository, a queue on the embedded PostgreSQL, a rehearsed model; now and then the remote is away or takes
nothing, and the database is killed and started again. What is asserted is seen from outside: git, the model's bills,
what is set aside.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import RelayError
from relay.fleet.queue import Queue
from relay.fleet.takes import Ticket
from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd
from rigs.crash.rig import PRICE
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

PHASES = 6
_WORKERS = ("ann", "bob", "cy")
CAP_USD = 20.0
_HOOK = "#!/bin/sh\necho no space left on device >&2\nexit 1\n"
_LIMIT_S = 600.0
_COST = re.compile(r'^(?:Relay-Cost: | "cost": ")~?([0-9.]+) USD', re.MULTILINE)
_STAYS = re.compile(r"refs/heads/main|refs/relay/spent/main/booked-\w+")
"""What a remote keeps of a plan that is done: its branch, and what lost takes cost."""


def make_plan() -> str:
    """Return two waves of phases."""
    parts = [f"---\nrelay: {{max_cost_usd: {CAP_USD:g}}}\n---\n# Fleet\n"]
    for n in range(1, PHASES + 1):
        after = "1, 2, 3" if n > PHASES // 2 else "none"
        # So slow that phases wait for their turn to land, and land along with another one.
        gate = f"sleep 2; test -s {n}.txt"
        parts.append(f"\n## Phase {n} — P{n}\nAfter: {after}\nVerify: `{gate}`\n- [ ] Write {n}.txt\n")
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
    """Workers on one queue and one remote. Mutable: they are killed and started again.

    Args:
        top: A directory of its own, which everybody may enter: as root the database is another user's.
        server: The model.
        seed: Of the dice.
    """

    def __init__(self, top: Path, server: Endpoint, seed: int) -> None:
        self.top, self.away, self.dice = top, top / "away.git", random.Random(seed)
        self.server = server
        home = {"HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
        self.environ = {**os.environ, **home, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        (top / ".gitconfig").write_text("[user]\nname = Fleet\nemail = fleet@example.invalid\n")
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        first = top / "first"
        first.mkdir()
        self.git(first, "init", "-q", "-b", "main")
        (first / "PLAN.md").write_text(make_plan())
        self.git(first, "add", ".")
        self.git(first, "commit", "-qm", "plan")
        self.git(top, "clone", "-q", "--bare", "first", "away.git")
        self.keep_up("up")
        while not (url := self._read_url()):
            time.sleep(0.2)
        self.url = url
        tickets = (self.name_ticket(str(n)) for n in range(1, PHASES // 2 + 1))
        Queue(url).submit(tuple(tickets))

    def name_ticket(self, phase_id: str) -> Ticket:
        """Return a phase's ticket."""
        return Ticket(remote=str(self.away), branch="main", plan_path="PLAN.md", phase_id=phase_id)

    def _read_url(self) -> str:
        said = (self.top / "up.out").read_text() if (self.top / "up.out").exists() else ""
        return said.splitlines()[0] if "the database is up" in said else ""

    def git(self, root: Path, *args: str) -> str:
        """Run git as a person would."""
        run = subprocess.run(["git", *args], cwd=root, env=self.environ, check=True, capture_output=True, text=True)
        return run.stdout

    def keep_up(self, *names: str) -> None:
        """Start those that are not running, as a service manager does."""
        for name in names:
            if name in self.running and self.running[name].poll() is None:
                continue
            words = ["up", "--data", str(self.top / "db")]
            if name != "up":
                words = ["worker", "--database", self.url, "--place", str(self.top / name)]
            with (self.top / f"{name}.out").open("ab") as out:
                argv = [sys.executable, "-P", "-m", "relay", "fleet", *words]
                self.running[name] = subprocess.Popen(argv, cwd=self.top, env=self.environ, stdout=out, stderr=out)

    def kill(self) -> None:
        """Kill a worker, as often as not with the run that it began; or the database."""
        if self.dice.random() < 0.25:
            with contextlib.suppress(OSError, ValueError, IndexError):
                os.kill(int((self.top / "db/postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
            return
        child = self.running[self.dice.choice(_WORKERS)]
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        runs = [int(word) for word in below.read_text().split()] if child.poll() is None else []
        for pid in (child.pid, *(runs if self.dice.random() < 0.5 else ())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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

    def take_up(self) -> None:
        """Type what a person types of phases that wait for one: each time they have died three times."""
        with contextlib.suppress(RelayError):
            queue = Queue(self.url)
            for phase_id in queue.read(self.name_ticket("").plan).waits:
                queue.settle_phase(self.name_ticket("").plan, phase_id)
                queue.submit((self.name_ticket(phase_id),))

    def read_spent(self) -> float:
        """Return what the commits of the plan's branch say, and what was booked besides, in USD."""
        refs = self.git(self.away, "for-each-ref", "--format=%(refname)", "refs/relay/spent/").split()
        texts = [self.git(self.away, "log", "--format=%B", "main")]
        texts += [self.git(self.away, "log", "-1", "--format=%B", ref) for ref in refs]
        return sum(map(float, _COST.findall("\n".join(texts))))

    def check(self) -> list[str]:
        """Return in words what does not hold in the end."""
        wrong = [] if self.is_done else ["the plan is not done"]
        log = self.git(self.away, "log", "--first-parent", "--format=%(trailers:key=Relay-Status,valueonly)", "main")
        if (count := log.split().count("done")) != PHASES:
            wrong.append(f"{count} commits of {PHASES} phases")
        fsck = self.git(self.away, "fsck", "--strict", "--no-dangling", "--no-progress").strip()
        wrong += [f"fsck: {fsck}"] if fsck else []
        listed = self.git(self.away, "for-each-ref", "--format=%(refname)").split()
        wrong += [f"{ref} is left" for ref in listed if not _STAYS.fullmatch(ref)]
        usages = [parse_api_usage(request.usage) for request in self.server.requests if request.usage]
        billed = sum(cost_usd(usage, PRICE) for usage in usages if usage)
        spent, reserved = self.read_spent(), Queue(self.url).read(self.name_ticket("").plan).reserved_usd
        if spent + reserved < billed - 1e-4:
            wrong.append(f"{billed:.4f} USD were billed, {spent:.4f} are told and {reserved:.4f} reserved")
        if spent + reserved > CAP_USD + 1e-4:
            wrong.append(f"{spent:.4f} USD are spent and {reserved:.4f} reserved of {CAP_USD:g}")
        return wrong


def try_seed(seed: int, kills: int) -> list[str]:
    """Run a plan with so many kills; return what does not hold."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relay-fleet-") as folder, serve(parse_script(make_script())) as server:
        Path(folder).chmod(0o755)
        fleet = Fleet(Path(folder).resolve(), server, seed)
        try:
            while not fleet.is_done and time.monotonic() - begun < _LIMIT_S:
                fleet.keep_up("up", *_WORKERS)
                time.sleep(fleet.dice.uniform(0.5, 8))
                if kills:
                    kills -= 1
                    fleet.kill()
                    if fleet.dice.random() < 0.3:
                        with fleet.hurting():
                            time.sleep(fleet.dice.uniform(0.5, 4))
                fleet.take_up()
            fleet.keep_up("up")
            for name in _WORKERS:
                fleet.running[name].send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    fleet.running[name].wait(60)
            time.sleep(1)
            wrong = fleet.check()
        finally:
            for child in reversed(fleet.running.values()):
                child.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(30)
                child.kill()
        took, cost = time.monotonic() - begun, fleet.read_spent()
        along = fleet.git(fleet.away, "log", "--format=%(trailers:key=Relay-Merge)", "main").count(" together")
        said = f"{took:.0f} s, {len(server.requests)} requests, {cost:.4f} USD, {along} phases landed along"
        print(f"seed {seed}: {said}", flush=True)  # noqa: T201  # a command
        if wrong:
            wrong += [(fleet.top / f"{name}.out").read_text() for name in fleet.running]
    return wrong


def main() -> int:
    """Print what did not hold; exit status 1 then."""
    parser = argparse.ArgumentParser(prog="python -m rigs.crash.fleet", description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.trials):
        if wrong := try_seed(seed, asked.kills):
            failed += 1
            print(f"FAILED seed {seed}:", *wrong, sep="\n", flush=True)  # noqa: T201  # a command
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
