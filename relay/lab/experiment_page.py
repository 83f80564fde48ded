"""Build the page of an experiment: what was shown, what was not, what it cost, and every trial behind that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from relay.base.words import UNKNOWN, count, list_some, render_usd
from relay.insight.database import Row
from relay.insight.report.blocks import (
    FORMATS,
    NOTHING,
    Card,
    Chapter,
    Ink,
    Page,
    Table,
    cut_id,
    list_rows,
    make_table,
)
from relay.insight.report.plots import draw_contexts
from relay.lab.comparing import OUTCOMES, Comparison, Difference, Measure, TrialResult
from relay.lab.experiment import Experiment
from relay.lab.statistics import LEAST_REPEATS

_SCRIPTED = (
    "Nothing about quality, cost or time follows from it.",
    "The figures show that the experiment works: arms, cap, counting, statistics.",
)


def make_experiment_page(experiment: Experiment, comparison: Comparison, contexts: Mapping[str, Sequence[Row]]) -> Page:
    """Build the page; relay prints the same as text.

    Args:
        contexts: Arm → the sessions of its first trial, as far as its log is there.
    """
    rehearsed = any(one.rehearsed for one in comparison.results)
    warning = (Card(question="A script played the model", words="", lines=_SCRIPTED, ink=Ink.BAD),) if rehearsed else ()
    models = dict.fromkeys(session.model for sessions in contexts.values() for session in sessions if session.model)
    runs = f"{count(len(experiment.arms), 'arm')}, {count(experiment.repeats, 'repeat')}, seed {experiment.seed}"
    facts = (
        ("Plan", f"{experiment.plan_path} at {cut_id(experiment.base)}"),
        ("Models", list_some(tuple(models), 6) or UNKNOWN),
        ("Runs", runs),
        ("Cap", f"{render_usd(experiment.cap_usd)}, {render_usd(experiment.share_usd)} a run"),
        ("Held-out checks", "; ".join(experiment.hidden) or "none"),
        ("Blind reviews", "two of each run" if experiment.reviews else "none"),
    )
    answers = (_say_shown(comparison), _say_not_shown(experiment, comparison), _say_cost(experiment, comparison))
    return Page(
        title=f"relay lab compare {experiment.id}: {list_some(experiment.arms, 6)}",
        facts=facts,
        answers=(*warning, *answers),
        sections=tuple(_list_chapters(experiment, comparison, contexts)),
    )


def _render(outcome: Measure, value: float | None, *, signed: bool = False) -> str:
    sign = "" if value is None or not signed else "−" if value < 0 else "+"
    size = abs(value) if signed and value is not None else value
    if outcome.unit or size is None:
        return f"{sign}{FORMATS[outcome.unit or 'known'](size)}"
    return f"{sign}{size:.3g}" if size != round(size) else f"{sign}{size:.0f}"


def _name(outcome: Measure, comparison: Comparison) -> str:
    is_checks = outcome is OUTCOMES[0] and comparison.checks
    return f"{outcome.name} passed, of {comparison.checks}" if is_checks else outcome.name


def _say(one: Difference, comparison: Comparison) -> str:
    estimate = sum(one.pairs) / len(one.pairs)
    if not any(one.pairs):
        words = f"{_name(one.outcome, comparison)}: {one.arm} never differed from {one.other}"
        words = f"{words} in {count(len(one.pairs), 'repeat')}"
        most = one.interval and _render(one.outcome, one.interval.high)
        return f"{words}; a mean difference below {most} is still possible" if most else words
    words = (
        f"{_name(one.outcome, comparison)}: {one.arm} {_render(one.outcome, estimate, signed=True)} against {one.other}"
    )
    if one.interval is None:
        return f"{words}, in {count(len(one.pairs), 'repeat')}; an interval needs {LEAST_REPEATS}"
    return f"{words} ({_render_interval(one)})"


def _render_interval(one: Difference) -> str:
    if one.interval is None:
        return NOTHING
    if not any(one.pairs):
        return "never differed"
    low, high = (_render(one.outcome, end, signed=True) for end in (one.interval.low, one.interval.high))
    return f"{low} to {high}"


def _say_shown(comparison: Comparison) -> Card:
    shown = [one for one in comparison.differences if one.is_shown]
    ordered = sorted(shown, key=lambda one: not one.outcome.is_main)
    words = count(len(shown), "difference") if shown else "nothing"
    lines = tuple(_say(one, comparison) for one in ordered)
    return Card(question="Shown", words=words, lines=lines, ink=Ink.GOOD if shown else Ink.TEXT)


def _say_not_shown(experiment: Experiment, comparison: Comparison) -> Card:
    left = [one for one in comparison.differences if one.outcome.is_main and not one.is_shown]
    lines = [f"{_say(one, comparison)}{_say_more(one)}" for one in left]
    rest = sum(not one.is_shown and not one.outcome.is_main for one in comparison.differences)
    if rest:
        lines.append(f"{count(rest, 'difference')} in other outcomes: see the table")
    if comparison.checks is None:
        lines.append("no held-out checks: whether the results are right was not measured (--hidden)")
    if len(comparison.results) < len(experiment.list_trials()):
        lines.append(f"not all runs are over: relay lab compare --resume {experiment.id}")
    return Card(question="Not shown", words=count(len(left) + rest, "difference"), lines=tuple(lines))


def _say_more(one: Difference) -> str:
    return f"; about {count(one.more, 'more repeat')} would show one of this size" if one.more else ""


def _say_cost(experiment: Experiment, comparison: Comparison) -> Card:
    runs, reviews = (
        _add(one.cost_usd for one in comparison.results),
        _add(one.review_usd if one.review_tokens is not None else 0.0 for one in comparison.results),
    )
    lost = experiment.share_usd * sum(one.exit_code is None for one in comparison.results)
    total = None if runs is None or reviews is None else runs + reviews + lost
    estimated = any(one.estimated for one in comparison.results)
    words = f"{render_usd(total, estimated=estimated)} of at most {render_usd(experiment.cap_usd)}"
    done, planned = len(comparison.results), len(experiment.arms) * experiment.repeats
    tokens = sum((one.tokens or 0) + (one.review_tokens or 0) for one in comparison.results)
    lines = [f"{done} of {count(planned, 'run')} over, {tokens:,} tokens"]
    lines.append(f"runs {render_usd(runs, estimated=estimated)}, blind reviews {render_usd(reviews)}")
    if lost:
        lines.append(f"{render_usd(lost)} of it for runs that were lost")
    return Card(question="Cost", words=words, lines=tuple(lines))


def _add(amounts: Iterator[float | None]) -> float | None:
    found = list(amounts)
    return None if None in found else sum(filter(None, found))


def _list_chapters(
    experiment: Experiment, comparison: Comparison, contexts: Mapping[str, Sequence[Row]]
) -> Iterator[Chapter]:
    yield Chapter(
        name="arms",
        title="The arms",
        lead="The median of each outcome over the repeats; the last table has every run behind it.",
        tables=(_tabulate_arms(experiment, comparison),),
    )
    yield Chapter(
        name="differences",
        title="The differences",
        lead=f"Each arm against {experiment.arms[0]}, paired by repeat. Intervals are of the mean, by Student's t; "
        "those of held-out checks and cost all hold at once in 95 % of experiments, so do the rest among themselves. "
        "A difference whose interval holds zero is not shown.",
        tables=(_tabulate_differences(comparison),),
    )
    if contexts:
        most = max((session.peak_tokens or 0 for sessions in contexts.values() for session in sessions), default=0)
        yield Chapter(
            name="contexts",
            title="The contexts",
            lead="How full the context was, turn by turn, in the first run of each arm: "
            f"{list_some(tuple(contexts), len(contexts))}.",
            plots=tuple(draw_contexts(sessions, most=most) for sessions in contexts.values()),
        )
    yield Chapter(
        name="runs",
        title="The runs",
        lead="In the order of work. A run that was cut off went on in a fresh conversation, whatever its arm. The ref "
        "has the commits of the run; the log is beside this page.",
        tables=_list_runs(comparison.results),
    )


def _tabulate_arms(experiment: Experiment, comparison: Comparison) -> Table:
    medians = {one: [comparison.medians[arm][one.name] for arm in experiment.arms] for one in OUTCOMES}
    rows = [
        (_name(outcome, comparison), *(_render(outcome, median) for median in found))
        for outcome, found in medians.items()
        if any(median is not None for median in found)
    ]
    columns = ", ".join(("Median", *(f"#{arm.replace(', ', ',')}" for arm in experiment.arms)))
    return make_table("Median of each outcome", columns, rows)


def _tabulate_differences(comparison: Comparison) -> Table:
    rows = [
        (
            _name(one.outcome, comparison),
            one.arm,
            _render(one.outcome, sum(one.pairs) / len(one.pairs), signed=True),
            _render_interval(one),
            str(len(one.pairs)),
            "shown" if one.is_shown else "not shown" if one.interval else "too few repeats",
            f"{one.more:,}" if one.more else NOTHING,
        )
        for one in comparison.differences
    ]
    columns = "Outcome, Arm, #Mean difference, #Interval, #Pairs, Verdict, #More repeats needed"
    return make_table("Each arm against the first", columns, rows)


_RUNS = (
    "#Run {number} | Arm {arm} | #Repeat {repeat} | #Phases {done} | #Held-out {checks} | "
    "#Faults and disputed {faults} | #Cost {0:cost} | #Input {input_tokens:tokens} | "
    "#Cache writes {cache_write_tokens:tokens} | #Cache reads {cache_read_tokens:tokens} | "
    "#Output {output_tokens:tokens} | #Time {wall_s:s} | #Sessions {sessions:known} | #Fill {fill:tokens} | "
    "#Red gates and repairs {red_gates:known} and {repairs:known} | #Cut off {cuts} | End {reason}"
)


def _list_runs(results: Sequence[TrialResult]) -> tuple[Table, Table]:
    rows, places = [], []
    for one in results:
        done = f"{one.phases_done} of {one.phases}" if one.phases else "lost"
        checks = f"{one.hidden_passed} of {one.hidden_total}" if one.hidden_total else NOTHING
        faults = NOTHING if one.findings is None else f"{one.findings} and {one.disputed}"
        rows.append(Row(**asdict(one), done=done, checks=checks, faults=faults))
        places += [Row(**asdict(one), log=log) for log in (one.logs or ("",))]
    where = "#Run {number} | Arm {arm} | `Ref {ref} | @Log {log}"
    return list_rows("Every run", _RUNS, rows), list_rows("Where they are kept", where, places)
