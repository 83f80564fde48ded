"""`relay lab inspect`: analyse another agent's transcript."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from relay.base.words import render_size, shorten
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.pages import show_page
from relay.cli.screen import clean_line, say, say_document
from relay.insight.database import Database
from relay.insight.figures import collect, render_document
from relay.insight.transcripts.library import Format, OpenTranscript, RelayedTally, get_transcript, list_transcripts
from relay.lab.transcript_page import make_transcript_page
from relay.session.records import LoggedEvent


@click.command("inspect")
@click.argument("file", required=False, type=click.Path(path_type=Path), help="Transcript to read.")
@click.option("--session", default="", metavar="ID", help="Session in OpenCode's database; default: the last one.")
@json_option
@click.option(
    "--html", "page", type=click.Path(path_type=Path), metavar="OUT", help="Write an HTML page, which loads nothing."
)
def command(file: Path | None, session: str, *, as_json: bool, page: Path | None) -> None:
    """Show how a session filled its context, what compactions removed and what was paid for twice.

    The analysis also estimates what fresh sessions, as in a relay, would have cost. It changes nothing and sends
    nothing. FILE is a transcript: *.jsonl of Claude Code or Codex, or OpenCode's opencode.db. Without FILE it lists the
    transcripts about this directory, newest first.
    """
    if as_json and page is not None:
        raise click.UsageError("--json and --html exclude each other")
    if file is None:
        if page is not None:
            raise click.UsageError("--html needs a FILE")
        _list(as_json=as_json)
        return

    opened, relayed = OpenTranscript(transcript=get_transcript(file, session)), RelayedTally()

    def follow() -> "Iterator[LoggedEvent]":
        for record in opened:  # one pass of constant memory
            relayed.take(record)
            yield record

    with Database() as database:
        database.add(follow())
        database.compute()
        figures = collect(database)
    if as_json:
        read = {name: value for name, value in asdict(opened.reading).items() if name != "hear"}
        known = {name: vars(relayed)[name] for name in ("line_tokens", "was", "least", "most")}
        found = {"transcript": opened.transcript, "figures": render_document(figures), "relayed": known}
        say_document({**found, "read": read})
        return
    made = make_transcript_page(opened.transcript, figures, relayed, opened.reading)
    show_page(made, Path(), "", None if page is None else str(page), as_text=page is None)


def _list(*, as_json: bool) -> None:
    root = note_place().root
    found = list_transcripts(root, os.environ)
    if as_json:
        say_document({"directory": str(root), "transcripts": found})
        return
    if not found:
        say(f"no transcript of {', '.join(known.value for known in Format)} is about {root}")
    for one in found:  # with the command that inspects it
        when = f"{datetime.fromtimestamp(one.updated, tz=UTC):%Y-%m-%d %H:%M}"
        size = "" if one.size_bytes is None else render_size(one.size_bytes)
        session = f" --session {shlex.quote(one.session)}" if one.session else ""
        title = f"  # {clean_line(shorten(one.title, 60))}" if one.title else ""
        command = f"relay lab inspect {shlex.quote(str(one.path))}{session}"
        say(f"{when}  {one.format.value:<11}  {size:>9}  {command}{title}")
