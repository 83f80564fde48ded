"""A repository taken for a run: fit to be worked in, locked, and with what an earlier commit lacks made good."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from relay.base.errors import RepoError
from relay.git.lock_journal import clear_git_directory, clear_stale_locks, clear_temporaries, hold_collections
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.sandbox.private_folder import find_folder, remove_left_overs
from relay.session.events import RunPaused, RunResumed
from relay.session.spend import Meter
from relay.setup.account import find_price_now, make_meter
from relay.setup.context import RunContext, RunRequest
from relay.setup.preconditions import check_taken, check_untaken, require_all
from relay.store.branches import take_along
from relay.store.checkpoints import repair_refs
from relay.store.completion import finish_pending
from relay.store.inbox import is_claim_over, is_paused
from relay.store.steering_files import begin_watch, end_watch
from relay.store.worktrees import lock_worktree

_LOOK_S = 0.5
"""How often a run that waits looks whether it may go on."""
_CLAIM = (
    "the claim on its phase ran out; it goes on when the worker has renewed it, and ends when another worker has it"
)
_PAUSE = "relay resume goes on, relay stop hands over"


def wait_while_paused(ctx: RunContext) -> None:
    """Return at once where nobody asked for a pause and no claim ran out, else when it is over, or a stop is asked."""
    for lasts, why in ((is_claim_over, _CLAIM), (is_paused, _PAUSE)):
        if not lasts(ctx.repo):
            continue
        began = time.monotonic()
        ctx.observe(RunPaused(reason=why))
        while lasts(ctx.repo) and not ctx.interrupts.wait(_LOOK_S):
            continue
        ctx.observe(RunResumed(waited_s=time.monotonic() - began))


@contextmanager
def hold_worktree(repo: Repo) -> Iterator[tuple[str, ...]]:
    """Keep others out of a work tree, and make good what a killed relay left there.

    Yields:
        A sentence for each thing that an earlier commit still lacks in the index or the work tree.

    Raises:
        RepoError: Somebody is at work there, or left a lock, or a process of an earlier run does not end.
    """
    with _hold(repo, clear_stale_locks) as left:
        yield left


@contextmanager
def _hold(repo: Repo, clear: Callable[[Repo], tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    with lock_worktree(repo):
        # Before anything is looked at: what a killed relay had started may still write.
        remove_left_overs(find_folder(), now=time.time())
        if locks := clear(repo):
            raise RepoError("; ".join(locks))
        yield (*repair_refs(repo), *take_along(repo), *finish_pending(repo))


@contextmanager
def take_repository(request: RunRequest) -> Iterator[tuple[Meter, tuple[str, ...]]]:
    """Keep others out of the repository, and make sure that it can be worked in.

    Yields:
        The plan's meter, and a sentence for each thing that an earlier commit still lacks in the index or the work
        tree.

    Raises:
        RelayError: The user has to change something, or a process of an earlier run does not end.
    """
    repo, settings = request.repo, request.settings
    require_all(check_untaken(request))
    # What git is asked for anyway then has the files that stood there for a moment, too.
    with _hold(repo, clear_git_directory if request.needs_clean else clear_stale_locks) as left, hold_collections(repo):
        status = read_status(repo) if request.needs_clean else None
        if status is not None:
            clear_temporaries(repo, status.untracked)
        meter = make_meter(repo, request.plan_path, settings, find_price_now(settings, settings.model))
        require_all(check_taken(request, status, meter))
        begin_watch(repo)
        try:
            yield meter, left
        finally:
            # What cannot be noted now, on a full disk, is not known to the next run: it asks then.
            with suppress(OSError, RepoError):
                end_watch(repo)
