"""`relay demo`: the whole product on a rehearsed model."""

import os
from pathlib import Path

import click

from relay.cli.screen import say_now


@click.command("demo", short_help="Watch a plan being made and built; no key, no network.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Make the repository in this new or empty directory and keep it.",
)
def command(keep: Path | None) -> int:
    """Watch a small feature being planned and built in a new repository; no key and no network are needed.

    A script plays the model; sessions, sandbox, checks, commits and the interruption are real.
    """
    from relay.rehearsal.demo import run_demo

    return run_demo(keep=keep, say=say_now, environ=os.environ)
