"""Two phases that were done side by side, and `relay run --jobs` that lands them: forward, and merged by a run."""

import argparse
import contextlib
import errno
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.store.worktree_notes import note_checked, note_home
from rigs.crash.invariants import find_lost, find_ticked, find_versions
from rigs.crash.scenario import git, make_environ
from rigs.crash.tracer import Ended, Fault, Start, Starter, open_starter
from tests.copied import FSCK
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

PLAN = """\
# Side by side

## Phase 1 — One
Verify: `grep -q one both.txt`
- [ ] Say one — both.txt, one/new.txt

## Phase 2 — Two
After: none
Verify: `grep -q two both.txt && test ! -e gone.txt`
- [ ] Say two — both.txt, two.txt
"""
PHASES = ("1", "2")
LINES = "first\n\n1\n2\n3\n\nlast\n"
_COMMANDS = {
    "1": "sed -i s/first/one/ both.txt; mkdir one; echo 1 > one/new.txt",
    "2": "sed -i s/last/two/ both.txt; rm gone.txt; echo 2 > two.txt; chmod +x two.txt",
}
FILES = {
    "both.txt": ("100644", LINES.replace("first", "one").replace("last", "two")),
    "mine.txt": ("100644", "mine, edited\n"),
    "one/new.txt": ("100644", "1\n"),
    "two.txt": ("100755", "2\n"),
}
"""Mode and content of each tracked file in the end, but for relay's own."""
_COST = re.compile(r"~?([0-9.]+) USD")


def make_script() -> str:
    """Return a model that does a phase in one session."""
    sessions = []
    for phase, command in _COMMANDS.items():
        tools = [
            {"name": "bash", "input": {"command": command}},
            {"name": "record", "input": {"claim": f"it is {phase}", "because": "read it", "sources": ["both.txt:1"]}},
            {"name": "tick", "input": {"item": f"{phase}.1", "evidence": "seen"}},
        ]
        when = {"first_message_contains": [f"Carry out phase {phase} now"]}
        turns = [{"tools": tools}, {"text": f"Commit: Say {phase}"}]
        sessions.append({"name": phase, "when": when, "turns": turns})
    return json.dumps({"sessions": sessions})


def find_place(top: Path, phase_id: str) -> Path:
    """Return the work tree of a phase's job."""
    return top / "main.relay" / phase_id


@dataclass(slots=True)
class LandingRig:
    """A starter, a server for the first runs, and what is copied for each trial: a repository with two work trees."""

    place: Path
    home: Path
    starter: Starter
    server: Endpoint
    cut: Callable[[], Path | None]
    on_disk: bool
    boot_id: Path | None = None
    phases: tuple[str, ...] = PHASES
    variables: dict[str, str] = field(default_factory=dict)
    """More of the environment."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._make(self.place / "origin")

    def count(self) -> int:
        """Return how many calls change files when nobody kills it."""
        with self.copy() as top:
            ended = self.run(top, Fault())
            assert ended.code == 0, (ended, self.read_output(top), self.server.errors)
            assert not (wrong := self.check(top, seen={})), wrong
            return ended.count

    @property
    def environ(self) -> dict[str, str]:
        """The environment of every run."""
        return make_environ(self.home, self.server.base_url, sandbox="off") | self.variables

    def git(self, top: Path, *args: str, check: bool = True) -> str:
        """Run git as the user would."""
        return git(top / "main", *args, environ=self.environ, check=check)

    def read_output(self, top: Path) -> str:
        """Return what the runs have printed."""
        return (self.home / f"{top.name}.out").read_text(encoding="utf-8")

    def start(self, top: Path, plan: str) -> None:
        """Make a repository of one commit, and what its user has not committed."""
        main = top / "main"
        (main / "notes").mkdir(parents=True)
        self.git(top, "init", "-q")
        for name, text in (("both.txt", LINES), ("gone.txt", "gone\n"), ("mine.txt", "mine\n"), ("PLAN.md", plan)):
            (main / name).write_text(text)
        self.git(top, "add", ".")
        self.git(top, "commit", "-qm", "start")
        (main / "mine.txt").write_text("mine, edited\n")
        (main / "notes/untracked.txt").write_text("mine\n")

    def _make(self, top: Path) -> None:
        main = top / "main"
        self.start(top, PLAN)
        for phase_id in PHASES:
            self.git(top, "worktree", "add", "-q", "-b", f"relay-jobs/main/{phase_id}", str(find_place(top, phase_id)))
            head = self.git(top, "rev-parse", "HEAD").strip()
            repo = open_repo(find_place(top, phase_id))
            note_checked(repo, head)  # as `run --jobs` begins one
            note_home(repo, main)
            output = self.home / f"{top.name}.out"
            args = ("run", "--phase", phase_id)
            start = Start(root=find_place(top, phase_id), output=output, environ=self.environ, args=args)
            ended = self.starter.run(start)
            assert ended.code == ExitCode.DONE, (ended, output.read_text(), self.server.errors)

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        """Give a fresh copy, gone afterwards."""
        top = self.place / f"trial-{next(self._numbers):05d}"
        shutil.copytree(self.place / "origin", top, symlinks=True)
        for name in (*self.phases, *(f"{phase_id}.gate" for phase_id in self.phases)):
            # git would find the original, and take it for right
            own, place = top / f"main/.git/worktrees/{name}", find_place(top, name)
            (own / "gitdir").write_text(f"{place}/.git\n")
            (place / ".git").write_text(f"gitdir: {own}\n")
            note_home(open_repo(place), top / "main")
        if self.on_disk:
            subprocess.run(["sync", "-f", str(top)], check=True)
        try:
            yield top
        finally:
            shutil.rmtree(top)

    def run(self, top: Path, fault: Fault | None = None) -> Ended:
        """Land both phases."""
        return self.run_args(top, ("run", "--jobs", "2"), fault)

    def run_args(self, top: Path, args: tuple[str, ...], fault: Fault | None) -> Ended:
        """Run relay in the user's work tree."""
        output = self.home / f"{top.name}.out"
        with output.open("a", encoding="utf-8") as file:
            file.write(f"--- {fault}\n")
        start = Start(
            root=top / "main",
            output=output,
            environ=self.environ,
            args=args,
            fault=fault,
            boot_id=self.boot_id,
        )
        return self.starter.run(start)

    def try_faults(self, *faults: Fault) -> tuple[list[str], list[str]]:
        """Interrupt a fresh landing at each of `faults` in turn, then finish it; return the calls and what is wrong."""
        hits, wrong = [], []
        with self.copy() as top:
            seen = self._find_versions(top)
            for fault in faults:
                ended = self.run(top, fault)
                hits += [ended.where] if ended.reached else []
                wrong += [f"outlived it: {ended}"] if fault.mode == "o" and ended.orphans else []
                self.boot_id = self.cut() or self.boot_id
                seen |= self._find_versions(top)
            ended = self.run(top)
            wrong += [] if ended.code == 0 else [f"not finished: {ended}"]
            wrong += self.check(top, seen)
            if wrong:
                wrong.append(self.read_output(top))
        return hits, wrong

    def _find_versions(self, top: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        for place in filter(Path.exists, (top / "main", *(find_place(top, phase_id) for phase_id in self.phases))):
            found |= {blob: f"{place.name}/{path}" for blob, path in find_versions(place, self.environ).items()}
        return {blob: path for blob, path in found.items() if not path.endswith("/.git") and "/.relay/" not in path}

    def check(self, top: Path, seen: dict[str, str]) -> list[str]:
        """Return in words what does not hold when all is landed."""
        wrong = self.check_files(top, FILES)
        ledger = self.git(top, "show", "main:PLAN.ledger.yaml", check=False)
        wrong += [f"no claim of phase {phase}" for phase in PHASES if f"it is {phase}" not in ledger]
        if find_ticked(self.git(top, "show", "main:PLAN.md")) != find_ticked(PLAN.replace("[ ]", "[x]")):
            wrong.append("not all boxes are ticked")
        lines = self.git(top, "log", "--format=%(trailers:key=Relay-Phase,valueonly,separator=%x2C) %P", "main")
        merges = [line for line in lines.splitlines() if len(line.split()) == 3]  # a phase, two parents
        if [line.split()[0] for line in merges] != ["2"]:
            wrong.append(f"merged: {lines}")
        wrong += [f"lost: {blob} {seen[blob]}" for blob in find_lost(top / "main", self.environ, seen)]
        wrong += self._check_spent(top)
        return wrong + self.check_leftovers(top)

    def check_files(self, top: Path, expected: dict[str, tuple[str, str]]) -> list[str]:
        """Return in words which files, and which work trees and branches, are not as they must be in the end."""
        wrong = []
        tracked = self.git(top, "ls-files", "-s", "--", ":!PLAN*").splitlines()
        found = {line.partition("\t")[2]: (line[:6], (top / "main" / line.partition("\t")[2])) for line in tracked}
        files = {path: (mode, file.read_text() if file.exists() else "") for path, (mode, file) in found.items()}
        if files != expected:
            wrong.append(f"the files differ: {files}")
        status = self.git(top, "status", "--porcelain")
        if status != " M mine.txt\n?? notes/\n":
            wrong.append(f"the status differs: {status!r}")
        wrong += [f"left: {place}" for place in [*top.glob("main.relay/*"), *top.glob("main/.git/worktrees/*")]]
        return wrong + [f"left: {branch}" for branch in self.git(top, "branch", "--list", "relay-jobs/*").split()]

    def _check_spent(self, top: Path) -> list[str]:
        """Landing costs nothing, and nothing is counted twice."""
        costs = self.git(top, "log", "--format=%(trailers:key=Relay-Cost,valueonly)", "main").split("\n")
        found = sorted(match[1] for cost in costs if (match := _COST.fullmatch(cost)) and float(match[1]))
        return [] if len(found) == len(PHASES) else [f"spent: {found}"]

    def check_leftovers(self, top: Path) -> list[str]:
        folder = top / "main/.git"
        fsck = self.git(top, *FSCK, check=False).strip()
        wrong = [f"fsck: {fsck}"] if fsck else []
        wrong += [f"left: {path.relative_to(top)}" for path in folder.rglob("*.lock")]
        wrong += [f"left: {path.relative_to(top)}" for path in folder.rglob("relay/pending")]
        wrong += [f"left: {path.relative_to(top)}" for path in folder.rglob("relay/intent")]
        attempts = self.git(top, "for-each-ref", "refs/relay/leg")
        return [*wrong, *([f"open: {attempts}"] if attempts else [])]


def make_chain(calls: int, seed: int) -> tuple[Fault, ...]:
    """Return two or three kills in a row among so many calls: the later ones fall into recoveries."""
    dice = random.Random(seed)
    count = dice.randint(2, 3)
    return tuple(Fault(at=dice.randint(1, calls), mode=dice.choice("bat")) for _ in range(count))


@contextlib.contextmanager
def open_landing_rig(
    *,
    watched: Path | None = None,
    cut: Callable[[], Path | None] = lambda: None,
    starter: Starter | None = None,
) -> Iterator[LandingRig]:
    """Open a rig in directories of its own; the watched one is in memory where there is such a place."""
    memory = Path("/dev/shm")
    parent = watched or (memory if memory.is_dir() else None)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-landing-", dir=parent))).resolve()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-landing-home-"))).resolve()
        starter = starter or stack.enter_context(open_starter())
        server = stack.enter_context(serve(parse_script(make_script()), keeps_bodies=False))
        yield LandingRig(place, home, starter, server, cut, on_disk=watched is not None)


def main() -> int:
    """Kill at every call, cut the power at some, and print a table; exit status 1 when anything did not hold."""
    from rigs.crash.powercut import open_disk

    parser = argparse.ArgumentParser(prog="python -m rigs.crash.landing", description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="make every n-th trial only")
    parser.add_argument("--cuts", type=int, default=100, help="how many power cuts")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial of a row after this time")
    asked = parser.parse_args()
    failed = 0
    with open_landing_rig() as rig:
        calls = rig.count()
        every = range(1, calls + 1)
        kills = [(Fault(at=at, mode=mode),) for at in every for mode in "bat"]
        failures = [
            (Fault(at=at, mode=mode, error=error),)
            for at, mode, error in itertools.product(every, "eE", (errno.ENOSPC, errno.EIO))
        ]
        failed += try_row(rig, "killed while phases land", kills[:: asked.share], asked.seconds)
        alone = [(Fault(at=at, mode="o"),) for at in every]
        failed += try_row(rig, "parent, child or git killed alone", alone[:: asked.share], asked.seconds)
        failed += try_row(rig, "2-3 kills in a row", [make_chain(calls, n) for n in range(100)], asked.seconds)
        failed += try_row(rig, "ENOSPC or EIO", failures[:: asked.share], asked.seconds)
    if asked.cuts:
        with open_disk() as disk, open_landing_rig(watched=disk.mount_point, cut=disk.cut) as rig:
            dice, calls = random.Random(0), rig.count()
            cuts = [(Fault(at=dice.randint(1, calls)),) for _ in range(asked.cuts)]
            failed += try_row(rig, "power cut while phases land", cuts, asked.seconds)
    return int(failed > 0)


def try_row(rig: LandingRig, name: str, trials: Sequence[tuple[Fault, ...]], seconds: float) -> int:
    """Make the trials in a random order, print their row of the table, and return how many failed."""
    begun, made, failed = time.monotonic(), 0, 0
    order = random.Random(0).sample(trials, len(trials))
    for faults in itertools.takewhile(lambda _: time.monotonic() - begun < seconds, order):
        hits, wrong = rig.try_faults(*faults)
        made, failed = made + 1, failed + bool(wrong)
        if wrong:
            print(f"FAILED {faults} at {hits}:", *wrong, sep="\n", flush=True)  # noqa: T201  # a command
    print(f"| {name} | {made} | {len(trials)} | {failed} |", flush=True)  # noqa: T201  # a command
    return failed


if __name__ == "__main__":
    sys.exit(main())
