"""`relay report`: where the tokens of a run went; with `--otel` its log goes to an OpenTelemetry collector."""

import json
import os
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ConfigError, LedgerError, RelayError, RepoError
from relay.base.hints import TypedPath
from relay.base.words import UNKNOWN, count, render_moment, render_tokens
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.screen import clean_line, complain, say, say_document, say_json
from relay.config.extras import advise_extra
from relay.plan.text import find_ledger_path

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.insight.figures.values import Figures
    from relay.insight.report.blocks import Page
    from relay.insight.report.evidence import Beliefs
    from relay.insight.telemetry.logs import LogEntry
    from relay.ledger import Judgement, Ledger


LIBRARIES = ("jinja2", "lets_plot")


def require_libraries(names: Sequence[str] = LIBRARIES) -> None:
    """Look for what draws the page, before any log is read.

    Raises:
        RelayError: Some of it is not installed.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise RelayError(
            f"the page is drawn by {' and '.join(missing)}, which relay is installed without",
            hint=f"{advise_extra('report')}; relay report --text needs none",
        )


def build_page(repo: "Repo", found: "Sequence[Figures]") -> "Page":
    """Return what is said of one run or plan, or of the two that stand side by side."""
    from relay.insight.report.contents import make_comparison, make_page

    one, *others = found
    return make_comparison(one, others[0]) if others else make_page(one, _read_beliefs(repo, one))


def write_page(repo: "Repo", found: "Sequence[Figures]", page: "Page", output: str | None) -> Path:
    """Draw a page and put it where it belongs; return where.

    Args:
        repo: Whose logs and ledger they are.
        found: What the page is of, for its name.
        output: The file that the user named; None for relay's own folder.

    Raises:
        RelayError: It cannot be written.
    """
    from relay.insight.report.page import render_page, save_page, save_page_as

    html = render_page(page, clean=clean_line)
    if output is not None:
        return save_page_as(Path(output), html)
    return save_page(repo.root, "-".join(map(_name, found)), html)


def _name(figures: "Figures") -> str:
    """Return a run's id, or the plan's name for all of its runs."""
    last = figures.runs[-1] if figures.runs else None
    return "" if last is None else last.run_id if len(figures.runs) == 1 else last.plan_path


def _read_beliefs(repo: "Repo", figures: "Figures") -> "Beliefs | None":
    from relay.insight.report.evidence import Beliefs

    found = find_last_ledger(repo, figures)
    return Beliefs(ledger=found[0], judgement=found[1], now=datetime.now(UTC)) if found else None


def find_last_ledger(repo: "Repo", figures: "Figures") -> "tuple[Ledger, Judgement] | None":
    """Read and judge the ledger of the plan that was run last; None where there is none that can be read."""
    from relay.base.tree import read_file
    from relay.ledger import judge, parse_ledger
    from relay.plan.text import decode_text
    from relay.store.staleness import find_stale_claims

    plans = [run.plan_path for run in figures.runs if Path(run.plan_path).name]
    if not plans:
        return None
    path = find_ledger_path(plans[-1])
    try:
        data = read_file(repo.root, path)
        ledger = parse_ledger(decode_text(data)) if data is not None else None
    except (LedgerError, RepoError, ValueError) as error:
        complain(f"{path} is not in the report: {error}")
        return None
    return None if ledger is None else (ledger, judge(ledger, find_stale_claims(repo, ledger)))


def render_ledger(ledger: "Ledger", judgement: "Judgement", figures: "Figures") -> dict[str, Any]:
    """Return what a ledger comes to, for machines: decisions and their cost, half-life, uses, contradictions."""
    from relay.ledger import Kind
    from relay.ledger.belief import find_half_life, find_lives, find_uses

    costs = {leg.session_id: leg.totals.usd_per_decision for leg in figures.legs}
    uses = find_uses(ledger)
    return {
        "half_life_s": find_half_life(find_lives(ledger, datetime.now(UTC)).values()),
        "claims": {name: str(judgement[name].status) for name in ledger.claims},
        "decisions": [
            {"id": claim.id, "phase": claim.stamp.phase, "usd": costs.get(claim.stamp.session)}
            for claim in ledger.claims.values()
            if claim.kind is Kind.DECISION
        ],
        "used_again": {name: list(users) for name, users in uses.items()},
        "contradictions": [{"id": n.id, "claims": list(n.claims)} for n in judgement.contradictions],
    }


MOST_SIDES = 2


@click.command("report", short_help="Show where the tokens of a run went.")
@click.argument("runs", nargs=-1, metavar="[RUN|PLAN]...", help="A run or a plan; two are set side by side.")
@click.option("-o", "--output", metavar="FILE", help="Put the page there, not below .relay/reports/.")
@click.option("--text", "as_text", is_flag=True, help="In the terminal.")
@json_option
@click.option("--list", "as_list", is_flag=True, help="Which logs there are, newest first.")
@click.option("--schema", is_flag=True, help="Print a JSON Schema of a line of the log and exit.")
@click.option("--otel", is_flag=True, help="Send the run's log to an OpenTelemetry collector, as spans and metrics.")
@click.option(
    "--endpoint",
    metavar="URL",
    help="Of --otel: where to; else OTEL_EXPORTER_OTLP_ENDPOINT, or port 4318 of this machine.",
)
def command(  # noqa: PLR0913  # its options
    *,
    runs: tuple[str, ...],
    output: str | None,
    as_text: bool,
    as_json: bool,
    as_list: bool,
    schema: bool,
    otel: bool,
    endpoint: str | None,
) -> None:
    """Show where the tokens of a run went: by source, phase, session and tool, and what proves each tick.

    RUN is a run's id or how it begins; PLAN is the path of a plan, and means all of its runs together. Without either
    it is the newest. Two of them stand side by side. It is one page of HTML that needs no network; its path is printed.
    --text says the same in the terminal, --json that of all runs together. Figures come from the event log below
    .relay/sessions/ alone (docs/events.md), beliefs from the plan's ledger.

    --otel sends one run as spans and metrics (OTLP over HTTP): names, times, tokens and costs of the run, its sessions,
    answers, tool calls and gates, never what was said, read or run. Nothing is sent unless you type it, or set
    otel_endpoint, which has runs send theirs while they are at work; a log that is sent twice has the same spans.
    """
    _require_fitting(runs, endpoint, otel=otel, others=bool(output or as_text or as_json or as_list or schema))
    if otel:
        _send(runs[0] if runs else "", endpoint)
        return
    if schema:
        from relay.insight.telemetry.schema import render_event_schema

        say_json(json.dumps(render_event_schema(), ensure_ascii=True))
        return
    entries = get_entries()
    if as_list:
        _say_list(entries)
    elif as_json:
        _say_document(*read_figures(choose(entries, runs)))
    else:
        _say_page(entries, runs, output, as_text=as_text)


def _require_fitting(runs: Sequence[str], endpoint: str | None, *, otel: bool, others: bool) -> None:
    if endpoint is not None and not otel:
        raise click.UsageError("--endpoint is for --otel")
    if otel and (others or runs[1:]):
        raise click.UsageError("--otel sends one run, and takes no other option but --endpoint")


def _send(start: str, endpoint: str | None) -> None:
    """Send the log of the last run whose id begins like this.

    Raises:
        ConfigError: There is none, the extra is not installed, or the collector did not take it.
    """
    from relay.cli.watch import get_run, open_tail
    from relay.config.extras import advise_extra

    place = note_place()
    try:
        from relay.insight.telemetry.collector import DEFAULT, Collector, CollectorError, Export
    except ImportError:
        raise ConfigError("OpenTelemetry's SDK is not installed", hint=advise_extra("otel")) from None

    url = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no address of a collector", hint=f"--endpoint {DEFAULT}")
    run_id = get_run(place.repo, start)
    with open_tail(place.repo, run_id) as log:
        export = Export(log, Collector(url, os.environ), run_id)
        try:
            export.push(last=True)
        except CollectorError as error:
            raise ConfigError(str(error), hint=error.hint) from None
    metrics = "its metrics" if export.takes_metrics else "no metrics, which are not taken there"
    say(f"sent to {url}: {count(export.sent, 'span')} and {metrics}")


def _say_document(figures: "Figures", skipped: int) -> None:
    from relay.insight.figures.fold import render_document

    found = find_last_ledger(note_place().repo, figures)
    beliefs = render_ledger(*found, figures) if found else None
    document = {**render_document(figures, skipped_lines=skipped), "beliefs": beliefs}
    say_document(document)


def _say_page(entries: "Sequence[LogEntry]", wanted: Sequence[str], output: str | None, *, as_text: bool) -> None:
    """Print the page of one run or plan, or of two, as text, or where it is.

    Raises:
        RelayError: It cannot be drawn or written.
    """
    if len(wanted) > MOST_SIDES:
        raise ConfigError("a page has one run, or two side by side", hint="relay report --json A B C adds them up")
    chosen = [choose(entries, [word]) for word in wanted or [""]]
    if not as_text:
        require_libraries()
    found = [read_figures(some) for some in chosen]
    sides = [figures for figures, _ in found]
    page = build_page(note_place().repo, sides)
    if as_text:
        from relay.cli.page_text import render_text

        for line, style in render_text(page):
            say(line, style=style)
    else:
        say(str(write_page(note_place().repo, sides, page, output)))
    if not wanted:
        _tell_others(entries, chosen[0][-1])
    _complain_of(sum(skipped for _, skipped in found))


def _tell_others(entries: "Sequence[LogEntry]", shown: "LogEntry") -> None:
    """Say how all runs of a plan are shown where one of several is."""
    plan_path = shown.started.plan_path if shown.started else ""
    runs = [entry for entry in entries if entry.started and entry.started.plan_path == plan_path]
    if runs[1:]:
        again = note_place().caller.write(("relay report ", TypedPath(path=plan_path)))
        complain(f"this is the newest of {len(runs)} runs; {again} is of all of them")


def _complain_of(skipped: int) -> None:
    if skipped:
        complain(
            f"{count(skipped, 'line')} of the log could not be read and {'is' if skipped == 1 else 'are'} not in it"
        )


def get_entries() -> "tuple[LogEntry, ...]":
    """Return the logs of the repository here.

    Raises:
        RelayError: There is no repository, or no log in it.
    """
    from relay.insight.telemetry.logs import list_logs

    entries = list_logs(note_place().repo.root)
    if not entries:
        raise ConfigError("there is no log of a run here yet", hint="relay run writes one below .relay/sessions/")
    return entries


def choose(entries: "Sequence[LogEntry]", wanted: Sequence[str]) -> "tuple[LogEntry, ...]":
    """Return the logs that are meant, oldest first.

    Raises:
        ConfigError: A word means none, or could mean several.
    """
    from relay.insight.telemetry.logs import find_logs

    chosen: dict[str, LogEntry] = {}
    for word in wanted or ("",):
        found = find_logs(entries, word)
        if not found:
            raise ConfigError(f"no run, and no plan with runs, is called {word!r}", hint="relay report --list")
        chosen.update({entry.run_id: entry for entry in found})
    return tuple(sorted(chosen.values(), key=lambda entry: (entry.began or entry.written, entry.run_id)))


def read_figures(entries: "Iterable[LogEntry]") -> "tuple[Figures, int]":
    """Return the figures of all these logs together, and how many lines could not be read."""
    from relay.insight.figures.fold import fold_records
    from relay.insight.telemetry.log import open_events

    readers = [reader for entry in entries if (reader := open_events(entry.path))]
    figures = fold_records(chain.from_iterable(readers))
    return figures, sum(reader.skipped_lines for reader in readers)


def _say_list(entries: "Sequence[LogEntry]") -> None:
    now = time.time()
    for entry in entries:
        when = render_moment(entry.began, now=now) if entry.began is not None else UNKNOWN
        what = f"{entry.started.command} {entry.started.plan_path}" if entry.started else UNKNOWN
        how = entry.ended.reason if entry.ended else "no end in the log: it works, or was killed"
        say(f"{entry.run_id}  {when}  {what}  {render_tokens(entry.size_bytes)}B  {how}")
