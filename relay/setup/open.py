"""Take the repository and make all collaborators of a run, in an order that lets a user repair what is missing.

If a precondition fails, nothing has been changed. No request is sent before the key, the repository and the sandbox
are known to work.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial

from relay.base.errors import RepoError
from relay.base.interrupts import Interrupts
from relay.config.model import OWN_LOOP
from relay.git.lock_journal import clear_git_directory, clear_stale_locks, clear_temporaries, hold_collections
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.insight.telemetry.log import OUTPUT_AGE_S, OUTPUTS, sweep
from relay.insight.telemetry.tape import FOLDER, TAPE_AGE_S, open_tape
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import get_kind, list_runners
from relay.sandbox.private_folder import find_folder, remove_left_overs
from relay.session.events import Observe
from relay.session.spend import Meter, Pace
from relay.setup.context import RunContext, RunRequest
from relay.setup.observers import Observers, Progress, announce, describe_settings
from relay.setup.preconditions import check_apart, check_enclosed, check_taken, check_untaken, require_all
from relay.setup.session import Book, Sessions, find_price_now, make_meter
from relay.setup.workspace import (
    find_all_secrets,
    find_handed_secrets,
    hide_places,
    load_run_rules,
    open_workspace,
)
from relay.store.branches import take_along
from relay.store.checkpoints import repair_refs
from relay.store.completion import finish_pending
from relay.store.steering_files import begin_watch, end_watch
from relay.store.worktree_notes import find_home
from relay.tools.workspace import Workspace


@contextmanager
def open_run(
    request: RunRequest, view: Observe, interrupts: Interrupts, *, runners: Mapping[str, RunnerKind] | None = None
) -> Iterator[RunContext]:
    """Check the preconditions, open all collaborators, yield them, and close them.

    Args:
        runners: All known runners by name; None: relay's and the user's own.

    Raises:
        RelayError: The user or the environment has to change something first.
    """
    settings = request.settings
    runners = list_runners(settings) if runners is None else runners
    request = hide_places(request)
    require_all(check_apart(request, runners))
    with ExitStack() as stack:
        run_id = new_id()
        observe = (observers := Observers(view=view)).observe
        given = Surroundings(environ=request.environ, settings=settings, observe=observe, interrupts=interrupts)
        # First: what runners need is loaded in the background, while git works and the sandbox is proven.

        @cache  # an edit of the plan may name another one, opened at first use
        def get_runner(name: str) -> Runner:
            kind = get_kind(name, origin="Runner", known=runners)
            kind.get_key(request.environ)
            return stack.enter_context(kind.open(given))

        for name in request.runners:
            get_runner(name)
        meter, left = stack.enter_context(take_repository(request))
        rules = load_run_rules(request)
        # Before the sandbox opens: the log makes .relay before a command could.
        stack.enter_context(observers.logging(request, run_id))
        opened = stack.enter_context(open_workspace(request, rules, interrupts))
        progress = Progress(observers.observe)
        observers.inquiries.append(opened.sandbox.inquiries)
        observers.counters.append(progress.note)
        observers.take_news = opened.take_news
        workspace = replace(opened, sandbox=replace(opened.sandbox, hear=progress.hear))
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
            open_reading=lambda kind: open_workspace(replace(request, kind=kind), rules, interrupts),
        )
        announce(ctx, request.kind, run_id, (*left, *describe_settings(settings, request.environ)))
        for folder, age_s in ((OUTPUTS, OUTPUT_AGE_S), (FOLDER, TAPE_AGE_S)):
            sweep(ctx.repo.root, folder, now_s=time.time(), max_age_s=age_s)
        yield ctx


def _make_sessions(
    request: RunRequest,
    get_runner: Callable[[str], Runner],
    observe: Observe,
    workspace: Workspace,
    meter: Meter,
) -> tuple[Sessions, Book]:
    """Return the sessions of this run and the book of their cost; asks the first runner about the model."""
    settings, roles, first = request.settings, request.settings.roles, request.runners[0]
    book = Book(request.repo, meter)
    if request.is_reviewed:  # fail now, not after a paid session whose work nobody could review
        reviewer = get_runner(settings.runner_for(roles.review_runner) if roles.review_runner else first)
        reviewer.get_model(roles.review or settings.model)
    if roles.explore and "explore" not in settings.ablate and OWN_LOOP in request.runners:
        get_runner(OWN_LOOP).get_model(roles.explore)
    for name, model in request.choices:  # the same holds for each model that a phase names
        get_runner(name).get_model(model)
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
        open_tape=partial(open_tape, find_home(request.repo), secret_values=find_all_secrets(request))
        if settings.history
        else None,
        handed=find_handed_secrets(request),
    )
    return sessions, book


def new_id() -> str:
    """Return a session id of eight hexadecimal digits."""
    return secrets.token_hex(4)


@contextmanager
def hold_worktree(
    repo: Repo, clear: Callable[[Repo], tuple[str, ...]] = clear_stale_locks
) -> Iterator[tuple[str, ...]]:
    """Hold the lock of a work tree, and repair what a killed relay left there.

    Args:
        clear: Removes stale locks of git; returns messages about locks of others.

    Yields:
        A message for each file, or the index, that still lacks a part of an earlier commit.

    Raises:
        RepoError: Somebody is at work there or left a lock, or a process of an earlier run does not end.
    """
    with lock_worktree(repo):
        # First: processes that a killed relay had started may still write.
        remove_left_overs(find_folder(), now=time.time())
        if locks := clear(repo):
            raise RepoError("; ".join(locks))
        yield (*repair_refs(repo), *take_along(repo), *finish_pending(repo))


@contextmanager
def take_repository(request: RunRequest) -> Iterator[tuple[Meter, tuple[str, ...]]]:
    """Hold the repository, and check that a run can work in it.

    Yields:
        The plan's meter, and the messages of `hold_worktree`.

    Raises:
        RelayError: The user has to change something, or a process of an earlier run does not end.
    """
    repo, settings = request.repo, request.settings
    require_all(check_untaken(request))
    # A run that needs a clean tree reads git's status anyway, which also shows leftover temporary files.
    clear = clear_git_directory if request.needs_clean else clear_stale_locks
    with hold_worktree(repo, clear) as left, hold_collections(repo):
        status = read_status(repo) if request.needs_clean else None
        if status is not None:
            clear_temporaries(repo, status.untracked)
        meter = make_meter(repo, request.plan_path, settings, find_price_now(settings, settings.model))
        require_all(check_taken(request, status, meter))
        begin_watch(repo, request.plan_path)
        try:
            yield meter, left
        finally:
            # If the disk is full, the next run asks the user about steering files instead.
            with suppress(OSError, RepoError):
                end_watch(repo, request.plan_path)
