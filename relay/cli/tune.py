"""`relay tune`: where sessions should be reset, as far as this repository's logs can say."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import click

from relay.cli.options import json_option
from relay.cli.report import get_entries, read_figures
from relay.cli.screen import say, say_document
from relay.session.values import SessionKind
from relay.words import count

if TYPE_CHECKING:
    from relay.figures.statistics import Interval
    from relay.figures.tuning import Advice, ArmDifference, TrialFigures
    from relay.figures.values import Figures
    from relay.telemetry.logs import LogEntry


@click.command("tune", short_help="Say where sessions should be reset.")
@json_option
def command(*, as_json: bool) -> None:
    """Say from the logs of this repository where sessions should be reset.

    Without a trial: failed calls, duplicate reads, edits from memory and red gates by how full sessions were, with 95 %
    intervals; a line is advised only where the data carry it. With `trial` in the settings: what came of each line,
    phases of the same plan in pairs, and how many more phases it takes to see a difference of that size.
    """
    from relay.figures.tuning import judge_lines, judge_trial

    found = [*_read_plans(get_entries())]
    advice, trial = judge_lines(found), judge_trial(found)
    if as_json:
        say_document({"advice": asdict(advice), "trial": asdict(trial)})
        return
    for line in (*_render_advice(advice), "", *_render_trial(trial)):
        say(line)


def _read_plans(entries: "Sequence[LogEntry]") -> "Iterator[Figures]":
    """Yield the figures of each plan: phases of another plan may have the same numbers, also in the same file."""

    def name(entry: "LogEntry") -> tuple[str, str]:
        return (entry.started.plan_path, entry.started.plan_commit) if entry.started else ("", "")

    of_runs = [entry for entry in entries if entry.started and entry.started.command == SessionKind.RUN]
    for _, runs in groupby(sorted(of_runs, key=name), key=name):
        figures, _ = read_figures(sorted(runs, key=lambda entry: entry.began or 0.0))
        yield figures


def _render_advice(advice: "Advice") -> Iterator[str]:
    yield f"Without a trial: {count(advice.legs, 'session')}"
    titles = "".join(f"{title:<16}" for title in ("failed calls", "seen again", "ghost edits"))
    yield f"  {'fill':<12}{'sessions':>8}  {'turns':>6}  {titles}red gates"
    for rates in advice.rates:
        cells = (rates.errors, rates.duplicates, rates.ghosts, rates.repairs)
        shown = "".join(f"{_render_rate(cell):<16}" for cell in cells)
        yield f"  {rates.band.value:<12}{rates.legs:>8}  {rates.turns:>6}  {shown}".rstrip()
    if advice.part is not None and advice.difference is not None:
        more = _render_change(advice.difference)
        yield f"advice: reset at {advice.part:.0%} of the present line. Above it, trouble per call is {more} more."
        yield "It is no trial: phases that are hard are longer too. `trial` in the settings finds out."
    elif advice.legs_missing:
        yield f"no advice: {count(advice.legs_missing, 'more session')} must get past a fifth of the line"
    elif advice.difference is not None:
        yield f"no advice: above no line is there more trouble for sure ({_render_change(advice.difference)} per call)"
    else:
        yield "no advice: nothing was called on one side of every line"


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
    verdict = "a difference" if one.difference.excludes_zero else "no difference for sure"
    more = ""
    if not one.difference.excludes_zero and one.phases_missing is not None:
        more = f"; {count(one.phases_missing, 'more phase')} would show one of this size"
    return f"{words}{_render_change(one.difference)} ({count(one.pairs, 'pair')}): {verdict}{more}"


def _render_rate(rate: "Interval | None") -> str:
    return "n/a" if rate is None else f"{rate.estimate:.0%} ({rate.low:.0%}–{rate.high:.0%})"


def _render_change(change: "Interval") -> str:
    return f"{change.estimate:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
