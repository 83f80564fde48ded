"""The `relay` command: its group and the modules behind each name, imported when they are asked for."""

from importlib import import_module

import click

from relay import __version__
from relay.cli.screen import say

COMMANDS = {
    "init": "init",
    "plan": "plan",
    "check": "check",
    "run": "run",
    "work": "work",
    "status": "status",
    "watch": "watch",
    "say": "steer:say_command",
    "pause": "steer:pause_command",
    "resume": "steer:resume_command",
    "stop": "steer:stop_command",
    "report": "report",
    "replay": "replay",
    "tune": "tune",
    "gate": "gate",
    "ledger": "ledger",
    "inspect": "inspect",
    "review": "review",
    "converge": "converge",
    "pr": "pr",
    "rewind": "rewind",
    "sandbox": "sandbox",
    "doctor": "doctor",
    "fleet": "fleet",
    "agents": "agents",
    "demo": "demo",
    "rehearse": "rehearse",
    "otel": "otel",
    "notify": "notify",
    "gc": "gc",
    "completion": "completion",
    "help": "help",
}
"""Command name to module of `relay.cli`, and to its name there where that is not ``command``; in order of first use."""


class LazyGroup(click.Group):
    """A group whose commands are imported by name, so that each command pays for its own imports only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of a first use."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(f"relay.cli.{module}"), name or "command")
        if not isinstance(command, click.Command):
            raise TypeError(f"relay.cli.{COMMANDS[cmd_name]} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a name; an unknown one gets the names it resembles."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            raise click.exceptions.NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx) from None


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click's shape
    if wanted:
        say(f"relay {__version__}")
        ctx.exit()


HELP = """Run a long build as a relay of fresh sessions: the plan file is the memory, git is the state.

\b
relay plan "add org-scoped API keys"   a read-only session writes PLAN.md
relay run                              one green commit per phase, until the plan is done
relay demo                             see all of it without a key

Exit status: 0 all asked for is done; 1 you must act; 2 wrong usage; 3 a bug of relay's; 4 stopped with work left;
130 interrupted.
"""


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def relay() -> None:
    """Run a long build as a relay of fresh sessions."""
