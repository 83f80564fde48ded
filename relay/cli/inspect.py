"""`relay lab inspect`: analyse another agent's transcript."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from relay.base.words import count, list_some, render_size, render_tokens, render_usd, shorten
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.pages import show_page
from relay.cli.screen import clean_line, say, say_document
from relay.insight.database import Row
from relay.insight.figures import Figures, read_figures, render_document
from relay.insight.report.blocks import Card, Chapter, Ink, Page
from relay.insight.report.contents import make_page
from relay.insight.transcripts import library
from relay.insight.transcripts.emitter import MAIN, Reading
from relay.insight.transcripts.library import Course, OpenTranscript, RelayedTally, Transcript
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

    opened, relayed = OpenTranscript(transcript=library.get_transcript(file, session)), RelayedTally()

    def follow() -> "Iterator[LoggedEvent]":
        for record in opened:  # one pass of constant memory
            relayed.take(record)
            yield record

    figures = read_figures(follow())
    if as_json:
        read = {name: value for name, value in asdict(opened.reading).items() if name != "hear"}
        known = {name: vars(relayed)[name] for name in ("line_tokens", "was", "least", "most")}
        found = {"transcript": opened.transcript, "figures": render_document(figures), "relayed": known}
        say_document({**found, "read": read})
        return
    made = _make_page(opened.transcript, figures, relayed, opened.reading)
    show_page(made, Path(), "", None if page is None else str(page), as_text=page is None)


def _list(*, as_json: bool) -> None:
    root = note_place().root
    found = library.list_transcripts(root, os.environ)
    if as_json:
        say_document({"directory": str(root), "transcripts": found})
        return
    if not found:
        say(f"no transcript of {', '.join(known.value for known in library.Format)} is about {root}")
    for one in found:  # with the command that inspects it
        when = f"{datetime.fromtimestamp(one.updated, tz=UTC):%Y-%m-%d %H:%M}"
        size = "" if one.size_bytes is None else render_size(one.size_bytes)
        session = f" --session {shlex.quote(one.session)}" if one.session else ""
        title = f"  # {clean_line(shorten(one.title, 60))}" if one.title else ""
        command = f"relay lab inspect {shlex.quote(str(one.path))}{session}"
        say(f"{when}  {one.format.value:<11}  {size:>9}  {command}{title}")


def _make_page(transcript: Transcript, figures: Figures, relayed: RelayedTally, reading: Reading) -> Page:
    """Make the page of another agent's transcript, which has no ticks and no evidence."""
    run, page, totals = figures.runs[0], make_page(figures, None), figures.totals
    sessions = [session for session in run.sessions if session.turns]
    main = [session for session in sessions if session.phase_id == MAIN]
    others = len(sessions) - len(main)
    beside = f" and {count(others, 'further one')} (sub-agents, summaries)" if others else ""
    calls = f"{count(totals.turns, 'turn')} and {count(totals.calls, 'tool call')}"
    lines = [f"{calls} in {count(len(main), 'context')}{beside}"]
    known = totals.turns > totals.unknown_turns
    cards, sections = list[Card](), tuple[Chapter, ...]()
    if known:
        paid = f"{render_usd(totals.cost_usd)} at list prices"
        lines += [*page.answers[2].lines[:1], "cost unknown" if totals.cost_usd is None else paid]
        question = "As a relay, by the same model of prices and cache"
        cards.append(Card(question=question, words="", lines=tuple(_list_courses(relayed, main))))
        sections = tuple(chapter for chapter in (*page.sections, *page.more) if chapter.name != "evidence")
    if totals.unknown_turns:
        lines.append(f"the tokens of {count(totals.unknown_turns, 'turn')} are unknown; no figure includes them")
    if not sessions:
        lines.append("it holds no answer of a model")
    title = " · ".join(filter(None, (run.command, run.run_id, transcript.title)))
    what = Card(question="What it is", words="", lines=tuple(lines), ink=Ink.TEXT if known else Ink.SOFT)
    facts = tuple(fact for fact in page.facts if run.began or fact[0] not in {"Began", "Took"})
    answers = (what, *cards, _say_read(reading, totals))
    return Page(title=f"relay lab inspect: {title}", facts=facts, answers=answers, sections=sections)


def _list_courses(relayed: RelayedTally, main: Sequence[Row]) -> Iterator[str]:
    yield _say_course("as it was", relayed.was)
    costs = [session.cost_usd for session in main]
    paid = sum(cost or 0.0 for cost in costs)
    if relayed.was.usd and paid and None not in costs:
        error = relayed.was.usd / paid - 1
        yield f"at list prices it was {render_usd(paid)}: this model of the cache is {error:+.0%} off"
    if not relayed.most.resets:
        yield f"it never reached the line at {render_tokens(relayed.line_tokens)}: a relay changes nothing"
        return
    yield _say_course("a relay, little read again", relayed.least)
    yield _say_course("a relay, much read again", relayed.most)
    yield f"its line is at {render_tokens(relayed.line_tokens)}"


def _say_course(name: str, way: Course) -> str:
    resets = f", {count(way.resets, 'reset')}" if way.resets else ""
    tokens = f"{render_tokens(way.prompt_tokens)} tokens of prompts, at most {render_tokens(way.peak_tokens)} at a time"
    return f"{name + ':':<28}{'cost unknown' if way.usd is None else render_usd(way.usd)}, {tokens}{resets}"


def _say_read(reading: Reading, totals: Row) -> Card:
    lines = [count(reading.lines, "line")]
    own, ours = reading.own_cost_usd, totals.cost_usd
    if own is not None and ours is not None and own > ours:
        rest = render_usd(own - ours)
        lines.append(f"the agent counted {render_usd(own)}: {rest} for requests in no transcript (summaries, titles)")
    notes = list(reading.notes)
    if reading.torn:
        notes.append(f"skipped {count(reading.torn, 'unreadable line')}")
    if reading.unknown:
        kinds = [f"{kind} ({n})" for kind, n in sorted(reading.unknown.items(), key=lambda pair: -pair[1])]
        notes.append(f"unknown and not counted: {list_some(kinds)}")
    return Card(question="What relay read", words="", lines=(*lines, *notes), ink=Ink.SOFT if notes else Ink.TEXT)
