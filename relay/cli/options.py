"""The options that many commands have, those of every command with sessions, and the settings that they stand for."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from relay.cli.completion import offer_models, offer_plans, offer_runners

plan_option = click.option(
    "--plan",
    metavar="FILE",
    shell_complete=offer_plans,
    help="The plan file; from the settings (PLAN.md) when left out.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
_OPTIONS = (
    plan_option,
    click.option(
        "--runner",
        metavar="NAME",
        shell_complete=offer_runners,
        help="Who runs the sessions: api, or an agent of relay agents.",
    ),
    click.option("--model", metavar="ID", shell_complete=offer_models, help="The model; any that the endpoint knows."),
    click.option("--reset-at", metavar="LINE", help="Where a session hands off: 45%, 80k, 100000 or min(45%,100k)."),
    click.option(
        "--max-cost",
        "max_cost_usd",
        metavar="USD",
        help="Stop before the plan has cost more than this; 0 sends nothing, none: no cap.",
    ),
    click.option(
        "--network/--no-network",
        default=None,
        help="Let commands reach the network, this machine's own services included; off by default.",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(["auto", "container", "off"]),
        help="container: the container is the wall; off: commands do whatever you may do. Noted in every commit.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One event per line on standard output."),
)
_SETTINGS = ("runner", "model", "reset_at", "max_cost_usd", "max_legs", "context", "jobs", "network", "sandbox")


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, above its own."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def find_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among a command's options by key; None was not typed."""
    return {key: options.get(key) for key in _SETTINGS}
