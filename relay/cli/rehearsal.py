"""`relay rehearse`: serve a scripted model to any client of the Messages API. `relay demo`: the product on one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import ExitCode
from relay.cli.screen import complain, say, say_now

if TYPE_CHECKING:
    from relay.rehearsal.server import Rehearsal


@click.command("rehearse")
@click.argument("script", type=click.Path(path_type=Path), help="Rehearsal script in YAML.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on loopback.")
def rehearse_command(script: Path, port: int) -> int:
    """Serve a scripted model on this machine until Ctrl-C.

    SCRIPT holds the model's answers. relay prints two `export` lines; type them in the shell where `relay run`, or any
    other client of the Messages API, should use this model.
    """
    from relay.rehearsal.script import load_script
    from relay.rehearsal.server import run_forever

    served: list[Rehearsal] = []
    run_forever(load_script(script), port=port, announce=lambda rehearsal: show_address(script, rehearsal, served))
    return report(served)


def show_address(script: Path, rehearsal: "Rehearsal", served: "list[Rehearsal]") -> None:
    """Print the variables that lead a client to the server."""
    served.append(rehearsal)
    complain(f"rehearsal: {script} plays the model; no real model answers; Ctrl-C ends it")
    say(f"export ANTHROPIC_BASE_URL={rehearsal.base_url}", exact=True)
    say_now("export ANTHROPIC_API_KEY=rehearsal")


def report(served: "list[Rehearsal]") -> int:
    """Print the number of answers and the errors; return 1 if there are errors."""
    errors = [error for rehearsal in served for error in rehearsal.errors]
    for rehearsal in served:
        complain(f"{len(rehearsal.requests)} requests were answered")
        for words in rehearsal.unplayed:
            complain(f"not played: {words}")
    for error in errors:
        complain(f"Error: {error}")
    return ExitCode.USER if errors else ExitCode.DONE


@click.command("demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create the repository in this new or empty directory and keep it.",
)
def demo_command(keep: Path | None) -> int:
    """Watch relay plan and build a small feature in a new repository. This needs no key and no network.

    A script plays the model; sessions, sandbox, checks, commits and the interruption are real.
    """
    from relay.rehearsal.demo import run_demo

    return run_demo(keep=keep, say=say_now, environ=os.environ)
