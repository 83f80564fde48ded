"""The one place where a run's collaborators are made, in the order in which a user can repair what is missing.

Nothing has been changed when a precondition fails, and no request has been sent before the key, the repository and
the sandbox are known to be usable.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.interrupts import Interrupts
from relay.git.lock_journal import clear_git_directory, clear_stale_locks, clear_temporaries, hold_collections
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.insight.telemetry.log import OUTPUT_AGE_S, OUTPUTS, sweep
from relay.insight.telemetry.tape import FOLDER, TAPE_AGE_S, open_tape
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import get_kind, list_runners
from relay.sandbox.private_folder import find_folder, remove_left_overs
from relay.session.events import Observe, RunPaused, RunResumed
from relay.session.spend import Meter, Pace
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunRequest
from relay.setup.observers import Observers, Progress, announce, describe_settings
from relay.setup.preconditions import check_apart, check_enclosed, check_taken, check_untaken, require_all
from relay.setup.rules import Rules, load_repository_rules
from relay.setup.session import Book, Sessions, find_price_now, make_meter
from relay.setup.tape import OpenTape
from relay.setup.workspace import find_all_secrets, find_handed_secrets, get_hidden, get_unreadable, open_workspace
from relay.store.branches import take_along
from relay.store.checkpoints import repair_refs
from relay.store.completion import finish_pending
from relay.store.inbox import is_claim_over, is_paused
from relay.store.steering_files import begin_watch, end_watch
from relay.store.worktrees import find_home, lock_worktree
from relay.tools.workspace import Workspace


@contextmanager
def open_run(
    request: RunRequest, view: Observe, interrupts: Interrupts, *, runners: Mapping[str, RunnerKind] | None = None
) -> Iterator[RunContext]:
    """Check everything, open everything, hand out the collaborators, close everything.

    Args:
        runners: All there are; None: those that relay knows and the user's own.

    Raises:
        RelayError: Something that the user or the environment has to change first.
    """
    settings = request.settings
    runners = list_runners(settings) if runners is None else runners
    request = replace(request, repo=_hide(request))
    require_all(check_apart(request, runners))
    with ExitStack() as stack:
        run_id = new_id()
        observe = (observers := Observers(view=view)).observe
        given = Surroundings(environ=request.environ, settings=settings, observe=observe, interrupts=interrupts)
        # Opened first, because what they need loads while git is asked and the sandbox proves itself.
        get_runner = _open_runners(runners, given, stack)
        for name in request.runners:
            get_runner(name)
        meter, left = stack.enter_context(take_repository(request))
        rules = _load_rules(request)
        # Opened before the sandbox: it makes .relay before commands could.
        stack.enter_context(observers.logging(request, run_id))
        workspace = _listen(observers, stack.enter_context(open_workspace(request, rules, interrupts)))
        require_all(check_enclosed(request, workspace.sandbox))
        sessions, book = _make_sessions(request, get_runner, observe, workspace, meter)
        observers.meter = meter
        observers.counters += [meter.observe, sessions.pace.observe, book.observe]
        ctx = RunContext(
            files=request.files,
            settings=settings,
            workspace=workspace,
            sessions=sessions,
            rules=rules,
            meter=meter,
            observe=sessions.observe,
            observe_job=observers.observe_job,
            interrupts=interrupts,
            new_id=new_id,
            secret_values=find_all_secrets(request),
            environ=request.environ,
            open_reading=partial(open_workspace, replace(request, kind=SessionKind.REVIEW), rules, interrupts),
        )
        announce(ctx, request.kind, run_id, (*left, *describe_settings(settings, request.environ)))
        _sweep(ctx.repo.root)
        yield ctx


def _open_runners(known: Mapping[str, RunnerKind], given: Surroundings, stack: ExitStack) -> Callable[[str], Runner]:
    """Return a function that opens a runner at the first use of its name: an edit of the plan may name a new one."""

    @cache
    def get_runner(name: str) -> Runner:
        kind = get_kind(name, origin="Runner", known=known)
        kind.get_key(given.environ)
        return stack.enter_context(kind.open(given))

    return get_runner


def _hide(request: RunRequest) -> Repo:
    """Return the repository with what no session is shown."""
    hidden = get_hidden(request.repo, request.settings, request.environ)
    return replace(request.repo, hidden=hidden)


def _sweep(root: Path) -> None:
    """Delete what relay has kept long enough."""
    for folder, age_s in ((OUTPUTS, OUTPUT_AGE_S), (FOLDER, TAPE_AGE_S)):
        sweep(root, folder, now_s=time.time(), max_age_s=age_s)


def _listen(observers: Observers, workspace: Workspace) -> Workspace:
    """Return the workspace with everybody told of what its commands ask for and print."""
    progress = Progress(observers.observe)
    observers.inquiries.append(workspace.sandbox.inquiries)
    observers.counters.append(progress.note)

    return replace(workspace, sandbox=replace(workspace.sandbox, hear=progress.hear))


def _load_rules(request: RunRequest) -> Rules:
    if "rules" in request.settings.ablate:
        return Rules()
    root, settings = request.repo.root, request.settings
    return load_repository_rules(root, settings, get_unreadable(root, settings, request.environ))


def _make_sessions(
    request: RunRequest,
    get_runner: Callable[[str], Runner],
    observe: Observe,
    workspace: Workspace,
    meter: Meter,
) -> tuple[Sessions, Book]:
    """Return what runs this run's sessions, on the plan's account, and its book; a runner is asked for the model."""
    settings, first = request.settings, request.runners[0]
    book = Book(request.repo, meter)
    if request.is_reviewed:  # before a session is paid for whose work nobody could review
        reviewer = get_runner(settings.runner_for(settings.review_runner) if settings.review_runner else first)
        reviewer.get_model(settings.review_model or settings.model)
    sessions = Sessions(
        get_runner=get_runner,
        model=get_runner(first).get_model(settings.model),
        settings=settings,
        price=find_price_now(settings, settings.model),
        find_price=partial(find_price_now, settings),
        meter=meter,
        check_budget=book.check,
        pace=Pace(),
        observe=observe,
        sandbox=workspace.sandbox,
        limits=workspace.limits,
        open_tape=_find_tapes(request),
        handed=find_handed_secrets(request),
    )
    return sessions, book


def _find_tapes(request: RunRequest) -> OpenTape | None:
    """Return what keeps the history of sessions, where it is wanted."""
    values = find_all_secrets(request)
    return partial(open_tape, find_home(request.repo), secret_values=values) if request.settings.history else None


def new_id() -> str:
    """Return a session id: eight hexadecimal digits."""
    return secrets.token_hex(4)


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
