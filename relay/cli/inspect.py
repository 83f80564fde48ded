"""`relay lab inspect`: analyse another agent's transcript."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.base.values import dataclass
from relay.base.words import render_size, shorten
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.screen import clean_line, say, say_document

if TYPE_CHECKING:
    from relay.insight.figures.values import Figures
    from relay.insight.transcripts.emitter import Reading
    from relay.insight.transcripts.library import Relayed, Transcript
    from relay.session.records import LoggedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A transcript, read to its end."""

    transcript: "Transcript"
    figures: "Figures"
    relayed: "Relayed"
    reading: "Reading"


@click.command("inspect")
@click.argument("file", required=False, type=click.Path(path_type=Path), help="Transcript to read.")
@click.option("--session", default="", metavar="ID", help="Session in OpenCode's database; default: the last one.")
@click.option("--text", "as_text", is_flag=True, help="Print words and bars; this is the default.")
@json_option
@click.option(
    "--html", "page", type=click.Path(path_type=Path), metavar="OUT", help="Write an HTML page, which loads nothing."
)
def command(file: Path | None, session: str, *, as_text: bool, as_json: bool, page: Path | None) -> None:
    """Show how a session filled its context, what compactions removed and what was paid for twice.

    The analysis also estimates what fresh sessions, as in a relay, would have cost. It changes nothing and sends
    nothing. FILE is a transcript: *.jsonl of Claude Code or Codex, or OpenCode's opencode.db. Without FILE it lists the
    transcripts about this directory, newest first.
    """
    if as_text + as_json + (page is not None) > 1:
        raise click.UsageError("--text, --json and --html exclude each other")
    if file is None:
        if page is not None:
            raise click.UsageError("--html needs a FILE")
        _list(as_json=as_json)
        return
    if page is not None:
        from relay.cli.pages import require_libraries

        require_libraries()
    found = inspect(file, session)
    if as_json:
        say_document(_render(found))
        return
    from relay.lab.transcript_page import make_transcript_page

    made = make_transcript_page(found.transcript, found.figures, found.relayed, found.reading)
    if page is not None:
        from relay.insight.report.page import render_page, save_page_as

        say(str(save_page_as(page, render_page(made, clean=clean_line))))
        return
    from relay.cli.pages import render_text

    for line, style in render_text(made):
        say(line, style=style)


def inspect(file: Path, session: str) -> Inspection:
    """Read a transcript to its end, in one pass of constant memory.

    Raises:
        ConfigError: It cannot be read, or is of no format that relay knows.
    """
    from relay.insight.database import Database, find_table_rates
    from relay.insight.figures.read import collect
    from relay.insight.transcripts.library import OpenTranscript, RelayedTally, get_transcript
    from relay.session.events import ResponseReceived

    opened = OpenTranscript(transcript=get_transcript(file, session))
    relayed = RelayedTally()

    def follow() -> "Iterator[LoggedEvent]":
        for record in opened:
            model = record.event.model if isinstance(record.event, ResponseReceived) else ""
            relayed.take(record, find_table_rates(model, record.at) if model else None)
            yield record

    with Database() as database:
        database.add(follow())
        database.compute()
        figures = collect(database)
    return Inspection(transcript=opened.transcript, figures=figures, relayed=relayed.figures, reading=opened.reading)


def _list(*, as_json: bool) -> None:
    from relay.insight.transcripts.library import list_transcripts

    place = note_place()
    found = list_transcripts(place.root, os.environ)
    if as_json:
        say_document({"directory": str(place.root), "transcripts": [asdict(one) for one in found]})
        return
    for line in _write_listing(found, place.root):
        say(line)


def _render(found: Inspection) -> Mapping[str, Any]:
    """Return the analysis as JSON; an unknown value is null."""
    from relay.insight.figures.read import render_document

    return {
        "transcript": asdict(found.transcript),
        "figures": render_document(found.figures),
        "relayed": asdict(found.relayed),
        "read": {name: value for name, value in asdict(found.reading).items() if name != "hear"},
    }


def _write_listing(found: "Sequence[Transcript]", root: Path) -> Iterator[str]:
    """Yield a line for each transcript, with the command that inspects it."""
    from relay.insight.transcripts.library import Format

    if not found:
        known = ", ".join(known.value for known in Format)
        yield f"no transcript of {known} is about {root}"
    for one in found:
        when = f"{datetime.fromtimestamp(one.updated, tz=UTC):%Y-%m-%d %H:%M}"
        size = "" if one.size_bytes is None else render_size(one.size_bytes)
        session = f" --session {shlex.quote(one.session)}" if one.session else ""
        title = f"  # {clean_line(shorten(one.title, 60))}" if one.title else ""
        command = f"relay lab inspect {shlex.quote(str(one.path))}{session}"
        yield f"{when}  {one.format.value:<11}  {size:>9}  {command}{title}"
