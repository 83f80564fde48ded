"""Where sessions of this repository should be reset, as far as their logs can say."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from operator import attrgetter

from relay.figures.statistics import Interval, count_needed, find_mean_difference, find_rate, resample
from relay.figures.values import Figures, LegFigures, PhaseFigures
from relay.meters.gauge import Band
from relay.meters.reset_trial import NO_RESET
from relay.values import dataclass

LEAST_LEGS = 20
"""Sessions that must have reached a band before anything is said of it. A rule of thumb: with fewer, one odd session
makes the difference."""
_ORDER = tuple(Band)
_EDGES = {Band.EXPLORE: 0.20, Band.EXECUTE: 0.50, Band.CONSOLIDATE: 0.65, Band.HAND_OFF: 0.80}


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRates:
    """What went wrong in one band of the fill, over all sessions."""

    band: Band
    legs: int
    """Sessions that reached it."""
    turns: int
    errors: Interval | None
    """Calls that failed, of all."""
    duplicates: Interval | None
    """Parts of files shown again unchanged, of all that were shown."""
    ghosts: Interval | None
    """Files changed from memory that is gone, of all that were changed."""
    repairs: Interval | None
    """Gates that were red, of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the logs say without a trial."""

    rates: tuple[BandRates, ...]
    part: float | None
    """Of the present line, where to reset instead; None where the data carry nothing."""
    difference: Interval | None
    """Trouble per call above that line minus below, drawn again by session; of the most telling line where none is
    recommended."""
    legs: int
    legs_missing: int
    """Until anything can be said; 0 where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDifference:
    """One outcome of a trial under two lines, phases of the same plan taken in pairs."""

    outcome: str
    one: str
    """A reset line as it was set."""
    other: str
    difference: Interval | None
    """Other minus one; None of fewer pairs than `statistics.LEAST_PAIRS`."""
    pairs: int
    phases_missing: int | None
    """Until a difference as large as this would be seen; None where none shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One line of a trial."""

    reset_at: str
    phases: int
    means: Mapping[str, float | None]
    """Of each outcome of `OUTCOMES`; None when unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What a switch-back trial says so far."""

    arms: tuple[Arm, ...]
    differences: tuple[ArmDifference, ...]
    dead_weight: tuple[str, ...]
    """Lines whose resets cost more than none at all, for sure, while no other outcome is worse without, for sure."""


OUTCOMES = ("first gate red", "repairs", "duplicate reads", "ghost edits", "cost in USD", "turns")


def judge_lines(found: Iterable[Figures]) -> Advice:
    """Compare what went wrong by how full sessions were; a line is advised only where the data carry it."""
    legs = [leg for figures in found for leg in figures.legs if leg.bands]
    rates = tuple(_measure(band, legs) for band in _ORDER)
    deep = {band: sum(_reaches(leg, band) for leg in legs) for band in _EDGES}
    reached = [band for band in _EDGES if deep[band] >= LEAST_LEGS]
    differences = ((band, resample([_divide(leg, band) for leg in legs], _compare)) for band in reached)
    telling = [(band, difference) for band, difference in differences if difference]
    worse = [(band, difference) for band, difference in telling if difference.low > 0]
    # Of lines with the same difference the highest: what costs the fewest resets.
    chosen = max(worse or telling, key=lambda pair: (pair[1].estimate, _EDGES[pair[0]]), default=None)
    return Advice(
        rates=rates,
        part=_EDGES[chosen[0]] if chosen and worse else None,
        difference=chosen[1] if chosen else None,
        legs=len(legs),
        legs_missing=0 if telling else max(0, LEAST_LEGS - max(deep.values())),
    )


def _reaches(leg: LegFigures, band: Band) -> bool:
    return any(_ORDER.index(counts.band) >= _ORDER.index(band) for counts in leg.bands)


def _divide(leg: LegFigures, edge: Band) -> tuple[int, int, int, int]:
    """Return trouble and calls of a session below a band, then at and above it."""
    sides = [0, 0, 0, 0]
    for counts in leg.bands:
        at = 2 if _ORDER.index(counts.band) >= _ORDER.index(edge) else 0
        sides[at] += counts.trouble
        sides[at + 1] += counts.calls
    return sides[0], sides[1], sides[2], sides[3]


def _compare(legs: Sequence[tuple[int, int, int, int]]) -> float | None:
    """Return trouble per call above minus below; None where one of both has no call."""
    trouble_below, calls_below, trouble_above, calls_above = map(sum, zip(*legs, strict=True))
    if not calls_below or not calls_above:
        return None
    return trouble_above / calls_above - trouble_below / calls_below


def _measure(band: Band, legs: Sequence[LegFigures]) -> BandRates:
    found = [counts for leg in legs for counts in leg.bands if counts.band is band]

    def add(name: str) -> int:
        return sum(attrgetter(name)(counts) for counts in found)

    return BandRates(
        band=band,
        legs=len(found),
        turns=add("turns"),
        errors=find_rate(add("errors"), add("calls")),
        duplicates=find_rate(add("duplicates"), add("shown")),
        ghosts=find_rate(add("ghosts"), add("changed")),
        repairs=find_rate(add("red_gates"), add("gates")),
    )


def judge_trial(found: Iterable[Figures]) -> TrialFigures:
    """Compare the lines that phases were assigned to; figures of one plan each."""
    plans = [_sort_arms(figures) for figures in found]
    lines = list(dict.fromkeys(line for plan in plans for line in plan))
    arms = tuple(_render_arm(line, [phase for plan in plans for phase in plan.get(line, ())]) for line in lines)
    differences = [_differ(outcome, one, other, plans) for one, other in combinations(lines, 2) for outcome in OUTCOMES]
    dead = tuple(line for line in lines if line != NO_RESET and _is_dead_weight(line, differences))
    return TrialFigures(arms=arms, differences=tuple(differences), dead_weight=dead)


def _is_dead_weight(line: str, differences: Sequence[ArmDifference]) -> bool:
    """Return whether resets at a line cost more than none, for sure, and prevent nothing that the data show."""
    dearer = False
    for one in differences:
        if {one.one, one.other} != {line, NO_RESET} or one.difference is None:
            continue
        more_with_none = one.difference.low > 0 if one.other == NO_RESET else one.difference.high < 0
        less_with_none = one.difference.high < 0 if one.other == NO_RESET else one.difference.low > 0
        if one.outcome == "cost in USD":
            dearer = less_with_none
        elif more_with_none and one.outcome != "turns":
            return False
    return dearer


def _sort_arms(figures: Figures) -> Mapping[str, tuple[PhaseFigures, ...]]:
    """Return the finished phases of a plan by their line; one whose sessions had several is in none."""
    lines: dict[str, set[str]] = {}
    for leg in figures.legs:
        lines.setdefault(leg.phase_id, set()).add(leg.trial)
    arms: dict[str, tuple[PhaseFigures, ...]] = {}
    for phase in figures.phases:
        of_phase = lines.get(phase.phase_id, set())
        if phase.is_done and len(of_phase) == 1 and (line := next(iter(of_phase))):
            arms[line] = (*arms.get(line, ()), phase)
    return arms


def _read_outcome(phase: PhaseFigures, outcome: str) -> float | None:
    match outcome:
        case "first gate red":
            return None if phase.work.first_gate_red is None else float(phase.work.first_gate_red)
        case "repairs":
            return phase.work.repairs
        case "duplicate reads":
            return phase.totals.duplicate_reads
        case "ghost edits":
            return phase.totals.ghost_edits
        case "cost in USD":
            return phase.totals.spent.cost_usd
        case _:
            return phase.totals.turns


def _render_arm(line: str, phases: Sequence[PhaseFigures]) -> Arm:
    means: dict[str, float | None] = {}
    for outcome in OUTCOMES:
        values = [value for phase in phases if (value := _read_outcome(phase, outcome)) is not None]
        means[outcome] = sum(values) / len(values) if values else None
    return Arm(reset_at=line, phases=len(phases), means=means)


def _differ(
    outcome: str, one: str, other: str, plans: Sequence[Mapping[str, tuple[PhaseFigures, ...]]]
) -> ArmDifference:
    """Pair phases of the same plan in their order, the first of one line with the first of the other."""
    differences = [
        b - a
        for plan in plans
        for first, second in zip(plan.get(one, ()), plan.get(other, ()), strict=False)
        if (a := _read_outcome(first, outcome)) is not None and (b := _read_outcome(second, outcome)) is not None
    ]
    needed = count_needed(differences)
    return ArmDifference(
        outcome=outcome,
        one=one,
        other=other,
        difference=find_mean_difference(differences),
        pairs=len(differences),
        phases_missing=None if needed is None else max(0, 2 * (needed - len(differences))),
    )
