"""`relay tune`: where sessions should be reset, as far as this repository's logs can say."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import click

from relay.base.words import count
from relay.cli.options import json_option
from relay.cli.report import get_entries, read_figures
from relay.cli.screen import say, say_document
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.insight.figures.tuning import ArmDifference, BandRates, Interval, TrialFigures
    from relay.insight.figures.values import Figures
    from relay.insight.telemetry.logs import LogEntry


@click.command("tune", short_help="Say where sessions should be reset.")
@json_option
def command(*, as_json: bool) -> None:
    """Say from the logs of this repository where sessions should be reset.

    Only a trial can say it (`trial` in the settings): what came of each line, phases of the same plan in pairs, and how
    many more phases it takes to see a difference of that size. All of its intervals hold at once, in 95 % of trials.
    Failed calls, duplicate reads, edits from memory and red gates are shown by how full sessions were.
    """
    from relay.insight.figures.tuning import judge_trial, measure_bands

    found = [*_read_plans(get_entries())]
    rates, trial = measure_bands(found), judge_trial(found)
    if as_json:
        say_document({"rates": [asdict(one) for one in rates], "trial": asdict(trial)})
        return
    for line in (*_render_rates(rates), "", *_render_trial(trial)):
        say(line)


def _read_plans(entries: "Sequence[LogEntry]") -> "Iterator[Figures]":
    """Yield the figures of each plan: phases of another plan may have the same numbers, also in the same file."""

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
        yield f"  {one.band.value:<12}{one.legs:>8}  {one.turns:>6}  {shown}".rstrip()
    yield "No line can be advised by it: files are seen again, and gates run, late in every session. A trial finds out."


def _render_trial(trial: "TrialFigures") -> Iterator[str]:
    if not trial.arms:
        yield 'No trial: trial = {reset_at = ["60k", "100k", "none"]} in relay.toml gives each phase one of them.'
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
        yield f"resets at {line} are dead weight here: they cost more, for sure, and without them nothing is worse"


def _render_difference(one: "ArmDifference") -> str:
    words = f"{one.outcome}, {one.other} against {one.one}: "
    if one.difference is None:
        return f"{words}{count(one.pairs, 'pair')}, too few to say anything"
    verdict = "a difference" if one.difference.excludes_zero else "no sure difference"
    more = ""
    if not one.difference.excludes_zero and one.phases_missing is not None:
        more = f"; {count(one.phases_missing, 'more phase')} would show one of this size"
    return f"{words}{_render_change(one.difference)} ({count(one.pairs, 'pair')}): {verdict}{more}"


def _render_rate(rate: "Interval | None") -> str:
    return "n/a" if rate is None else f"{rate.estimate:.0%} ({rate.low:.0%}–{rate.high:.0%})"


def _render_change(change: "Interval") -> str:
    return f"{change.estimate:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
