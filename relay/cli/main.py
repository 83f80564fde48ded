"""The `relay` command: its groups of commands. Each command's module is imported when the command is called."""

from importlib import import_module

import click

from relay import __version__
from relay.cli.screen import say

GROUPS = {
    "Plan": {"plan": "plan", "check": "check"},
    "Run": {
        "run": "run",
        "gate": "gate",
        "review": "plan:review_command",
        "rewind": "rewind",
        "pr": "pr",
    },
    "Watch and steer": {
        "status": "status",
        "watch": "watch",
        "say": "watch:say_command",
        "pause": "watch:pause_command",
        "resume": "watch:resume_command",
        "stop": "watch:stop_command",
    },
    "Understand": {
        "report": "report",
        "stats": "stats",
        "ledger": "ledger",
        "inspect": "inspect",
        "replay": "inspect:replay_command",
        "tune": "report:tune_command",
        "compare": "compare",
    },
    "Many machines": {"work": "fleet:work_command", "fleet": "fleet"},
    "Set up": {
        "init": "init",
        "doctor": "doctor",
        "agents": "doctor:agents_command",
        "sandbox": "sandbox",
        "notify": "doctor:notify_command",
        "completion": "options:completion_command",
        "gc": "rewind:gc_command",
    },
    "Try without a model": {"demo": "rehearsal:demo_command", "rehearse": "rehearsal:rehearse_command"},
}
"""Commands by group. The value is the module in `relay.cli`, and the command's name there if it is not ``command``."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, so that each command pays for its own imports only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, group by group."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            known = ((name, self.get_command(ctx, name)) for name in group)
            rows = [(f"{name:<{width}}", command.get_short_help_str(limit=100)) for name, command in known if command]
            with formatter.section(title):
                formatter.write_dl(rows)

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
        """Resolve a name, and `help` in front of one; the error for an unknown name lists similar names."""
        if args[0] == "help":
            args = [*args[1:], "--help"]
            if len(args) == 1:
                say(ctx.get_help())
                ctx.exit()
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            raise click.exceptions.NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx) from None


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click's shape
    if wanted:
        say(f"relay {__version__}")
        ctx.exit()


HELP = """Build a long plan with a relay of fresh LLM sessions. The plan file is the memory, git is the state.

\b
relay plan "add org-scoped API keys"   a read-only session writes PLAN.md
relay run                              one green commit per phase, until done
relay demo                             see all of it without a key

Exit status: 0 all requested work is done; 1 you must act; 2 wrong usage; 3 a bug in relay; 4 stopped with work left;
130 interrupted.
"""


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def relay() -> None:
    """Build a long plan with a relay of fresh sessions."""
