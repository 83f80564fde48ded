"""The options that every command with sessions has, and the settings that they stand for."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def offer_plans(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the path of a plan."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def offer_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a model's id."""
    from relay.cli.completion import complete_models

    return complete_models(ctx, param, incomplete)


def offer_phases(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the number of a phase."""
    from relay.cli.completion import complete_phases

    return complete_phases(ctx, param, incomplete)


_OPTIONS = (
    click.option(
        "--plan",
        metavar="FILE",
        shell_complete=offer_plans,
        help="The plan file; from the settings (PLAN.md) when left out.",
    ),
    click.option("--runner", metavar="NAME", help="Who runs the sessions: api, or an agent of relay agents."),
    click.option("--model", metavar="ID", shell_complete=offer_models, help="The model; any that the endpoint knows."),
    click.option("--reset-at", metavar="LINE", help="Where a session hands off: 45%, 80k, 100000 or min(45%,100k)."),
    click.option(
        "--max-cost",
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
        type=click.Choice(["auto", "off"]),
        help="off lets commands do whatever you may do; it is noted in every commit.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One event per line on standard output."),
)
_SETTINGS = {
    "runner": "runner",
    "model": "model",
    "reset_at": "reset_at",
    "max_cost": "max_cost_usd",
    "max_legs": "max_legs",
    "context": "context",
    "jobs": "jobs",
    "network": "network",
    "sandbox": "sandbox",
}
"""Name of the option's value to key of the setting."""


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, above its own."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def find_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among a command's options by key; None was not typed."""
    return {key: options.get(name) for name, key in _SETTINGS.items()}
