"""`relay lab tune`: what the logs of this repository tell of reset lines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import click

from relay.base.words import count, render_tokens, render_usd
from relay.cli.options import json_option
from relay.cli.report import get_entries, read_figures
from relay.cli.screen import say, say_document
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.insight.figures.values import Figures, Totals
    from relay.insight.figures.worth import LedgerWorth
    from relay.insight.telemetry.log import LogEntry
    from relay.lab.statistics import Interval
    from relay.lab.tuning import ArmDifference, BandRates, RungFigures, TrialFigures, UseRate


@click.command("tune")
@json_option
def command(*, as_json: bool) -> None:
    """Compare reset lines: at which context size should sessions hand over?

    Only a trial can tell (setting `trial`). relay compares the outcomes of its lines, pairing phases of the same plan,
    and says how many more phases would show a difference of that size. All intervals hold at once in 95 % of trials. It
    also shows failed calls, duplicate reads, edits from memory and red gates by context size, and how much of what
    sessions were shown they used.
    """
    from relay.insight.figures.values import add_totals
    from relay.insight.figures.worth import measure_ledger
    from relay.lab.tuning import count_rungs, judge_trial, measure_bands, measure_use

    found = [*_read_plans(get_entries())]
    rates, use, trial, ledger = measure_bands(found), measure_use(found), judge_trial(found), measure_ledger(found)
    rungs, totals = count_rungs(found), add_totals(*(figures.totals for figures in found))
    if as_json:
        lists = {"rates": [asdict(one) for one in rates], "use": [asdict(one) for one in use]}
        explorers = {name: getattr(totals, name) for name in _OF_EXPLORERS}
        lists["rungs"] = [asdict(one) for one in rungs]
        say_document({**lists, "trial": asdict(trial), "explorers": explorers, "ledger": asdict(ledger)})
        return
    worth = (*_render_use(use), *_render_explorers(totals), *_render_ledger(ledger), *_render_rungs(rungs))
    for line in (*_render_rates(rates), "", *worth, *([""] if worth else []), *_render_trial(trial)):
        say(line)


def _read_plans(entries: "Sequence[LogEntry]") -> "Iterator[Figures]":
    """Yield the figures of each plan; different plans, even in the same file, may have phases of the same number."""

    def name(entry: "LogEntry") -> tuple[str, str]:
        return (entry.started.plan_path, entry.started.plan_commit) if entry.started else ("", "")

    of_runs = [entry for entry in entries if entry.started and entry.started.command == SessionKind.RUN]
    for _, runs in groupby(sorted(of_runs, key=name), key=name):
        figures, _ = read_figures(sorted(runs, key=lambda entry: entry.began or 0.0))
        yield figures


def _render_rates(rates: "Sequence[BandRates]") -> Iterator[str]:
    yield "What went wrong by how full sessions were"
    titles = "".join(f"{title:<16}" for title in ("failed calls", "seen again", "ghost edits"))
    yield f"  {'fill':<12}{'sessions':>8}  {'turns':>6}  {titles}red gates"
    for one in rates:
        cells = (one.errors, one.duplicates, one.ghosts, one.repairs)
        shown = "".join(f"{_render_rate(cell):<16}" for cell in cells)
        yield f"  {one.band.value:<12}{one.sessions:>8}  {one.turns:>6}  {shown}".rstrip()
    yield "These rates cannot advise a line: every session reads files again, and runs gates, late. A trial can."


_OF_EXPLORERS = ("explored", "explored_tokens", "explored_usd")


def _render_explorers(totals: "Totals") -> Iterator[str]:
    """Say what explorers cost; nothing without any."""
    if totals.explored_tokens:
        yield f"Explorers answered {count(totals.explored, 'question')} for {render_usd(totals.explored_usd)}."


def _render_ledger(ledger: "LedgerWorth") -> Iterator[str]:
    """Say what the ledger in the first messages was worth; nothing without a session that had one."""
    from relay.insight.report.evidence import say_worth

    if words := say_worth(ledger):
        yield f"The ledger: {words}"


def _render_rungs(rungs: "Sequence[RungFigures]") -> Iterator[str]:
    """Say what the changes of model and effort led to; nothing without any."""
    for one in rungs:
        usd = render_usd(one.spent.cost_usd, estimated=one.spent.estimated)
        yield f"{one.rung}: {one.done} of {count(one.phases, 'phase')} done with it, {usd}"


_USED = {
    "file": "files read, of which a later call names a line or the path",
    "preload": "files in the first message, of which a call names a line or the path",
    "history": "tokens behind the first message, neither superseded nor unused",
}


def _render_use(use: "Sequence[UseRate]") -> Iterator[str]:
    if not use:
        return
    yield "What sessions were shown, and used"
    for one in use:
        share = _render_rate(one.rate) if one.rate else f"{one.used / one.shown:.0%}"
        tokens = f" ({render_tokens(one.tokens)} tokens)" if one.rate else ""
        yield f"  {share:<16}of {render_tokens(one.shown)} {_USED[one.kind]}{tokens}"


def _render_trial(trial: "TrialFigures") -> Iterator[str]:
    if not trial.arms:
        yield 'No trial yet: trial = {reset_at = ["60k", "100k", "none"]} in relay.toml gives each phase one line.'
        return
    yield "The trial"
    for arm in trial.arms:
        means = ", ".join(
            f"{outcome} {'unknown' if mean is None else f'{mean:.2f}'}" for outcome, mean in arm.means.items()
        )
        yield f"  {arm.reset_at:<8}{count(arm.phases, 'phase')}: {means}"
    for difference in trial.differences:
        yield f"  {_render_difference(difference)}"
    for line in trial.dead_weight:
        yield f"resets at {line} do not pay here: they surely cost more, and without resets nothing is surely worse"


def _render_difference(one: "ArmDifference") -> str:
    words = f"{one.outcome}, {one.other} against {one.one}: "
    if one.difference is None:
        return f"{words}{count(one.pairs, 'pair')}, too few to compare"
    verdict = "a difference" if one.difference.excludes_zero else "no sure difference"
    more = ""
    if not one.difference.excludes_zero and one.phases_missing is not None:
        more = f"; {count(one.phases_missing, 'more phase')} would show one of this size"
    return f"{words}{_render_change(one.difference)} ({count(one.pairs, 'pair')}): {verdict}{more}"


def _render_rate(rate: "Interval | None") -> str:
    return "n/a" if rate is None else f"{rate.estimate:.0%} ({rate.low:.0%}–{rate.high:.0%})"


def _render_change(change: "Interval") -> str:
    return f"{change.estimate:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
