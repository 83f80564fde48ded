"""`relay lab tune`: what the logs of this repository tell of reset lines."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from relay.base.words import count, render_tokens, render_usd
from relay.cli.options import json_option
from relay.cli.report import get_entries, read_entries
from relay.cli.screen import say, say_document
from relay.insight.database import Row
from relay.insight.figures import Figures, add_up, measure_ledger
from relay.insight.report.chapters import say_worth
from relay.insight.telemetry.log import LogEntry
from relay.lab.statistics import Interval
from relay.lab.tuning import count_rungs, measure_bands, measure_use
from relay.session.values import SessionKind


@click.command("tune")
@json_option
def command(*, as_json: bool) -> None:
    """Show how often sessions went wrong by context size, and how much of what they were shown they used.

    That is failed calls, duplicate reads, edits from memory and red gates. At which size sessions should hand over only
    an experiment can tell: relay lab compare --arms 60k,100k,none.
    """
    found = [*_read_plans(get_entries())]
    rates, use, ledger = [*measure_bands(found)], measure_use(found), measure_ledger(found)
    rungs, totals = count_rungs(found), add_up(figures.totals for figures in found)
    if as_json:
        explorers = {name: vars(totals)[name] for name in ("explored", "explored_tokens", "explored_usd")}
        say_document({"rates": rates, "use": use, "rungs": rungs, "explorers": explorers, "ledger": ledger})
        return
    for line in (*_render_rates(rates), "", *_render_use(use)):
        say(line)
    if totals.explored_tokens:
        say(f"Explorers answered {count(totals.explored, 'question')} for {render_usd(totals.explored_usd)}.")
    if words := say_worth(ledger):  # of the ledger in the first messages
        say(f"The ledger: {words}")
    for one in rungs:
        usd = render_usd(one.cost_usd, estimated=one.estimated)
        say(f"{one.rung}: {one.done} of {count(one.phases, 'phase')} done with it, {usd}")


def _read_plans(entries: "Sequence[LogEntry]") -> "Iterator[Figures]":
    """Yield the figures of each plan; different plans, even in the same file, may have phases of the same number."""

    def name(entry: LogEntry) -> tuple[str, str]:
        return (entry.started.plan_path, entry.started.plan_commit) if entry.started else ("", "")

    of_runs = [entry for entry in entries if entry.started and entry.started.command == SessionKind.RUN]
    for _, runs in groupby(sorted(of_runs, key=name), key=name):
        figures, _ = read_entries(sorted(runs, key=lambda entry: entry.began or 0.0))
        yield figures


def _render_rates(rates: "Sequence[Row]") -> Iterator[str]:
    yield "What went wrong by how full sessions were"
    titles = "".join(f"{title:<16}" for title in ("failed calls", "seen again", "ghost edits"))
    yield f"  {'fill':<12}{'sessions':>8}  {'turns':>6}  {titles}red gates"
    for one in rates:
        cells = (one.errors, one.duplicates, one.ghosts, one.repairs)
        shown = "".join(f"{_render_rate(cell):<16}" for cell in cells)
        yield f"  {one.band:<12}{one.sessions:>8}  {one.turns:>6}  {shown}".rstrip()
    yield "These rates cannot advise a line: every session reads files again, and runs gates, late."
    yield "`relay lab compare --arms 60k,100k,none` can."


_USED = {
    "file": "files read, of which a later call names a line or the path",
    "preload": "files in the first message, of which a call names a line or the path",
    "history": "tokens behind the first message, neither superseded nor unused",
}


def _render_use(use: "Sequence[Row]") -> Iterator[str]:
    if not use:
        return
    yield "What sessions were shown, and used"
    for one in use:
        share = _render_rate(one.rate) if one.rate else f"{one.used / one.shown:.0%}"
        tokens = f" ({render_tokens(one.tokens)} tokens)" if one.rate else ""
        yield f"  {share:<16}of {render_tokens(one.shown)} {_USED[one.kind]}{tokens}"


def _render_rate(rate: "Interval | None") -> str:
    return "n/a" if rate is None else f"{rate.estimate:.0%} ({rate.low:.0%}–{rate.high:.0%})"
