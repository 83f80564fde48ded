"""A worker that ends at a step that has a name: who goes on, what is paid for, what is lost, what a person reads.

The steps are calls that change files or send something (`killat.c`), found by what they act on; so each is met whatever
comes before it. What is asserted is seen from outside: git, bills of the model, the account, what `fleet status` says.
"""

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

from relay.fleet.claims import ClaimRegistry, PhaseClaim
from relay.fleet.overview import open_registry
from relay.git.remote import Remote
from relay.git.repository import open_repo
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import Rehearsal, serve
from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd
from rigs.crash.invariants import find_lost, find_versions
from rigs.crash.rig import PRICE
from rigs.crash.scenario import git, make_environ
from rigs.crash.tracer import Ended, Fault, Start, Starter, open_starter
from tests.copied import FSCK

CAP_USD = 20.0
PLAN = f"""\
---
relay: {{max_cost_usd: {CAP_USD:g}}}
---
# Steps

## Phase 1 — One
Verify: `test -s 1.txt`
- [ ] Write 1.txt

## Phase 2 — Two
Verify: `test -s 2.txt`
- [ ] Write 2.txt
"""
PHASES = 2
_COST = re.compile(r"^Relay-Cost: ~?([0-9.]+) USD$", re.MULTILINE)
_STAYS = re.compile(r"refs/heads/main|refs/relay/claims/\w+/account|refs/relay/spent/main/booked-\w+")
"""What a remote keeps of a plan that is done: its branch, what is reserved, what lost claims cost."""
_HERE, _AWAY = "/{top}/ann/.git/", "/{top}/away.git/./"
_JOB = "refs/heads/relay-jobs/main/1"
_CLAIM = f"rename {_AWAY}refs/relay/claims/"
STEPS: dict[str, tuple[str, int, str]] = {
    "the plan is fetched": (f"rename {_HERE}refs/relay/tip/", 1, "can begin"),
    "the claim is pushed": (_CLAIM, 1, "can begin|claimed"),
    "the account is pushed": (_CLAIM, 2, "claimed"),
    "the phase's branch is made": (f"rename {_HERE}{_JOB}", 1, "claimed"),
    "the work tree is made": (f"open {_HERE}worktrees/1/HEAD", 1, "claimed"),
    "its run begins": (f"truncate {_HERE}worktrees/1/relay/lock", 2, "claimed"),
    "the attempt is opened": (f"rename {_HERE}refs/relay/leg/", 1, "claimed"),
    "the first request": ("send POST /v1/messages", 1, "claimed"),
    "a snapshot is kept": (f"rename {_HERE}refs/relay/wip/", 1, "claimed"),
    "the second request": ("send POST /v1/messages", 2, "claimed"),
    "the gate": ("relay/outputs/gate-", 2, "claimed"),
    "the commit": (f"rename {_HERE}{_JOB}", 2, "claimed"),
    "the attempt is closed": (f"unlink {_HERE}refs/relay/leg/", 1, "claimed"),
    "the result is pushed": (f"rename {_AWAY}{_JOB}", 1, "claimed"),
    "the plan's branch is pushed": (f"rename {_AWAY}refs/heads/main", 1, "claimed|done"),
    "the claim is ended": (f"unlink {_AWAY}refs/relay/claims/", 1, "claimed|done"),
    "the clone follows": (f"rename {_HERE}refs/heads/main", 1, "done"),
}
"""Of a worker on phase 1: what its call is shown with, which of them, what `relay fleet status` says of the phase."""


def make_script() -> str:
    """Return a model that does a phase in a session, as often as it is asked."""
    sessions = []
    for n in range(1, PHASES + 1):
        turns = (
            f"{{tools: [{{name: write, input: {{path: {n}.txt, content: '{n}'}}}}]}}, "
            f"{{tools: [{{name: tick, input: {{item: '{n}.1', evidence: seen}}}}]}}, {{text: done}}"
        )
        sessions.append(f"- {{repeat: true, when: {{first_message_contains: 'Write {n}.txt'}}, turns: [{turns}]}}")
    return "\n".join(["sessions:", *sessions])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of a fault."""

    hit: str
    """The call; empty when it was not met."""
    wrong: tuple[str, ...]
    read: str
    """What a person reads of phase 1 then."""
    answers: int
    """More than without a fault."""


@dataclass(slots=True)
class StepRig:
    """A starter, a model, and what is copied for each trial: a bare repository and two clones."""

    place: Path
    home: Path
    starter: Starter
    server: Rehearsal
    calls: tuple[str, ...] = ()
    """Of a worker that nobody ends."""
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        top = self.place / "origin"
        first = top / "first"
        first.mkdir(parents=True)
        self.git(first, "init", "-q", "-b", "main")
        (first / "PLAN.md").write_text(PLAN)
        self.git(first, "add", ".")
        self.git(first, "commit", "-qm", "plan")
        self.git(top, "clone", "-q", "--bare", "first", "away.git")
        self.git(top / "away.git", "config", "core.logAllRefUpdates", "always")
        for name in ("ann", "bob"):
            self.git(top, "clone", "-q", str(top / "away.git"), name)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of every command."""
        return make_environ(self.home, self.server.base_url, sandbox="off")

    def git(self, root: Path, *args: str, check: bool = True) -> str:
        """Run git as a person would."""
        return git(root, *args, environ=self.environ, check=check)

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        """Give a fresh copy, gone afterwards."""
        top = self.place / f"trial-{next(self._numbers):05d}"
        shutil.copytree(self.place / "origin", top, symlinks=True)
        for name in ("ann", "bob"):
            self.git(top / name, "remote", "set-url", "origin", str(top / "away.git"))
        try:
            yield top
        finally:
            shutil.rmtree(top)

    def run(self, root: Path, *args: str, fault: Fault | None = None, python: bool = False) -> tuple[Ended, str]:
        """Run relay; return how it ended and what it said."""
        output = self.home / f"said-{next(self._numbers):05d}"
        start = Start(root=root, output=output, environ=self.environ, args=args, fault=fault, python=python)
        ended = self.starter.run(start)
        said = output.read_text(encoding="utf-8")
        output.unlink()
        return ended, said

    def work(self, root: Path, *args: str, fault: Fault | None = None) -> tuple[Ended, str]:
        """Be a worker, of one phase or all."""
        return self.run(root, "work", "--lease", "3600", *(args or ("--phase", "all")), fault=fault)

    def try_step(self, name: str, mode: str, *, other: bool) -> Trial:
        """End a worker at a step; it, or another one, goes on.

        Args:
            name: Of `STEPS`.
            mode: Of the fault; ``x`` kills the worker's own process alone, the remote and its run go on.
            other: Whether another worker goes on, before this one comes back.
        """
        on, at, words = STEPS[name]
        with self.copy() as top:
            fault = Fault(at=at, mode=mode, on=on.format(top=str(top)[1:]), then="kill -9 $KILLAT_PID")
            before = len(self.server.requests)
            ended, said = self.work(top / "ann", "--phase", "1", fault=fault)
            if not ended.reached:
                return Trial(hit="", wrong=(f"not met: {ended}", said), read="", answers=0)
            seen, is_landed = (
                self.find_versions(top / "ann"),
                "[x]" in self.git(top / "away.git", "show", "main:PLAN.md"),
            )
            since = self.count_asked(1)
            read, wrong = self.read_status(top, words, top / "ann")
            said += self._recover(top, other=other)
            wrong += [] if "ann: Ended(code=0," in said else ["the worker that is back fails"]
            wrong += self.check(top, seen, since=before, is_exact="request" not in name)
            if is_landed and self.count_asked(1) != since:
                wrong.append("phase 1 was paid again after it had landed")
            if wrong or "code=None" in said:
                wrong.append(said)
            answers = sum(bool(one.usage) for one in self.server.requests[before:]) - 3 * PHASES
        return Trial(hit=ended.where, wrong=tuple(wrong), read=read, answers=answers)

    def _recover(self, top: Path, *, other: bool) -> str:
        for lock in [*(top / "away.git").rglob("*.lock")]:  # a host that died in the middle does so when it is back
            lock.unlink()
        said = ""
        if other:
            self.age(top)
            ended, words = self.work(top / "bob")
            said += f"bob: {ended}\n{words}"
        ended, words = self.work(top / "ann")
        return f"{said}ann: {ended}\n{words}"

    def registry(self, top: Path, worker: str = "") -> ClaimRegistry:
        """Return where the claims are."""
        repo = open_repo(top / "first", self.environ)
        remote = Remote(repo=repo, name=str(top / "away.git"), environ=self.environ)
        return open_registry(remote, "main", "PLAN.md", worker=worker)

    def age(self, top: Path) -> tuple[PhaseClaim, ...]:
        """Have time pass: claims are as old as if their workers had been silent."""
        held = self.registry(top).read().held
        for claim in held:
            replace(self.registry(top, claim.worker), lease_s=1, now=lambda: time.time() - 60).renew(claim)
        return held

    def read_status(self, top: Path, words: str, clone: Path, *args: str) -> tuple[str, list[str]]:
        """Return what a person reads of phase 1 of the fleet, and what is wrong there or in the clone's own status.

        Args:
            top: The trial's.
            words: A pattern for what is to be read of the phase.
            clone: Of the worker that ended.
            *args: Of ``relay fleet status --why``.
        """
        lines = self.run(top / "bob", "fleet", "status", "--why", *args)[1].splitlines()
        read = next((line.strip() for line in lines if line.strip().startswith("1  One: ")), "\n".join(lines))
        wrong = [] if re.search(words, read) else [f"a person reads: {read}"]
        for place in (clone, top / "bob"):
            if not (place / ".git").exists():
                continue
            ended, said = self.run(place, "status", "--why")
            is_claimed = "claimed by" in read and place != clone
            expected = "next   relay work, as the workers do" if is_claimed else "^(next|now) "
            if ended.code or not re.search(expected, said, re.MULTILINE):
                wrong.append(f"in {place.name} a person reads: {said}")
        return read, wrong

    def count_asked(self, phase: int) -> int:
        """Return how many answers a phase has had."""
        return sum(f"Carry out phase {phase} now" in str(one.body) for one in self.server.requests if one.usage)

    def find_versions(self, clone: Path) -> dict[str, str]:
        """Return what there is of a clone's, in work trees and snapshots: object id → where."""
        found: dict[str, str] = {}
        for place in (clone, clone.with_name(f"{clone.name}.relay") / "1"):
            if (place / ".git").exists():
                found |= {blob: f"{place.name}/{path}" for blob, path in find_versions(place, self.environ).items()}
        found = {blob: path for blob, path in found.items() if not path.endswith("/.git") and "/.relay/" not in path}
        if not (clone / ".git").exists():
            return {}
        kept = self.git(clone, "for-each-ref", "--format=%(objectname) %(refname)", "refs/relay/wip")
        return found | dict(line.split() for line in kept.splitlines())

    def check(
        self, top: Path, seen: dict[str, str], *, since: int, clone: Path | None = None, is_exact: bool = False
    ) -> list[str]:
        """Return in words what does not hold when the plan is done.

        Args:
            top: The trial's.
            seen: What there was of a clone's, as `find_versions` returns it.
            since: How many requests there were before.
            clone: Whose; None for ann's.
            is_exact: Whether all workers are back, and no answer was cut off.
        """
        away, wrong = top / "away.git", []
        if (done := self.git(away, "show", "main:PLAN.md").count("[x]")) != PHASES:
            wrong.append(f"{done} of {PHASES} phases are done")
        status = self.git(away, "log", "--first-parent", "--format=%(trailers:key=Relay-Status,valueonly)", "main")
        wrong += [f"commits: {status.split()}"] if status.split().count("done") != PHASES else []
        log = away / "logs/refs/heads/main"
        moves = (
            {line.split()[1] for line in log.read_text().splitlines()} if log.exists() else set()
        )  # noted, then moved
        wrong += [f"{len(moves)} pushes of the plan's branch"] if len(moves) != PHASES else []
        refs = self.git(away, "for-each-ref", "--format=%(refname)").split()
        wrong += find_left(refs)
        clone = clone or top / "ann"
        for place in (away, clone, top / "bob"):
            fsck = self.git(place, *FSCK, check=False).strip()
            wrong += [f"fsck {place.name}: {fsck}"] if fsck else []
        here = self.find_versions(clone)
        wrong += [f"lost: {seen[blob]}" for blob in find_lost(clone, self.environ, seen) if blob not in here]
        return wrong + self._check_money(top, since, is_exact=is_exact)

    def _check_money(self, top: Path, since: int, *, is_exact: bool) -> list[str]:
        usages = [parse_api_usage(one.usage) for one in self.server.requests[since:] if one.usage]
        billed = sum(cost_usd(usage, PRICE) for usage in usages if usage)
        spent = read_told(partial(self.git, top / "away.git"))
        claims = self.registry(top).read()
        words = f"{billed:.4f} USD are billed, {spent:.4f} told, {claims.reserved_usd:.4f} reserved of {CAP_USD:g}"
        most = billed if is_exact else CAP_USD
        return [] if billed - 1e-4 <= spent + claims.reserved_usd <= most + 1e-4 else [words]


def find_left(refs: Iterable[str]) -> list[str]:
    """Return in words which refs of a remote nobody needs any more, of a plan that is done."""
    return [f"left: {ref}" for ref in refs if not _STAYS.fullmatch(ref)]


def read_told(git_away: Callable[..., str]) -> float:
    """Return what a remote tells of a plan's cost, in USD: in commits of its branch, and booked besides.

    Args:
        git_away: Runs git in the remote.
    """
    booked = git_away("for-each-ref", "--format=%(contents)", "refs/relay/spent/main/")
    return sum(map(float, _COST.findall(git_away("log", "--format=%B", "main") + booked)))


@contextlib.contextmanager
def open_step_rig(starter: Starter | None = None) -> Iterator[StepRig]:
    """Open a rig in directories of its own, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with contextlib.ExitStack() as stack:
        parent = memory if memory.is_dir() else None
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-steps-", dir=parent))).resolve()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-steps-home-"))).resolve()
        starter = starter or stack.enter_context(open_starter())
        server = stack.enter_context(serve(parse_script(make_script())))
        yield StepRig(place, home, starter, server)
