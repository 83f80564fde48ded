"""Where sessions of this repository should be reset, as far as its logs can tell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from operator import attrgetter

from relay.base.errors import ExitCode
from relay.base.values import dataclass
from relay.insight.figures.values import Figures, PhaseFigures, SessionFigures
from relay.lab.statistics import LEAST_PAIRS, Interval, count_needed, find_mean_difference, find_rate
from relay.session.gauge import NO_RESET, Band
from relay.session.usage import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRates:
    """Rates of faults in one band of the fill, over all sessions."""

    band: Band
    sessions: int
    """Sessions that reached it."""
    turns: int
    errors: Interval | None
    """Share of failed calls."""
    duplicates: Interval | None
    """Share of unchanged parts of files among all that were shown."""
    ghosts: Interval | None
    """Share of files edited from forgotten memory among all that were changed."""
    repairs: Interval | None
    """Share of red gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRate:
    """How much of what sessions were shown was of use, over all sessions whose logs say so."""

    kind: str
    """As `decay.Retrieved.kind`; ``history`` for the tokens behind the first message, of which the rest was superseded
    or unused."""
    shown: int
    used: int
    rate: Interval | None
    """Used / shown; None for tokens, which are no sample."""
    tokens: int


def measure_use(found: Iterable[Figures]) -> tuple[UseRate, ...]:
    """Return the use of each kind but the ledger, which `measure_ledger` has."""
    decays = [session.decay for figures in found for session in figures.sessions]
    known = [one for decay in decays for one in decay.retrieved if one.kind != "ledger"]
    rates = [
        UseRate(
            kind=kind,
            shown=(shown := sum(one.shown for one in known if one.kind == kind)),
            used=(used := sum(one.used for one in known if one.kind == kind)),
            rate=find_rate(used, shown),
            tokens=sum(one.tokens for one in known if one.kind == kind),
        )
        for kind in dict.fromkeys(one.kind for one in known)
    ]
    measured = [decay for decay in decays if decay.signal is not None]
    history = sum(decay.history_tokens or 0 for decay in measured)
    noise = sum(decay.superseded_tokens + decay.unused_tokens for decay in measured)
    rest = max(0, history - noise)
    of_history = UseRate(kind="history", shown=history, used=rest, rate=None, tokens=history)
    return (*rates, *([of_history] if history else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDifference:
    """One outcome of a trial under two lines; phases of the same plan are paired."""

    outcome: str
    one: str
    """A reset line as in the settings."""
    other: str
    difference: Interval | None
    """Other minus one; None of fewer pairs than `LEAST_PAIRS`. All intervals of a trial hold at once."""
    pairs: int
    phases_missing: int | None
    """Phases until a difference as large as this would be seen; 0 if it is, None if none shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialArm:
    """One line of a trial."""

    reset_at: str
    phases: int
    means: Mapping[str, float | None]
    """Of each outcome of `OUTCOMES`; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """The results of a switch-back trial so far."""

    arms: tuple[TrialArm, ...]
    differences: tuple[ArmDifference, ...]
    dead_weight: tuple[str, ...]
    """Lines whose resets surely cost more than none, while no other outcome is surely worse without resets."""


OUTCOMES: Mapping[str, Callable[[PhaseFigures], float | None]] = {
    "not finished": lambda phase: not phase.is_done,
    "first gate red": lambda phase: phase.work.first_gate_red,
    "repairs": lambda phase: phase.work.repairs,
    "duplicate reads": lambda phase: phase.totals.duplicate_reads,
    "ghost edits": lambda phase: phase.totals.ghost_edits,
    "cost in USD": lambda phase: phase.totals.spent.cost_usd,
    "turns": lambda phase: phase.totals.turns,
}
"""How each outcome of a trial is read from a phase; None if unknown."""


def measure_bands(found: Iterable[Figures]) -> tuple[BandRates, ...]:
    """Return the rates of faults by fill.

    They cannot advise a line: only a part that was shown can be shown again, and tests run when something is changed.
    So both rates rise with the fill even if nothing depends on it.
    """
    sessions = [session for figures in found for session in figures.sessions if session.bands]
    return tuple(_measure(band, sessions) for band in Band)


def _measure(band: Band, sessions: Sequence[SessionFigures]) -> BandRates:
    found = [counts for session in sessions for counts in session.bands if counts.band is band]

    def add(name: str) -> int:
        return sum(attrgetter(name)(counts) for counts in found)

    return BandRates(
        band=band,
        sessions=len(found),
        turns=add("turns"),
        errors=find_rate(add("errors"), add("calls")),
        duplicates=find_rate(add("duplicates"), add("shown")),
        ghosts=find_rate(add("ghosts"), add("changed")),
        repairs=find_rate(add("red_gates"), add("gates")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFigures:
    """One change of model or effort in mid-phase, over all plans."""

    rung: str
    """As in the setting `escalate`, or ``fallback=ID``."""
    phases: int
    """Phases that had it."""
    done: int
    """Those of them that are done, with no further change."""
    spent: Spent
    """The cost of their sessions from this change to the next."""


def count_rungs(found: Iterable[Figures]) -> tuple[RungFigures, ...]:
    """Return what each change of model or effort led to; each figures are of one plan."""
    phases: dict[str, dict[tuple[int, str], bool]] = {}
    spent: dict[str, Spent] = {}
    for plan, figures in enumerate(found):
        done = {phase.phase_id for phase in figures.phases if phase.is_done}
        for session in (session for run in figures.runs for session in run.sessions if session.rungs):
            for rung in session.rungs:
                is_last = rung == session.rungs[-1]
                phases.setdefault(rung, {})[plan, session.phase_id] = is_last and session.phase_id in done
            spent[session.rungs[-1]] = spent.get(session.rungs[-1], Spent()) + session.totals.spent
    return tuple(
        RungFigures(rung=rung, phases=len(held), done=sum(held.values()), spent=spent.get(rung, Spent()))
        for rung, held in phases.items()
    )


def judge_trial(found: Iterable[Figures]) -> TrialFigures:
    """Compare the reset lines of phases; each figures are of one plan."""
    plans = [_sort_arms(figures) for figures in found]
    lines = list(dict.fromkeys(line for plan in plans for line in plan))
    arms = tuple(_render_arm(line, [phase for plan in plans for phase in plan.get(line, ())]) for line in lines)
    paired = {
        (outcome, one, other): _pair(outcome, one, other, plans)
        for one, other in combinations(lines, 2)
        for outcome in OUTCOMES
    }
    among = sum(len(pairs) >= LEAST_PAIRS for pairs in paired.values())
    differences = [_differ(*names, pairs, max(1, among)) for names, pairs in paired.items()]
    dead = tuple(line for line in lines if line != NO_RESET and _is_dead_weight(line, differences))
    return TrialFigures(arms=arms, differences=tuple(differences), dead_weight=dead)


def _is_dead_weight(line: str, differences: Sequence[ArmDifference]) -> bool:
    """Whether resets at a line surely cost more than none, and the data show nothing that they prevent."""
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
    """Return a plan's phases that are over, by reset line; a phase whose sessions had several lines is left out."""
    lines: dict[str, set[str]] = {}
    given_up: dict[str, bool] = {}
    for run in figures.runs:
        for session in run.sessions:
            lines.setdefault(session.phase_id, set()).add(session.trial)
            given_up[session.phase_id] = run.exit_code == ExitCode.STOPPED and session.result in _LEFT
    arms: dict[str, tuple[PhaseFigures, ...]] = {}
    for phase in figures.phases:
        of_phase, is_over = lines.get(phase.phase_id, set()), phase.is_done or given_up.get(phase.phase_id, False)
        if is_over and len(of_phase) == 1 and (line := next(iter(of_phase))):
            arms[line] = (*arms.get(line, ()), phase)
    return arms


_LEFT = frozenset({"blocked", "failed", "handoff"})
"""Results of the last session of a phase that a run gives up. An interrupted one goes on, whatever stopped the run."""


def _render_arm(line: str, phases: Sequence[PhaseFigures]) -> TrialArm:
    means: dict[str, float | None] = {}
    for outcome, read in OUTCOMES.items():
        values = [value for phase in phases if (value := read(phase)) is not None]
        means[outcome] = sum(values) / len(values) if values else None
    return TrialArm(reset_at=line, phases=len(phases), means=means)


def _pair(outcome: str, one: str, other: str, plans: Sequence[Mapping[str, tuple[PhaseFigures, ...]]]) -> list[float]:
    """Return differences between phases of the same plan: the n-th of one line with the n-th of the other."""
    return [
        b - a
        for plan in plans
        for first, second in zip(plan.get(one, ()), plan.get(other, ()), strict=False)
        if (a := OUTCOMES[outcome](first)) is not None and (b := OUTCOMES[outcome](second)) is not None
    ]


def _differ(outcome: str, one: str, other: str, pairs: Sequence[float], among: int) -> ArmDifference:
    difference, needed = find_mean_difference(pairs, among=among), count_needed(pairs, among=among)
    seen = difference is not None and difference.excludes_zero
    return ArmDifference(
        outcome=outcome,
        one=one,
        other=other,
        difference=difference,
        pairs=len(pairs),
        phases_missing=None if needed is None else 0 if seen else 2 * max(1, needed - len(pairs)),
    )
