"""`relay help`: the same as `--help`, where one would look for it."""

import click

from relay.cli.screen import say


@click.command("help", short_help="Show the help of relay, or of one command.")
@click.argument("name", metavar="COMMAND", required=False, help="The command; relay itself when left out.")
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show the help of relay, or of one command."""
    top = ctx.find_root()
    group = top.command
    if name is None or not isinstance(group, click.Group):
        say(top.get_help())
        return
    _, found, _ = group.resolve_command(top, [name])
    if found is not None:
        say(found.get_help(click.Context(found, info_name=name, parent=top)))
