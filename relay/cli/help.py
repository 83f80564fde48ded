"""`relay help`: the same as `--help`, where one would look for it."""

import click

from relay.cli.screen import say


@click.command("help", short_help="Show the help of relay, or of one command.")
@click.argument("names", nargs=-1, metavar="[COMMAND]...", help="The command; relay itself when left out.")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of relay, or of one command."""
    shown = ctx.find_root()
    for name in names:
        found: click.Command | None = None
        if isinstance(shown.command, click.Group):
            _, found, _ = shown.command.resolve_command(shown, [name])
        if found is None:
            raise click.UsageError(f"{shown.command_path} has no command {name!r}", ctx=shown)
        shown = click.Context(found, info_name=name, parent=shown)
    say(shown.get_help())
