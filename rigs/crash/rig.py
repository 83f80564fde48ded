"""Interrupt a run, run relay until it is done, look at what is left; and sweeps of that."""

import contextlib
import itertools
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd, find_price
from rigs.crash.invariants import Final, Kept, check_all, check_spent, find_versions, hash_blob, read_final, read_kept
from rigs.crash.scenario import copy_repository, git, make_environ, make_repository, make_script
from rigs.crash.tracer import Ended, Fault, Start, Starter, open_starter
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

_PRICE = find_price("claude-opus-5-5")
assert _PRICE
PRICE = _PRICE
MAX_RUNS = 4
"""Runs that a recovery may take; one is what it should take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One interrupted job and what came of it."""

    faults: tuple[Fault, ...]
    hits: tuple[str, ...]
    """The calls at which faults happened."""
    wrong: tuple[str, ...]
    """What did not hold; empty when all did."""
    extra_answers: int
    """Answers of the model beyond those of an uninterrupted job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The job when nobody interrupts it."""

    calls: tuple[str, ...]
    """What changes files: the call's name, a blank, and what it acts on."""
    writes: tuple[int, ...]
    """Those of them that write two bytes or more, and can be torn."""
    final: Final
    answers: int

    @property
    def count(self) -> int:
        """How many calls change files."""
        return len(self.calls)

    def find_call(self, name: str, end: str) -> int:
        """Return the number of the first call of that name on what ends so."""
        return 1 + next(at for at, call in enumerate(self.calls) if call.startswith(f"{name} ") and call.endswith(end))


@dataclass(slots=True)
class Rig:
    """A starter, a server that outlives every run, and one repository to copy."""

    place: Path
    """Its file system is the watched one."""
    home: Path
    """On another one where possible: temporary files and output."""
    starter: Starter
    server: Endpoint
    sandbox: str
    cut: Callable[[], Path | None] = lambda: None
    """Called after each kill; returns the file with the boot id of the machine from then on."""
    on_disk: bool = False
    """Copies are synced, so that a power cut leaves the user's things as they were."""
    boot_id: Path | None = None
    root: Path | None = None
    """Where a person saves a file meanwhile; None for nowhere."""
    saved: dict[str, str] = field(default_factory=dict)
    """Object id → words, for all that was saved so."""
    kept: Kept = field(init=False)
    reference: Reference = field(init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        make_repository(self.place / "origin", self.environ)
        self.kept = read_kept(self.place / "origin", self.environ)
        self.reference = self._read_reference()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of every run."""
        return make_environ(self.home, self.server.base_url, sandbox=self.sandbox)

    def count_answers(self) -> int:
        """Return how many answers of the model were asked for so far."""
        return sum(1 for request in self.server.requests if request.path == "/v1/messages")

    def count_billed(self, since: int) -> float:
        """Return what the answers cost, in USD, that were asked for behind the first `since` requests."""
        usages = [parse_api_usage(request.usage) for request in self.server.requests[since:] if request.usage]
        return sum(cost_usd(usage, PRICE) for usage in usages if usage)

    def save_meanwhile(self) -> float:
        """Be the person who saves a file while the model thinks, which the session's next command makes too.

        It is the server's clock, since that asks when a request has come and is not answered yet.
        """
        if self.root is not None and not (file := self.root / "app.txt").exists():
            text = f"saved in an editor, {next(self._numbers)}\n".encode()
            self.saved[hash_blob(text)] = "saved while the model thought"
            with contextlib.suppress(FileExistsError), file.open("xb") as stream:
                stream.write(text)
            if self.on_disk:  # as an editor does: what its own writer never synced a power cut takes from anybody
                subprocess.run(["sync", str(file), str(self.root)], check=True)
        return time.monotonic()

    def run(self, root: Path, fault: Fault | None = None, *, log: Path | None = None, python: bool = False) -> Ended:
        """Run relay once in `root`."""
        output = self.home / f"{root.name}.out"
        with output.open("a", encoding="utf-8") as file:
            file.write(f"--- {fault}\n")
        start = Start(
            root=root, output=output, environ=self.environ, fault=fault, log=log, boot_id=self.boot_id, python=python
        )
        return self.starter.run(start)

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        """Give a fresh copy of the repository, gone afterwards."""
        root = self.place / f"trial-{next(self._numbers):05d}"
        copy_repository(self.place / "origin", root)
        if self.on_disk:
            subprocess.run(["sync", "-f", str(root)], check=True)
        try:
            yield root
        finally:
            shutil.rmtree(root)
            shutil.rmtree(root.with_name(f"{root.name}.relay"), ignore_errors=True)
            for left in (self.home / "tmp").iterdir():
                shutil.rmtree(left, ignore_errors=True)

    def _read_reference(self) -> Reference:
        before = self.count_answers()
        with self.copy() as root:
            log = self.home / "calls"
            ended = self.run(root, Fault(), log=log)
            output = (self.home / f"{root.name}.out").read_text(encoding="utf-8")
            assert ended.code == 0, f"the scenario does not work: {ended}\n{output}\n{self.server.errors}"
            calls = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]
            found = Reference(
                calls=tuple(f"{call[1]} {call[4]}" for call in calls),
                writes=tuple(int(call[0]) for call in calls if int(call[2]) > 1),
                final=read_final(root, self.environ),
                answers=self.count_answers() - before,
            )
            seen = find_versions(self.place / "origin", self.environ)
            wrong = check_all(root, self.environ, kept=self.kept, final=found.final, seen=seen)
            assert not wrong, wrong
            return found

    def try_faults(self, faults: Iterable[Fault], *, python: bool = False) -> Trial:
        """Interrupt a fresh job at each of `faults` in turn, finish it, and check everything."""
        before, faults, since = self.count_answers(), tuple(faults), len(self.server.requests)
        self.saved = {}
        seen = dict(find_versions(self.place / "origin", self.environ))
        hits: list[str] = []
        wrong: list[str] = []
        with self.copy() as root:
            self.root = root
            for fault in faults:
                ended = self.run(root, fault, python=python)
                self.boot_id = self.cut() or self.boot_id
                wrong += self._check_acknowledged(root)
                hits += [ended.where] if ended.reached else []
                wrong += [f"{ended.orphans} processes outlive the run"] if ended.orphans else []
                if ended.code == 0 and ended.reached and fault.mode in "eE":
                    wrong += self._check_done(root)
                seen |= find_versions(root, self.environ)
            wrong += self._finish(root)
            self.root = None
            seen = {blob: words for blob, words in seen.items() if blob not in self.saved}
            answers = self.count_answers() - before - self.reference.answers
            try:
                lost = check_all(root, self.environ, kept=self.kept, final=self.reference.final, seen=seen)
                wrong += [f"{words} {seen.get(words.removeprefix('lost: '), '')}" for words in lost]
                kills = len(faults) + sum(fault.mode == "E" for fault in faults) if hits else 0
                wrong += check_spent(root, self.environ, billed=self.count_billed(since), kills=kills)
                wrong += self._check_idle(root)
            except subprocess.CalledProcessError as error:
                wrong.append(f"the repository cannot be read: {error}")
            if wrong:
                output = self.home / f"{root.name}.out"
                wrong.append(f"output: {output}")
            else:
                (self.home / f"{root.name}.out").unlink()
        return Trial(faults=faults, hits=tuple(hits), wrong=tuple(wrong), extra_answers=answers)

    def _finish(self, root: Path) -> list[str]:
        ended, wrong = Ended(code=None), list[str]()
        for _ in range(MAX_RUNS):
            wrong += self._take_away(root)
            ended = self.run(root)
            if ended.code == 0:
                return wrong
        return [*wrong, f"{MAX_RUNS} runs did not finish the job: {ended.code}"]

    def _take_away(self, root: Path) -> list[str]:
        """Be the person again, whose file is in the way of the phase: move it away, and save it no more."""
        file, self.root = root / "app.txt", None
        if not file.exists() or git(root, "ls-tree", "HEAD", "app.txt", environ=self.environ):
            return []
        is_own = hash_blob(file.read_bytes()) in self.saved
        file.unlink()
        return [] if is_own else ["the file that the user saved has other bytes"]

    def _check_acknowledged(self, root: Path) -> list[str]:
        """Every commit that a run has told of is on a branch: the plan's, or the one that lands there."""
        told = re.findall(r"^[\d:]+ commit ([0-9a-f]{8}) ", (self.home / f"{root.name}.out").read_text(), re.MULTILINE)
        there = git(root, "rev-list", "--branches", environ=self.environ, check=False).split()
        return [f"lost commit {commit}" for commit in told if not any(one.startswith(commit) for one in there)]

    def _check_done(self, root: Path) -> list[str]:
        """A run that says it is done, although a call failed, has to be."""
        final = read_final(root, self.environ)
        return [] if final.tree == self.reference.final.tree else ["said to be done and is not"]

    def _check_idle(self, root: Path) -> list[str]:
        """Another run changes nothing and asks nobody."""
        refs, answers = git(root, "show-ref", environ=self.environ), self.count_answers()
        status = git(root, "status", "--porcelain", environ=self.environ)
        ended = self.run(root)
        same = refs == git(root, "show-ref", environ=self.environ)
        same = same and status == git(root, "status", "--porcelain", environ=self.environ)
        if ended.code == 0 and same and answers == self.count_answers():
            return []
        return [f"another run is not idle: {ended.code}, same: {same}, answers: {self.count_answers() - answers}"]

    def make_chain(self, seed: int) -> tuple[Fault, ...]:
        """Return two or three kills in a row, chosen by `seed`: the later ones fall into recoveries."""
        dice = random.Random(seed)
        first = Fault(at=dice.randint(1, self.reference.count), mode=dice.choice("bat"))
        later = [
            Fault(
                at=dice.choice((dice.randint(1, 120), dice.randint(1, self.reference.count))), mode=dice.choice("bat")
            )
            for _ in range(dice.randint(1, 2))
        ]
        return (first, *later)


@contextlib.contextmanager
def open_rig(
    *,
    sandbox: str = "off",
    watched: Path | None = None,
    cut: Callable[[], Path | None] = lambda: None,
    starter: Starter | None = None,
) -> Iterator[Rig]:
    """Open a rig in directories of its own; the watched one is in memory where there is such a place.

    It has a starter of its own unless one is given.
    """
    memory = Path("/dev/shm")  # a file system of its own, so that only the scenario's files count
    parent = watched or (memory if memory.is_dir() else None)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-crash-", dir=parent))).resolve()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-crash-home-"))).resolve()
        starter = starter or stack.enter_context(open_starter())
        made: list[Rig] = []

        def clock() -> float:
            return made[0].save_meanwhile() if made else time.monotonic()

        server = stack.enter_context(serve(parse_script(make_script()), clock=clock, keeps_bodies=False))
        rig = Rig(
            place=place,
            home=home,
            starter=starter,
            server=server,
            sandbox=sandbox,
            cut=cut,
            on_disk=watched is not None,
        )
        made.append(rig)
        yield rig
