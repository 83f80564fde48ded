"""`relay review`: have a phase, or any range of commits, looked at by sessions that saw nothing of its making."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay import __version__
from relay.base.errors import RelayError
from relay.cli.completion import offer_phases
from relay.cli.options import session_options
from relay.cli.screen import say
from relay.cli.sessions import make_request, run_sessions
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.setup.context import RunContext, RunEnd


def require_place(file: Path) -> None:
    """Make sure, before anything is paid for, that a file can be written.

    Raises:
        RelayError: It cannot.
    """
    place = file if file.exists() else file.absolute().parent
    if not (place.is_dir() or place == file) or not os.access(place, os.W_OK):
        raise RelayError(f"{file} cannot be written", hint=f"is {place} a directory that you may write to?")


@click.command("review", short_help="Have a phase or a range of commits reviewed; nothing is changed.")
@click.argument("what", metavar="[PHASE|RANGE]", required=False, shell_complete=offer_phases, help="What is reviewed.")
@click.option("--sarif", metavar="FILE", type=click.Path(dir_okay=False), help="Write what was found for code hosts.")
@session_options
def command(what: str | None, sarif: str | None, *, as_json: bool, **options: Any) -> int:
    """Have a phase (the last one that is done, when left out) or a range such as main..HEAD reviewed.

    One fresh session looks for faults, a second one tries to refute each. Both read the work tree as it is now and
    write nothing. The exit code is 4 where a fault was confirmed.
    """
    from relay.run.review.sarif import render_sarif
    from relay.run.review_range import get_range, review_range

    request, place = make_request(SessionKind.REVIEW, options)
    if sarif is not None:
        require_place(Path(sarif))
    chosen = get_range(request.files, what or "")

    def act(ctx: "RunContext") -> "RunEnd":
        end, findings = review_range(ctx, chosen)
        if sarif is not None and findings is not None:
            text = json.dumps(render_sarif(findings, version=__version__, name=chosen.name), indent=1)
            Path(sarif).write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        return end

    code = run_sessions(request, place.caller, act, as_json=as_json)
    if sarif is not None and not as_json and Path(sarif).exists():
        say(f"written: {os.fspath(sarif)}")
    return code
