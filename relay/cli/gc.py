"""`relay gc`: old checkpoints go, those of work that is committed."""

import time

import click

from relay.base.words import count
from relay.cli.boundary import note_place
from relay.cli.screen import say

DAYS = 30
"""As long as git keeps what no branch has (gc.reflogExpireUnreachable)."""
_DAY_S = 86_400


@click.command("gc", short_help="Remove old checkpoints of work that is committed.")
@click.option("--dry-run", is_flag=True, help="Say what would go; nothing is changed.")
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0, 36_500),
    default=DAYS,
    show_default=True,
    metavar="DAYS",
    help="How old the newest checkpoint of a session must be.",
)
def command(*, dry_run: bool, days: int) -> None:
    """Remove old checkpoints under refs/relay/wip/: those of sessions whose work is in a commit of a branch.

    They hold what stood in files between two steps of a session, and what you saved meanwhile. Those of an open phase,
    and of work that no branch has a commit of, stay; so does all else under refs/relay/, which says what was spent and
    rewound. git frees the space when it next collects: git gc.
    """
    from relay.store.checkpoints import drop_snapshots, sort_snapshots
    from relay.store.worktrees import lock_worktree

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
