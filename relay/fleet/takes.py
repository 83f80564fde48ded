"""Values of the queue: a ticket for a phase, a worker's take of it, and how all takes of a plan stand."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum

from relay.base.errors import RelayError
from relay.base.values import dataclass
from relay.base.words import render_usd

_MOST_DEATHS = 3


class TakeState(StrEnum):
    """How a worker's take of a phase stands."""

    HELD = "held"
    DONE = "done"
    FREE = "free"
    """It was handed over, or never begun: any worker can go on."""
    STOPPED = "stopped"
    """A person is needed."""
    DIED = "died"
    """Its worker, or its run, was killed; what it had reserved may be spent unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a take is told that asks for the turn to land."""

    waits: bool = False
    """Whether another one has it."""
    has_landed: bool = False
    """Whether another one has landed this one along."""
    riders: Mapping[str, int] = field(default_factory=dict)
    """The phases that may land along with this one, and their takes' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A phase for a worker to work on."""

    remote: str
    """An address that every worker can reach."""
    branch: str
    plan_path: str
    phase_id: str

    @property
    def plan(self) -> str:
        """Identifies the plan: remote, branch and file."""
        return json.dumps((self.remote, self.branch, self.plan_path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A ticket in the queue."""

    number: int
    ticket: Ticket
    status: str
    """``todo``, ``doing``, ``succeeded``, ``failed``, ``aborting``, ``aborted`` or ``cancelled``."""
    at: datetime | None = None
    """When it may begin; None: now."""
    is_taken_back: bool = False
    """Whether a person has taken it back while a worker has it."""
    beat_at: datetime | None = None
    """The last heartbeat of the worker that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """A phase that a worker took, or had taken."""

    token: int
    nonce: str
    """Tells tokens of two databases apart: one that was lost begins to count anew."""
    plan: str
    """As in `Ticket.plan`."""
    phase_id: str
    job_id: int
    worker: str
    state: TakeState
    words: str
    reserved_usd: float | None
    """Set aside for it; None without a cap. Of a dead worker's: what it may have spent unseen."""
    seen_usd: float
    """Known to be spent on the phase when that was set aside."""
    is_settled: bool
    """Whether a person has looked since."""
    taken_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All takes of one plan's phases, by token."""

    takes: tuple[Take, ...] = ()

    @property
    def held(self) -> Mapping[str, Take]:
        """Phases at work: id → take."""
        return {take.phase_id: take for take in self.takes if take.state is TakeState.HELD}

    @property
    def latest(self) -> Mapping[str, Take]:
        """The last take of each phase."""
        return {take.phase_id: take for take in self.takes}

    @property
    def waits(self) -> Mapping[str, str]:
        """Phases that wait for a person: id → reason."""
        found, dead = dict[str, str](), dict[str, list[str]]()
        for take in self.takes:
            if take.is_settled or take.state is TakeState.DONE:
                found.pop(take.phase_id, None)
                dead.pop(take.phase_id, None)
            elif take.state is TakeState.STOPPED:
                found[take.phase_id] = take.words
            elif take.state is TakeState.DIED:
                names = dead.setdefault(take.phase_id, [])
                names.append(take.worker)
                if len(names) >= _MOST_DEATHS:
                    who = ", ".join(dict.fromkeys(names))
                    found[take.phase_id] = f"parked: {len(names)} workers died of it ({who})"
        return found

    @property
    def lost(self) -> tuple[Take, ...]:
        """Takes of dead workers that may have spent money unseen."""
        return tuple(take for take in self.takes if take.state is TakeState.DIED and take.reserved_usd)

    @property
    def reserved_usd(self) -> float:
        """The sum of what is set aside."""
        return sum(take.reserved_usd or 0.0 for take in (*self.held.values(), *self.lost))

    def find_unseen(self, before: "Standing") -> float | None:
        """Return what was spent since an earlier standing beside what is set aside now, at most, in USD.

        None where a worker has died since, or what a dead one spent was booked.
        """
        unseen, known = 0.0, {take.token: take for take in before.takes}
        for take in self.takes:
            was = known.get(take.token)
            if take.state is TakeState.DIED:
                if was is None or (was.state, was.reserved_usd) != (take.state, take.reserved_usd):
                    return None
            elif was is None or was.state is TakeState.HELD:
                unseen += max(0.0, take.seen_usd - was.seen_usd) if was else 0.0  # its share was raised
                unseen += 0.0 if take.state is TakeState.HELD else take.reserved_usd or 0.0
        return unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What a worker knows of a plan's money when it asks for a part."""

    cap_usd: float | None
    phase_cap_usd: float | None
    """The most for one phase."""
    spent_usd: float
    """Spent on the whole plan, by git."""
    seen_usd: float
    """Of it on this phase."""
    shares: int
    """Among how many phases to divide what is left."""
    before: Standing
    """Read before git was asked for what was spent: what a take that ended since had set aside may be spent, too."""

    def find_left(self, reserved_usd: float, unseen_usd: float | None) -> float | None:
        """Return what is neither spent nor set aside; None without a cap."""
        return None if self.cap_usd is None else self.cap_usd - self.spent_usd - reserved_usd - (unseen_usd or 0.0)

    def find_share(self, left_usd: float | None, shares: int) -> float | None:
        """Return what to set aside of what is left; None without a cap."""
        own = None if self.phase_cap_usd is None else max(0.0, self.phase_cap_usd - self.seen_usd)
        share = None if left_usd is None else left_usd / max(1, shares)
        return min((one for one in (own, share) if one is not None), default=None)

    def refuse(self, standing: Standing, phase_id: str, unseen_usd: float | None) -> "NotTaken":
        """Say that there is not enough."""
        words = f"of {render_usd(self.cap_usd)} are {self.spent_usd:.2f} spent and {standing.reserved_usd:.2f} reserved"
        freed = "; relay fleet cancel --lost USD frees what dead workers had" if standing.lost else ""
        return NotTaken(words=f"{words}: not enough for phase {phase_id}{freed}", is_stale=unseen_usd != 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Why a phase was not taken, or no more money was set aside."""

    words: str
    is_stale: bool = False
    """Whether takes have ended since the bid, which may be too careful by that. Bid again."""


class LostError(Exception):
    """Another worker has the phase by now; the user did nothing wrong."""


class BusyError(Exception):
    """The phase cannot be worked on here now; its ticket waits a while."""


class UnfitError(RelayError):
    """No run can begin on this machine: no key, no sandbox. The phase is well, and other workers can have it."""


class DoneError(Exception):
    """The ticket is over: its phase is done, waits for others or for a person, or is not in the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEnd:
    """How the work on a phase ended."""

    state: TakeState
    reason: str
    wait_s: float | None = None
    """Seconds until the phase is to be queued again; None: it is not."""


def find_wait_s(until: datetime | None) -> float:
    """Return the seconds until a moment; 0 where it is past, or None."""
    return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until else 0.0
