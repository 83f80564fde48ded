"""What the trials of an experiment came to, and what can be said of the differences between its arms.

Trials of the same repeat are paired. There is no score: what is better and what is cheaper stand side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from relay.base.values import dataclass
from relay.lab.statistics import LEAST_REPEATS, Interval, count_needed, find_mean_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What one trial came to. None is unknown everywhere."""

    number: int
    arm: str
    repeat: int
    exit_code: int | None
    """Of its run; None if it was lost."""
    reason: str
    phases_done: int | None = None
    phases: int | None = None
    hidden_passed: int | None = None
    """Held-out checks that pass: tests where their runner counts them, else commands."""
    hidden_total: int | None = None
    red_gates: int | None = None
    repairs: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    estimated: bool = False
    """Whether tokens and cost are upper bounds."""
    wall_s: float | None = None
    """Of its runs, without waiting for a provider."""
    sessions: int | None = None
    fill: int | None = None
    """The most tokens in the context of a session."""
    cuts: int = 0
    """Times that the run was cut off from outside and went on."""
    findings: int | None = None
    """Faults that both blind reviews confirm."""
    disputed: int | None = None
    """Faults that one of them confirms."""
    review_usd: float | None = None
    review_tokens: int | None = None
    rehearsed: bool = False
    """Whether a script played the model."""
    ref: str = ""
    """The ref with its commits."""
    logs: tuple[str, ...] = ()
    """The event logs of its runs."""

    @property
    def tokens(self) -> int | None:
        """All tokens of its runs."""
        parts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens, self.output_tokens)
        return None if None in parts else sum(filter(None, parts))

    @property
    def hidden_share(self) -> float | None:
        """The share of held-out checks that pass."""
        return self.hidden_passed / self.hidden_total if self.hidden_total and self.hidden_passed is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Something that arms can differ in."""

    name: str
    read: Callable[[TrialResult], float | None]
    unit: str = ""
    """``usd``, ``s``, ``tokens``, or empty for a number."""
    is_main: bool = False
    """Whether it is one of the two that the experiment is about: is it better, and what does it cost?"""


OUTCOMES = (
    Measure(name="held-out checks", read=lambda trial: trial.hidden_share, is_main=True),
    Measure(name="cost", read=lambda trial: trial.cost_usd, unit="usd", is_main=True),
    Measure(name="phases done", read=lambda trial: trial.phases_done),
    Measure(name="faults that both reviews confirm", read=lambda trial: trial.findings),
    Measure(name="faults that one review confirms", read=lambda trial: trial.disputed),
    Measure(name="red gates", read=lambda trial: trial.red_gates),
    Measure(name="repairs", read=lambda trial: trial.repairs),
    Measure(name="tokens", read=lambda trial: trial.tokens, unit="tokens"),
    Measure(name="time", read=lambda trial: trial.wall_s, unit="s"),
    Measure(name="sessions", read=lambda trial: trial.sessions),
    Measure(name="fullest context", read=lambda trial: trial.fill, unit="tokens"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How an arm differs from the first one, in one outcome."""

    outcome: Measure
    arm: str
    other: str
    """The first arm."""
    pairs: tuple[float, ...]
    """Arm minus first arm, by repeat."""
    interval: Interval | None
    """Of the mean; None of fewer than `LEAST_REPEATS`. Those of the main outcomes hold at once, and so do the rest."""
    more: int | None
    """Further repeats that would show a difference of this size; None if there is none, or it is shown."""

    @property
    def is_shown(self) -> bool:
        return self.interval is not None and self.interval.excludes_zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An experiment, judged."""

    results: tuple[TrialResult, ...]
    medians: Mapping[str, Mapping[str, float | None]]
    """Arm → outcome → median; None if unknown."""
    checks: int | None
    """The most held-out checks that a trial has; the outcome counts as so many."""
    differences: tuple[Difference, ...]


def compare_arms(results: Sequence[TrialResult], arms: Sequence[str]) -> Comparison:
    """Judge what is there of an experiment.

    Args:
        arms: The first one is what the others are compared with.
    """
    checks = max((one.hidden_total or 0 for one in results), default=0) or None
    found = {
        (outcome.name, arm): {
            one.repeat: value for one in results if one.arm == arm for value in _read(outcome, one, checks)
        }
        for outcome in OUTCOMES
        for arm in arms
    }
    pairs = {
        (outcome, arm): tuple(
            value - first[repeat] for repeat, value in sorted(found[outcome.name, arm].items()) if repeat in first
        )
        for outcome in OUTCOMES
        for first in (found[outcome.name, arms[0]],)
        for arm in arms[1:]
    }
    among = {
        is_main: sum(
            len(values) >= LEAST_REPEATS for (outcome, _), values in pairs.items() if outcome.is_main == is_main
        )
        for is_main in (True, False)
    }
    return Comparison(
        results=tuple(results),
        medians={
            arm: {one.name: median(values) if (values := found[one.name, arm].values()) else None for one in OUTCOMES}
            for arm in arms
        },
        checks=checks,
        differences=tuple(
            _differ(outcome, arm, arms[0], values, max(1, among[outcome.is_main]))
            for (outcome, arm), values in pairs.items()
            if values
        ),
    )


def _read(outcome: Measure, result: TrialResult, checks: int | None) -> tuple[float, ...]:
    """Return a trial's value, or nothing; held-out checks are counted: equal counts do not hide that they vary."""
    value = outcome.read(result)
    if value is None:
        return ()
    return (float(round(value * checks)),) if checks and outcome is OUTCOMES[0] else (float(value),)


def _differ(outcome: Measure, arm: str, other: str, pairs: tuple[float, ...], among: int) -> Difference:
    interval = find_mean_difference(pairs, among=among)
    needed = count_needed(pairs, among=among)
    is_shown = interval is not None and interval.excludes_zero
    more = None if needed is None or is_shown else max(1, needed - len(pairs))
    return Difference(outcome=outcome, arm=arm, other=other, pairs=pairs, interval=interval, more=more)
