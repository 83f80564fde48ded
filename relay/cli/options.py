"""The options that many commands share, their sections in a command's help, and what a shell completes them with."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import click


def offer_models(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer the models of relay's table."""
    from relay.session.prices import list_limits

    return [name for name in list_limits() if name.startswith(incomplete)]


def offer_runners(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Offer relay's own loop, and the agents that relay knows."""
    from relay.runners.agents.profiles import PROFILES

    return [name for name in ("api", *PROFILES) if name.startswith(incomplete)]


class _Amount(click.FloatRange):
    """A sum of money; "nan" is a float and no amount."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        amount = super().convert(value, param, ctx)
        if amount != amount:  # noqa: PLR0124  # which only that is not
            self.fail("an amount must be a number", param, ctx)
        return amount


AMOUNT = _Amount(0, 1_000_000)
plan_option = click.option(
    "--plan", metavar="FILE", type=click.Path(), help="Plan file; default: of the settings, or nearest PLAN.md."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
events_option = click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one per line.")
network_option = click.option(
    "--network/--no-network",
    default=None,
    help="Give commands the network, this machine's services included (default: no).",
)
sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["auto", "container", "off"]),
    metavar="MODE",
    help="auto (bubblewrap), container (trust the container around it) or off; noted in each commit.",
)
setup_option = click.option(
    "--approve-setup", is_flag=True, help="Let this repository's setup commands run, now and later."
)
_OPTIONS = (
    plan_option,
    click.option(
        "--runner",
        metavar="NAME",
        shell_complete=offer_runners,
        help="Who runs the sessions: api or an agent (doctor --agent).",
    ),
    click.option("--model", metavar="ID", shell_complete=offer_models, help="Model; any ID that the endpoint knows."),
    click.option("--reset-at", metavar="LINE", help="Hand over at this context size: 45%, 80k, 100000, min(45%,100k)."),
    click.option(
        "--max-cost",
        "max_cost_usd",
        metavar="USD",
        help="Cap on the plan's cost; 0 sends nothing, none: no cap.",
    ),
    network_option,
    sandbox_option,
    events_option,
)
_SETTINGS = (
    "runner",
    "model",
    "reset_at",
    "max_cost_usd",
    "max_sessions",
    "jobs",
    "pr",
    "network",
    "sandbox",
)
_SESSION_OPTIONS = ("plan", "runner", "model", "reset_at", "max_cost_usd", "network", "sandbox", "as_json")


class SectionedCommand(click.Command):
    """A command whose help shows its options in titled sections.

    Args:
        sections: Names of parameters by title. Parameters without a section come first, under "Options".
    """

    def __init__(self, *args: Any, sections: Mapping[str, Collection[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections or {"Options for sessions": _SESSION_OPTIONS}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        title_of = {name: title for title, names in self._sections.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {"Options": [], **{title: [] for title in self._sections}}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                found[title_of.get(param.name or "", "Options")].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command with sessions has, above the command's own."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def find_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among a command's options by key; None was not typed."""
    return {key: options.get(key) for key in _SETTINGS} | {"verify": options.get("verify") or None}
