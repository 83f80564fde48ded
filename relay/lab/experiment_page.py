"""Build the page of an experiment: what was shown, what was not, what it cost, and every trial behind that."""

from collections.abc import Iterator, Mapping, Sequence

from relay.base.values import dataclass
from relay.base.words import UNKNOWN, count, list_some, render_duration, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.report.blocks import NOTHING, Bar, Card, Chapter, Ink, Page, Plot, Table, make_table
from relay.insight.report.chapters import plot_contexts
from relay.insight.report.plots import draw_bars
from relay.lab.comparing import OUTCOMES, Comparison, Difference, Measure, TrialResult
from relay.lab.statistics import LEAST_REPEATS

_SCRIPTED = (
    "Nothing about quality, cost or time follows from it.",
    "The figures show that the experiment works: arms, cap, counting, statistics.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSetting:
    """What an experiment is about, in words."""

    id: str
    facts: tuple[tuple[str, str], ...]
    """Names and texts for the head of the page."""
    arms: tuple[str, ...]
    repeats: int
    cap_usd: float
    lost_usd: float
    """The shares of trials whose cost is not known any more."""
    contexts: Mapping[str, Sequence[Row]]
    """Arm → the sessions of its first trial, as far as its log is there."""
    next_command: str = ""
    """What goes on with it; empty if it is over."""


def make_experiment_page(setting: ExperimentSetting, comparison: Comparison) -> Page:
    """Build the page; relay prints the same as text."""
    rehearsed = any(one.rehearsed for one in comparison.results)
    warning = (Card(question="A script played the model", words="", lines=_SCRIPTED, ink=Ink.BAD),) if rehearsed else ()
    return Page(
        title=f"relay lab compare {setting.id}: {list_some(setting.arms, 6)}",
        facts=setting.facts,
        answers=(*warning, _say_shown(comparison), _say_not_shown(setting, comparison), _say_cost(setting, comparison)),
        sections=tuple(_list_chapters(setting, comparison)),
    )


def _render(outcome: Measure, value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return UNKNOWN
    sign = ("−" if value < 0 else "+") if signed else ""
    size = abs(value) if signed else value
    match outcome.unit:
        case "$":
            return f"{sign}{render_usd(size)}"
        case "s":
            return f"{sign}{render_duration(size)}"
        case "tokens":
            return f"{sign}{render_tokens(round(size))}"
        case _:
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


def _say_not_shown(setting: ExperimentSetting, comparison: Comparison) -> Card:
    left = [one for one in comparison.differences if one.outcome.is_main and not one.is_shown]
    lines = [f"{_say(one, comparison)}{_say_more(one)}" for one in left]
    rest = sum(not one.is_shown and not one.outcome.is_main for one in comparison.differences)
    if rest:
        lines.append(f"{count(rest, 'difference')} in other outcomes: see the table")
    if comparison.checks is None:
        lines.append("no held-out checks: whether the results are right was not measured (--hidden)")
    if setting.next_command:
        lines.append(f"not all runs are over: {setting.next_command}")
    return Card(question="Not shown", words=count(len(left) + rest, "difference"), lines=tuple(lines))


def _say_more(one: Difference) -> str:
    return f"; about {count(one.more, 'more repeat')} would show one of this size" if one.more else ""


def _say_cost(setting: ExperimentSetting, comparison: Comparison) -> Card:
    runs, reviews = (
        _add(one.cost_usd for one in comparison.results),
        _add(one.review_usd if one.review_tokens is not None else 0.0 for one in comparison.results),
    )
    total = None if runs is None or reviews is None else runs + reviews + setting.lost_usd
    estimated = any(one.estimated for one in comparison.results)
    words = f"{render_usd(total, estimated=estimated)} of at most {render_usd(setting.cap_usd)}"
    done, planned = len(comparison.results), len(setting.arms) * setting.repeats
    tokens = sum((one.tokens or 0) + (one.review_tokens or 0) for one in comparison.results)
    lines = [f"{done} of {count(planned, 'run')} over, {tokens:,} tokens"]
    lines.append(f"runs {render_usd(runs, estimated=estimated)}, blind reviews {render_usd(reviews)}")
    if setting.lost_usd:
        lines.append(f"{render_usd(setting.lost_usd)} of it for runs that were lost")
    return Card(question="Cost", words=words, lines=tuple(lines))


def _add(amounts: Iterator[float | None]) -> float | None:
    found = list(amounts)
    return None if None in found else sum(filter(None, found))


def _list_chapters(setting: ExperimentSetting, comparison: Comparison) -> Iterator[Chapter]:
    yield Chapter(
        name="arms",
        title="The arms",
        lead="The median of each outcome over the repeats, and every run behind it as a bar.",
        plots=(*_plot_checks(setting, comparison), *_plot_costs(setting, comparison)),
        tables=(_tabulate_arms(setting, comparison),),
    )
    yield Chapter(
        name="differences",
        title="The differences",
        lead=f"Each arm against {setting.arms[0]}, paired by repeat. Intervals are of the mean, by bootstrap, "
        "never narrower than Student's; those of held-out checks and cost all hold at once in 95 % of experiments, so "
        "do the rest among themselves. A difference whose interval holds zero is not shown.",
        tables=(_tabulate_differences(comparison),),
    )
    if setting.contexts:
        most = max(
            (session.peak_tokens or 0 for sessions in setting.contexts.values() for session in sessions), default=0
        )
        yield Chapter(
            name="contexts",
            title="The contexts",
            lead="How full the context was, turn by turn, in the first run of each arm: "
            f"{list_some(tuple(setting.contexts), len(setting.contexts))}.",
            plots=tuple(plot_contexts(sessions, most=most) for sessions in setting.contexts.values()),
        )
    yield Chapter(
        name="runs",
        title="The runs",
        lead="In the order of work. A run that was cut off went on in a fresh conversation, whatever its arm. The ref "
        "has the commits of the run; the log is beside this page.",
        tables=(_tabulate_runs(comparison.results), _tabulate_places(comparison.results)),
    )


def _group(setting: ExperimentSetting, comparison: Comparison) -> dict[str, list[TrialResult]]:
    by_repeat = sorted(comparison.results, key=lambda one: one.repeat)
    return {arm: [one for one in by_repeat if one.arm == arm] for arm in setting.arms}


def _plot_checks(setting: ExperimentSetting, comparison: Comparison) -> Iterator[Plot]:
    if comparison.checks is None:
        return
    for arm, results in _group(setting, comparison).items():
        bars = [
            Bar(
                label=str(one.repeat),
                parts=(
                    (Ink.GOOD, (one.hidden_share or 0.0) * comparison.checks),
                    (Ink.BAD, (1 - (one.hidden_share or 0.0)) * comparison.checks),
                ),
            )
            for one in results
        ]
        legend = ((Ink.GOOD, "held-out checks that pass"), (Ink.BAD, "that do not"))
        yield _plot(bars, arm, legend, most=float(comparison.checks), dollars=False)


def _plot_costs(setting: ExperimentSetting, comparison: Comparison) -> Iterator[Plot]:
    most = max(((one.cost_usd or 0.0) for one in comparison.results), default=0.0)
    for arm, results in _group(setting, comparison).items():
        bars = [Bar(label=str(one.repeat), parts=((Ink.S1, one.cost_usd or 0.0),)) for one in results]
        yield _plot(bars, arm, ((Ink.S1, "cost of the run"),), most=most, dollars=True)


def _plot(bars: Sequence[Bar], arm: str, legend: tuple[tuple[Ink, str], ...], *, most: float, dollars: bool) -> Plot:
    return draw_bars(bars, legend=legend, caption=f"{arm}, by repeat; all arms have the same scale.",
        dollars=dollars, label=f"{arm}: {legend[0][1]}; the tables have the figures", most=most,
    )  # fmt: skip


def _tabulate_arms(setting: ExperimentSetting, comparison: Comparison) -> Table:
    rows = [
        (_name(outcome, comparison), *(_render(outcome, comparison.medians[arm][outcome.name]) for arm in setting.arms))
        for outcome in OUTCOMES
        if any(comparison.medians[arm][outcome.name] is not None for arm in setting.arms)
    ]
    columns = ", ".join(("Median", *(f"#{arm.replace(', ', ',')}" for arm in setting.arms)))
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


def _tabulate_runs(results: Sequence[TrialResult]) -> Table:
    rows = [
        (
            str(one.number), one.arm, str(one.repeat),
            f"{one.phases_done} of {one.phases}" if one.phases else "lost",
            f"{one.hidden_passed} of {one.hidden_total}" if one.hidden_total else NOTHING,
            NOTHING if one.findings is None else f"{one.findings} and {one.disputed}",
            render_usd(one.cost_usd, estimated=one.estimated),
            render_tokens(one.input_tokens), render_tokens(one.cache_write_tokens),
            render_tokens(one.cache_read_tokens), render_tokens(one.output_tokens),
            UNKNOWN if one.wall_s is None else render_duration(one.wall_s),
            _count(one.sessions), render_tokens(one.fill), f"{_count(one.red_gates)} and {_count(one.repairs)}",
            _count(one.weakened), f"{_count(one.duplicated)} of {_count(one.added)}", str(one.cuts), one.reason,
        )
        for one in results
    ]  # fmt: skip
    columns = (
        "#Run, Arm, #Repeat, #Phases, #Held-out, #Faults and disputed, #Cost, #Input, #Cache writes, #Cache reads, "
        "#Output, #Time, #Sessions, #Fill, #Red gates and repairs, #Tests weakened, #Duplicated lines, #Cut off, End"
    )
    return make_table("Every run", columns, rows)


def _tabulate_places(results: Sequence[TrialResult]) -> Table:
    rows = [(str(one.number), one.arm, one.ref, log) for one in results for log in (one.logs or ("",))]
    return make_table("Where they are kept", "#Run, Arm, `Ref, @Log", rows)


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
