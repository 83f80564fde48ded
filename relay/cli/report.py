"""`relay report`: where the tokens of a run went, as page, text or OpenTelemetry."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from relay.base.errors import ConfigError, LedgerError, PlanError, RepoError
from relay.base.hints import advise_extra
from relay.base.places import find_place
from relay.base.redaction import find_secret_values, redact
from relay.base.tree import find_stat
from relay.base.words import UNKNOWN, count, render_moment, render_tokens
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.pages import show_page
from relay.cli.screen import complain, say, say_document, say_json
from relay.gate.evidence import read_evidence
from relay.git.names import find_plan_branch
from relay.git.repository import Repo
from relay.insight.database import Database
from relay.insight.figures import Figures, read_figures, render_document
from relay.insight.report.chapters import Beliefs
from relay.insight.report.contents import make_page
from relay.insight.telemetry.log import LogEntry, find_logs, list_logs, read_logs
from relay.ledger.belief import find_uses
from relay.ledger.model import Kind
from relay.plan.text import find_ledger_path
from relay.setup.place import find_source
from relay.store.history import read_plan_commits
from relay.store.plan_state import summarize_plan
from relay.store.plan_versions import holds_another_plan
from relay.store.staleness import read_judged_ledger


def _read_beliefs(repo: Repo, figures: Figures) -> "Beliefs | None":
    """Read and judge the ledger of the plan that ran last; None if it has no readable ledger."""
    plans = [run.plan_path for run in figures.runs if Path(run.plan_path).name]
    if not plans:
        return None
    path = find_ledger_path(plans[-1])
    try:
        if find_stat(repo.root, path) is None:
            return None
        ledger, _, judgement = read_judged_ledger(repo, plans[-1])
    except (LedgerError, RepoError, ValueError) as error:
        complain(f"the report leaves out {path}: {error}")
        return None
    return Beliefs(ledger=ledger, judgement=judgement)


@click.command("report")
@click.argument("runs", nargs=-1, metavar="[RUN|PLAN]...", help="Run id, or path of a plan; --json adds several up.")
@click.option("--all", "every", is_flag=True, help="Show how the phases of all plans went, from commits alone.")
@click.option(
    "--days", type=click.IntRange(min=1, max=36_500), metavar="N", help="With --all: only phases of the last N days."
)
@click.option("-o", "--output", metavar="FILE", help="Write the page to FILE, not below .relay/reports/.")
@click.option("--text", "as_text", is_flag=True, help="Print the report in the terminal.")
@json_option
@click.option("--list", "as_list", is_flag=True, help="List the logs of runs, newest first.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a log line.")
@click.option("--db", "database", metavar="FILE", help="Write the log as tables of SQLite, for any SQL tool.")
@click.option(
    "--otel",
    is_flag=True,
    help="Send the run's log to the collector at OTEL_EXPORTER_OTLP_ENDPOINT, else at port 4318 of this machine.",
)
def command(  # noqa: PLR0913  # its options
    *,
    runs: tuple[str, ...],
    every: bool,
    days: int | None,
    output: str | None,
    as_text: bool,
    as_json: bool,
    as_list: bool,
    schema: bool,
    database: str | None,
    otel: bool,
) -> None:
    """Show where tokens and money went: by source, phase, session and tool, with the evidence for each tick.

    By default the report is about the plan that ran last, with all its runs. PLAN names another plan, RUN one run by
    its id or the beginning of it. relay writes one HTML page, which loads nothing, and prints
    its path. Figures come from the event logs below .relay/sessions/, claims from the plan's ledger. --json adds up all
    given runs; --db writes the events and the figures as tables that any SQL tool reads.

    --all is about every plan: phases by month, model and runner, how many passed first (no red gate went back to the
    session), cost, regressions. It reads commits alone, so any full clone shows the same.

    --otel sends one run as spans (OTLP over HTTP): names, times, tokens and costs, never content. relay sends nothing
    unless you type --otel or have set OTEL_EXPORTER_OTLP_ENDPOINT, with which each run sends at its end.
    """
    shows = output or as_text or as_json or as_list or schema or database
    refused = {
        "--otel sends one run, and takes no other option": otel and (shows or runs[1:]),
        "--days is for --all": days is not None and not every,
        "--all takes one commit, --days, --output, --text or --json": every
        and (runs[1:] or as_list or schema or database or otel),
    }
    for words in (words for words, is_wrong in refused.items() if is_wrong):
        raise click.UsageError(words)
    if every:
        from relay.cli.outcomes import show_outcomes

        show_outcomes(runs[0] if runs else "HEAD", days=days, output=output, as_text=as_text, as_json=as_json)
    elif otel:
        _send(runs[0] if runs else "")
    elif schema:
        from relay.insight.telemetry.schema import render_event_schema

        say_json(json.dumps(render_event_schema(), ensure_ascii=True))
    else:
        entries = get_entries()
        newest = find_logs(entries, "")[0].started
        runs = runs or (newest.plan_path if newest else "",)  # the plan that ran last
        if as_list:
            for entry in entries:
                when = render_moment(entry.began, now=time.time()) if entry.began is not None else UNKNOWN
                what = f"{entry.started.command} {entry.started.plan_path}" if entry.started else UNKNOWN
                how = entry.ended.reason if entry.ended else "no end in the log: still at work, or killed"
                size = f"{render_tokens(entry.size_bytes)}B"
                say(f"{entry.run_id}  {when}  {what}  {size}  {' '.join(how.split())}")
        elif database is not None:
            _write_database(choose(entries, runs), Path(database))
        elif as_json:
            _say_document(*read_entries(choose(entries, runs)), runs)
        else:
            _say_page(entries, runs, output, as_text=as_text)


def _write_database(entries: "Sequence[LogEntry]", place: Path) -> None:
    """Write the tables of these logs and of their figures into a new file, and print its path.

    Raises:
        ConfigError: The file is there already, or cannot be written.
    """
    from sqlite3 import Error

    try:
        place.touch(exist_ok=False)
        with Database(str(place)) as database:
            database.add(read_logs(entry.path for entry in entries)[0])
            database.compute()
    except FileExistsError:
        raise ConfigError(f"{place} is there already", hint="name a new file") from None
    except (OSError, Error) as error:
        raise ConfigError(f"{place} cannot be written: {error}") from error
    say(str(place))


def _send(start: str) -> None:
    """Send the log of the newest run whose id begins like this.

    Raises:
        ConfigError: There is no such run, the extra is not installed, or the collector refused the log.
    """
    from relay.cli.watch import get_run, open_tail

    place = note_place()
    try:
        from relay.insight.telemetry.otel import DEFAULT, Collector, send_log
    except ImportError:
        raise ConfigError("OpenTelemetry's SDK is not installed", hint=advise_extra("otel")) from None

    url = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT
    if not url.startswith(("http://", "https://")):
        hint = f"export OTEL_EXPORTER_OTLP_ENDPOINT={DEFAULT}"
        raise ConfigError(f"{url} is not an http:// or https:// address", hint=hint)
    run_id = get_run(place.repo, start)
    with open_tail(place.repo, run_id) as log:
        sent = send_log(log.read(), Collector(url, os.environ), run_id)
    say(f"sent to {url}: {count(sent, 'span')}")


def _say_document(figures: Figures, skipped: int, wanted: Sequence[str]) -> None:
    """Print the figures and those of the ledger: decisions and their cost, uses, contradictions."""
    figures, known = _charge(figures, wanted), dict[str, Any]()
    if beliefs := _read_beliefs(note_place().repo, figures):
        ledger, judgement = beliefs.ledger, beliefs.judgement
        costs = {session.session_id: session.usd_per_decision for session in figures.sessions}
        decisions = [claim for claim in ledger.claims.values() if claim.kind is Kind.DECISION]
        known["claims"] = {name: str(judgement[name].status) for name in ledger.claims}
        known["decisions"] = [
            {"id": claim.id, "phase": claim.stamp.phase, "usd": costs.get(claim.stamp.session)} for claim in decisions
        ]
        known["used_again"] = {name: list(users) for name, users in find_uses(ledger).items()}
        known["contradictions"] = [{"id": n.id, "claims": list(n.claims)} for n in judgement.contradictions]
    say_document({**render_document(figures, skipped_lines=skipped), "beliefs": known or None})


def _say_page(entries: "Sequence[LogEntry]", wanted: Sequence[str], output: str | None, *, as_text: bool) -> None:
    """Print a report as text, or write the page and print its path.

    Raises:
        RelayError: The page cannot be drawn or written.
    """
    if len(wanted) > 1:
        raise ConfigError("a page shows one run or plan", hint="relay report --json A B adds several up")
    chosen = choose(entries, wanted)
    figures, skipped = read_entries(chosen)
    figures, repo = _charge(figures, wanted), note_place().repo
    page = make_page(figures, _read_beliefs(repo, figures), partial(_read_left, repo.root))
    last = figures.runs[-1] if figures.runs else None
    name = "" if last is None else last.run_id if len(figures.runs) == 1 else last.plan_path
    show_page(page, repo.root, name, output, as_text=as_text)
    if skipped:
        complain(f"the report leaves out {count(skipped, 'unreadable line')} of the log")


def _read_left(root: Path, name: str, sha256: str) -> bytes | str | None:
    """Read a file that a gate left; what is no picture or other data comes as text, without secrets."""
    data = read_evidence(root, name, sha256)
    if data is None or b"\0" in data:
        return data
    return redact(data.decode(errors="replace"), environ_values=find_secret_values(os.environ))


def get_entries() -> "tuple[LogEntry, ...]":
    """Return the logs of this repository.

    Raises:
        RelayError: There is no repository here, or it has no log.
    """
    entries = list_logs(note_place().repo.root)
    if not entries:
        raise ConfigError("no run has written a log here yet", hint="relay run writes one below .relay/sessions/")
    return entries


def choose(entries: "Sequence[LogEntry]", wanted: Sequence[str]) -> "tuple[LogEntry, ...]":
    """Return the logs of the given runs and plans, oldest first.

    Raises:
        ConfigError: A word fits no run, or several.
    """
    chosen: dict[str, LogEntry] = {}
    for word in wanted:
        found = find_logs(entries, word)
        if not found:
            raise ConfigError(f"no single run, and no plan with runs, is called {word!r}", hint="relay report --list")
        plan_path = found[0].started.plan_path if found[0].started else ""
        if os.path.normpath(word) == os.path.normpath(plan_path):
            found = tuple(_keep_own(found, plan_path))
        chosen.update({entry.run_id: entry for entry in found})
    return tuple(sorted(chosen.values(), key=lambda entry: (entry.began or entry.written, entry.run_id)))


def _keep_own(entries: "Sequence[LogEntry]", plan_path: str) -> "Iterator[LogEntry]":
    """Yield the logs of the plan that ran last in this file: two plans may have begun at one commit, on two branches.

    A run on another branch is this plan's if a commit of HEAD's branch names one of its sessions.
    """
    repo = note_place().repo
    branches = [find_plan_branch(entry.started.branch) if entry.started else "" for entry in entries]
    own, is_here = branches[0], branches[0] == repo.branch
    moved = {commit.session for commit in read_plan_commits(repo, plan_path)} if is_here and {*branches} - {own} else ()
    for entry, branch in zip(entries, branches, strict=True):
        sessions = read_entries([entry])[0].sessions if branch != own and moved else ()
        if branch == own or any(session.session_id in moved for session in sessions):
            yield entry


def _charge(figures: Figures, wanted: Sequence[str]) -> Figures:
    """Return the figures with the money of the plan's commits and refs, as `relay status` reads it.

    A run's own report has the money of its log, and so has a plan's that is not on HEAD's branch.
    """
    last = figures.runs[-1] if figures.runs else None
    place = note_place()
    if last is None or [os.path.normpath(word) for word in wanted] != [os.path.normpath(last.plan_path)]:
        return figures
    place = replace(place, plan_file=find_place(place.root, last.plan_path), plan_name=last.plan_path)
    if place.repo.branch != find_plan_branch(last.branch) or holds_another_plan(place.repo, last.plan_path):
        return figures
    try:
        summary = summarize_plan(find_source(place), place.repo)
    except PlanError:  # it was moved, or cannot be read: the log has the shape, and its own sums
        return figures
    return figures.charge(summary.spent, {phase.phase_id: phase.spent for phase in summary.phases})


def read_entries(entries: Sequence[LogEntry]) -> tuple[Figures, int]:
    """Return the figures of all these logs together, and the number of unreadable lines."""
    records, logs = read_logs(entry.path for entry in entries)
    return read_figures(records), sum(log.skipped_lines for log in logs)
