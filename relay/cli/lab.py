"""`relay lab`: experiments with plans, and autopsies of sessions."""

import click

from relay.cli.compare import command as compare_command
from relay.cli.inspect import command as inspect_command
from relay.cli.tune import command as tune_command


@click.group("lab", commands=[compare_command, tune_command, inspect_command])
def command() -> None:
    """Compare several ways to work through a plan, tune the reset line, or look into sessions of other agents."""
