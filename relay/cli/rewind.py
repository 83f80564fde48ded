"""`relay rewind`: go back to the green tree before a phase."""

import shlex

import click

from relay.base.errors import RelayError
from relay.base.hints import RUN, Command
from relay.cli.boundary import note_place
from relay.cli.options import plan_option
from relay.cli.screen import has_person, say
from relay.git.names import SWITCH
from relay.run.rewind import get_rewind, rewind_to_branch
from relay.setup.open import hold_worktree


@click.command("rewind")
@click.argument("phase", metavar="N", help="Phase to undo, together with later ones.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@plan_option
def command(phase: str, plan: str | None, *, yes: bool) -> None:
    """Go back to the tree before phase N.

    relay creates a new branch there and leaves this branch alone. It keeps the branch's tip under refs/relay/rewound/,
    and prints the git revert that undoes relay's commits on this branch instead.
    """
    place = note_place(plan)
    with hold_worktree(place.repo) as left:
        for words in left:
            say(words, style="yellow")
        rewind = get_rewind(place.repo, place.plan_name, phase)
        where = f"from {rewind.head[:8]} on {rewind.branch} to {rewind.target[:8]}"
        say(f"phase {rewind.phase_id}: back {where}", style="bold")
        for text in rewind.undone:
            say(f"  leaves {text.commit[:8]} {text.message.subject}")
        say("by a new branch; this one and your files stay as they are")
        if rewind.revert:
            say(f"to undo it on this branch instead: {rewind.revert}")
        if not yes and not has_person():
            raise RelayError("nobody can be asked whether to go on", hint=Command(words=("rewind", phase, "--yes")))
        if not yes:
            click.confirm("Go on?", abort=True)
        name = rewind_to_branch(place.repo, rewind)
        say(f"branch {name} is at {rewind.target[:8]}")
        say(f"next   {SWITCH} {shlex.quote(name)} && {place.caller.write(RUN)}")
