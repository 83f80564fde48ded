"""Find the open phases that can be worked on side by side, and what that saves.

Phases wait for the phases that they come `after`, and for each other if they name the same path, or one names a folder
that the other's path is in: simultaneous changes of two sessions would have to be merged. Everything here is linear in
the size of the plan. A phase in a cycle, or after an unknown phase, is in no wave.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush, heapreplace
from operator import attrgetter, itemgetter

from relay.base.values import dataclass
from relay.plan.model import Phase, Plan

_Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A path that keeps phases from running side by side."""

    path: str
    phase_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """The schedule of a plan's open phases."""

    waves: tuple[tuple[str, ...], ...]
    """Ids of the phases that may run side by side, wave by wave; in plan order."""
    longest: tuple[str, ...]
    """Ids on the critical path: the longest way through the plan by weight."""
    shared: tuple[Shared, ...]
    serial: float
    """The weight of all phases one after the other."""
    parallel: float
    """The weight from the first start to the last end when `jobs` phases run side by side."""
    jobs: int
    """The requested number, at most the size of the widest wave."""

    @property
    def widest(self) -> int:
        """Number of phases in the widest wave; 0 if nothing is open."""
        return max(map(len, self.waves), default=0)


def find_ready(plan: Plan, working: Collection[str]) -> tuple[Phase, ...]:
    """Return the open phases that wait for nothing and share no path with the `working` ones, in plan order."""
    waits, taken = plan.find_waits(), _Taken()
    for phase in plan.phases:
        if phase.id in working:
            taken.take(phase, 1.0)
    return tuple(
        phase
        for phase in plan.phases
        if not phase.done and phase.id not in working and not waits[phase.id] and not taken.find_last(phase)[0]
    )


def find_waves(plan: Plan, weights: Mapping[str, float], *, jobs: int = 0) -> Waves:
    """Schedule a plan's open phases.

    Args:
        weights: Expected duration of each phase, in any unit, by id; 1 for a missing one.
        jobs: Phases that may run side by side; 0 for as many as the widest wave has.
    """
    level = _schedule(plan, {}, jobs=0)
    waves: dict[float, list[str]] = defaultdict(list)
    for phase in plan.phases:
        if phase.id in level:
            waves[level[phase.id].start].append(phase.id)
    widest = max(map(len, waves.values()), default=0)
    jobs = min(jobs or widest, widest)
    by_id = {phase.id: phase for phase in plan.phases}
    order = tuple(by_id[phase_id] for phase_id in level)
    free = _schedule(plan, weights, jobs=0)
    return Waves(
        waves=tuple(tuple(waves[start]) for start in sorted(waves)),
        longest=_find_longest(free),
        shared=tuple(_find_shared(order, plan.find_waits())),
        serial=sum(weights.get(phase.id, 1.0) for phase in order),
        parallel=max((slot.end for slot in _schedule(plan, weights, jobs=jobs).values()), default=0.0),
        jobs=jobs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    start: float
    end: float
    waited_for: str
    """The phase at whose end it starts; empty if it waits for none."""


class _Taken:
    """When each path is free again, and whose it is until then. Mutable: phases take paths, one after the other."""

    def __init__(self) -> None:
        self._whole: dict[_Parts, tuple[float, str]] = {}
        self._below: dict[_Parts, tuple[float, str]] = {}

    def take(self, phase: Phase, until: float) -> None:
        for parts in _list_parts(phase):
            self._whole[parts] = max(self._whole.get(parts, (0.0, "")), (until, phase.id))
            for folder in _list_folders(parts):
                self._below[folder] = max(self._below.get(folder, (0.0, "")), (until, phase.id))

    def find_last(self, phase: Phase) -> tuple[float, str]:
        """Return when the last of a phase's paths is free, and the phase that has it until then; (0, "") if all are."""
        found = (0.0, "")
        for parts in _list_parts(phase):
            holders = (self._whole.get(part, (0.0, "")) for part in (parts, *_list_folders(parts)))
            found = max(found, self._below.get(parts, (0.0, "")), *holders)
        return found


def _list_parts(phase: Phase) -> list[_Parts]:
    named = (tuple(part for part in path.split("/") if part not in {"", "."}) for path in phase.open_paths)
    return [parts for parts in dict.fromkeys(named) if parts]


def _list_folders(parts: _Parts) -> Iterator[_Parts]:
    return (parts[:n] for n in range(1, len(parts)))


def _schedule(plan: Plan, weights: Mapping[str, float], *, jobs: int) -> dict[str, _Slot]:
    """Return when each phase starts and ends: phases that wait for nothing first, then in plan order.

    `jobs` = 0 is as many places as phases. In the result a phase stands behind the phases that it comes after.
    """
    before = plan.find_waits()
    waits = {phase.id: set(before[phase.id]) for phase in plan.phases if not phase.done}
    followers: dict[str, list[str]] = defaultdict(list)
    for phase_id, others in waits.items():
        for other in others:
            followers[other].append(phase_id)
    heap = [(0.0, n) for n, phase in enumerate(plan.phases) if waits.get(phase.id) == set()]
    order = {phase.id: n for n, phase in enumerate(plan.phases)}
    slots: dict[str, _Slot] = {}
    taken = _Taken()
    places = [0.0] * jobs
    while heap:
        phase = plan.phases[heappop(heap)[1]]
        ends = ((slots[a].end, a) for a in before[phase.id])
        start, waited_for = max((*ends, taken.find_last(phase)), key=itemgetter(0))
        end = max(start, *places[:1], 0.0) + weights.get(phase.id, 1.0)
        if places:
            heapreplace(places, end)
        slots[phase.id] = _Slot(start=start, end=end, waited_for=waited_for)
        taken.take(phase, end)
        for follower in followers[phase.id]:
            waits[follower].discard(phase.id)
            if not waits[follower]:
                ready = max(slots[a].end for a in before[follower])
                heappush(heap, (ready, order[follower]))
    return slots


def _find_longest(slots: Mapping[str, _Slot]) -> tuple[str, ...]:
    found: list[str] = []
    at = max(slots, key=lambda phase_id: slots[phase_id].end, default="")
    while at:
        found.append(at)
        at = slots[at].waited_for
    return tuple(reversed(found))


def _find_shared(order: tuple[Phase, ...], waits: Mapping[str, tuple[str, ...]]) -> Iterator[Shared]:
    """Yield each path that alone keeps phases from running side by side, with these phases."""
    before = _find_before(order, waits)
    users = _find_users(order)
    seen: set[int] = set()
    for parts, mask in users.items():
        if mask in seen:
            continue
        seen.add(mask)
        members = [n for n in range(mask.bit_length()) if mask >> n & 1]
        apart = 0
        for n in members:
            if others := mask & ~before[n] & ((1 << n) - 1):
                apart |= others | 1 << n
        if apart:
            phases = sorted((order[n] for n in members if apart >> n & 1), key=attrgetter("start"))
            yield Shared(path="/".join(parts), phase_ids=tuple(phase.id for phase in phases))


def _find_before(order: tuple[Phase, ...], waits: Mapping[str, tuple[str, ...]]) -> list[int]:
    """Return for each phase the phases that must end before it begins, as bits of their places in `order`."""
    place = {phase.id: n for n, phase in enumerate(order)}
    before: list[int] = []
    for phase in order:
        mask = 0
        for n in (place[a] for a in waits[phase.id]):
            mask |= before[n] | 1 << n
        before.append(mask)
    return before


def _find_users(order: tuple[Phase, ...]) -> dict[_Parts, int]:
    """Return for each named path the phases that name it or a path below it, as bits of their places."""
    users: dict[_Parts, int] = defaultdict(int)
    named: dict[_Parts, None] = {}
    for n, phase in enumerate(order):
        for parts in _list_parts(phase):
            named[parts] = None
            for folder in (*_list_folders(parts), parts):
                users[folder] |= 1 << n
    return {parts: users[parts] for parts in named if users[parts].bit_count() > 1}
