"""`relay notify`: whom a run would call, and whether it can."""

import os

import click

from relay.base.errors import ConfigError, ExitCode
from relay.cli.boundary import note_place
from relay.cli.screen import say
from relay.setup.place import find_settings

_WAIT_S = 20.0


@click.command("notify", short_help="Show whom a run calls; --test calls them.")
@click.option("--test", "is_test", is_flag=True, help="Send one message to each, and say what came back.")
def command(*, is_test: bool) -> int:
    """Show whom a run calls, and about what, as `notify` in your own settings says (docs/news.md).

    With --test each is sent a message, whatever it wants to be told of, and what came back is said. The exit code is 1
    where somebody cannot be told.
    """
    from relay.news.notifier import TRIAL, Notifier, Sender

    place = note_place(needs_repo=False)
    channels = find_settings({}, os.environ, place.root, plan=None).notify
    if not channels:
        raise ConfigError("a run calls nobody", hint="docs/news.md says how notify in your own settings names somebody")
    sender = Sender()
    notifier = Notifier(channels, os.environ, str, sender)
    for channel in channels:
        if is_test:
            notifier.tell(channel, TRIAL)
        else:
            say(channel.text)
            notifier.check(channel)
    sender.close(_WAIT_S)
    answers = sender.take_ends()
    for answer in answers:
        say(f"{answer.name}: {answer.words}", style="green" if answer.reached else "red")
    odd = notifier.take_failures()
    for event in odd:
        say(event.text, style="red")
    return ExitCode.USER if odd or not all(answer.reached for answer in answers) else ExitCode.DONE
