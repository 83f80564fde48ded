"""`relay inspect`: analyse another agent's transcript. `relay replay`: replay a session from its tape."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ConfigError, ExitCode
from relay.base.values import dataclass
from relay.base.words import count, render_moment, render_size, shorten
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.screen import clean_line, complain, say, say_document

if TYPE_CHECKING:
    from relay.insight.figures.values import Figures
    from relay.insight.telemetry.tape import TapeEntry
    from relay.insight.transcripts.emitter import Reading
    from relay.insight.transcripts.library import Relayed, Transcript
    from relay.setup.tape import Replay


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
        from relay.cli.report import require_libraries

        require_libraries()
    found = inspect(file, session)
    if as_json:
        say_document(_render(found))
        return
    from relay.insight.report.contents import make_transcript_page

    made = make_transcript_page(found.transcript, found.figures, found.relayed, found.reading)
    if page is not None:
        from relay.insight.report.page import render_page, save_page_as

        say(str(save_page_as(page, render_page(made, clean=clean_line))))
        return
    from relay.cli.report import render_text

    for line, style in render_text(made):
        say(line, style=style)


def inspect(file: Path, session: str) -> Inspection:
    """Read a transcript to its end, in one pass of constant memory.

    Raises:
        ConfigError: It cannot be read, or is of no format that relay knows.
    """
    from relay.insight.figures.fold import Fold
    from relay.insight.figures.sessions import find_table_rates
    from relay.insight.transcripts.library import OpenTranscript, RelayedTally, get_transcript
    from relay.session.events import ResponseReceived

    opened = OpenTranscript(transcript=get_transcript(file, session))
    fold, relayed = Fold(), RelayedTally()
    for record in opened:
        fold.take(record)
        model = record.event.model if isinstance(record.event, ResponseReceived) else ""
        relayed.take(record, find_table_rates(model, record.at) if model else None)
    return Inspection(
        transcript=opened.transcript, figures=fold.figures, relayed=relayed.figures, reading=opened.reading
    )


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
    from relay.insight.figures.fold import render_document

    return {
        "transcript": asdict(found.transcript),
        "figures": render_document(found.figures),
        "relayed": asdict(found.relayed),
        "read": asdict(found.reading),
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
        yield f"{when}  {one.format.value:<11}  {size:>9}  relay inspect {shlex.quote(str(one.path))}{session}{title}"


@click.command("replay")
@click.argument("session", default="", metavar="[SESSION]", help="Session id, or its beginning; default: the newest.")
@json_option
@click.option("--list", "as_list", is_flag=True, help="List the recorded sessions, newest first.")
def replay_command(*, session: str, as_json: bool, as_list: bool) -> int:
    """Replay a session: run relay's own loop against a server that repeats the recorded answers byte for byte.

    Tools answer from the record too: nothing is paid, no command runs, no file is touched. Exit status 1 means that a
    request, or relay's reading of an answer, differs from the record: relay has changed there, or has a bug. For an
    agent's session relay only reads again what passed its gateway; the agent does not run.
    """
    from relay.insight.telemetry.tape import list_tapes, read_tape

    place = note_place()
    entries = list_tapes(place.root)
    if as_list:
        return _list_tapes(entries, as_json=as_json)
    chosen = _choose_tape(entries, session)
    taped = read_tape(place.root, chosen)
    if taped is None:
        raise ConfigError(f"nothing can be read of the history of {chosen}", hint="relay replay --list")
    from relay.setup.tape import read_again, replay_session

    agent = str(taped.header.get("runner", ""))
    try:
        played = read_again(taped) if agent else replay_session(taped, lambda _: None)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(f"the history of {chosen} is not one that relay wrote: {error}") from error
    if as_json:
        say_document(_render_replay(chosen, played))
    else:
        _say_replay(chosen, played, agent)
        if not taped.is_whole:
            complain("the history was cut because it had grown too long")
    return ExitCode.DONE if played.is_same else ExitCode.USER


def _list_tapes(entries: "tuple[TapeEntry, ...]", *, as_json: bool) -> int:
    if as_json:
        rows = [{"session": one.session_id, "written": one.written, "bytes": one.size_bytes} for one in entries]
        say_document({"sessions": rows})
        return ExitCode.DONE
    for entry in entries:
        when = render_moment(entry.written, now=time.time())
        say(f"{entry.session_id}  {when}  {entry.size_bytes:,} bytes")
    if not entries:
        complain("no session has a history here")
    return ExitCode.DONE


def _choose_tape(entries: "tuple[TapeEntry, ...]", wanted: str) -> str:
    """Return the session that is meant.

    Raises:
        ConfigError: There is none, or there are several.
    """
    found = [entry.session_id for entry in entries if entry.session_id.startswith(wanted)]
    exact = [name for name in found if name == wanted]
    if not found or (wanted and len(found) > 1 and not exact):
        words = f"no one session with a history is called {wanted!r}" if wanted else "no session has a history here"
        raise ConfigError(words, hint="relay replay --list; history = true in the settings keeps it")
    return exact[0] if exact else found[0]


def _say_replay(session: str, played: "Replay", agent: str) -> None:
    by = f" of {agent}, read again" if agent else ""
    say(f"session {session}: {count(len(played.requests), 'request')}{by}", style="bold")
    for request in played.requests:
        if request.is_same and not request.made_differs_at:
            say(f"  {request.number:>3}  the same bytes, the same answer", style="dim")
            continue
        if not request.is_same:
            where = f"differs at {request.differs_at}" if request.differs_at else "was not sent"
            say(f"  {request.number:>3}  {where}", style="yellow")
        if request.made_differs_at:
            say(f"  {request.number:>3}  the answer is read differently: {request.made_differs_at}", style="yellow")
    if played.beyond:
        say("       the session was stopped here", style="dim")
    ended = f"{played.end.value}{f' — {played.detail}' if played.detail else ''}"
    same = "byte for byte what it was" if played.is_same else "not what it was"
    say(same if agent or played.beyond else f"{same}; ended: {ended}")  # how it would have gone on nobody knows


def _render_replay(session: str, played: "Replay") -> dict[str, object]:
    return {
        "session": session,
        "same": played.is_same,
        "requests": [
            {
                "number": request.number,
                "same": request.is_same,
                "differs_at": request.differs_at,
                "made_differs_at": request.made_differs_at,
            }
            for request in played.requests
        ],
        "beyond": played.beyond,
        "end": played.end.value,
        "detail": played.detail,
    }
