"""The `relay` command: its group and the modules behind each name, imported when they are asked for."""

from importlib import import_module

import click

from relay import __version__
from relay.cli.screen import complain, say

GROUPS = {
    "A plan and its run": {
        "init": "init",
        "plan": "plan",
        "check": "check",
        "run": "run",
        "status": "status",
        "watch": "watch",
    },
    "While it runs": {
        "say": "steer:say_command",
        "pause": "steer:pause_command",
        "resume": "steer:resume_command",
        "stop": "steer:stop_command",
    },
    "What was done": {
        "report": "report",
        "gate": "gate",
        "review": "review",
        "pr": "pr",
        "ledger": "ledger",
        "rewind": "rewind",
    },
    "Several machines": {"work": "work", "fleet": "fleet"},
    "This machine": {
        "doctor": "doctor",
        "agents": "agents",
        "sandbox": "sandbox",
        "notify": "notify",
        "gc": "gc",
        "completion": "completion",
    },
    "A closer look": {"replay": "replay", "tune": "tune", "inspect": "inspect"},
    "Without a model": {"demo": "demo", "rehearse": "rehearse"},
}
"""What each command is for, and its name to its module of `relay.cli`, and to its name there where that is not
``command``."""
OLD_NAMES = {
    "converge": ("review", "--whole-plan"),
    "help": (),
    "otel": ("report", "--otel"),
}
"""Names that are options of another command by now, and what to type instead. They go with the next release."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported by name, so that each command pays for its own imports only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names as the help has them."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, below what it is for."""
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
        """Resolve a name: an old one to what it became; an unknown one gets the names it resembles."""
        if args[0] in OLD_NAMES:
            args = _replace_old_name(ctx, args)
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            raise click.exceptions.NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx) from None


def _replace_old_name(ctx: click.Context, args: list[str]) -> list[str]:
    name, *rest = args
    words = [*rest, "--help"] if name == "help" else [*OLD_NAMES[name], *rest]
    if not ctx.resilient_parsing:  # which is how a shell asks for completions
        now = " ".join(words if name == "help" else OLD_NAMES[name])
        complain(f"relay {name} is now `relay {now}`; the old name goes with the next release")
    if words == ["--help"]:
        say(ctx.get_help())
        ctx.exit()
    return words


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
