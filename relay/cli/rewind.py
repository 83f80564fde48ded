"""`relay rewind`: go back to the green tree before a phase. `relay gc`: delete old checkpoints."""

import os
import shlex
import time
from typing import TYPE_CHECKING

import click

from relay.base.errors import RelayError, RepoError
from relay.base.hints import RUN, Command
from relay.base.words import count
from relay.cli.boundary import note_place, note_plan
from relay.cli.options import offer_phases, plan_option
from relay.cli.screen import say
from relay.setup.place import find_settings

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.run.rewind import Rewind


@click.command("rewind")
@click.argument("phase", metavar="N", shell_complete=offer_phases, help="Phase to undo, together with later ones.")
@click.option("--revert", is_flag=True, help="Commit the old tree on this branch instead of creating a branch.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@plan_option
def command(phase: str, plan: str | None, *, revert: bool, yes: bool) -> None:
    """Go back to the tree before phase N.

    relay creates a new branch there and leaves this branch alone. With --revert it commits that tree on top of this
    branch instead and opens the undone boxes again. Either way it keeps the branch's tip under refs/relay/rewound/.
    """
    from relay.git.lock_journal import clear_stale_locks, hold_collections
    from relay.git.notes import lock_worktree
    from relay.run.rewind import get_rewind, require_revert
    from relay.sandbox.private_folder import find_folder, remove_left_overs
    from relay.store.completion import finish_pending

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


DAYS = 30
"""git keeps unreachable commits as long (gc.reflogExpireUnreachable)."""
_DAY_S = 86_400


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="List what would be deleted; delete nothing.")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0, 36_500),
    default=DAYS,
    show_default=True,
    metavar="DAYS",
    help="Minimum age of a session's newest checkpoint.",
)
def gc_command(*, dry_run: bool, days: int) -> None:
    """Delete old checkpoints (refs/relay/wip/) of sessions whose work a branch has in a commit.

    Checkpoints hold the files between two steps of a session, and what you saved meanwhile. relay keeps checkpoints of
    open phases and of work that no branch has committed, and all other refs under refs/relay/, which record spending
    and rewound work. git frees the space at its next `git gc`.
    """
    from relay.git.notes import lock_worktree
    from relay.store.checkpoints import drop_snapshots, sort_snapshots

    place = note_place()
    before = time.time() - days * _DAY_S
    if dry_run:
        found = sort_snapshots(place.repo, before=before)
        went = len(found.old)
        for snapshot in found.old:
            say(f"  {snapshot.ref}  {snapshot.commit[:8]}  {time.strftime('%Y-%m-%d', time.gmtime(snapshot.time))}")
    else:
        with lock_worktree(place.repo):
            found = sort_snapshots(place.repo, before=before)
            went = drop_snapshots(place.repo, found.old)
    words = "would go" if dry_run else "removed"
    say(f"{words}: the checkpoints of {count(went, 'session')}, older than {count(days, 'day')}")
    for reason, number in sorted(found.kept.items()):
        say(f"kept: {number:,} {reason.value}", style="dim")
