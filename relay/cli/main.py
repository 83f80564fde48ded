"""The `relay` command: its groups of commands. Each command's module is imported when the command is called."""

from importlib import import_module

import click

from relay import __version__
from relay.cli.screen import say

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Plan": {
        "plan": ("plan", "Write PLAN.md in a session that can only read."),
        "check": ("check", "Check a plan for mistakes and estimate each phase."),
    },
    "Run": {
        "run": ("run", "Work through the plan, one green commit per phase."),
        "gate": ("gate", "Run a phase's verify commands now; this needs no key."),
        "review": ("plan:review_command", "Review a phase, a range of commits or the whole plan."),
        "rewind": ("rewind", "Go back to the green tree before a phase; lose nothing."),
        "pr": ("pr", "Create a draft pull request from the plan."),
    },
    "Watch and steer": {
        "status": ("status", "Show phases, cost and the next step."),
        "watch": ("watch", "Watch a run live from another terminal."),
        "say": ("watch:say_command", "Send a message to the working session."),
        "stop": ("watch:stop_command", "Stop the run after its current step, as Ctrl-C does."),
    },
    "Understand": {
        "report": ("report", "Show where a run's tokens and money went."),
        "ledger": ("ledger", "Show what sessions recorded, and whether it still holds."),
        "lab": ("lab", "Compare ways to work through a plan, tune, inspect sessions."),
    },
    "Many machines": {
        "fleet": ("fleet", "Share the phases of a plan among workers on many machines."),
    },
    "Set up": {
        "init": ("init", "Create AGENTS.md, PLAN.md and relay.toml here."),
        "doctor": ("doctor", "Check this machine and say what is missing."),
        "shell": ("shell", "Open a shell in a session's sandbox, or run a command there."),
    },
    "Try without a model": {
        "demo": ("rehearsal:demo_command", "Watch relay plan and build a feature, or serve a script of yours."),
    },
}
"""Commands by group. The values: the module in `relay.cli` (``module:name`` if it is not ``command`` there), and the
line in `relay --help`, which imports no command."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, so that each command pays for its own imports only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, group by group."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", words) for name, (_, words) in group.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        place, words = COMMANDS[cmd_name]
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(f"relay.cli.{module}"), name or "command")
        command.short_help = words
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a name, and `help` in front of one or of a page; an unknown name's error lists similar ones."""
        if args[0] == "help":
            args = [*args[1:], "--help"]
            if len(args) == 1:
                say(ctx.get_help())
                ctx.exit()
            if len(args) == 2 and args[0] not in COMMANDS:  # noqa: PLR2004
                from relay.cli.manual import show_page

                if show_page(args[0]):
                    ctx.exit()
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None


HELP = """Build a long plan with a relay of fresh LLM sessions. The plan file is the memory, git is the state.

\b
relay plan "add org-scoped API keys"   a read-only session writes PLAN.md
relay run                              one green commit per phase, until done
relay status --why                     where it stands, what it cost, why it stopped
relay demo                             see all of it without a key

Exit status: 0 all requested work is done; 1 you must act; 2 wrong usage; 3 a bug in relay; 4 stopped with work left;
130 interrupted. `relay help COMMAND` explains a command, `relay help PAGE` shows a page of the documentation, and
`relay help pages` lists them.
"""


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", message="relay %(version)s", help="Show the version and exit.")
def relay() -> None:
    """Build a long plan with a relay of fresh sessions."""
