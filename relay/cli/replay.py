"""`relay replay`: a session again, from its tape."""

import time
from typing import TYPE_CHECKING

import click

from relay.base.errors import ConfigError, ExitCode
from relay.base.words import count, render_moment
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.screen import complain, say, say_document

if TYPE_CHECKING:
    from relay.insight.telemetry.tape import TapeEntry
    from relay.setup.tape import Replay


@click.command("replay", short_help="Play a session again from its history.")
@click.argument("session", default="", metavar="[SESSION]", help="Its id; the newest one when left out.")
@json_option
@click.option("--list", "as_list", is_flag=True, help="Which sessions there are, newest first.")
def command(*, session: str, as_json: bool, as_list: bool) -> int:
    """Play a session again: relay's own loop against a server that answers as the endpoint did, byte for byte.

    SESSION is a session's id or how it begins; the newest without it. Tools answer from the history too: nothing is
    paid, no command runs, no file is touched. Exit status 1 when a request, or what relay makes of an answer, is not
    what it was then: that is where relay has changed, or where a bug is. Of an agent's session, what passed relay's
    gateway is read again; the agent itself does not run.
    """
    from relay.insight.telemetry.tape import list_tapes, read_tape

    place = note_place()
    entries = list_tapes(place.root)
    if as_list:
        return _say_list(entries, as_json=as_json)
    chosen = _choose(entries, session)
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
        say_document(_render(chosen, played))
    else:
        _say(chosen, played, agent)
        if not taped.is_whole:
            complain("the history was cut because it had grown too long")
    return ExitCode.DONE if played.is_same else ExitCode.USER


def _say_list(entries: "tuple[TapeEntry, ...]", *, as_json: bool) -> int:
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


def _choose(entries: "tuple[TapeEntry, ...]", wanted: str) -> str:
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


def _say(session: str, played: "Replay", agent: str) -> None:
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


def _render(session: str, played: "Replay") -> dict[str, object]:
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
