"""`relay rehearse`: play a scripted model for any client of the Messages API."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import ExitCode
from relay.cli.screen import complain, say, say_now

if TYPE_CHECKING:
    from relay.rehearsal.server import Rehearsal


@click.command("rehearse", short_help="Serve a scripted model on this machine.")
@click.argument("script", type=click.Path(path_type=Path), help="A rehearsal script in YAML.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on loopback.")
def command(script: Path, port: int) -> int:
    """Serve a scripted model on this machine until Ctrl-C.

    SCRIPT says what the model answers. The two lines that are printed make `relay run`, or any other client of the
    Messages API, talk to it.
    """
    from relay.rehearsal.script import load_script
    from relay.rehearsal.server import run_forever

    served: list[Rehearsal] = []
    run_forever(load_script(script), port=port, announce=lambda rehearsal: show_address(script, rehearsal, served))
    return report(served)


def show_address(script: Path, rehearsal: "Rehearsal", served: "list[Rehearsal]") -> None:
    """Print how to reach the server."""
    served.append(rehearsal)
    complain(f"rehearsal: {script} plays the model, nothing here is a model's judgement; Ctrl-C ends it")
    say(f"export ANTHROPIC_BASE_URL={rehearsal.base_url}", exact=True)
    say_now("export ANTHROPIC_API_KEY=rehearsal")


def report(served: "list[Rehearsal]") -> int:
    """Print what was played and what went wrong; 1 when something did."""
    errors = [error for rehearsal in served for error in rehearsal.errors]
    for rehearsal in served:
        complain(f"{len(rehearsal.requests)} requests were answered")
        for words in rehearsal.unplayed:
            complain(f"not played: {words}")
    for error in errors:
        complain(f"Error: {error}")
    return ExitCode.USER if errors else ExitCode.DONE
