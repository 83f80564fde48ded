"""`relay rewind`: back to the green tree before a phase."""

import os
import shlex
import time
from typing import TYPE_CHECKING

import click

from relay.base.errors import RelayError, RepoError
from relay.base.hints import RUN, Command
from relay.cli.boundary import note_plan
from relay.cli.completion import offer_phases
from relay.cli.options import plan_option
from relay.cli.screen import say
from relay.setup.place import find_settings

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.run.rewind import Rewind


@click.command("rewind", short_help="Go back to the green tree before a phase; nothing is lost.")
@click.argument("phase", metavar="N", shell_complete=offer_phases, help="The phase to go back to the start of.")
@click.option("--revert", is_flag=True, help="Commit the old tree on top of this branch instead of making a new one.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@plan_option
def command(phase: str, plan: str | None, *, revert: bool, yes: bool) -> None:
    """Go back to the tree before phase N.

    A new branch is made there and this one stays; --revert commits that tree on top of this branch instead, with the
    boxes of what is undone open again. The branch's tip is kept under refs/relay/rewound/ in either case.
    """
    from relay.git.lock_journal import clear_stale_locks, hold_collections
    from relay.run.rewind import get_rewind, require_revert
    from relay.sandbox.private_folder import find_folder, remove_left_overs
    from relay.store.completion import finish_pending
    from relay.store.worktrees import lock_worktree

    place = note_plan(plan)
    with lock_worktree(place.repo), hold_collections(place.repo):
        remove_left_overs(find_folder(), now=time.time())
        if locks := clear_stale_locks(place.repo):
            raise RepoError("; ".join(locks))
        _say_left(finish_pending(place.repo))
        rewind = get_rewind(place.repo, place.plan_name, phase)
        if revert:
            require_revert(place.repo, rewind)
        _show(rewind, revert=revert)
        if not yes:
            _ask(place.caller.write(Command(words=("rewind", phase, *(["--revert"] if revert else []), "--yes"))))
        _rewind(place.repo, rewind, place.caller.write(RUN), revert=revert)


def _ask(again: str) -> None:
    """Ask whether to go on.

    Raises:
        RelayError: Nobody answers.
        click.Abort: The answer is no.
    """
    try:
        click.confirm("Go on?", abort=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            say()
            raise RelayError("nobody answered whether to go on", hint=again) from None
        raise


def _show(rewind: "Rewind", *, revert: bool) -> None:
    phase, verb = rewind.phase_id, "undoes" if revert else "leaves"
    say(f"phase {phase}: back from {rewind.head[:8]} on {rewind.branch} to {rewind.target[:8]}", style="bold")
    for text in rewind.undone:
        say(f"  {verb} {text.commit[:8]} {text.message.subject}")
    say("by a commit on top of this branch" if revert else "by a new branch; this one and your files stay as they are")


def _rewind(repo: "Repo", rewind: "Rewind", run: str, *, revert: bool) -> None:
    from relay.run.rewind import open_judge, rewind_by_commit, rewind_to_branch
    from relay.session.values import SessionKind
    from relay.setup.context import RunRequest

    if revert:
        request = RunRequest(
            kind=SessionKind.REWIND,
            repo=repo,
            settings=find_settings({}, os.environ, repo.root, plan=None),
            plan_path=rewind.plan_path,
            allow_dirty=True,
            environ=os.environ,
        )
        with open_judge(request) as judge:
            commit, left = rewind_by_commit(repo, rewind, request.settings, judge)
        _say_left(left)
        say(f"commit {commit[:8]}; undo it with: git revert {commit[:8]}")
        say(f"next   {run}")
    else:
        name = rewind_to_branch(repo, rewind)
        say(f"branch {name} is at {rewind.target[:8]}")
        say(f"next   git switch {shlex.quote(name)} && {run}")


def _say_left(left: tuple[str, ...]) -> None:
    for words in left:
        say(words, style="yellow")
