"""Find the open phases that can be worked on side by side, and what that saves.

Phases wait for the phases that they come `after`, and for each other if they name the same path, or one names a folder
that the other's path is in: simultaneous changes of two sessions would have to be merged. Everything here is linear in
the size of the plan. A phase in a cycle, or after an unknown phase, is in no wave.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush, heapreplace
from operator import attrgetter, or_

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
    candidates = (phase for phase in plan.phases if not phase.done and phase.id not in working)
    return tuple(phase for phase in candidates if not waits[phase.id] and not taken.find_end(phase))


def find_waves(plan: Plan, weights: Mapping[str, float], *, jobs: int = 0) -> Waves:
    """Schedule a plan's open phases.

    Args:
        weights: Expected duration of each phase, in any unit, by id; 1 for a missing one.
        jobs: Phases that may run side by side; 0 for as many as the widest wave has.
    """
    ends = _schedule(plan, {}, jobs=0)
    waves: dict[float, list[str]] = defaultdict(list)
    for phase in plan.phases:
        if phase.id in ends:
            waves[ends[phase.id]].append(phase.id)
    widest = max(map(len, waves.values()), default=0)
    jobs = min(jobs or widest, widest)
    by_id = {phase.id: phase for phase in plan.phases}
    return Waves(
        waves=tuple(tuple(waves[end]) for end in sorted(waves)),
        shared=tuple(_find_shared([by_id[phase_id] for phase_id in ends], plan.find_waits())),
        serial=sum(weights.get(phase_id, 1.0) for phase_id in ends),
        parallel=max(_schedule(plan, weights, jobs=jobs).values(), default=0.0),
        jobs=jobs,
    )


class _Taken:
    """When each path is free again. Mutable: phases take paths, one after the other."""

    def __init__(self) -> None:
        self._whole = defaultdict[_Parts, float](float)
        self._below = defaultdict[_Parts, float](float)

    def take(self, phase: Phase, until: float) -> None:
        for parts in _list_parts(phase):
            self._whole[parts] = max(self._whole[parts], until)
            for folder in _list_folders(parts):
                self._below[folder] = max(self._below[folder], until)

    def find_end(self, phase: Phase) -> float:
        """Return when the last of a phase's paths is free; 0 if all are."""
        named = _list_parts(phase)
        above = (self._whole[part] for parts in named for part in (parts, *_list_folders(parts)))
        return max(*(self._below[parts] for parts in named), *above, 0.0, 0.0)


def _list_parts(phase: Phase) -> list[_Parts]:
    """Return the paths of a phase, from the directory that its `In:` names: two packages may have files of one name."""
    base = _split(phase.find_wish("in")[0])
    named = (_split(path) for path in phase.open_paths)
    return [parts if parts[: len(base)] == base else base + parts for parts in dict.fromkeys(named) if parts]


def _split(path: str) -> _Parts:
    return tuple(part for part in path.split("/") if part not in {"", "."})


def _list_folders(parts: _Parts) -> Iterator[_Parts]:
    return (parts[:n] for n in range(1, len(parts)))


def _schedule(plan: Plan, weights: Mapping[str, float], *, jobs: int) -> dict[str, float]:
    """Return when each phase ends: phases that wait for nothing first, then in plan order.

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
    ends: dict[str, float] = {}
    taken = _Taken()
    places = [0.0] * jobs
    while heap:
        ready, at = heappop(heap)
        phase = plan.phases[at]
        end = max(ready, taken.find_end(phase), *places[:1]) + weights.get(phase.id, 1.0)
        if places:
            heapreplace(places, end)
        ends[phase.id] = end
        taken.take(phase, end)
        for follower in followers[phase.id]:
            waits[follower].discard(phase.id)
            if not waits[follower]:
                heappush(heap, (max(ends[a] for a in before[follower]), order[follower]))
    return ends


def _find_shared(order: Sequence[Phase], waits: Mapping[str, tuple[str, ...]]) -> Iterator[Shared]:
    """Yield each path that alone keeps phases from running side by side, with these phases.

    A set of phases is a number, with a bit for the place in `order` of each.
    """
    place, before = {phase.id: n for n, phase in enumerate(order)}, list[int]()
    users, first = defaultdict[_Parts, int](int), dict[int, _Parts]()
    for n, phase in enumerate(order):
        ahead = (place[a] for a in waits[phase.id])
        before.append(reduce(or_, (before[at] | 1 << at for at in ahead), 0))
        for parts in _list_parts(phase):
            for part in (*_list_folders(parts), parts):
                users[part] |= 1 << n
    for parts in (parts for phase in order for parts in _list_parts(phase)):
        first.setdefault(users[parts], parts)
    for mask, parts in first.items():
        apart = 0
        for n in (n for n in range(mask.bit_length()) if mask >> n & 1):
            if others := mask & ~before[n] & ((1 << n) - 1):
                apart |= others | 1 << n
        if apart:
            phases = sorted((phase for n, phase in enumerate(order) if apart >> n & 1), key=attrgetter("start"))
            yield Shared(path="/".join(parts), phase_ids=tuple(phase.id for phase in phases))
