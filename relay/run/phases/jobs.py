"""The jobs of a run: their processes, the shared cap, and the reasons why phases wait.

A job's process is a `relay run --json`, whose events are read as they come. `relay.run.phases.parent` asks this
module which phases can begin and at which commit, how much a job has spent (from git), and how to explain phases that
stay open at the end.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import IO, Self

from relay.base.errors import ExitCode
from relay.base.hints import Command, Hint
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.base.words import count, list_some
from relay.git.repository import Repo
from relay.plan.model import Phase, Plan
from relay.plan.waves import find_ready
from relay.run.phases.landing import Job
from relay.run.selection import Selection
from relay.session.events import (
    RequestStarted,
    ResponseReceived,
    RunEnded,
    RunStarted,
    TextShown,
)
from relay.session.records import LoggedEvent, parse_record
from relay.session.usage import Spent, Usage
from relay.setup.context import RunEnd
from relay.setup.open import hold_worktree
from relay.store.history import find_text
from relay.store.plan_versions import parse_at

_CHUNK_BYTES = 1 << 16
_LAST_CHARS = 2_000
FIRST_TOKEN_S = 4.0
"""After so long an answer has begun, or will have when a sibling that starts now asks, a second or two later.

No event says so before the answer is complete; first tokens come within seconds.
"""
LOST = "it was killed, or the system ended it"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a phase's run ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    reason: str
    next_command: str = ""
    hint: str = ""
    """What to do when the run could not begin; empty otherwise."""
    kind: str = ""
    """What the user has to change then, as in `relay.base.errors.ErrorKind`; empty otherwise."""
    unsent: Spent | None = None
    """As in `relay.setup.context.RunEnd`: it would have gone on with this much more."""
    began: bool = True
    """Whether the run began: its preconditions held."""
    own: RunEnd | None = None
    """The end of a phase at work in this process, which says it all; None for a child's."""


class JobRun:
    """A relay process at work in a work tree of its own. Mutable: its events are read, and it ends.

    Args:
        root: Its work tree.
        words: Its command line, without ``relay`` and ``--json``.
    """

    def __init__(self, root: Path, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._asked_at: float | None = None
        self._is_answered = False
        self._rest = b""
        self._errors = b""
        self._ended: RunEnded | None = None
        self._began = False
        # A session of its own: Ctrl-C in the terminal reaches the parent only, which hands it on.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "relay", *words, "--json", "--job-of", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=root,
            env=environ,
            start_new_session=True,
        )
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)

    @property
    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        out, err = self._process.stdout, self._process.stderr
        assert out is not None  # noqa: S101  # asked for
        assert err is not None  # noqa: S101  # as well
        return out, err

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors to wait on for its output."""
        return tuple(stream.fileno() for stream in self._streams if not stream.closed)

    def hear(self) -> Iterator[LoggedEvent]:
        """Yield its events since the last call."""
        out, err = self._streams
        self._errors = (self._errors + _read(err))[-_LAST_CHARS:]
        *lines, self._rest = (self._rest + _read(out)).split(b"\n")
        for line in lines:
            if record := parse_record(line):
                match record.event:
                    case ResponseReceived() | TextShown():
                        self._is_answered = True
                    case RequestStarted():
                        self._asked_at = self._asked_at or record.at
                    case RunStarted():
                        self._began = True
                    case RunEnded() as event:
                        self._ended = event
                    case _:
                        pass
                yield record

    def follow(self, interrupts: Interrupts, look_s: float) -> Iterator[tuple[LoggedEvent, ...]]:
        """Yield its events until it has ended, and nothing every `look_s` seconds; hand over a wish to stop."""
        asked, has_ended = 0, not self.descriptors  # they are gone once it is closed
        while not has_ended:
            interrupts.wait_for(self.descriptors, look_s)
            wanted = interrupts.finish_turn + interrupts.stop_now
            if wanted > asked:
                asked = wanted
                self.interrupt(now=asked > 1)
            has_ended = self.has_ended  # asked first: what it said before is heard
            yield tuple(self.hear())

    def interrupt(self, *, now: bool) -> None:
        """Ask it to hand over, or to stop at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if now else signal.SIGINT)

    @property
    def has_spoken(self) -> bool:
        """Whether its first answer has probably begun: from then on its prefix is in the prompt cache."""
        return self._is_answered or (self._asked_at is not None and time.time() > self._asked_at + FIRST_TOKEN_S)

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request. A run that only lands a phase sends one if it has to repair something."""
        return self._asked_at is not None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; its last events may still be unread."""
        return self._process.poll() is not None

    def close(self) -> JobEnd:
        """Wait for its end and return it; unread events are lost."""
        for stream in self._streams:
            stream.close()  # first: nobody waits for room in a pipe that is not read
        code = self._process.wait()
        ended = self._ended
        reason, hint, kind = find_error(self._errors.decode(errors="replace"))
        return JobEnd(
            exit_code=ended.exit_code if ended else code,
            reason=ended.reason if ended else reason,
            hint="" if ended else hint,
            kind="" if ended else kind,
            next_command=ended.next_command if ended else "",
            unsent=_read_unsent(ended) if ended else None,
            began=self._began,
        )


def _read_unsent(ended: RunEnded) -> Spent | None:
    if ended.unsent_tokens is None:
        return None
    return Spent(usage=Usage(input_tokens=ended.unsent_tokens), cost_usd=ended.unsent_usd, estimated=True)


def _read(stream: IO[bytes]) -> bytes:
    found = b""
    while chunk := stream.read(_CHUNK_BYTES):
        found += chunk
    return found


def find_error(said: str) -> tuple[str, str, str]:
    """Return the reason why the run could not begin, the hint and the error's kind, from its standard error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    try:
        error = json.loads(lines[-1])["error"]
        return str(error["message"]), str(error["hint"]), str(error["kind"])
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return "; ".join(lines[-3:]) or LOST, "", ""


Amounts = tuple[float, float]
"""In USD and in tokens; infinite where there is no cap."""


def count_places(free: int, *, ready: int, waiting: int, is_alone: bool) -> int:
    """Return among how many jobs to divide the rest of a cap when one of them starts.

    Args:
        free: How many more may be at work.
        ready: How many can start now, this one included.
        waiting: How many are not done and not at work, this one included.
        is_alone: Whether nobody is at work. Otherwise a landing makes further jobs ready, and they need a share.
    """
    return min(free, ready if is_alone else waiting)


class SharedCap:
    """What one plan may cost. Mutable: jobs take shares of it, and give back what they have not spent.

    Args:
        caps: In USD and in tokens; infinite: no cap. A person may change them; shares that jobs have stay.
        spent: What the plan has cost by now.
    """

    def __init__(self, caps: Amounts, spent: Spent) -> None:
        self.caps = caps
        self._spent = [spent.cost_usd or 0.0, float(spent.tokens)]
        self._shares: dict[str, Amounts] = {}

    def offer(self, places: int) -> Amounts:
        """Return the share that a job would get of what is neither spent nor set aside.

        Args:
            places: Among how many jobs, this one included, that is divided.
        """
        usd, tokens = (
            max(0.0, cap - spent - sum(share[at] for share in self._shares.values())) / max(1, places)
            for at, (cap, spent) in enumerate(zip(self.caps, self._spent, strict=True))
        )
        return usd, tokens

    def take(self, name: str, places: int) -> Amounts:
        """Set a share aside for a job."""
        usd, tokens = share = self.offer(places)
        self._shares[name] = (usd if math.isfinite(usd) else 0.0, tokens if math.isfinite(tokens) else 0.0)
        return share

    def give_back(self, name: str, spent: tuple[float | None, float]) -> None:
        """Take back the unspent share of a job that has ended; of what is unknown the whole share counts."""
        for at, (share, one) in enumerate(zip(self._shares.pop(name), spent, strict=True)):
            self._spent[at] += share if one is None else one


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPhase:
    """A phase that can begin."""

    phase_id: str
    commit: str = ""
    """The commit to begin at; empty for the tip of the plan's branch."""


def find_ready_phases(
    main: Repo, plan_path: str, plan: Plan, held: Collection[str], done: Mapping[str, str]
) -> tuple[ReadyPhase, ...]:
    """Return the phases that can begin, in plan order.

    A phase that waits only for the landing of another phase begins on the commit of that phase, which has passed its
    gate, without waiting until that commit is merged with others. It lands after that phase.

    Args:
        main: The work tree whose branch is the plan's.
        plan: The plan on that branch.
        held: Ids of phases that must not begin.
        done: Phases among `held` that are done and have not landed: id → commit.
    """
    found = {phase.id: ReadyPhase(phase_id=phase.id) for phase in find_ready(plan, held)}
    left = [phase for phase in plan.phases if not (phase.done or phase.id in held or phase.id in found)]
    waits = plan.find_waits()
    for phase_id, commit in done.items():
        waiting = [phase for phase in left if phase_id in waits[phase.id]]
        text = find_text(main, commit, plan_path) if waiting else None
        if text is None:
            continue
        own = parse_at(text, plan_path)
        # What has landed since is not in that commit: it is at work, as far as that is concerned.
        others = {*held, *(phase.id for phase in plan.phases if phase.done)} - {phase_id}
        ready = {phase.id: phase for phase in find_ready(own, others)}
        found |= {
            phase.id: ReadyPhase(phase_id=phase.id, commit=commit)
            for phase in waiting
            if phase.id in ready and _is_same(plan, phase, own, ready[phase.id])
        }
    return tuple(found[phase.id] for phase in plan.phases if phase.id in found)


def _is_same(plan: Plan, phase: Phase, other_plan: Plan, other: Phase) -> bool:
    texts = plan.text[phase.start : phase.end], other_plan.text[other.start : other.end]
    names = [[found.heading for found in one.phases if found.id in phase.after] for one in (plan, other_plan)]
    return texts[0] == texts[1] and (phase.verify, phase.after) == (other.verify, other.after) and names[0] == names[1]


class Held(ExitStack):
    """The lock of a job's work tree, kept until a phase has been worked on there. Mutable: it is taken and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.left: tuple[str, ...] | None = None
        """What `relay.setup.open.hold_worktree` said; None: it is not held."""

    def hold(self, repo: Repo) -> AbstractContextManager[object]:
        """Take the lock, and keep it."""
        self.left = self.enter_context(hold_worktree(repo))
        return nullcontext()

    def keep(self) -> Self:
        """Return what is held; the end of this one's block does not give it back."""
        kept = self.pop_all()
        kept.left = self.left
        return kept


@dataclass(slots=True, kw_only=True)
class Working:
    """A phase at work. Mutable: the parent reads its events."""

    job: Job
    merges: str
    """The commit that it lands; empty where it works on the phase."""
    held: Held
    """The lock of its work tree, where this process works on it."""
    child: JobRun | None = None
    """None: this process works on it."""
    has_all: bool = True
    """Whether it has all that was left of the cap."""
    read_cost: Callable[[], Spent] = Spent
    """Return what a child's phase has cost since a commit, by git: its work tree may be gone when it ends."""
    before: Spent = Spent()
    """That cost when it began."""

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request."""
        return self.child is None or self.child.has_asked

    def find_cost(self) -> tuple[float | None, float]:
        """Return the most that it can have cost by now, in USD (None: unknown) and in tokens."""
        now, before = self.read_cost(), self.before
        known = now.cost_usd is not None and before.cost_usd is not None
        usd = max(0.0, (now.cost_usd or 0.0) - (before.cost_usd or 0.0)) if known else None
        return usd, max(0.0, now.tokens - before.tokens)


@dataclass(slots=True, kw_only=True)
class JobTable:
    """The memory of one run. Mutable: the parent updates it with each event."""

    working: dict[str, Working] = field(default_factory=dict)
    stopped: dict[str, JobEnd] = field(default_factory=dict)
    """Phases that no child goes on with in this run, and how their last child ended."""
    retried: set[str] = field(default_factory=set)
    """Phases that had their one retry: the run did not begin or was killed, or git could not prepare the landing."""
    out_of_share: dict[str, JobEnd] = field(default_factory=dict)
    """Phases that have used up their share. They go on once others leave enough for the next request."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """Phases that are done on their own branch, have not landed and are not at work: id → commit."""
    in_the_way: dict[str, str] = field(default_factory=dict)
    """Phases that cannot land: id → the user's files that are in the way, and what to do about them."""
    held: str = ""
    """The git operation of the user's that must end before anything lands; empty without one."""
    foreign: dict[str, str] = field(default_factory=dict)
    """Phases that another relay works on, in a job's work tree, and what is said of that."""
    is_warm: bool = False
    """Whether a session has been answered: the shared prefix is in the prompt cache."""
    is_stale: bool = True
    """Whether anything has happened since the parent read git's state."""
    told_of: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The last words about each phase: state and detail."""
    last: RunEnd | None = None
    """How the last phase ended that was at work in this process."""
    told: int = 0
    """How urgently the children were asked to stop: 0, 1 or 2."""

    @property
    def held_ids(self) -> set[str]:
        """Phases that must not begin."""
        return {*self.working, *self.pending, *self.stopped, *self.foreign}

    @property
    def busy(self) -> int:
        """How many of the ``--jobs`` places are taken. A landing takes none until it asks a model."""
        return sum(not working.merges or working.has_asked for working in self.working.values())


def tell_rest(plan: Plan, state: JobTable, *, jobs: int) -> str:
    """Return why each open phase is open.

    Args:
        plan: The plan on the branch.
        state: The parent's memory.
        jobs: The value of ``--jobs``.
    """
    stopped, waits = state.stopped, dict(tell_waits(plan, state, jobs=jobs))
    parts, waiting = [], []
    for phase in plan.phases:
        if phase.id in stopped and not phase.done:
            again = _find_way(stopped[phase.id].next_command, phase.id, jobs)
            parts.append(f"phase {phase.id} stopped: {stopped[phase.id].reason}{f' ({again})' if again else ''}")
        elif phase.id in state.pending:
            parts.append(f"phase {phase.id} is {waits[phase.id]}")
        elif not phase.done:
            waiting.append(phase.id)
    rest = [f"{count(len(waiting), 'phase')} not begun: {', '.join(waiting)}"] if waiting else []
    return "; ".join((*parts, *rest))


def _find_way(typed: str, phase_id: str, jobs: int) -> str:
    """Return what to type, from what a run in the phase's own work tree said: here it would begin the phase again."""
    alone = f" --phase {phase_id}"
    if typed.endswith(alone) or f"{alone} --max-cost " in typed:  # that is one number for all, and said in the end
        return ""
    return typed.replace(alone, f" --jobs {jobs}")


def _leave_out_phase(hint: Hint, phase_id: str) -> Hint:
    """Return a command without ``--phase``, for a user who named none."""
    if isinstance(hint, tuple):
        return tuple(_leave_out_phase(part, phase_id) for part in hint)
    if not isinstance(hint, Command) or hint.words[:3] != ("run", "--phase", phase_id):
        return hint
    return replace(hint, words=("run", *hint.words[3:]))


def make_own(end: RunEnd, plan: Plan, selection: Selection, spent: Spent) -> RunEnd:
    """Return the end of a phase's run as the end of the parent's, which may be for all phases."""
    then = end.next_command
    for phase in plan.phases if selection.all else ():
        then = _leave_out_phase(then, phase.id) if then else None
    return replace(end, next_command=then, spent=spent)


def find_code(stopped: Mapping[str, JobEnd]) -> ExitCode:
    """Return the exit code of a run that leaves phases open."""
    are_users = stopped and all(end.exit_code == ExitCode.USER for end in stopped.values())
    return ExitCode.USER if are_users else ExitCode.STOPPED


_SHOWN = 5


def tell_waits(plan: Plan, state: JobTable, *, jobs: int) -> Iterator[tuple[str, str]]:
    """Yield each open phase that waits, with the reason; stopped phases are left out.

    Args:
        plan: The plan on the branch.
        state: The parent's memory.
        jobs: How many may be at work at once.
    """
    waits, ready = plan.find_waits(), {phase.id for phase in find_ready(plan, state.held_ids)}
    merging = tuple(phase_id for phase_id, one in state.working.items() if one.merges)
    for phase in plan.phases:
        if phase.done or phase.id in {*state.working, *state.stopped}:
            continue
        before = waits[phase.id]
        if phase.id in state.foreign:
            words = state.foreign[phase.id]
        elif phase.id in state.in_the_way:
            words = f"done and waits: {state.in_the_way[phase.id]}"
        elif phase.id in state.pending:
            ahead = list_some(before or merging, _SHOWN)
            words = f"done and waits for phase {ahead} to land" if ahead else "done and waits to be landed"
        elif before:
            words = f"comes after {list_some(before, _SHOWN)}"
        elif phase.id not in ready:
            words = "waits for a path of a phase at work"
        elif not state.is_warm:
            words = f"waits for the first answer of {list_some(tuple(state.working), _SHOWN)}"
        else:
            words = "waits for a place" if state.busy >= jobs else "waits for money of phases at work"
        yield phase.id, words
